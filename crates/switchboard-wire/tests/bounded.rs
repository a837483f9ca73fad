//! A server machine stores nothing of calls that have ended, independent of the calls before them.
//!
//! One call of each wire stays pending while many others follow: calls with a reply, failed, rejected and one-way ones.
//! The allocator of this test counts the memory that stays.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]
#![allow(unsafe_code, reason = "a counting allocator requires unsafe code")]

use bytes::Bytes;
use std::{
    alloc::{GlobalAlloc, Layout as Memory, System},
    cell::Cell,
    collections::HashMap,
    sync::Arc,
};
use switchboard_wire::{
    Input, Kind, Limits, Metadata, MethodInfo, MethodTable, Outbox, Outgoing, ServiceInfo, Status, baidu,
    erpc, jsonrpc, kiss, native, rpcx, thrift,
    wire::{
        CallId, ClientCallId, ClientWire, Codec, Encoding, MachineMemory, Open, Opened, ServerEvent,
        ServerWire,
    },
};

/// Number of calls beside the pending one.
const CALLS: u32 = 20_000;
/// Bytes of responses that a machine may hold before its driver stops reading.
const OUTBOX_MAX: usize = 1 << 20;
/// Memory that the machine may use in total, beside the responses that it counts.
const KEPT_MAX: i64 = 64 << 10;

const STUCK: &str = "test.Calls/stuck";
const READY: &str = "test.Calls/ready";
const NONE: &str = "test.Calls/none";

static CALLED: ServiceInfo = ServiceInfo {
    name: "test.Calls",
    methods: &[
        MethodInfo::new("stuck", Kind::Unary),
        MethodInfo::new("ready", Kind::Unary),
        MethodInfo::new("watch", Kind::ServerStream),
    ],
    descriptor: &[],
};

thread_local! {
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Memory) -> *mut u8 {
        BYTES.set(BYTES.get() + layout.size() as i64);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Memory) {
        // Has no effect while the thread ends.
        let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() - layout.size() as i64));
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn table() -> Arc<MethodTable> {
    let mut table = MethodTable::default();
    table.add(&CALLED).unwrap();
    table.alias("kiss/1", STUCK).unwrap();
    table.alias("kiss/2", READY).unwrap();
    Arc::new(table)
}

/// A machine, the request of the call that stays pending, and the other requests.
struct Case {
    name: String,
    server: Box<dyn ServerWire>,
    stuck: Vec<u8>,
    others: Vec<Vec<u8>>,
}

/// Creates a case from the requests of a client machine.
fn case(
    name: &str,
    server: impl ServerWire + 'static,
    mut client: impl ClientWire,
    codec: Codec,
    message: &'static [u8],
) -> Case {
    let mut out = Outbox::new();
    client.greet(&mut out);
    for (number, name) in [STUCK, READY, NONE].into_iter().enumerate() {
        client.method(number as u16, name, None, &mut out);
        client.index(number as u16, [0, 1, 9][number]);
    }
    let (metadata, message) = (Metadata::new(), Bytes::from_static(message));
    let mut request = |id: ClientCallId, method: u16, oneway: bool, out: &mut Outbox| {
        let open = Open {
            method,
            codec,
            timeout: None,
            metadata: &metadata,
            oneway,
            more: false,
            encoding: Encoding::Identity,
            compressed: false,
            rest: &[],
        };
        client.open(id, open, Some(Outgoing::from(&message)), out).is_ok()
    };
    assert!(request(1, 0, false, &mut out), "{name}");
    let stuck = out.take_all();
    let mut others = Vec::new();
    for (method, oneway) in [(1, false), (1, true), (2, false), (2, true)] {
        // Some wires have no one-way calls.
        if request(2 + others.len() as ClientCallId, method, oneway, &mut out) {
            others.push(out.take_all());
        }
    }
    assert!(others.len() > 1, "{name}");
    Case { name: name.to_owned(), server: Box::new(server), stuck, others }
}

