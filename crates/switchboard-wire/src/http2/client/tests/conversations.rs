//! Requests and responses of calls.

use super::*;
use std::time::Duration;

#[test]
fn a_connection_begins_with_preface_settings_and_a_large_window() {
    let mut world = World::new(Limits::default());
    let frames = world.sent();
    assert_eq!(frames[0].0, kind::SETTINGS);
    let mut settings = Settings::default();
    settings.apply(&frames[0].3).unwrap();
    assert!(!settings.allows_push && settings.window_bytes == 256 << 10);
    assert_eq!(frames[1], (kind::WINDOW_UPDATE, 0, 0, (WINDOW_MAX - 65_535).to_be_bytes().to_vec()));
    assert_eq!(frames.len(), 2);
}

#[test]
fn a_request_is_one_head_and_one_message() {
    let mut world = World::started(Settings::default());
    world.unary(b"you");
    let frames = world.sent();
    let wanted = [
        ":method: POST",
        ":scheme: http",
        ":path: /a.B/One",
        ":authority: a:1",
        "content-type: application/grpc",
        "te: trailers",
        concat!("user-agent: switchboard/", env!("CARGO_PKG_VERSION")),
    ];
    assert_eq!(world.fields(&frames[0].3), wanted);
    assert_eq!((frames[0].1, frames[0].2), (END_HEADERS, 1));
    assert_eq!(frames[1], (kind::DATA, END_STREAM, 1, envelope(0, b"you")));
    // From the second call on, the block has an index for each field; from the third on, it is copied.
    for stream in [3, 5, 7] {
        world.unary(b"");
        let frames = world.sent();
        assert_eq!((frames[0].2, frames[0].3.len()), (stream, 7));
        assert_eq!(world.fields(&frames[0].3), wanted);
    }
}

#[test]
fn timeouts_metadata_and_compression_are_fields() {
    let mut world = World::started(Settings::default());
    let mut metadata = Metadata::new();
    for (name, value) in [("x-a", "1"), ("x-a", "2"), ("authorization", "Bearer x"), ("grpc-x", "own")] {
        metadata.insert(name, value).unwrap();
    }
    metadata.insert("x-bin", &[0u8, 255][..]).unwrap();
    for timeout in [Duration::from_millis(50), Duration::from_millis(50), Duration::from_secs(3)] {
        let open = Open {
            timeout: Some(timeout),
            encoding: Encoding::Gzip,
            compressed: true,
            ..open(UNARY, false, &metadata)
        };
        world.open_with(open, Some(b"zip"));
        let frames = world.sent();
        let fields = world.fields(&frames[0].3);
        let timeout = format!("grpc-timeout: {}", grpc::timeout(timeout));
        let wanted = [
            "grpc-accept-encoding: gzip",
            "grpc-encoding: gzip",
            &timeout,
            "x-a: 1",
            "x-a: 2",
            "authorization: Bearer x (secret)",
            "x-bin: AP8",
        ];
        assert_eq!(fields[7..], wanted);
        assert_eq!(frames[1].3, envelope(1, b"zip"));
    }
    // Another table size of the server, and a table of nothing.
    for bytes in [100, 0, 4096] {
        world.receive(&settings(Settings { header_table_bytes: bytes, ..Settings::default() }));
        world.unary(b"");
        let frames = world.sent();
        let block = &frames.iter().find(|frame| frame.0 == kind::HEADERS).unwrap().3;
        assert_eq!(world.fields(block)[2], ":path: /a.B/One", "{bytes}");
    }
}

#[test]
fn plain_replies_come_without_an_event_once_their_blocks_are_known() {
    let mut world = World::started(Settings::default());
    for (at, way) in ["event", "event", "direct", "direct"].into_iter().enumerate() {
        let id = world.unary(b"x");
        let bytes = world.plain_reply(2 * id as u32 + 1, b"hello");
        world.input.extend(&bytes);
        let direct = world.client.next_reply(&mut world.input);
        assert_eq!(direct.is_some(), way == "direct", "call {at}");
        match direct {
            Some((of, len)) => assert_eq!((of, world.input.take(len)), (id, Bytes::from_static(b"hello"))),
            None => assert_eq!(world.receive(&[]).len() + world.receive(b"").len(), 0),
        }
        let rest: Vec<_> =
            std::iter::from_fn(|| world.client.recv(&mut world.input, &mut world.out).unwrap()).collect();
        assert_eq!(rest.len(), usize::from(way == "event"));
        assert!(world.input.is_empty() && world.client.streams.is_empty());
    }
}

#[test]
fn every_split_of_a_response_gives_the_same_events() {
    let mut whole = Vec::new();
    for piece in [0, 1, 2, 3, 5, 7, 8, 9, 10, 11, 13, 64] {
        let mut world = World::started(Settings::default());
        world.piece = piece;
        let mut events = Vec::new();
        for _ in 0..4 {
            let id = world.unary(b"x");
            let stream = 2 * id as u32 + 1;
            let mut bytes = world.plain_reply(stream, b"hello");
            bytes.extend(frame_bytes(kind::PING, 0, 0, b"12345678"));
            bytes.extend(frame_bytes(0xfe, 0xff, 0, b"an extension"));
            events.extend(world.receive(&bytes));
        }
        let stream = 2 * world.bidi() as u32 + 1;
        let head = world.headers(stream, 0, &[HEAD, &[("x-early", "1")]].concat());
        let messages = [envelope(0, b"first"), envelope(0, b""), envelope(0, &[7; 500])].concat();
        let padded = [&[3][..], &messages, &[0; 3]].concat();
        let data = frame_bytes(kind::DATA, flag::PADDED, stream, &padded);
        let end = world.headers(stream, END_STREAM, &[("grpc-status", "0"), ("x-late", "2")]);
        events.extend(world.receive(&[head, data, end].concat()));
        if piece == 0 {
            whole.clone_from(&events);
            assert_eq!(events[0], "0 reply hello");
            assert_eq!(
                events[4..],
                [
                    r#"4 head {"x-early": b"1"}"#,
                    "4 item first",
                    "4 item ",
                    "4 item 500 bytes",
                    r#"4 end {"x-late": b"2"}"#,
                ]
            );
        }
        assert_eq!(events, whole, "pieces of {piece} bytes");
        let pongs = world.sent().iter().filter(|frame| frame.0 == kind::PING && frame.1 == flag::ACK).count();
        assert_eq!(pongs, 4);
    }
}

