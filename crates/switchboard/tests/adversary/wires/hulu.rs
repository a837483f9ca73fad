//! hulu_pbrpc.

use crate::wire::{LARGE_VALUE, Wire, field, gzip_bomb, gzip_members, number, proto};

pub const HULU: Wire = Wire {
    name: "hulu",
    channel: "tcp://ADDRESS?wire=hulu&index=test.Target/Show:0",
    show: |id, padding| frame(&meta(0, id), &proto(padding)),
    hold: |id| frame(&meta(1, id), b""),
    unknown: |id| frame(&meta(900, id), b""),
    large_head: |id| {
        let name = vec![b'v'; LARGE_VALUE];
        frame(&[meta(0, id), field(15, &name)].concat(), &proto(0))
    },
    cheap: || {
        vec![("a frame without a meta", frame(b"", b"")), ("a call without an id", frame(&meta(0, 0), b""))]
    },
    wrong: || {
        vec![
            ("sizes that contradict each other", [&b"HULU"[..], &[1, 0, 0, 0, 9, 0, 0, 0]].concat()),
            ("a frame of 4 GiB", {
                let mut bytes = frame(&meta(0, 9), &[7; 5000]);
                bytes[4..8].copy_from_slice(&[0xFF; 4]);
                bytes
            }),
            ("a meta over its limit", [&b"HULU"[..], &[0, 0, 4, 0, 0, 0, 4, 0]].concat()),
            ("a meta of which nothing makes sense", frame(&[0xFF; 40], b"")),
            ("a message over message_bytes_max", frame(&meta(0, 9), &vec![0; 2 << 20])),
        ]
    },
    bombs: || {
        [("gzip", gzip_bomb()), ("empty members of gzip", gzip_members())]
            .map(|(name, bomb)| (name, frame(&[meta(0, 9), number(3, 2)].concat(), &bomb)))
            .into()
    },
    ..Wire::PLAIN
};

fn meta(place: u64, id: u32) -> Vec<u8> {
    [field(1, b"test.Target"), number(2, place), number(4, id.into())].concat()
}

fn frame(meta: &[u8], message: &[u8]) -> Vec<u8> {
    let sizes = [(meta.len() + message.len()) as u32, meta.len() as u32].map(u32::to_le_bytes).concat();
    [b"HULU", &sizes[..], meta, message].concat()
}
