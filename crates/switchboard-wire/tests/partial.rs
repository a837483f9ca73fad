//! A head is not read again while the rest of its message arrives byte by byte.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

use bytes::Bytes;
use std::sync::Arc;
use switchboard_wire::{
    Input, Kind, Limits, Metadata, MethodInfo, MethodTable, Outbox, Outgoing, ServiceInfo, baidu, erpc,
    fuzzing, jsonrpc, kiss, native, rpcx, thrift,
    wire::{ClientWire, Codec, Encoding, Open, ServerEvent, ServerWire},
};

const METHOD: &str = "test.Work/take";

static WORK: ServiceInfo =
    ServiceInfo { name: "test.Work", methods: &[MethodInfo::new("take", Kind::Unary)], descriptor: &[] };

fn table() -> Arc<MethodTable> {
    let mut table = MethodTable::default();
    table.add(&WORK).unwrap();
    table.alias("kiss/1", METHOD).unwrap();
    // Machines look the method up for its limit.
    table.limit_messages(METHOD, 1 << 20).unwrap();
    Arc::new(table)
}

/// Encodes a call with as much metadata as is allowed, and a message.
fn request(mut client: impl ClientWire, codec: Codec, message: Vec<u8>, metadata: &Metadata) -> Vec<u8> {
    let (mut out, message) = (Outbox::new(), Bytes::from(message));
    client.greet(&mut out);
    client.method(0, METHOD, None, &mut out);
    client.index(0, 0);
    let open = Open {
        method: 0,
        codec,
        timeout: None,
        metadata,
        oneway: false,
        more: false,
        encoding: Encoding::Identity,
        compressed: false,
        rest: &[],
    };
    client.open(1, open, Some(Outgoing::from(&message)), &mut out).unwrap();
    out.take_all()
}

/// Feeds the bytes one by one; returns whether a call was opened, and the number of bytes examined for it.
fn feed(server: &mut dyn ServerWire, bytes: &[u8]) -> (bool, u64) {
    let (mut input, mut out, mut opened) = (Input::default(), Outbox::new(), false);
    fuzzing::take_work();
    for byte in bytes {
        input.extend(&[*byte]);
        loop {
            if let Some(call) = server.next_call(&mut input) {
                input.skip(call.len);
                opened = true;
            }
            match server.recv(&mut input, &mut out).unwrap() {
                Some(event) => opened |= matches!(event, ServerEvent::Open { .. }),
                None => break,
            }
        }
    }
    (opened, fuzzing::take_work())
}

#[track_caller]
fn check(name: &str, mut server: impl ServerWire, bytes: &[u8]) {
    let (opened, work) = feed(&mut server, bytes);
    assert!(opened, "{name}: no call was opened");
    // A compressed message is larger than its wire form.
    let max = 4 * bytes.len() as u64 + (32 << 10);
    assert!(work <= max, "{name}: examined {work} bytes to read {}", bytes.len());
}

#[test]
fn heads_are_read_once() {
    let limits = Limits::default();
    let mut metadata = Metadata::new();
    for n in 0..60 {
        metadata.insert(&format!("name-{n}"), "x".repeat(150)).unwrap();
    }
    let json = || format!("{{\"text\":\"{}\"}}", "x".repeat(8000)).into_bytes();
    let bytes = request(native::Client::new(limits), Codec::Json, json(), &metadata);
    check("native", native::Server::new(limits, table()), &bytes);
    let bytes = request(rpcx::Client::new(limits), Codec::Json, json(), &metadata);
    check("rpcx", rpcx::Server::new(limits, table()), &bytes);
    for framing in [erpc::Framing::Raw, erpc::Framing::Json, erpc::Framing::Proto] {
        let client =
            erpc::Client::new(limits, erpc::Settings { framing, gzip: true, ..erpc::Settings::default() });
        let bytes = request(client, Codec::Json, json(), &metadata);
        check(&format!("erpc {framing}"), erpc::Server::new(limits, table()), &bytes);
    }
    // A string in field 1.
    let text = [&[11, 0, 1, 0, 0, 0x20, 0][..], &[b'x'; 0x2000], &[0]].concat();
    for framing in [thrift::Framing::Framed, thrift::Framing::Unframed, thrift::Framing::Header] {
        for encoded in [thrift::Encoded::Binary, thrift::Encoded::Compact] {
            let settings = thrift::Settings { framing, encoded, ..thrift::Settings::default() };
            let none = Metadata::new();
            let carried = if framing == thrift::Framing::Header { &metadata } else { &none };
            let bytes = request(thrift::Client::new(limits, settings), Codec::Thrift, text.clone(), carried);
            let name = format!("thrift {framing:?} {encoded:?}");
            check(&name, thrift::Server::new(limits, table()), &bytes);
        }
    }
    let bytes = request(
        kiss::Client::new(limits).functions(Arc::new([(METHOD.to_owned(), 1)].into_iter().collect())),
        Codec::Json,
        json(),
        &Metadata::new(),
    );
    check("kiss", kiss::Server::new(limits, table()), &bytes);
    let text = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":\"{:0>1000}\",\"method\":\"{METHOD}\",\"params\":{}}}",
        1,
        String::from_utf8(json()).unwrap()
    );
    check("jsonrpc", jsonrpc::Server::lines(limits, table()), text.as_bytes());
    let client = baidu::Client::new(limits).with_layout(baidu::Layout::Sofa);
    let bytes = request(client, Codec::Proto, json(), &Metadata::new());
    check("sofa", baidu::Server::new(limits, table()).with_layout(baidu::Layout::Sofa), &bytes);
}

