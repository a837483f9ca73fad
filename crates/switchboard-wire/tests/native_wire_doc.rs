//! The examples of `docs/native-wire.md` match the output of the machines, byte for byte.
//!
//! A block of the document begins with ` ```hex NAME `; text after a `#` is a comment.

use bytes::Bytes;
use std::{collections::BTreeMap, fmt::Write, sync::Arc, time::Duration};
use switchboard_wire::{
    Input, Kind, Limits, Metadata, MethodInfo, MethodTable, Outbox, Retry, SchemaId, ServiceInfo, Status,
    native::{Client, Server},
    wire::{ClientWire, Codec, Encoding, Open, ServerEvent, ServerWire},
};

static GREETER: ServiceInfo = ServiceInfo {
    name: "demo.v1.Greeter",
    methods: &[MethodInfo::new("Greet", Kind::Unary), MethodInfo::new("Sum", Kind::ClientStream)],
    descriptor: &[],
};

/// `GreetRequest { name: "Ada " }`, the name sixteen times, compressed as in RFC 1950; a test of the driver reads it.
const DEFLATED: [u8; 16] =
    [0x78, 0xDA, 0xE3, 0x72, 0x70, 0x4C, 0x49, 0x54, 0xA0, 0x04, 0x03, 0x00, 0x6B, 0x94, 0x12, 0xAB];

#[test]
fn examples_match_the_output_of_the_machines() {
    let document = include_str!("../../../docs/native-wire.md");
    let (written, said) = (examples(document), said());
    for (name, bytes) in &said {
        let found = written.get(name.as_str());
        assert_eq!(found, Some(bytes), "the block `hex {name}` should read:\n{}", show(bytes));
    }
    for name in written.keys() {
        assert!(said.contains_key(name), "no output is known for `hex {name}`");
    }
}

#[test]
fn examples_of_the_client_are_read_by_a_server() {
    let examples = examples(include_str!("../../../docs/native-wire.md"));
    let mut table = MethodTable::default();
    table.add(&GREETER).expect("valid");
    let mut server = Server::new(Limits::default(), Arc::new(table));
    let (mut input, mut out, mut events) = (Input::default(), Outbox::new(), Vec::new());
    for name in ["preface", "method", "unary call", "client stream", "credit", "cancel", "ping", "unknown"] {
        input.extend(&examples[name]);
    }
    while let Some(event) = server.recv(&mut input, &mut out).expect("valid") {
        events.push(event);
    }
    events.retain(|event| !matches!(event, ServerEvent::Handled));
    assert!(input.is_empty());
    assert!(
        matches!(
            &events[..],
            [
                ServerEvent::Open { id: 1, first: Some(_), more: false, .. },
                ServerEvent::Open { id: 2, first: None, more: true, .. },
                ServerEvent::Item { id: 2, .. },
                ServerEvent::HalfClose { id: 2 },
                ServerEvent::Credit { id: 3, bytes: 65536 },
                ServerEvent::Cancel { id: 3 },
            ]
        ),
        "{events:?}"
    );
    assert_eq!(&out.take_all()[50..], &examples["ping answer"][..]);
}

