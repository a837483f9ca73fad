//! The client machine of gRPC on HTTP/2, against arbitrary bytes and against the server machine.

use super::{
    Choices,
    feed::{client_event, feed},
    machines,
};
use crate::{
    Encodings, Input, Kind, Limits, Metadata, MethodInfo, MethodTable, Outbox, Outgoing, Retry, ServiceInfo,
    Status,
    http2::{
        client::Client,
        frame::{self, FrameHead, flag, kind},
        hpack::{Encoder, Indexing},
        server::{Server, ServerOptions},
        settings::Settings,
    },
    wire::{CallId, ClientCallId, ClientEvent, ClientWire, Codec, Encoding, Open, ServerEvent, ServerWire},
};
use bytes::{Bytes, BytesMut};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

static INFO: ServiceInfo = ServiceInfo {
    name: "a.B",
    methods: &[MethodInfo::new("One", Kind::Unary), MethodInfo::new("Both", Kind::Bidi)],
    descriptor: &[],
};
const UNARY: u16 = 0;
const BIDI: u16 = 1;
/// Bytes of a header block that may wait in the input: four times the largest limit of `machines::limits`, and the
/// least that is used instead.
const KEPT_MAX: usize = 4 * 4096 + 300;

fn client(limits: Limits, out: &mut Outbox) -> Client {
    let mut client = Client::new(limits, "tcp://a:1", "a:1", false);
    client.greet(out);
    client.method(UNARY, "a.B/One", None, out);
    client.method(BIDI, "a.B/Both", None, out);
    client.streams(BIDI, Kind::Bidi);
    client
}

fn open(client: &mut Client, id: ClientCallId, method: u16, first: Option<&Bytes>, out: &mut Outbox) {
    let metadata = Metadata::new();
    let open = Open {
        method,
        codec: Codec::Proto,
        timeout: None,
        metadata: &metadata,
        oneway: false,
        more: method == BIDI,
        encoding: if id.is_multiple_of(2) { Encoding::Gzip } else { Encoding::Identity },
        compressed: false,
        rest: &[],
    };
    client.open(id, open, first.map(Outgoing::from), out).expect("a valid call");
}

/// Feeds a client with open calls with the bytes of a server that follows no rule. Checks that it does not panic, that
/// events do not depend on the split and on the fast path, that it respects the limits, that a call ends once, and that
/// the client writes no more than its requests, and a bounded response to each frame.
///
/// # Panics
/// If the property does not hold.
pub fn http2_client_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = Limits { stream_window_bytes: 65_535, ..machines::limits(&mut choices) };
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let bytes = frames(&mut choices);
    let message_max = limits.message_bytes_max as usize;
    let request = Bytes::from(vec![7; 100_000]);
    let run = |steps: &[u8], fast: bool| {
        let mut begun = Outbox::new();
        let mut client = client(limits, &mut begun);
        for id in 0..6 {
            let first = if id == 5 { request.clone() } else { Bytes::from_static(b"request") };
            open(&mut client, id, (id % 2) as u16, Some(&first), &mut begun);
        }
        let mut ended = HashSet::new();
        feed(
            &bytes,
            steps,
            KEPT_MAX,
            |read| 2 * read + 100_200,
            |input, out| {
                let event = client_event(&mut client, fast, input, out)?;
                match &event {
                    Some(ClientEvent::Reply { id, item, .. }) => {
                        assert!(item.len() <= message_max && ended.insert(*id));
                    }
                    Some(ClientEvent::Item { id, item, .. }) => {
                        assert!(item.len() <= message_max && !ended.contains(id));
                    }
                    Some(ClientEvent::Head { id, metadata }) => {
                        assert!(
                            metadata.len() <= limits.metadata_entries_max as usize && !ended.contains(id)
                        );
                    }
                    Some(ClientEvent::End { id, .. }) => assert!(ended.insert(*id), "call {id} ends twice"),
                    _ => {}
                }
                Ok(event)
            },
        )
    };
    let whole = run(&[], false);
    assert_eq!(whole, run(&steps, false));
    assert_eq!(whole, run(&steps, true), "the fast path differs");
}

