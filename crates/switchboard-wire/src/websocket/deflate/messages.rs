//! Tests of compressed messages, between both machines and with handwritten frames.

use super::{super::*, COMPRESS_MIN, Deflate};
use crate::{
    Input, Outbox,
    websocket::tests::{LIMITS, frame, run, whole},
};
use bytes::BytesMut;

const SERVER: Role = Role::Server;
const CLIENT: Role = Role::Client { seed: 3 };

fn machine(role: Role, window_bits: u8) -> WebSocket {
    WebSocket::new(role, LIMITS).with_deflate(Some(Deflate { window_bits }))
}

/// Returns the result of a server for these frames, which must not depend on their split.
fn serve(bytes: &[u8]) -> (Vec<Event>, Vec<u8>, Vec<u8>, bool) {
    let once = run(machine(SERVER, 15), bytes, bytes.len());
    let stepwise = run(machine(SERVER, 15), bytes, 1);
    // The delivered parts of a rejected message depend on the split.
    assert!(once.3 || stepwise.1 == once.1);
    assert_eq!((stepwise.0, stepwise.2, stepwise.3), (once.0.clone(), once.2.clone(), once.3));
    once
}

/// Returns the close code that a server sends.
fn refused(bytes: &[u8]) -> u16 {
    let (_, _, out, fatal) = serve(bytes);
    assert!(fatal, "{bytes:02x?}");
    u16::from_be_bytes([out[2], out[3]])
}

#[test]
fn the_examples_of_the_rfc_are_understood() {
    for payload in [
        &b"\xf2\x48\xcd\xc9\xc9\x07\x00"[..],
        b"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00",
        b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00",
        b"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00",
        // A final block, with nothing behind it.
        b"\xf3\x48\xcd\xc9\xc9\x07\x00",
    ] {
        for cut in 0..=payload.len() {
            let (head, tail) = payload.split_at(cut);
            let ping = frame(0x89, b"");
            let bytes = [frame(0x41, head), ping, frame(0x80, tail), frame(0xC1, payload)].concat();
            let (events, heard, out, fatal) = serve(&bytes);
            assert_eq!((events, fatal), (vec![whole(Kind::Text); 2], false), "{payload:02x?}");
            assert_eq!((&heard[..], &out[..]), (&b"HelloHello"[..], &b"\x8A\0"[..]), "{payload:02x?}");
        }
    }
}

#[test]
fn empty_and_plain_messages_may_come_in_between() {
    let bytes = [frame(0xC1, b"\0"), frame(0xC2, b""), frame(0x81, b"plain"), frame(0x82, b"")].concat();
    let (events, heard, _, fatal) = serve(&bytes);
    let kinds = [Kind::Text, Kind::Binary, Kind::Text, Kind::Binary];
    assert_eq!((events, fatal), (kinds.map(whole).to_vec(), false));
    assert_eq!(heard, b"plain");
}

#[test]
fn the_reserved_bit_belongs_to_the_first_frame_of_a_message() {
    let hello = b"\xf2\x48\xcd\xc9\xc9\x07\x00";
    assert_eq!(refused(&[frame(0x41, &hello[..3]), frame(0xC0, &hello[3..])].concat()), 1002);
    assert_eq!(refused(&[frame(0x01, b"a"), frame(0xC0, hello)].concat()), 1002);
    for control in [0xC8, 0xC9, 0xCA] {
        assert_eq!(refused(&frame(control, b"")), 1002);
    }
    for bit in [0xA1, 0x91, 0xE1, 0xD1] {
        assert_eq!(refused(&frame(bit, hello)), 1002);
    }
    let (_, _, out, fatal) = run(WebSocket::new(SERVER, LIMITS), &frame(0xC1, hello), 1);
    assert!(fatal && out[2..4] == 1002u16.to_be_bytes());
}

#[test]
fn invalid_deflate_is_rejected() {
    for payload in [
        &b"\xff\xff"[..],
        // A stored block of 16 bytes that has only four.
        b"\x00\x10\x00\xef\xffabcd",
        b"\xf2\x48\xcd",
        // Refers to the message before it, as without server_no_context_takeover.
        b"\xf2\x00\x11\x00\x00",
    ] {
        let hello = frame(0xC2, b"\xf2\x48\xcd\xc9\xc9\x07\x00");
        assert_eq!(refused(&[hello, frame(0xC2, payload)].concat()), 1007, "{payload:02x?}");
    }
    // 0xCE alone is not a character.
    assert_eq!(refused(&frame(0xC1, b"\x00\x01\x00\xfe\xff\xce\x00")), 1007);
}

