//! Requests with faults on the wires that have bytes of their own.

use crate::{Case, MESSAGE_BYTES_MAX, SCHEMA, TOKEN, case, ends};

/// Sizes of messages: within every limit, over that of one method, over that of the server.
const FITS: usize = 10;
const OVER_METHOD: usize = 200;
const OVER_SERVER: usize = MESSAGE_BYTES_MAX as usize + 1000;
const HUGE: usize = 300_000;

pub(crate) fn all() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("native", native_cases()),
        ("baidu_std", baidu_cases()),
        ("hulu", hulu_cases()),
        ("sofa", sofa_cases()),
        ("rpcx", rpcx_cases()),
        ("erpc", erpc_cases()),
        ("JSON-RPC", jsonrpc_cases()),
        ("thrift", thrift_cases()),
    ]
}

/// A heartbeat of eRPC, which needs no credentials.
pub(crate) fn heartbeat() -> Vec<u8> {
    message(b"/heartbeat", "", 0, 0)
}

/// Requests of a known caller, and the reason with which each is refused.
pub(crate) fn known() -> Vec<(Vec<u8>, &'static str)> {
    let authorization =
        [&[13u8][..], &(TOKEN.len() as u16).to_le_bytes(), b"authorization", TOKEN.as_bytes()];
    let metadata = authorization.concat();
    let auth = [("__AUTH", TOKEN)];
    vec![
        (native("Show", None, 77, 0, 3, &metadata, FITS), "codec number 77 is not supported"),
        (native("Tiny", None, 1, 0, 3, &metadata, OVER_METHOD), "over the limit of 64 bytes"),
        (native("Feed", None, 1, 0, 0, &metadata, FITS), "takes one request message"),
        (native("Shaw", None, 1, 0, 3, &metadata, FITS), "unknown method"),
        (rpcx(0, 1, "Flow", &auth, FITS), "has a stream, which rpcx cannot carry"),
        (rpcx(0, 1, "Tiny", &auth, OVER_METHOD), "over the limit of 64 bytes"),
        (erpc("Flow", "authorization=Bearer%20t0ken", b'j', FITS), "has a stream%2C which erpc cannot carry"),
    ]
}

fn native_cases() -> Vec<Case> {
    let plain =
        |name: &str, codec, encoding, flags, len| native(name, None, codec, encoding, flags, &[], len);
    vec![
        case("whole", move |name| plain(name, 1, 0, 3, FITS)),
        case("streaming", move |name| plain(name, 1, 0, 0, 0)),
        case("one message of several", move |name| plain(name, 1, 0, 2, FITS)),
        case("codec", move |name| plain(name, 77, 0, 3, FITS)),
        case("encoding", move |name| plain(name, 1, 88, 3, FITS)),
        case("compressed without an encoding", move |name| plain(name, 1, 0, 3 | 16, FITS)),
        case("schema", |name| native(name, Some(SCHEMA + 1), 3, 0, 3, &[], FITS)),
        case("schema, JSON", |name| native(name, Some(SCHEMA + 1), 2, 0, 3, &[], FITS)),
        case("over the limit of the method", move |name| plain(name, 1, 0, 3, OVER_METHOD)),
        case("just over the limit of the server", move |name| plain(name, 1, 0, 3, OVER_SERVER)),
        ends("over the limit of the server", move |name| plain(name, 1, 0, 3, HUGE)),
    ]
}

/// A connection that makes one call.
fn native(
    name: &str,
    schema: Option<u64>,
    codec: u8,
    encoding: u8,
    flags: u8,
    metadata: &[u8],
    len: usize,
) -> Vec<u8> {
    let frame = |kind: u8, flags: u8, id: u32, body: &[u8]| {
        let head = [&(body.len() as u32).to_le_bytes()[..], &[kind, flags, 0, 0], &id.to_le_bytes()];
        [&head.concat()[..], body].concat()
    };
    let path = format!("test.Guarded/{name}");
    let method = match schema {
        None => frame(1, 0, 0, path.as_bytes()),
        Some(schema) => frame(1, 32, 0, &[&schema.to_le_bytes()[..], path.as_bytes()].concat()),
    };
    let mut call = vec![0, 0, 0, 0, codec, encoding];
    call.extend((metadata.len() as u16).to_le_bytes());
    call.extend(metadata);
    call.extend(vec![b' '; len]);
    [&b"\xF5SWB\x01\0\0\0"[..], &method, &frame(2, flags, 1, &call)].concat()
}

