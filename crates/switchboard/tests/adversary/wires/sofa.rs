//! sofa_pbrpc.

use crate::wire::{LARGE_VALUE, Wire, field, gzip_bomb, gzip_members, number, proto};

pub const SOFA: Wire = Wire {
    name: "sofa",
    channel: "tcp://ADDRESS?wire=sofa",
    show: |id, padding| frame(&meta("Show", id), &proto(padding)),
    hold: |id| frame(&meta("Hold", id), b""),
    unknown: |id| frame(&meta("Nothing", id), b""),
    large_head: |id| {
        let unused = vec![b'v'; LARGE_VALUE];
        frame(&[meta("Show", id), field(900, &unused)].concat(), &proto(0))
    },
    cheap: || {
        vec![
            ("a frame without a meta", frame(b"", b"")),
            ("a response", frame(&[number(1, 1), number(2, 7)].concat(), b"")),
        ]
    },
    wrong: || {
        vec![
            ("sizes that contradict each other", [&b"SOFA"[..], &[9, 0, 0, 0], &[1; 16]].concat()),
            ("a frame of 16 EiB", [&b"SOFA"[..], &[9, 0, 0, 0], &[0xFF; 16], &[7; 5000]].concat()),
            ("a meta of which nothing makes sense", frame(&[0xFF; 40], b"")),
            ("a message over message_bytes_max", frame(&meta("Show", 9), &vec![0; 2 << 20])),
        ]
    },
    bombs: || {
        [("gzip", gzip_bomb()), ("empty members of gzip", gzip_members())]
            .map(|(name, bomb)| (name, frame(&[meta("Show", 9), number(300, 1)].concat(), &bomb)))
            .into()
    },
    ..Wire::PLAIN
};

fn meta(method: &str, id: u32) -> Vec<u8> {
    let method = format!("test.Target.{method}");
    [number(1, 0), number(2, id.into()), field(100, method.as_bytes())].concat()
}

fn frame(meta: &[u8], message: &[u8]) -> Vec<u8> {
    let sizes = [message.len() as u64, (meta.len() + message.len()) as u64].map(u64::to_le_bytes).concat();
    [b"SOFA", &(meta.len() as u32).to_le_bytes()[..], &sizes, meta, message].concat()
}