#[test]
fn metadata_and_trailers_of_unary_calls_arrive_with_the_reply() {
    let mut world = World::started(Settings::default());
    world.unary(b"x");
    let head = world.headers(1, 0, &[HEAD, &[("x-a", "1")]].concat());
    let data = frame_bytes(kind::DATA, 0, 1, &envelope(0, b"yes"));
    assert!(world.receive(&[head, data].concat()).is_empty());
    let end = world.headers(1, END_STREAM, &[("grpc-status", "0"), ("x-b", "2")]);
    assert_eq!(world.receive(&end), [r#"0 head {"x-a": b"1"}"#, "0 item yes", r#"0 end {"x-b": b"2"}"#]);

    world.unary(b"x");
    let head = world.headers(3, 0, &[HEAD, &[("x-a", "1")]].concat());
    let end = world.headers(3, END_STREAM, &[("grpc-status", "5"), ("grpc-message", "none"), ("x-b", "2")]);
    assert_eq!(world.receive(&[head, end].concat()), ["1 NotFound No none"]);

    world.unary(b"x");
    let only = world.headers(5, END_STREAM, &[HEAD, &[("grpc-status", "7")]].concat());
    assert_eq!(world.receive(&only), ["2 PermissionDenied No "]);
}

#[test]
fn compressed_replies_need_the_encoding_of_the_call() {
    let mut world = World::started(Settings::default());
    let metadata = Metadata::new();
    for (name, wanted) in [
        (Some("gzip"), "reply zip compressed"),
        (Some("zstd"), "Internal No the reply is compressed with zstd; the call offered gzip"),
        (None, "Internal No the server sent a compressed message without the name of the compression"),
    ] {
        let id =
            world.open_with(Open { encoding: Encoding::Gzip, ..open(UNARY, false, &metadata) }, Some(b"x"));
        let stream = 2 * id as u32 + 1;
        let encoding = name.map(|name| ("grpc-encoding", name));
        let fields: Vec<_> = HEAD.iter().copied().chain(encoding).collect();
        let head = world.headers(stream, 0, &fields);
        let data = frame_bytes(kind::DATA, 0, stream, &envelope(1, b"zip"));
        let end = world.headers(stream, END_STREAM, &[("grpc-status", "0")]);
        assert_eq!(world.receive(&[head, data, end].concat()), [format!("{id} {wanted}")]);
    }
}

#[test]
fn canceled_calls_reset_their_streams_and_late_frames_are_dropped() {
    let mut world = World::started(Settings::default());
    let id = world.unary(b"x");
    world.sent();
    world.client.cancel(id, &mut world.out);
    let sent = world.sent();
    assert_eq!(sent, [(kind::RST_STREAM, 0, 1, ErrorCode::CANCEL.0.to_be_bytes().to_vec())]);
    let late = world.plain_reply(1, b"late");
    assert!(world.receive(&late).is_empty());
    assert!(world.receive(&reset(1, ErrorCode::CANCEL)).is_empty());
    // The blocks of the late frames have changed the table.
    world.unary(b"x");
    let bytes = world.plain_reply(3, b"hello");
    assert_eq!(world.receive(&bytes), ["1 reply hello"]);
}

#[test]
fn a_server_that_responds_early_ends_the_request() {
    let mut world = World::started(Settings::default());
    world.bidi();
    world.sent();
    let only =
        world.headers(1, END_STREAM, &[HEAD, &[("grpc-status", "9"), ("grpc-message", "no")]].concat());
    assert_eq!(world.receive(&only), ["0 FailedPrecondition No no"]);
    assert_eq!(world.sent()[0], (kind::RST_STREAM, 0, 1, vec![0; 4]));
    // More messages go nowhere.
    world.client.item(0, &Bytes::from_static(b"x"), false, &mut world.out).unwrap();
    world.client.half_close(0, &mut world.out);
    assert!(world.sent().is_empty());
}

#[test]
fn informational_heads_come_before_the_head() {
    let mut world = World::started(Settings::default());
    world.unary(b"x");
    let early = world.headers(1, 0, &[(":status", "103"), ("link", "x")]);
    let reply = world.plain_reply(1, b"hello");
    assert_eq!(world.receive(&[early.clone(), early, reply].concat()), ["0 reply hello"]);
}

#[test]
fn pings_are_sent_and_answered() {
    let mut world = World::started(Settings::default());
    world.client.ping(&mut world.out);
    assert_eq!(world.sent(), [(kind::PING, 0, 0, PING.to_vec())]);
    assert_eq!(world.receive(&frame_bytes(kind::PING, flag::ACK, 0, &PING)), ["pong"]);
    assert!(world.receive(&frame_bytes(kind::PING, 0, 0, b"measured")).is_empty());
    assert_eq!(world.sent(), [(kind::PING, flag::ACK, 0, b"measured".to_vec())]);
}