fn cases() -> Vec<Case> {
    let limits = Limits::default();
    let mut cases = vec![
        case("native", native::Server::new(limits, table()), native::Client::new(limits), Codec::Json, b"{}"),
        case("rpcx", rpcx::Server::new(limits, table()), rpcx::Client::new(limits), Codec::Json, b"{}"),
        case(
            "kiss",
            kiss::Server::new(limits, table()),
            kiss::Client::new(limits).functions(Arc::new(HashMap::from(
                [(STUCK, 1), (READY, 2), (NONE, 3)].map(|(name, number)| (name.to_owned(), number)),
            ))),
            Codec::Json,
            b"{}",
        ),
    ];
    for layout in [baidu::Layout::Standard, baidu::Layout::Hulu, baidu::Layout::Sofa] {
        let server = baidu::Server::new(limits, table()).with_layout(layout);
        let client = baidu::Client::new(limits).with_layout(layout);
        cases.push(case(layout.name(), server, client, Codec::Proto, b""));
    }
    for framing in [erpc::Framing::Raw, erpc::Framing::Json, erpc::Framing::Proto] {
        let settings = erpc::Settings { framing, ..erpc::Settings::default() };
        let client = erpc::Client::new(limits, settings);
        let name = format!("erpc {framing}");
        cases.push(case(&name, erpc::Server::new(limits, table()), client, Codec::Json, b"{}"));
    }
    for framing in [thrift::Framing::Framed, thrift::Framing::Unframed, thrift::Framing::Header] {
        for encoded in [thrift::Encoded::Binary, thrift::Encoded::Compact] {
            let settings = thrift::Settings { framing, encoded, ..thrift::Settings::default() };
            let client = thrift::Client::new(limits, settings);
            let name = format!("thrift {framing:?} {encoded:?}");
            cases.push(case(&name, thrift::Server::new(limits, table()), client, Codec::Thrift, b"\0"));
        }
    }
    let call = |id: &str, method: &str| {
        format!("{{\"jsonrpc\":\"2.0\"{id},\"method\":\"{method}\",\"params\":{{}}}}").into_bytes()
    };
    let cancel = |id: &str| {
        format!("{{\"jsonrpc\":\"2.0\",\"method\":\"rpc.cancel\",\"params\":{{\"id\":{id}}}}}").into_bytes()
    };
    let one = call(",\"id\":2", READY);
    let batch = [&b"["[..], &one, b",", &call("", READY), b",", &call(",\"id\":3", NONE), b"]"].concat();
    cases.push(Case {
        name: "jsonrpc".to_owned(),
        server: Box::new(jsonrpc::Server::lines(limits, table())),
        stuck: [cancel("1"), call(",\"id\":1", STUCK)].concat(),
        others: vec![
            one,
            call("", READY),
            call(",\"id\":3", NONE),
            call("", NONE),
            batch,
            cancel("7"),
            [call(",\"id\":7", STUCK), cancel("7")].concat(),
            b"[1,2]".to_vec(),
            b"{} ".to_vec(),
        ],
    });
    cases
}

/// A driver that responds at once to every call but the first.
struct Driver {
    server: Box<dyn ServerWire>,
    input: Input,
    out: Outbox,
    opened: u32,
    stuck: Option<CallId>,
}

impl Driver {
    fn event(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Open { id, .. } if self.stuck.is_none() => self.stuck = Some(id),
            ServerEvent::Open { id, head, .. } => {
                self.opened += 1;
                match self.opened % 3 {
                    _ if head.oneway => {}
                    0 => self.server.end(id, Err(&Status::internal("no")), &mut self.out),
                    _ => self.server.reply(id, Outgoing::Lent(&[0]), &mut self.out),
                }
            }
            ServerEvent::Refused { id, status } => self.server.end(id, Err(&status), &mut self.out),
            _ => {}
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.input.extend(bytes);
        loop {
            if let Some(Opened { id, len, .. }) = self.server.next_call(&mut self.input) {
                self.input.skip(len);
                if self.stuck.is_none() {
                    self.stuck = Some(id);
                    continue;
                }
                self.opened += 1;
                self.server.reply(id, Outgoing::Lent(&[0]), &mut self.out);
                continue;
            }
            match self.server.recv(&mut self.input, &mut self.out).unwrap() {
                Some(event) => self.event(event),
                None => break,
            }
        }
        // The peer reads.
        let written = self.out.len();
        self.out.advance(written);
    }
}