fn baidu_cases() -> Vec<Case> {
    let request = |name: &str, more: &[u8], len| {
        let request = [field(1, b"test.Guarded"), field(2, name.as_bytes())].concat();
        let meta = [&field(1, &request)[..], &number(4, 7), more].concat();
        framed(b"PRPC", [(meta.len() + len) as u32, meta.len() as u32].map(u32::to_be_bytes), &meta, len)
    };
    let stream = field(8, &[number(1, 77), number(2, 1), number(3, 1)].concat());
    vec![
        case("whole", move |name| request(name, &[], FITS)),
        case("with a stream", move |name| request(name, &stream, FITS)),
        case("content type", move |name| request(name, &number(10, 9), FITS)),
        case("compression", move |name| request(name, &number(3, 9), FITS)),
        case("attachment", move |name| request(name, &number(5, 1 << 20), FITS)),
        case("checksum", move |name| request(name, &[number(12, 1), field(13, b"abcd")].concat(), FITS)),
        case("over the limit of the method", move |name| request(name, &[], OVER_METHOD)),
        case("over the limit of the server", move |name| request(name, &[], HUGE)),
    ]
}

fn hulu_cases() -> Vec<Case> {
    let request = |name: &str, more: &[u8], len| {
        let service = if name == "Show" || name == "Tiny" { "test.Guarded" } else { "test.Guarde_" };
        let index = if name == "Tiny" { 3 } else { 0 };
        let meta = [&field(1, service.as_bytes())[..], &number(2, index), &number(4, 7), more].concat();
        framed(b"HULU", [(meta.len() + len) as u32, meta.len() as u32].map(u32::to_le_bytes), &meta, len)
    };
    vec![
        case("whole", move |name| request(name, &[], FITS)),
        case("compression", move |name| request(name, &number(3, 9), FITS)),
        case("over the limit of the method", move |name| request(name, &[], OVER_METHOD)),
        case("over the limit of the server", move |name| request(name, &[], HUGE)),
    ]
}

fn sofa_cases() -> Vec<Case> {
    let request = |name: &str, more: &[u8], len: usize| {
        let method = format!("test.Guarded.{name}");
        let meta = [&number(1, 0)[..], &number(2, 7), &field(100, method.as_bytes()), more].concat();
        let sizes = [len as u64, (meta.len() + len) as u64].map(u64::to_le_bytes).concat();
        [b"SOFA", &(meta.len() as u32).to_le_bytes()[..], &sizes, &meta, &vec![b' '; len]].concat()
    };
    vec![
        case("whole", move |name| request(name, &[], FITS)),
        case("compression", move |name| request(name, &number(300, 9), FITS)),
        case("over the limit of the method", move |name| request(name, &[], OVER_METHOD)),
        case("over the limit of the server", move |name| request(name, &[], HUGE)),
    ]
}

fn framed(magic: &[u8], sizes: [[u8; 4]; 2], meta: &[u8], len: usize) -> Vec<u8> {
    [magic, &sizes.concat(), meta, &vec![b' '; len]].concat()
}

