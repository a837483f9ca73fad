//! baidu_std.

use crate::wire::{LARGE_VALUE, Wire, field, gzip_bomb, gzip_members, number, proto, zlib_bomb};

pub const BAIDU: Wire = Wire {
    name: "baidu_std",
    channel: "tcp://ADDRESS?wire=baidu_std",
    show: |id, padding| frame(&meta("Show", id), &proto(padding)),
    hold: |id| frame(&meta("Hold", id), b""),
    unknown: |id| frame(&meta("Nothing", id), b""),
    large_head: |id| {
        let pair = [field(1, b"x-large"), field(2, &vec![b'v'; LARGE_VALUE])].concat();
        frame(&[meta("Show", id), field(9, &pair)].concat(), &proto(0))
    },
    cheap,
    wrong,
    bombs: || {
        let bomb = |kind, bytes: &[u8]| frame(&[meta("Show", 9), number(3, kind)].concat(), bytes);
        vec![
            ("gzip", bomb(2, &gzip_bomb())),
            ("empty members of gzip", bomb(2, &gzip_members())),
            ("zlib", bomb(3, &zlib_bomb())),
        ]
    },
    ..Wire::PLAIN
};

fn meta(method: &str, id: u32) -> Vec<u8> {
    let request = [field(1, b"test.Target"), field(2, method.as_bytes())].concat();
    [field(1, &request), number(4, id.into())].concat()
}

fn frame(meta: &[u8], message: &[u8]) -> Vec<u8> {
    let sizes = [(meta.len() + message.len()) as u32, meta.len() as u32].map(u32::to_be_bytes).concat();
    [b"PRPC", &sizes[..], meta, message].concat()
}

/// A frame of a stream.
fn stream(meta: &[u8], content: &[u8]) -> Vec<u8> {
    let sizes = [(meta.len() + content.len()) as u32, meta.len() as u32].map(u32::to_be_bytes).concat();
    [b"STRM", &sizes[..], meta, content].concat()
}

fn cheap() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("a frame without a meta", frame(b"", b"")),
        ("a response", frame(&[field(2, &number(1, 0)), number(4, 7)].concat(), b"")),
        (
            "a call without an id",
            frame(&field(1, &[field(1, b"test.Target"), field(2, b"Show")].concat()), b""),
        ),
        ("a message of a stream that does not exist", stream(&[number(1, 5), number(3, 3)].concat(), b"x")),
        ("a stream that does not exist closed", stream(&[number(1, 5), number(3, 2)].concat(), b"")),
        ("a stream begun and closed", {
            let settings = [number(1, 77), number(2, 1), number(3, 1)].concat();
            let call = frame(&[meta("Keep", 3_000_000), field(8, &settings)].concat(), b"");
            [call, stream(&[number(1, 77), number(3, 2)].concat(), b"")].concat()
        }),
    ]
}

fn wrong() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("a meta larger than its frame", [&b"PRPC"[..], &[0, 0, 0, 1, 0, 0, 0, 9]].concat()),
        ("a meta over its limit", [&b"PRPC"[..], &[0, 4, 0, 0, 0, 4, 0, 0]].concat()),
        ("a frame of 4 GiB", {
            let mut bytes = frame(&meta("Show", 9), &[7; 5000]);
            bytes[4..8].copy_from_slice(&[0xFF; 4]);
            bytes
        }),
        ("a meta of which nothing makes sense", frame(&[0xFF; 40], b"")),
        ("a message over message_bytes_max", frame(&meta("Show", 9), &vec![0; 2 << 20])),
        ("an attachment larger than its frame", frame(&[meta("Show", 9), number(5, 1 << 30)].concat(), b"")),
    ]
}
