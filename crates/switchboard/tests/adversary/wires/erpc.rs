//! eRPC, in its raw framing.

use crate::wire::{Wire, gzip_bomb, gzip_members, json};

const CALL: u8 = 1;
const REPLY: u8 = 2;
const PUSH: u8 = 3;
const AUTH_CALL: u8 = 4;

pub const ERPC: Wire = Wire {
    name: "erpc",
    channel: "tcp://ADDRESS?wire=erpc",
    show: |id, padding| message(CALL, id, "/target/show", "", json(padding).as_bytes()),
    hold: |id| message(CALL, id, "/target/hold", "", b"{}"),
    unknown: |id| message(CALL, id, "/target/nothing", "", b"{}"),
    large_head: |id| {
        let metadata = format!("x-large={}", "v".repeat(15_000));
        message(CALL, id, "/target/show", &metadata, json(0).as_bytes())
    },
    cheap: || {
        vec![
            ("a heartbeat", message(CALL, 7, "/heartbeat", "", b"")),
            ("a reply", message(REPLY, 7, "", "", b"{}")),
            ("a push", message(PUSH, 7, "/target/note", "", b"{}")),
            ("a push of nothing", message(PUSH, 7, "/no/thing", "", b"{}")),
            ("credentials", message(AUTH_CALL, 7, "", "", b"\"token\"")),
            ("a message of no kind", message(200, 7, "/target/show", "", b"{}")),
        ]
    },
    wrong: || {
        vec![
            ("a frame of 4 GiB", {
                let mut bytes = message(CALL, 9, "/target/show", "", &[b' '; 5000]);
                bytes[..4].copy_from_slice(&[0xFF; 4]);
                bytes
            }),
            ("a frame shorter than its length", vec![0, 0, 0, 2, 0, 1, b'1', CALL]),
            ("parts longer than their frame", {
                let mut bytes = message(CALL, 9, "/target/show", "", b"{}");
                bytes[8] = 0xFF;
                bytes
            }),
            ("many filters", {
                let mut bytes = message(CALL, 9, "/target/show", "", b"{}");
                bytes[4] = 200;
                bytes
            }),
            (
                "metadata over metadata_bytes_max",
                message(CALL, 9, "/target/show", &"v".repeat(60_000), b"{}"),
            ),
            ("a message over message_bytes_max", message(CALL, 9, "/target/show", "", &vec![b' '; 2 << 20])),
        ]
    },
    bombs: || {
        [("gzip", gzip_bomb()), ("empty members of gzip", gzip_members())]
            .map(|(name, bomb)| {
                let length = (bomb.len() as u32 + 6).to_be_bytes();
                // The frame before it says which framing the connection has.
                let first = message(PUSH, 1, "/target/note", "", b"{}");
                (name, [&first[..], &length, &[1, b'g'], &bomb].concat())
            })
            .into()
    },
    ..Wire::PLAIN
};

fn message(kind: u8, id: u32, name: &str, metadata: &str, body: &[u8]) -> Vec<u8> {
    let sequence = base36(id);
    let mut bytes = vec![0, sequence.len() as u8];
    bytes.extend_from_slice(sequence.as_bytes());
    bytes.extend_from_slice(&[kind, name.len() as u8]);
    bytes.extend_from_slice(name.as_bytes());
    for query in ["code=0", metadata] {
        bytes.extend_from_slice(&(query.len() as u16).to_be_bytes());
        bytes.extend_from_slice(query.as_bytes());
    }
    bytes.push(b'j');
    bytes.extend_from_slice(body);
    [&(bytes.len() as u32 + 4).to_be_bytes()[..], &bytes].concat()
}

fn base36(mut number: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit(number % 36, 36).unwrap());
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}