/// Mostly well-formed frames with unusual contents, sometimes only noise.
fn frames(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    if choices.one_in(8) {
        return choices.rest().to_vec();
    }
    Settings::default().put(&mut bytes);
    let mut encoder = Encoder::new();
    while !choices.is_over() {
        if choices.one_in(64) {
            bytes.extend_from_slice(choices.bytes(30));
        }
        let stream = 1 + 2 * u32::from(choices.byte() % 6);
        match choices.byte() % 16 {
            0..=4 => head(&mut encoder, choices, stream, &mut bytes),
            5..=9 => data(choices, stream, &mut bytes),
            10 => frame::put_reset(stream, frame::ErrorCode(u32::from(choices.byte() % 16)), &mut bytes),
            11 => {
                let increment = (choices.long() & frame::WINDOW_MAX).max(1) >> (choices.byte() % 31);
                let on = if choices.one_in(2) { 0 } else { stream };
                frame::put_window_update(on, increment.max(1), &mut bytes);
            }
            12 => {
                let window_bytes = choices.long() & 0xffff;
                Settings { window_bytes, ..Settings::default() }.put(&mut bytes);
            }
            13 => frame::put_ping([1; 8], choices.one_in(2), &mut bytes),
            14 => frame::put_go_away(stream, frame::ErrorCode(0), "bye", &mut bytes),
            _ => {
                let payload = choices.bytes(20);
                let len = payload.len() as u32;
                let (kind, flags) = (choices.byte() % 12, choices.byte());
                let stream = if choices.one_in(4) { 0 } else { stream };
                bytes.extend_from_slice(&FrameHead { len, kind, flags, stream }.to_bytes());
                bytes.extend_from_slice(payload);
            }
        }
    }
    bytes.to_vec()
}

fn head(encoder: &mut Encoder, choices: &mut Choices<'_>, stream: u32, bytes: &mut BytesMut) {
    let mut block = BytesMut::new();
    encoder.begin(&mut block);
    let mut put = |name: &str, value: &[u8]| {
        let indexing = if choices.one_in(3) { Indexing::Once } else { Indexing::Recurring };
        encoder.field(name.as_bytes(), value, indexing, &mut block);
    };
    let shape = stream % 3 + u32::from(bytes.len() as u8 % 2);
    if shape > 0 {
        put(":status", if shape == 3 { b"103" } else { b"200" });
        put("content-type", b"application/grpc");
    }
    if shape == 2 {
        put("grpc-encoding", b"gzip");
    }
    if shape == 0 {
        put("grpc-status", b"0");
    }
    for (name, value) in choices.metadata(2).iter() {
        encoder.field(name.as_bytes(), value, Indexing::Recurring, &mut block);
    }
    let ends = if shape == 0 { !choices.one_in(8) } else { choices.one_in(8) };
    let len_max = if choices.one_in(4) { 7 } else { 1 << 14 };
    frame::put_header_block(stream, &block, ends, len_max, bytes);
}

fn data(choices: &mut Choices<'_>, stream: u32, bytes: &mut BytesMut) {
    let message = choices.message();
    let mut body = vec![u8::from(choices.one_in(6))];
    let len = if choices.one_in(16) { choices.long() } else { message.len() as u32 };
    body.extend_from_slice(&len.to_be_bytes());
    body.extend_from_slice(&message);
    if choices.one_in(5) {
        let at = usize::from(choices.short()) % (body.len() + 1);
        let rest = body.split_off(at);
        put_data(stream, 0, &body, bytes);
        body = rest;
    }
    if choices.one_in(6) {
        body.insert(0, 3);
        body.extend_from_slice(&[0; 3]);
        return put_data(stream, flag::PADDED, &body, bytes);
    }
    let flags = if choices.one_in(8) { flag::END_STREAM } else { 0 };
    put_data(stream, flags, &body, bytes);
}

fn put_data(stream: u32, flags: u8, body: &[u8], bytes: &mut BytesMut) {
    let head = FrameHead { len: body.len() as u32, kind: kind::DATA, flags, stream };
    bytes.extend_from_slice(&head.to_bytes());
    bytes.extend_from_slice(body);
}

