//! Servers that break HTTP/2: the connection ends with a reason, and memory stays bounded.

use super::*;

/// Delivers bytes after a call was sent; returns the error that ends the connection.
fn fatal(bytes: &[u8]) -> String {
    let mut world = World::started(Settings::default());
    world.unary(b"x");
    let mut events = world.receive(bytes);
    let last = events.pop().unwrap_or_default();
    assert!(last.starts_with("fatal: "), "{last} after {events:?}");
    assert!(world.sent().iter().any(|frame| frame.0 == kind::GOAWAY));
    last
}

#[test]
fn frames_that_break_the_protocol_end_the_connection() {
    for (name, bytes) in [
        ("push", frame_bytes(kind::PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])),
        ("idle stream", frame_bytes(kind::HEADERS, END_HEADERS, 3, &[])),
        ("even stream", frame_bytes(kind::DATA, 0, 2, &[])),
        ("stream 0", frame_bytes(kind::DATA, 0, 0, &[])),
        ("settings of a stream", frame_bytes(kind::SETTINGS, 0, 1, &[])),
        ("odd settings", frame_bytes(kind::SETTINGS, 0, 0, &[0; 7])),
        ("long settings", frame_bytes(kind::SETTINGS, 0, 0, &[0; 6 * 129])),
        ("window of 2^31", settings_of(4, 1 << 31)),
        ("small frames", settings_of(5, 100)),
        ("short ping", frame_bytes(kind::PING, 0, 0, &[0; 7])),
        ("short reset", frame_bytes(kind::RST_STREAM, 0, 1, &[0; 3])),
        ("short goaway", frame_bytes(kind::GOAWAY, 0, 0, &[0; 7])),
        ("zero increment", window_update(0, 0)),
        ("overflow", window_update(0, WINDOW_MAX)),
        ("continuation without a head", frame_bytes(kind::CONTINUATION, END_HEADERS, 1, &[])),
        (
            "a head that is interrupted",
            [frame_bytes(kind::HEADERS, 0, 1, &[]), frame_bytes(kind::PING, 0, 0, &[0; 8])].concat(),
        ),
        (
            "a head continued for another stream",
            [frame_bytes(kind::HEADERS, 0, 1, &[]), frame_bytes(kind::CONTINUATION, 0, 3, &[])].concat(),
        ),
        ("unknown index", frame_bytes(kind::HEADERS, END_HEADERS, 1, &[0xff, 0x7f])),
        ("huffman", frame_bytes(kind::HEADERS, END_HEADERS, 1, &[0, 0x81, 0xff, 0])),
        ("table too large", frame_bytes(kind::HEADERS, END_HEADERS, 1, &[0x3f, 0xe2, 0x1f])),
        ("padding", frame_bytes(kind::DATA, flag::PADDED, 1, &[9, 0, 0])),
        ("padded head", frame_bytes(kind::HEADERS, flag::PADDED | END_HEADERS, 1, &[9, 0, 0])),
        ("empty padded", frame_bytes(kind::DATA, flag::PADDED, 1, &[])),
        ("large frame", [&[0x10, 0, 1][..], &[0, 0, 0, 0, 0, 1]].concat()),
        ("stream 1 depends on itself", frame_bytes(kind::HEADERS, 0x24, 1, &[0, 0, 0, 1, 0])),
    ] {
        println!("{name}: {}", fatal(&bytes));
    }
}