#[test]
fn ended_calls_leave_no_memory_behind_a_pending_one() {
    for Case { name, server, stuck, others } in cases() {
        let (input, out) = (Input::default(), Outbox::new());
        let mut driver = Driver { server, input, out, opened: 0, stuck: None };
        driver.feed(&stuck);
        let id = driver.stuck.unwrap_or_else(|| panic!("{name}: no call is open"));
        // Grows the tables, which happens once.
        others.iter().for_each(|other| driver.feed(other));
        let before = BYTES.get();
        let mut stopped = 0;
        for n in 0..CALLS {
            if driver.server.unsent_response_bytes() > OUTBOX_MAX {
                // Ordered replies: the driver continues to read when they are written.
                stopped = n;
                break;
            }
            driver.feed(&others[n as usize % others.len()]);
            let (MachineMemory { calls, bytes }, held) =
                (driver.server.memory(), driver.server.unsent_response_bytes());
            assert!(calls <= 1 + held / 128, "{name}: {calls} entries with {held} bytes of answers held");
            assert!(bytes <= 4096 + 4 * held, "{name}: {bytes} bytes kept with {held} bytes of answers held");
        }
        let grown = BYTES.get() - before;
        let held = driver.server.unsent_response_bytes() as i64;
        assert!(
            grown <= KEPT_MAX + 4 * held,
            "{name}: {grown} bytes more after {CALLS} calls, {held} are counted"
        );
        assert!(stopped == 0 || name.starts_with("thrift"), "{name}: stopped after {stopped} calls");
        assert!(driver.opened > 1000, "{name}: {} calls", driver.opened);
        driver.server.reply(id, Outgoing::Lent(&[0]), &mut driver.out);
        let (MachineMemory { calls, bytes }, held) =
            (driver.server.memory(), driver.server.unsent_response_bytes());
        // The native wire stores the name that matches no method.
        assert!(
            (calls, held) == (0, 0) && bytes <= NONE.len(),
            "{name}: {calls} calls, {bytes} and {held} bytes"
        );
    }
}

#[test]
fn one_way_calls_of_thrift_need_no_entry() {
    for case in cases().into_iter().filter(|case| case.name.starts_with("thrift")) {
        let (input, out) = (Input::default(), Outbox::new());
        let mut driver = Driver { server: case.server, input, out, opened: 0, stuck: None };
        driver.feed(&case.stuck);
        for _ in 0..1000 {
            driver.feed(&case.others[1]);
        }
        assert_eq!((driver.server.memory().calls, driver.opened), (1, 1000), "{}", case.name);
        assert_eq!(driver.server.unsent_response_bytes(), 0, "{}", case.name);
    }
}

#[test]
fn each_read_of_the_input_takes_one_unit() {
    for Case { name, mut server, stuck, mut others } in cases() {
        if name == "native" {
            // Pings, cancels, credit, and frames of later versions; none concerns a call.
            for (kind, body) in [(9, &[][..]), (7, &[]), (8, &[1, 0, 0, 0]), (200, b"new")] {
                others.push([&[body.len() as u8, 0, 0, 0, kind, 0, 0, 0, 9, 0, 0, 0], body].concat());
            }
        }
        let (mut input, mut out) = (Input::default(), Outbox::new());
        // The preface and the names of methods are units too.
        input.extend(&stuck);
        let longest = others.iter().map(Vec::len).max().unwrap_or_default().max(stuck.len());
        (0..200).for_each(|_| others.iter().for_each(|other| input.extend(other)));
        let (mut looks, units) = (0, 200 * others.len());
        loop {
            let before = input.len();
            match server.recv(&mut input, &mut out).unwrap() {
                None => break,
                Some(ServerEvent::Open { id, .. }) => server.reply(id, Outgoing::Lent(&[0]), &mut out),
                Some(ServerEvent::Refused { id, status }) => server.end(id, Err(&status), &mut out),
                Some(_) => {}
            }
            looks += 1;
            let taken = before - input.len();
            assert!(taken <= longest, "{name}: {taken} bytes at once");
        }
        assert!(input.is_empty() && looks >= units, "{name}: {looks} looks at {units} units");
    }
}