#[test]
fn the_limits_of_rpcx_hold_behind_a_frame_that_came_in_parts() {
    let (mut limits, wider) = (Limits::default(), Limits::default());
    limits.message_bytes_max = 1 << 20;
    let (small, large) = (vec![b' '; 2000], vec![b' '; (1 << 20) + 1]);
    let none = Metadata::new();
    let small = request(rpcx::Client::new(limits), Codec::Json, small, &none);
    let large = request(rpcx::Client::new(wider), Codec::Json, large, &none);
    let mut server = rpcx::Server::new(limits, table());
    let (mut input, mut out, mut opened) = (Input::default(), Outbox::new(), 0);
    for part in [&small[..], &small[..100], &small[100..], &large[..200]] {
        input.extend(part);
        loop {
            if let Some(call) = server.next_call(&mut input) {
                input.skip(call.len);
                opened += 1;
                continue;
            }
            match server.recv(&mut input, &mut out).unwrap() {
                Some(event) => opened += u32::from(matches!(event, ServerEvent::Open { .. })),
                None => break,
            }
        }
    }
    let answer = String::from_utf8_lossy(&out.take_all()).into_owned();
    assert!(opened == 2 && answer.contains("message_bytes_max"), "{opened} calls, {answer:?}");
}

#[test]
fn the_largest_meta_of_baidu_std_is_read_once() {
    let mut meta: Vec<u8> = vec![0x0A, 17, 0x0A, 9];
    meta.extend(b"test.Work");
    meta.extend([0x12, 4]);
    meta.extend(b"take");
    meta.extend([0x20, 1]);
    // Unknown fields.
    while meta.len() < 64_000 {
        meta.extend([0xA0, 0x06, 1]);
    }
    let payload = [7; 20_000];
    let mut bytes = b"PRPC".to_vec();
    bytes.extend(((meta.len() + payload.len()) as u32).to_be_bytes());
    bytes.extend((meta.len() as u32).to_be_bytes());
    bytes.extend([&meta[..], &payload].concat());
    check("baidu_std", baidu::Server::new(Limits::default(), table()), &bytes);
}

#[test]
fn a_long_head_of_gzip_is_read_a_few_times() {
    // The first frame of a connection, with the gzip filter: a name of 60 KB before the first byte of the message.
    let message = [&[1, b'1', 1, 9][..], b"work/take", &[0, 0, 0, 0, b'j'], b"{}"].concat();
    let mut gzip = vec![0x1F, 0x8B, 8, 8, 0, 0, 0, 0, 0, 255];
    gzip.extend([b'n'; 60_000]);
    gzip.push(0);
    let mut crc = flate2::Crc::new();
    crc.update(&message);
    gzip.extend([1, message.len() as u8, 0, !(message.len() as u8), 255]);
    gzip.extend(&message);
    gzip.extend(crc.sum().to_le_bytes());
    gzip.extend((message.len() as u32).to_le_bytes());
    let mut bytes = (6 + gzip.len() as u32).to_be_bytes().to_vec();
    bytes.extend([1, b'g']);
    bytes.extend(&gzip);
    let mut server = erpc::Server::new(Limits::default(), table());
    let (opened, work) = feed(&mut server, &bytes);
    assert!(opened, "no call was opened");
    assert!(work <= 4 * bytes.len() as u64, "examined {work} bytes to read {}", bytes.len());
}