/// Checks that every call between a client machine and a server machine ends once, with the right messages and the
/// right status, for any windows, pieces, cancellations and order of commands.
///
/// # Panics
/// If the property does not hold.
pub fn http2_conversation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut pair = Pair::new(&mut choices);
    while !choices.is_over() {
        match choices.byte() % 16 {
            0..=3 => pair.begin(&mut choices),
            4..=6 => pair.send(&mut choices),
            7 => pair.cancel(&mut choices),
            8 | 9 => {
                pair.respond(&mut choices);
            }
            10..=12 => pair.deliver_to_server(usize::from(choices.short())),
            _ => pair.deliver_to_client(usize::from(choices.short())),
        }
    }
    for _ in 0..200 {
        pair.half_close_all();
        pair.deliver_to_server(usize::MAX);
        while pair.respond(&mut choices) {}
        pair.deliver_to_client(usize::MAX);
    }
    assert!(pair.calls.is_empty(), "calls without an end: {:?}", pair.calls);
    assert_eq!((pair.client.queued_bytes(), pair.server.waiting_bytes()), (0, 0));
    assert_eq!(pair.server.memory().calls, 0);
}

/// Expectation of the caller of a call.
#[derive(Debug, Default)]
struct Call {
    is_unary: bool,
    has_ended: bool,
    /// Messages that the caller has sent and not received back.
    messages: VecDeque<Bytes>,
}

struct Pair {
    client: Client,
    server: Server,
    to_server: Flight,
    to_client: Flight,
    next: ClientCallId,
    /// Number of calls that began before the settings of the server arrived.
    early: ClientCallId,
    calls: HashMap<ClientCallId, Call>,
    /// Unary calls that the server has not responded to, with their message.
    at_server: Vec<(CallId, Bytes)>,
    /// Streams that have not ended at the server.
    streams: HashSet<CallId>,
}

/// Bytes in flight.
#[derive(Default)]
struct Flight {
    out: Outbox,
    bytes: VecDeque<u8>,
    input: Input,
}

impl Flight {
    fn fly(&mut self, bytes: usize) {
        self.bytes.extend(self.out.take_all());
        let arrived: Vec<u8> = self.bytes.drain(..bytes.min(self.bytes.len())).collect();
        self.input.extend(&arrived);
    }
}

impl Pair {
    fn new(choices: &mut Choices<'_>) -> Pair {
        let mut table = MethodTable::default();
        table.add(&INFO).expect("one service");
        let stream_window_bytes = 1 + (u32::from(choices.byte()) << (choices.byte() % 12));
        let calls_max = 1 + u32::from(choices.byte() % 8);
        let client_limits = Limits { stream_window_bytes, ..Limits::default() };
        let server_limits = Limits { calls_max, ..Limits::default() };
        let mut to_server = Flight::default();
        Pair {
            client: client(client_limits, &mut to_server.out),
            server: Server::new(server_limits, Arc::new(table), Encodings::ALL, ServerOptions::default()),
            to_server,
            to_client: Flight::default(),
            next: 0,
            early: 0,
            calls: HashMap::new(),
            at_server: Vec::new(),
            streams: HashSet::new(),
        }
    }

    fn begin(&mut self, choices: &mut Choices<'_>) {
        let (id, is_unary) = (self.next, choices.one_in(2));
        self.next += 1;
        if !self.client.knows_server() {
            self.early = self.next;
        }
        let message = is_unary.then(|| choices.message());
        let method = if is_unary { UNARY } else { BIDI };
        open(&mut self.client, id, method, message.as_ref(), &mut self.to_server.out);
        let messages = message.into_iter().collect();
        self.calls.insert(id, Call { is_unary, has_ended: is_unary, messages });
    }

    fn pick(&self, choices: &mut Choices<'_>) -> Option<ClientCallId> {
        let mut ids: Vec<_> = self.calls.keys().copied().collect();
        ids.sort_unstable();
        (!ids.is_empty()).then(|| ids[usize::from(choices.byte()) % ids.len()])
    }

    fn send(&mut self, choices: &mut Choices<'_>) {
        let Some(id) = self.pick(choices) else { return };
        let Some(call) = self.calls.get_mut(&id).filter(|call| !call.has_ended) else { return };
        if choices.one_in(4) {
            call.has_ended = true;
            return self.client.half_close(id, &mut self.to_server.out);
        }
        let message = choices.message();
        self.client.item(id, &message, false, &mut self.to_server.out).expect("a valid message");
        call.messages.push_back(message);
    }

    /// Returns true for a call that may have been sent before the settings of the server arrived.
    fn is_early(&self, id: ClientCallId) -> bool {
        id < self.early
    }