fn settings_of(number: u16, value: u32) -> Vec<u8> {
    let payload = [&number.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame_bytes(kind::SETTINGS, 0, 0, &payload)
}

#[test]
fn a_connection_that_begins_otherwise_is_no_http2() {
    for bytes in [&b"HTTP/1.1 400 Bad Request\r\n"[..], &frame_bytes(kind::PING, 0, 0, &[0; 8])] {
        let mut world = World::new(Limits::default());
        let events = world.receive(bytes);
        assert!(events[0].starts_with("fatal: "), "{events:?}");
    }
}

#[test]
fn endless_header_blocks_end_the_connection() {
    let first = frame_bytes(kind::HEADERS, 0, 1, &[]);
    let empty = frame_bytes(kind::CONTINUATION, 0, 1, &[]);
    assert!(fatal(&[first.clone(), empty.repeat(17)].concat()).contains("four times"));
    let large = frame_bytes(kind::CONTINUATION, 0, 1, &[0; 60_000]);
    assert!(fatal(&[first, large.repeat(2)].concat()).contains("four times"));
    // A frame that is too large is refused by its head.
    assert!(fatal(&frame_bytes(kind::HEADERS, END_HEADERS, 1, &[0; 70_000])[..9]).contains("four times"));
}

#[test]
fn bombs_of_references_end_the_connection() {
    // One field of 4000 bytes, then references to it.
    let mut block = BytesMut::new();
    block.extend_from_slice(&[0x40, 1, b'a', 0x7f, 0xa1, 0x1e]);
    block.extend_from_slice(&[b'x'; 4000]);
    block.extend_from_slice(&[0xbe; 10_000]);
    assert!(fatal(&frame_bytes(kind::HEADERS, END_HEADERS, 1, &block)).contains("four times"));
}

#[test]
fn floods_that_the_server_does_not_read_end_the_connection() {
    for flood in [frame_bytes(kind::PING, 0, 0, &[0; 8]), frame_bytes(kind::SETTINGS, 0, 0, &[])] {
        let mut world = World::started(Settings::default());
        world.unary(b"x");
        let bytes = flood.repeat(1000);
        let mut rounds = 0;
        let last = loop {
            rounds += 1;
            assert!(rounds < 1000, "never ends");
            let events = world.receive(&bytes);
            if let Some(fatal) = events.last().filter(|event| event.starts_with("fatal")) {
                break fatal.clone();
            }
            assert!(world.out.len() < 600 << 10);
        };
        assert!(last.contains("does not read"), "{last}");
    }
    // A server that reads is served for ever.
    let mut world = World::started(Settings::default());
    let bytes = frame_bytes(kind::PING, 0, 0, &[0; 8]).repeat(1000);
    for _ in 0..100 {
        assert!(world.receive(&bytes).is_empty());
        assert_eq!(world.sent().len(), 1000);
    }
}

#[test]
fn frames_without_a_use_hold_no_memory() {
    let mut world = World::started(Settings::default());
    world.unary(b"x");
    world.sent();
    for bytes in [
        frame_bytes(kind::DATA, 0, 1, &[]),
        frame_bytes(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 1]),
        frame_bytes(0xaa, 0, 1, &[7; 5000]),
        window_update(1, 1),
        frame_bytes(kind::SETTINGS, flag::ACK, 0, &[]),
    ] {
        // DATA before the head is an error of its stream only if it has content.
        for _ in 0..1000 {
            assert!(world.receive(&bytes).is_empty());
        }
        assert!(world.input.is_empty() && world.client.events.is_empty());
    }
    assert!(world.out.is_empty());
}

#[test]
fn memory_of_a_message_is_reserved_as_it_arrives() {
    let mut world = World::started(Settings::default());
    world.unary(b"x");
    let head = world.headers(1, 0, HEAD);
    let start = frame_bytes(kind::DATA, 0, 1, &[0, 0, 0x40, 0, 0]);
    world.receive(&[head, start, frame_bytes(kind::DATA, 0, 1, &[1; 100])].concat());
    let body = world.client.streams.get(1).unwrap().body.as_ref().unwrap();
    assert_eq!(body.message_len, 4 << 20);
    assert!(body.message.capacity() <= 32 << 10);
}

#[test]
fn a_long_text_of_a_goaway_is_skipped() {
    let mut world = World::started(Settings::default());
    world.unary(b"x");
    let payload = [&[0, 0, 0, 1, 0, 0, 0, 2][..], &vec![b'x'; 1 << 19]].concat();
    let events = world.receive(&frame_bytes(kind::GOAWAY, 0, 0, &payload));
    assert!(events[0].starts_with("go away: tcp://a:1 takes no more calls: INTERNAL_ERROR xxx"));
    assert!(events[0].len() < 1200 && events.len() == 1);
    let reply = world.plain_reply(1, b"still");
    assert_eq!(world.receive(&reply), ["0 reply still"]);
}
