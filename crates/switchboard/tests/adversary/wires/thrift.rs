//! Thrift: binary in frames and without, compact, THeader.

use crate::wire::{LARGE_VALUE, Wire, text, varint, zlib_bomb};

const CALL: u8 = 1;
const REPLY: u8 = 2;
const ONEWAY: u8 = 4;

pub const FRAMED: Wire = Wire {
    name: "thrift",
    channel: "tcp://ADDRESS?wire=thrift",
    show: |id, padding| framed(&message(CALL, "Show", id, &structure(padding))),
    hold: |id| framed(&message(CALL, "Hold", id, &[0])),
    unknown: |id| framed(&message(CALL, "Nothing", id, &[0])),
    large_head: |id| framed(&message(CALL, "Show", id, &fields(1000))),
    cheap: || cheap(framed),
    wrong: || {
        vec![
            ("a frame of 2 GiB", {
                let mut bytes = framed(&message(CALL, "Show", 9, &structure(5000)));
                bytes[..4].copy_from_slice(&0x7FFF_FFFFu32.to_be_bytes());
                bytes
            }),
            ("a frame of no message", framed(&[0xFF; 20])),
            ("a long name", framed(&message(CALL, &"n".repeat(5000), 9, &[0]))),
            ("deep", framed(&message(CALL, "Show", 9, &[12, 0, 1].repeat(10_000)))),
            ("a list of many", framed(&message(CALL, "Show", 9, &[15, 0, 1, 11, 0x7F, 0xFF, 0xFF, 0xFF]))),
            ("a list of empty structs", {
                framed(&message(
                    CALL,
                    "Show",
                    9,
                    &[&[15, 0, 1, 12][..], &500_000u32.to_be_bytes(), &[0; 500_001]].concat(),
                ))
            }),
            ("a message over message_bytes_max", framed(&message(CALL, "Show", 9, &structure(2 << 20)))),
        ]
    },
    behind_max: 900,
    ..Wire::PLAIN
};

pub const UNFRAMED: Wire = Wire {
    name: "thrift unframed",
    channel: "tcp://ADDRESS?wire=thrift&framed=false",
    show: |id, padding| message(CALL, "Show", id, &structure(padding)),
    hold: |id| message(CALL, "Hold", id, &[0]),
    unknown: |id| message(CALL, "Nothing", id, &[0]),
    large_head: |id| message(CALL, "Show", id, &fields(1000)),
    cheap: || cheap(<[u8]>::to_vec),
    wrong: || {
        vec![
            ("no message", vec![0xFF; 20]),
            ("a long name", message(CALL, &"n".repeat(5000), 9, &[0])),
            ("deep", message(CALL, "Show", 9, &[12, 0, 1].repeat(10_000))),
            ("a message over message_bytes_max", message(CALL, "Show", 9, &structure(2 << 20))),
        ]
    },
    behind_max: 900,
    ..Wire::PLAIN
};

pub const COMPACT: Wire = Wire {
    name: "thrift compact",
    channel: "tcp://ADDRESS?wire=thrift&protocol=compact",
    show: |id, padding| framed(&compact("Show", id, &compact_structure(padding))),
    hold: |id| framed(&compact("Hold", id, &[0])),
    unknown: |id| framed(&compact("Nothing", id, &[0])),
    large_head: |id| framed(&compact("Show", id, &compact_fields(1000))),
    cheap: || vec![("a call of nothing", framed(&compact("", 7, &[0])))],
    wrong: || {
        vec![
            ("a frame of no message", framed(&[0x82, 0xFF, 0xFF])),
            ("a length without end", framed(&[&[0x82, 0x21][..], &[0xFF; 20]].concat())),
            ("deep", framed(&compact("Show", 9, &[0x1C].repeat(10_000)))),
            // Elements of one byte each that take eight in the binary protocol.
            ("many small elements", {
                let list = [&[0x19, 0xF6, 0xE0, 0xA7, 0x12][..], &[0; 300_000], &[0]].concat();
                framed(&compact("Show", 9, &list))
            }),
        ]
    },
    behind_max: 900,
    ..Wire::PLAIN
};