/// Returns the bytes of the machines for each block of the document.
fn said() -> BTreeMap<String, Vec<u8>> {
    let mut table = MethodTable::default();
    table.add(&GREETER).expect("valid");
    let mut server = Server::new(Limits::default(), Arc::new(table));
    let mut client = Client::new(Limits::default());
    let (mut out, mut said) = (Outbox::new(), BTreeMap::new());
    let mut note = |name: &str, out: &mut Outbox| {
        said.insert(name.to_owned(), out.take_all());
    };
    client.greet(&mut out);
    note("preface", &mut out);
    client.method(0, "demo.v1.Greeter/Greet", None, &mut out);
    note("method", &mut out);
    client.method(0, "calc.v1.Calc/Add", SchemaId::new(0x0123_4567_89AB_CDEF), &mut out);
    note("method with a schema", &mut out);
    let (mut metadata, none) = (Metadata::new(), Metadata::new());
    metadata.insert("x-echo", "hi").expect("valid");
    let open = |metadata, method, more| Open {
        method,
        codec: Codec::Proto,
        timeout: Some(Duration::from_millis(1500)),
        metadata,
        oneway: false,
        more,
        encoding: Encoding::Identity,
        compressed: false,
        rest: &[],
    };
    let ada = Bytes::from_static(b"\x0A\x03Ada");
    client.open(1, open(&metadata, 0, false), Some((&ada).into()), &mut out).expect("valid");
    note("unary call", &mut out);
    let hello = Bytes::from_static(b"\x0A\x09hello Ada");
    server.reply(1, (&hello).into(), &mut out);
    note("reply", &mut out);
    let deflated = Bytes::from_static(&DEFLATED);
    let deflate = Open { encoding: Encoding::Deflate, compressed: true, ..open(&none, 0, false) };
    client.open(4, Open { timeout: None, ..deflate }, Some((&deflated).into()), &mut out).expect("valid");
    note("compressed call", &mut out);
    server.reply_with(4, (&deflated).into(), true, &Metadata::new(), &mut out);
    note("compressed reply", &mut out);
    let mut trailers = Metadata::new();
    trailers.insert("x-echo-trailer", "hi").expect("valid");
    server.head(1, &metadata, &mut out);
    server.reply_with(1, (&hello).into(), false, &trailers, &mut out);
    note("reply with metadata", &mut out);
    let status = Status::not_found("no such post")
        .with_retry(Retry::After(Duration::from_millis(40)))
        .with_detail("google.rpc.Help", &b"\x0A\x02\x0A\x00"[..]);
    server.end(1, Err(&status), &mut out);
    note("status", &mut out);
    server.end(1, Ok(&Metadata::new()), &mut out);
    note("end", &mut out);
    client.method(1, "demo.v1.Greeter/Sum", None, &mut out);
    client.open(2, Open { timeout: None, ..open(&none, 1, true) }, None, &mut out).expect("valid");
    client.item(2, &Bytes::from_static(b"\x08\x07"), false, &mut out).expect("valid");
    client.half_close(2, &mut out);
    note("client stream", &mut out);
    client.credit(3, 65536, &mut out);
    note("credit", &mut out);
    client.cancel(3, &mut out);
    note("cancel", &mut out);
    client.ping(&mut out);
    note("ping", &mut out);
    let mut input = Input::default();
    input.extend(&said["preface"]);
    input.extend(&said["ping"]);
    while let Some(event) = server.recv(&mut input, &mut out).expect("valid") {
        assert!(matches!(event, ServerEvent::Handled), "{event:?}");
    }
    let answered = out.take_all();
    said.insert("ping answer".into(), answered[50..].to_vec());
    server.drain("the server is going away", &mut out);
    said.insert("go away".into(), out.take_all());
    // A frame of an unassigned kind.
    said.insert("unknown".into(), [&[3, 0, 0, 0, 200, 0, 0, 0, 0, 0, 0, 0][..], b"new"].concat());
    said
}

fn examples(document: &str) -> BTreeMap<String, Vec<u8>> {
    let mut examples = BTreeMap::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("```hex ") else { continue };
        let mut bytes = Vec::new();
        for line in lines.by_ref().take_while(|line| *line != "```") {
            let digits = line.split('#').next().unwrap_or_default();
            let byte = |digits| u8::from_str_radix(digits, 16).expect("two hexadecimal digits");
            bytes.extend(digits.split_whitespace().map(byte));
        }
        assert!(examples.insert(name.to_owned(), bytes).is_none(), "two blocks `hex {name}`");
    }
    examples
}

fn show(bytes: &[u8]) -> String {
    bytes.chunks(12).fold(String::new(), |mut text, line| {
        let digits: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let plain: String =
            line.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' }).collect();
        writeln!(text, "{:<36} # {plain}", digits.join(" ")).expect("a string takes everything");
        text
    })
}