    fn cancel(&mut self, choices: &mut Choices<'_>) {
        if let Some(id) = self.pick(choices).filter(|_| choices.one_in(4)) {
            self.calls.remove(&id);
            self.client.cancel(id, &mut self.to_server.out);
        }
    }

    fn half_close_all(&mut self) {
        for (id, call) in &mut self.calls {
            if !std::mem::replace(&mut call.has_ended, true) {
                self.client.half_close(*id, &mut self.to_server.out);
            }
        }
    }

    /// Responds to one unary call at the server; a message that ends in a byte below 32 gets a status.
    fn respond(&mut self, choices: &mut Choices<'_>) -> bool {
        if self.at_server.is_empty() {
            return false;
        }
        let at = usize::from(choices.byte()) % self.at_server.len();
        let (id, message) = self.at_server.swap_remove(at);
        let out = &mut self.to_client.out;
        if is_refused(&message) {
            self.server.end(id, Err(&Status::not_found("gone")), out);
        } else {
            self.server.reply(id, (&message).into(), out);
        }
        true
    }

    fn deliver_to_server(&mut self, bytes: usize) {
        self.to_server.fly(bytes);
        // Time passes, so that canceled calls do not exhaust the budget of the server.
        self.server.at(u64::MAX / 2);
        loop {
            let event = self.server.recv(&mut self.to_server.input, &mut self.to_client.out);
            match event.expect("the client follows the protocol") {
                None => return,
                Some(ServerEvent::Open { id, first: Some(first), more: false, .. }) => {
                    self.at_server.push((id, first));
                }
                Some(ServerEvent::Open { id, first, more, .. }) => {
                    assert!(first.is_none());
                    self.server.head(id, &Metadata::new(), &mut self.to_client.out);
                    if more {
                        self.streams.insert(id);
                    } else {
                        self.server.end(id, Ok(&Metadata::new()), &mut self.to_client.out);
                    }
                }
                Some(ServerEvent::Item { id, item, .. }) => {
                    self.server.credit(id, item.len().max(1) as u32, &mut self.to_client.out);
                    self.server.item(id, &item, false, &mut self.to_client.out);
                }
                Some(ServerEvent::HalfClose { id }) => {
                    if self.streams.remove(&id) {
                        self.server.end(id, Ok(&Metadata::new()), &mut self.to_client.out);
                    }
                }
                Some(ServerEvent::Cancel { id }) => {
                    self.streams.remove(&id);
                    self.at_server.retain(|(known, _)| *known != id);
                }
                Some(ServerEvent::Refused { id, status }) => panic!("{id}: {status}"),
                Some(_) => {}
            }
        }
    }

    fn deliver_to_client(&mut self, bytes: usize) {
        self.to_client.fly(bytes);
        loop {
            let (input, out) = (&mut self.to_client.input, &mut self.to_server.out);
            let event = client_event(&mut self.client, true, input, out);
            let Some(event) = event.expect("the server follows the protocol") else { return };
            self.client_event(event);
        }
    }

    fn client_event(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Reply { id, item, compressed } => {
                let call = self.calls.remove(&id).expect("a call that was not canceled");
                assert!(call.is_unary && !compressed);
                assert_eq!(call.messages, [item]);
            }
            ClientEvent::Item { id, item, .. } => {
                let call = self.calls.get_mut(&id).expect("a call that was not canceled");
                assert!(!call.is_unary);
                assert_eq!(call.messages.pop_front().as_ref(), Some(&item));
                self.client.credit(id, item.len().max(1) as u32, &mut self.to_server.out);
            }
            ClientEvent::End { id, end } => {
                let call = self.calls.remove(&id).expect("a call that was not canceled");
                match end {
                    Ok(_) => assert!(call.messages.is_empty() && call.has_ended && !call.is_unary),
                    // Calls that were sent before the settings of the server may be too many.
                    Err(status) if status.retry() == Retry::Safe => assert!(self.is_early(id), "{status}"),
                    Err(status) => {
                        assert_eq!(status.message(), "gone", "{status}");
                        assert!(is_refused(&call.messages[0]));
                    }
                }
            }
            _ => {}
        }
    }
}

/// Returns true for messages that the server responds to with a status.
fn is_refused(message: &Bytes) -> bool {
    message.last().is_some_and(|last| *last < 32)
}