pub const HEADER: Wire = Wire {
    name: "thrift header",
    channel: "tcp://ADDRESS?wire=thrift&protocol=header",
    show: |id, padding| header(id, &[], &message(CALL, "Show", id, &structure(padding))),
    hold: |id| header(id, &[], &message(CALL, "Hold", id, &[0])),
    unknown: |id| header(id, &[], &message(CALL, "Nothing", id, &[0])),
    large_head: |id| {
        let mut info = vec![1, 1, 7];
        info.extend(b"x-large");
        varint(LARGE_VALUE as u64, &mut info);
        info.extend(vec![b'v'; LARGE_VALUE]);
        header(id, &[&[0, 0][..], &info].concat(), &message(CALL, "Show", id, &structure(0)))
    },
    cheap: || cheap(|message| header(7, &[], message)),
    wrong: || {
        let call = message(CALL, "Show", 9, &structure(0));
        vec![
            ("a protocol of no number", header(9, &[9, 0], &call)),
            ("a transform of no number", header(9, &[0, 1, 9], &call)),
            ("a header longer than its frame", {
                let mut bytes = header(9, &[], &call);
                bytes[12..14].copy_from_slice(&[0xFF, 0xFF]);
                bytes
            }),
        ]
    },
    bombs: || vec![("zlib", header(9, &[0, 1, 1], &zlib_bomb()))],
    behind_max: 900,
    ..Wire::PLAIN
};

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32).to_be_bytes()[..], message].concat()
}

/// A message in strict binary.
fn message(kind: u8, method: &str, id: u32, structure: &[u8]) -> Vec<u8> {
    let name = format!("Target:{method}");
    let mut bytes = vec![0x80, 1, 0, kind];
    bytes.extend((name.len() as u32).to_be_bytes());
    bytes.extend(name.as_bytes());
    bytes.extend(id.to_be_bytes());
    bytes.extend(structure);
    bytes
}

/// Field 2 with the marker.
fn structure(padding: usize) -> Vec<u8> {
    let text = text(padding);
    [&[11, 0, 2][..], &(text.len() as u32).to_be_bytes(), text.as_bytes(), &[0]].concat()
}

/// So many small fields, and the marker.
fn fields(count: u16) -> Vec<u8> {
    let small = (10..10 + count).flat_map(|field| [&[2][..], &field.to_be_bytes(), &[1]].concat());
    small.chain(structure(0)).collect()
}

fn compact(method: &str, id: u32, structure: &[u8]) -> Vec<u8> {
    let name = format!("Target:{method}");
    let mut bytes = vec![0x82, 0x21];
    varint(id.into(), &mut bytes);
    varint(name.len() as u64, &mut bytes);
    bytes.extend(name.as_bytes());
    bytes.extend(structure);
    bytes
}

fn compact_structure(padding: usize) -> Vec<u8> {
    let text = text(padding);
    let mut bytes = vec![0x28];
    varint(text.len() as u64, &mut bytes);
    bytes.extend(text.as_bytes());
    bytes.push(0);
    bytes
}

/// So many fields that are true, and the marker.
fn compact_fields(count: usize) -> Vec<u8> {
    let mut bytes = vec![0x11; count];
    let text = text(0);
    // Field 10,000, in zigzag.
    bytes.push(0x08);
    varint(20_000, &mut bytes);
    varint(text.len() as u64, &mut bytes);
    bytes.extend(text.as_bytes());
    bytes.push(0);
    bytes
}

/// A frame of THeader; `head` has the protocol, the transforms and the info blocks.
fn header(id: u32, head: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut head = if head.is_empty() { vec![0, 0] } else { head.to_vec() };
    head.resize(head.len().next_multiple_of(4), 0);
    let mut bytes = vec![0x0F, 0xFF, 0, 0];
    bytes.extend(id.to_be_bytes());
    bytes.extend(((head.len() / 4) as u16).to_be_bytes());
    bytes.extend(head);
    bytes.extend(payload);
    framed(&bytes)
}

fn cheap(frame: fn(&[u8]) -> Vec<u8>) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("a one-way call", frame(&message(ONEWAY, "Note", 7, &[0]))),
        ("a one-way call of nothing", frame(&message(ONEWAY, "Nothing", 7, &[0]))),
        ("a reply", frame(&message(REPLY, "Show", 7, &[0]))),
        ("a call without a name", frame(&message(CALL, "", 7, &[0]))),
    ]
}