#[test]
fn messages_are_limited_by_their_decompressed_size() {
    let most = LIMITS.message_bytes_max as usize;
    for (len, code) in [(most, None), (most + 1, Some(1009)), (200 * most, Some(1009))] {
        let mut out = Outbox::new();
        let mut client = WebSocket::new(CLIENT, LIMITS).with_deflate(Some(Deflate { window_bits: 15 }));
        client.send(Kind::Binary, &[&vec![7; len]], &mut out);
        let bytes = out.take_all();
        let (mut input, mut payload, mut held) = (Input::default(), BytesMut::new(), 0);
        assert!(bytes.len() < 200 + len / 100, "{} bytes for {len}", bytes.len());
        input.extend(&bytes);
        let mut server = machine(SERVER, 15);
        let ended = loop {
            match server.recv(&mut input, &mut payload, &mut out) {
                Ok(Some(Event::Data { last, .. })) => {
                    held += payload.split().len();
                    if last {
                        break None;
                    }
                }
                Ok(other) => panic!("{other:?}"),
                Err(_) => break Some(u16::from_be_bytes([out.tail()[2], out.tail()[3]])),
            }
        };
        assert_eq!(ended, code, "{len}");
        assert!(held <= most, "{held}");
    }
    // Endless blocks without content.
    let many = b"\0\0\0\xff\xff".repeat(20_500);
    assert_eq!(refused(&[frame(0x42, &many[..60_000]), frame(0x80, &many[60_000..])].concat()), 1009);
}

#[test]
fn last_blocks_without_content_are_limited() {
    // Each final block resets the decompressor.
    let last = |count: usize| frame(0xC2, &b"\x03\0".repeat(count));
    assert!(!serve(&last(64)).3);
    assert_eq!(refused(&last(65)), 1007);
    assert_eq!(refused(&last(30_000)), 1007);
    // The limit also applies to fragments of a message.
    let fragments: Vec<u8> = [frame(0x42, b"\x03\0"), frame(0x00, b"\x03\0").repeat(64)].concat();
    assert_eq!(refused(&fragments), 1007);
    // A message may have more final blocks in proportion to its content.
    let block = [&b"\x01\x00\x04\xff\xfb"[..], &[7; 1024]].concat();
    let (events, heard, _, fatal) = serve(&frame(0xC2, &block.repeat(68)));
    assert_eq!((events, heard.len(), fatal), (vec![whole(Kind::Binary)], 68 * 1024, false));
}

#[test]
fn each_read_of_the_input_takes_a_bounded_part_of_it() {
    // Empty blocks, and fragments without payload: both produce no output.
    let blocks = frame(0x42, &b"\0\0\0\xff\xff".repeat(10_000));
    let fragments = [frame(0x02, b""), frame(0x00, b"").repeat(8000)].concat();
    for bytes in [blocks, fragments] {
        let (mut input, mut payload, mut out) = (Input::default(), BytesMut::new(), Outbox::new());
        input.extend(&bytes);
        let mut server = machine(SERVER, 15);
        loop {
            let before = input.len();
            let event = server.recv(&mut input, &mut payload, &mut out).unwrap();
            assert!(before - input.len() <= 4 << 10, "{} bytes at once", before - input.len());
            if event.is_none() {
                break;
            }
        }
        assert!(input.is_empty() && payload.is_empty());
    }
}

#[test]
fn noise_of_the_largest_size_passes() {
    let mut state = 1u32;
    let noise: Vec<u8> = (0..LIMITS.frame_bytes_max)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect();
    let stored = noise.chunks(100).flat_map(|chunk| {
        let len = chunk.len() as u16;
        [&[0][..], &len.to_le_bytes(), &(!len).to_le_bytes(), chunk].concat()
    });
    // An inefficient sender: five more bytes for every hundred exceed the allowance.
    assert_eq!(refused(&frame(0xC2, &stored.chain([0]).collect::<Vec<u8>>())), 1009);
    let mut out = Outbox::new();
    machine(CLIENT, 15).send(Kind::Binary, &[&noise], &mut out);
    assert_eq!(serve(&out.take_all()).1, noise);
}

#[test]
fn compressed_messages_are_read_for_every_window_size() {
    let text: Vec<u8> = (0..70_000u32).map(|n| b'a' + (n % 7 * (n / 1000)) as u8 % 26).collect();
    for window_bits in [8, 9, 10, 12, 15] {
        for len in [0, 1, COMPRESS_MIN - 1, COMPRESS_MIN, 10_000, text.len()] {
            for (from, to) in [(CLIENT, SERVER), (SERVER, CLIENT)] {
                let (mut sender, mut out) = (machine(from, window_bits), Outbox::new());
                let (first, second) = text[..len].split_at(len / 3);
                sender.send(Kind::Text, &[first, second], &mut out);
                let bytes = out.take_all();
                let compressed = len >= COMPRESS_MIN && window_bits > 8;
                assert_eq!(bytes[0], if compressed { 0xC1 } else { 0x81 }, "{len} {window_bits}");
                assert_eq!(sender.compresses(len), compressed);
                assert!(!compressed || bytes.len() < 20 + len / 2, "{} bytes for {len}", bytes.len());
                for step in [5, bytes.len()] {
                    let (events, heard, _, fatal) = run(machine(to, 15), &bytes, step);
                    assert_eq!((events, fatal), (vec![whole(Kind::Text)], false));
                    assert!(heard == text[..len]);
                }
            }
        }
    }
}