fn varint(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// A field of protobuf with bytes in it.
fn field(number: u64, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint(number << 3 | 2, &mut bytes);
    varint(content.len() as u64, &mut bytes);
    bytes.extend_from_slice(content);
    bytes
}

/// A field of protobuf with a number in it.
fn number(field: u64, value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint(field << 3, &mut bytes);
    varint(value, &mut bytes);
    bytes
}

fn rpcx_cases() -> Vec<Case> {
    vec![
        case("whole", |name| rpcx(0, 1, name, &[], FITS)),
        case("codec", |name| rpcx(0, 9, name, &[], FITS)),
        case("compression", |name| rpcx(0x1C, 1, name, &[], FITS)),
        case("over the limit of the method", |name| rpcx(0, 1, name, &[], OVER_METHOD)),
        case("over the limit of the server", |name| rpcx(0, 1, name, &[], HUGE)),
        ends("one-way", |name| rpcx(0x20, 9, name, &[], FITS)),
        ends("metadata over its limit", |name| rpcx(0, 1, name, &[("x", &"v".repeat(100_000))], FITS)),
    ]
}

fn rpcx(bits: u8, codec: u8, name: &str, metadata: &[(&str, &str)], len: usize) -> Vec<u8> {
    let part = |into: &mut Vec<u8>, part: &[u8]| {
        into.extend_from_slice(&(part.len() as u32).to_be_bytes());
        into.extend_from_slice(part);
    };
    let mut block = Vec::new();
    for text in metadata.iter().flat_map(|(name, value)| [name, value]) {
        part(&mut block, text.as_bytes());
    }
    let mut parts = Vec::new();
    for bytes in [b"test.Guarded", name.as_bytes(), &block, &vec![b' '; len]] {
        part(&mut parts, bytes);
    }
    let mut frame = vec![8, 0, bits, codec << 4];
    frame.extend_from_slice(&7u64.to_be_bytes());
    part(&mut frame, &parts);
    frame
}

fn erpc_cases() -> Vec<Case> {
    vec![
        case("whole", |name| erpc(name, "", b'j', FITS)),
        case("codec", |name| erpc(name, "", b'x', FITS)),
        case("over the limit of the method", |name| erpc(name, "", b'j', OVER_METHOD)),
        ends("over the limit of the server", |name| erpc(name, "", b'j', HUGE)),
        case("metadata over its limit", |name| erpc(name, &"v".repeat(60_000), b'j', FITS)),
    ]
}

fn erpc(name: &str, metadata: &str, codec: u8, len: usize) -> Vec<u8> {
    message(format!("/guarded/{}", name.to_lowercase()).as_bytes(), metadata, codec, len)
}

fn message(name: &[u8], metadata: &str, codec: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0, 1, b'7', 1, name.len() as u8];
    bytes.extend_from_slice(name);
    for query in ["code=0", metadata] {
        bytes.extend_from_slice(&(query.len() as u16).to_be_bytes());
        bytes.extend_from_slice(query.as_bytes());
    }
    bytes.push(codec);
    bytes.extend(vec![b' '; len]);
    [&(bytes.len() as u32 + 4).to_be_bytes()[..], &bytes].concat()
}

fn jsonrpc_cases() -> Vec<Case> {
    let call = |name: &str, params: &str| {
        let (service, id) = ("test.Guarded", 7);
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{service}.{name}\",\"params\":{params}}}\n")
            .into_bytes()
    };
    let text = |len| format!("{{\"s\":\"{}\"}}", "x".repeat(len));
    vec![
        case("whole", move |name| call(name, &text(FITS))),
        case("parameters in order", move |name| call(name, "[1,2,3]")),
        case("over the limit of the method", move |name| call(name, &text(OVER_METHOD))),
        ends("over the limit of the server", move |name| call(name, &text(HUGE))),
    ]
}

fn thrift_cases() -> Vec<Case> {
    let message = |first: u8, name: &str, structure: &[u8]| {
        let name = format!("Guarded:{name}");
        let mut bytes = vec![0x80, 1, 0, first];
        bytes.extend((name.len() as u32).to_be_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(7u32.to_be_bytes());
        bytes.extend(structure);
        [&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat()
    };
    let structure =
        |len: usize| [&[11, 0, 2][..], &(len as u32).to_be_bytes(), &vec![b'x'; len], &[0]].concat();
    let compact = |name: &str| {
        let name = format!("Guarded:{name}");
        let bytes =
            [&[0x82, 0x21, 7, name.len() as u8][..], name.as_bytes(), &[0x28, 0xFF, 0x7F, 1]].concat();
        [&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat()
    };
    vec![
        case("whole", move |name| message(1, name, &structure(FITS))),
        case("arguments that end early, compact", compact),
        case("over the limit of the method", move |name| message(1, name, &structure(OVER_METHOD))),
        ends("over the limit of the server", move |name| message(1, name, &structure(HUGE))),
        ends("one-way", move |name| message(4, name, &structure(OVER_METHOD))),
    ]
}

/// Requests of kiss-rpc, whose methods have numbers and whose failures have no reason.
pub(crate) fn kiss(function: u64) -> Vec<Vec<u8>> {
    let request = |codec: u8, compression: u8, len: usize| {
        let mut bytes = vec![0xFF, 0xFF, 20, 1, compression, codec, 0, 0, 0];
        bytes.extend_from_slice(&function.to_be_bytes());
        bytes.extend_from_slice(&7u32.to_be_bytes());
        bytes.extend_from_slice(&(len as u16).to_be_bytes());
        bytes.extend(vec![b' '; len]);
        bytes
    };
    vec![request(0, 0, FITS), request(77, 0, FITS), request(0, 0xFF, FITS), request(0, 0, OVER_SERVER)]
}
