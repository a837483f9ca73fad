//! The native wire.

use crate::{
    support::raw::{
        CANCEL, CREDIT, END, ITEM, MORE, PING, PREFACE, WHOLE, call_body, frame, header, method, open_call,
    },
    target::TARGET,
    wire::{LARGE_VALUE, Wire, text},
};

/// Codecs are of no interest to a method that returns bytes.
const PROTO: u8 = 1;

pub const NATIVE: Wire = Wire {
    name: "native",
    channel: "tcp://ADDRESS",
    hello,
    show: |id, padding| open_call(WHOLE, 0, id, text(padding).as_bytes()),
    hold: |id| open_call(WHOLE, 1, id, b""),
    unknown: |id| open_call(WHOLE, 900, id, b""),
    large_head,
    cancel: Some(|id| frame(CANCEL, 0, 0, id, &[])),
    cheap,
    wrong,
    ..Wire::PLAIN
};

pub fn hello() -> Vec<u8> {
    let names = (0u16..).zip(TARGET.methods);
    let names = names.flat_map(|(number, info)| method(number, &format!("test.Target/{}", info.name)));
    PREFACE.iter().copied().chain(names).collect()
}

fn large_head(id: u32) -> Vec<u8> {
    let value = vec![b'v'; LARGE_VALUE];
    let metadata = [&[1u8][..], b"x", &(LARGE_VALUE as u16).to_le_bytes(), &value].concat();
    frame(2, WHOLE, 0, id, &call_body(0, PROTO, &metadata, text(0).as_bytes()))
}

pub fn cheap() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("PING", frame(PING, 0, 0, 7, &[])),
        ("CANCEL of a call that does not exist", frame(CANCEL, 0, 0, 5, &[])),
        ("ITEM of a call that does not exist", frame(ITEM, 0, 0, 5, b"x")),
        ("END of a call that does not exist", frame(END, 1, 0, 5, &[])),
        ("CREDIT of a call that does not exist", frame(CREDIT, 0, 0, 5, &[0xFF; 4])),
        ("a frame of a later version", frame(200, 0xFF, 7, 8, b"later")),
        ("METHOD", method(20, &"x".repeat(500))),
        (
            "a stream begun and cancelled",
            [open_call(MORE, 3, 3_000_000, &[]), frame(CANCEL, 0, 0, 3_000_000, &[])].concat(),
        ),
        (
            "a stream that feeds, with credit",
            [
                open_call(WHOLE, 2, 3_000_001, b"item"),
                frame(CREDIT, 0, 0, 3_000_001, &[0xFF; 4]),
                frame(CANCEL, 0, 0, 3_000_001, &[]),
            ]
            .concat(),
        ),
        (
            "empty items",
            [open_call(MORE, 3, 3_000_002, &[]), frame(ITEM, 0, 0, 3_000_002, b"").repeat(8)].concat(),
        ),
        ("a one-way call", open_call(WHOLE, 4, 3_000_003, b"")),
    ]
}

fn wrong() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("a message over message_bytes_max", [header(4 << 20, 2, WHOLE, 0, 9), vec![0; 4 << 20]].concat()),
        ("a CALL of which nothing makes sense", frame(2, WHOLE, 0, 9, &[0xFF; 7])),
        ("a METHOD without end", header(u32::MAX, 1, 0, 30, 0)),
        (
            "metadata over metadata_bytes_max",
            frame(2, WHOLE, 0, 9, &call_body(0, PROTO, &[0xFF; 60_000], b"")),
        ),
    ]
}
