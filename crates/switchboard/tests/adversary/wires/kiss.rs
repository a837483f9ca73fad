//! kiss-rpc.

use crate::wire::{Wire, json};

const SHOW: u64 = 1;
const HOLD: u64 = 2;
const ONEWAY: u8 = 0x80;

pub const KISS: Wire = Wire {
    name: "kiss",
    channel: "tcp://ADDRESS?wire=kiss&function=test.Target/Show:1",
    show: |id, padding| frame(0, SHOW, id, json(padding).as_bytes()),
    hold: |id| frame(0, HOLD, id, b"{}"),
    unknown: |id| frame(0, 99, id, b"{}"),
    // Heads have one size.
    large_head: |id| frame(0, SHOW, id, json(30_000).as_bytes()),
    cheap: || {
        vec![
            ("a heartbeat", frame(0, 0, 7, b"")),
            ("a heartbeat with a body", frame(0, 0, 7, &[7; 100])),
            ("a one-way call", frame(ONEWAY, SHOW, 7, b"{}")),
            ("a one-way call of nothing", frame(ONEWAY, 99, 7, b"{}")),
            ("a failure", frame(1, SHOW, 7, b"")),
        ]
    },
    wrong: || {
        vec![
            ("another version", b"\xFF\xFF\x14\x02".to_vec()),
            ("another magic number", vec![0xFE; 40]),
            ("a snappy body that is none", {
                let mut bytes = frame(0, SHOW, 9, &[0xFF; 50]);
                bytes[4] = 0xFF;
                bytes
            }),
        ]
    },
    large: 30_000,
    ..Wire::PLAIN
};

/// A frame in JSON.
fn frame(status: u8, function: u64, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xFF, 0xFF, 20, 1, 0, 0, status, 0, 0];
    bytes.extend_from_slice(&function.to_be_bytes());
    bytes.extend_from_slice(&sequence.to_be_bytes());
    bytes.extend_from_slice(&(body.len() as u16).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}
