//! rpcx.

use crate::wire::{LARGE_VALUE, Wire, gzip_bomb, gzip_members, json};

const RESPONSE: u8 = 0x80;
const HEARTBEAT: u8 = 0x40;
const ONEWAY: u8 = 0x20;
const GZIP: u8 = 0x04;

pub const RPCX: Wire = Wire {
    name: "rpcx",
    channel: "tcp://ADDRESS?wire=rpcx",
    show: |id, padding| call(0, id, "Show", json(padding).as_bytes()),
    hold: |id| call(0, id, "Hold", b"{}"),
    unknown: |id| call(0, id, "Nothing", b"{}"),
    large_head: |id| {
        let value = "v".repeat(LARGE_VALUE);
        frame(0, id, ["test.Target", "Show"], &[("x-large", &value)], json(0).as_bytes())
    },
    cheap,
    wrong,
    bombs: || {
        [("gzip", gzip_bomb()), ("empty members of gzip", gzip_members())]
            .map(|(name, bomb)| (name, call(GZIP, 9, "Show", &bomb)))
            .into()
    },
    ..Wire::PLAIN
};

fn call(bits: u8, id: u32, method: &str, payload: &[u8]) -> Vec<u8> {
    frame(bits, id, ["test.Target", method], &[], payload)
}

/// A frame in JSON: bits of its third byte, sequence, path and method, metadata, payload.
fn frame(bits: u8, sequence: u32, names: [&str; 2], metadata: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let part = |into: &mut Vec<u8>, part: &[u8]| {
        into.extend_from_slice(&(part.len() as u32).to_be_bytes());
        into.extend_from_slice(part);
    };
    let mut block = Vec::new();
    for text in metadata.iter().flat_map(|(name, value)| [name, value]) {
        part(&mut block, text.as_bytes());
    }
    let mut parts = Vec::new();
    for bytes in [names[0].as_bytes(), names[1].as_bytes(), &block, payload] {
        part(&mut parts, bytes);
    }
    let mut frame = vec![8, 0, bits, 1 << 4];
    frame.extend_from_slice(&u64::from(sequence).to_be_bytes());
    part(&mut frame, &parts);
    frame
}

fn cheap() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("a heartbeat", frame(HEARTBEAT, 7, ["", ""], &[], b"")),
        ("a heartbeat with a body", frame(HEARTBEAT, 7, ["a", "b"], &[("x", "y")], &[7; 100])),
        ("a response", call(RESPONSE, 7, "Show", b"{}")),
        ("a one-way call", call(ONEWAY, 7, "Show", b"{}")),
        ("a one-way call of nothing", call(ONEWAY, 7, "Nothing", b"{}")),
        ("a file declared", frame(0, 7, ["_filetransfer", "TransferFile"], &[], b"{}")),
        ("a stream declared", frame(0, 7, ["_streamservice", "Stream"], &[], b"{}")),
    ]
}

fn wrong() -> Vec<(&'static str, Vec<u8>)> {
    let mut long = call(0, 9, "Show", b"{}");
    long[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
    let mut parts = call(0, 9, "Show", b"{}");
    parts[16..20].copy_from_slice(&0xFFFF_0000u32.to_be_bytes());
    let name = "n".repeat(5000);
    vec![
        ("a frame of 4 GiB", long),
        ("a part longer than its frame", parts),
        ("a long name", frame(0, 9, [&name, "Show"], &[], b"{}")),
        (
            "metadata over metadata_bytes_max",
            frame(0, 9, ["test.Target", "Show"], &[("x", &"v".repeat(100_000))], b"{}"),
        ),
        ("a message over message_bytes_max", call(0, 9, "Show", &vec![b' '; 2 << 20])),
        ("another magic number", vec![9; 64]),
    ]
}
