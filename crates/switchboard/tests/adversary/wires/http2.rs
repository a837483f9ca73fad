//! gRPC on HTTP/2.

use crate::wire::{LARGE_VALUE, Wire, gzip_bomb, gzip_members, proto};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

pub const HTTP2: Wire = Wire {
    name: "grpc",
    channel: "tcp://ADDRESS?wire=grpc",
    hello,
    show: |id, padding| call(id, "/test.Target/Show", &[], &envelope(0, &proto(padding))),
    hold: |id| call(id, "/test.Target/Hold", &[], &envelope(0, b"")),
    unknown: |id| call(id, "/test.Target/Nothing", &[], &envelope(0, b"")),
    large_head: |id| {
        call(id, "/test.Target/Show", &[("x-large", &"v".repeat(LARGE_VALUE - 200))], &envelope(0, &proto(0)))
    },
    cancel: Some(|id| frame(RST_STREAM, 0, stream(id), &8u32.to_be_bytes())),
    cheap,
    wrong,
    bombs,
    // More does not fit into the window that a stream begins with.
    large: 60_000,
    ..Wire::PLAIN
};

fn hello() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    bytes
}

fn stream(id: u32) -> u32 {
    (id << 1 | 1) & 0x7FFF_FFFF
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A header that does not go into the table of the receiver.
fn header(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        if text.len() < 127 {
            bytes.push(text.len() as u8);
        } else {
            bytes.push(127);
            crate::wire::varint(text.len() as u64 - 127, &mut bytes);
        }
        bytes.extend(text.as_bytes());
    }
    bytes
}

fn head(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let usual = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "x"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    usual.iter().chain(more).flat_map(|(name, value)| header(name, value)).collect()
}

fn envelope(flags: u8, message: &[u8]) -> Vec<u8> {
    [&[flags][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

fn call(id: u32, path: &str, more: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = frame(HEADERS, END_HEADERS, stream(id), &head(path, more));
    let mut parts = body.chunks(16 << 10).peekable();
    while let Some(part) = parts.next() {
        let flags = if parts.peek().is_none() { END_STREAM } else { 0 };
        bytes.extend(frame(DATA, flags, stream(id), part));
    }
    bytes
}

fn cheap() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("PING", frame(PING, 0, 0, &[7; 8])),
        ("SETTINGS", frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 1, 0])),
        ("an empty SETTINGS", frame(SETTINGS, 0, 0, &[])),
        ("PRIORITY", frame(PRIORITY, 0, 3, &[0, 0, 0, 0, 7])),
        ("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes())),
        ("a frame of no kind", frame(0xEE, 0xFF, 0, b"later")),
        ("an empty DATA", frame(DATA, 0, 1, &[])),
        ("an empty CONTINUATION", frame(CONTINUATION, 0, 1, &[])),
    ]
}

fn wrong() -> Vec<(&'static str, Vec<u8>)> {
    let large = "v".repeat(40_000);
    vec![
        ("a frame over the largest", frame(DATA, 0, 1, &vec![0; 1 << 20])),
        ("DATA on the connection", frame(DATA, 0, 0, b"x")),
        ("an even stream", frame(HEADERS, END_HEADERS, 4, &head("/test.Target/Show", &[]))),
        ("headers over metadata_bytes_max", call(9, "/test.Target/Show", &[("x", &large)], b"")),
        ("a window over 2 GiB", frame(WINDOW_UPDATE, 0, 0, &0x7FFF_FFFFu32.to_be_bytes()).repeat(2)),
        ("a message over message_bytes_max", {
            let body = [&[0][..], &(4u32 << 20).to_be_bytes(), b"xxxx"].concat();
            call(9, "/test.Target/Show", &[], &body)
        }),
    ]
}

fn bombs() -> Vec<(&'static str, Vec<u8>)> {
    let bomb =
        |content: &[u8]| call(9, "/test.Target/Show", &[("grpc-encoding", "gzip")], &envelope(1, content));
    vec![("gzip", bomb(&gzip_bomb())), ("empty members of gzip", bomb(&gzip_members()))]
}
