//! Flow control in both directions, limits of streams, and the end of a connection.

use super::*;

fn item(world: &mut World, id: ClientCallId, len: usize) {
    world.client.item(id, &vec![b'x'; len].into(), false, &mut world.out).unwrap();
}

/// Bytes of DATA in frames, and true if the last one ends its stream.
fn data(frames: &[Frame], stream: u32) -> (usize, bool) {
    let frames: Vec<_> = frames.iter().filter(|frame| frame.0 == kind::DATA && frame.2 == stream).collect();
    let bytes = frames.iter().map(|frame| frame.3.len()).sum();
    (bytes, frames.last().is_some_and(|frame| frame.1 == END_STREAM))
}

#[test]
fn requests_wait_for_both_windows() {
    let mut world = World::started(Settings { window_bytes: 1000, ..Settings::default() });
    let id = world.unary(&[b'x'; 2995]);
    assert_eq!(data(&world.sent(), 1), (1000, false));
    assert_eq!((world.client.queued_bytes(), world.client.is_blocked(id)), (2000, true));
    assert!(world.receive(&window_update(1, 1500)).is_empty());
    assert_eq!(data(&world.sent(), 1), (1500, false));
    world.receive(&window_update(1, 1500));
    assert_eq!(data(&world.sent(), 1), (500, true));
    assert_eq!((world.client.queued_bytes(), world.client.is_blocked(id)), (0, false));

    // The connection has 65,535 bytes, of which 3000 were used.
    (0..70).for_each(|_| {
        world.unary(&[b'y'; 995]);
    });
    let frames = world.sent();
    let bytes: usize = frames.iter().filter(|frame| frame.0 == kind::DATA).map(|frame| frame.3.len()).sum();
    assert_eq!(bytes, 65_535 - 3000);
    world.receive(&window_update(0, 100_000));
    let frames = world.sent();
    let rest: usize = frames.iter().filter(|frame| frame.0 == kind::DATA).map(|frame| frame.3.len()).sum();
    assert_eq!(rest, 70_000 - bytes);
    assert_eq!(world.client.queued_bytes(), 0);
}

#[test]
fn messages_of_streams_resume_when_a_window_opens() {
    let mut world = World::started(Settings { window_bytes: 100, ..Settings::default() });
    let id = world.bidi();
    item(&mut world, id, 45);
    item(&mut world, id, 45);
    assert!(!world.client.is_blocked(id));
    item(&mut world, id, 10);
    assert!(world.client.is_blocked(id));
    world.client.half_close(id, &mut world.out);
    assert_eq!(data(&world.sent(), 1), (100, false));
    assert!(world.receive(&window_update(1, 5)).is_empty());
    assert_eq!(data(&world.sent(), 1), (5, false));
    // Nothing is resumed after the last message.
    assert!(world.receive(&window_update(1, 50)).is_empty());
    assert_eq!(data(&world.sent(), 1), (10, true));

    let id = world.bidi();
    item(&mut world, id, 200);
    world.sent();
    assert_eq!(world.receive(&window_update(3, 500)), ["1 credit 0"]);
    assert!(!world.client.is_blocked(id));
    world.client.half_close(id, &mut world.out);
    assert_eq!(world.sent().last().unwrap(), &(kind::DATA, END_STREAM, 3, vec![]));
}

#[test]
fn settings_make_windows_negative_and_open_them() {
    let mut world = World::started(Settings { window_bytes: 1000, ..Settings::default() });
    world.unary(&[b'x'; 1495]);
    world.sent();
    // 1000 bytes are sent, so the window is -900.
    world.receive(&settings(Settings { window_bytes: 100, ..Settings::default() }));
    world.receive(&window_update(1, 900));
    assert_eq!(data(&world.sent(), 1), (0, false));
    world.receive(&window_update(1, 200));
    assert_eq!(data(&world.sent(), 1), (200, false));
    world.receive(&settings(Settings { window_bytes: 10_000, ..Settings::default() }));
    assert_eq!(data(&world.sent(), 1), (300, true));
    let too_large = Settings { window_bytes: WINDOW_MAX, ..Settings::default() };
    world.receive(&window_update(1, 2000));
    let events = world.receive(&settings(too_large));
    assert!(events[0].starts_with("fatal: a setting makes a window too large"), "{events:?}");
}

#[test]
fn frames_are_as_large_as_the_server_accepts() {
    let settings = Settings { frame_bytes_max: 20_000, window_bytes: 1 << 20, ..Settings::default() };
    let mut world = World::started(settings);
    world.unary(&[b'x'; 50_000]);
    let sizes: Vec<_> =
        world.sent().iter().filter(|frame| frame.0 == kind::DATA).map(|frame| frame.3.len()).collect();
    assert_eq!(sizes, [20_000, 20_000, 10_005]);
}

#[test]
fn nothing_waits_while_the_windows_have_room() {
    let mut world = World::started(Settings { window_bytes: 1 << 20, ..Settings::default() });
    world.receive(&window_update(0, 1 << 20));
    let id = world.bidi();
    item(&mut world, id, 300_000);
    world.unary(&vec![b'x'; 300_000]);
    assert_eq!(world.client.queued_bytes(), 0);
    let frames = world.sent();
    assert_eq!((data(&frames, 1), data(&frames, 3)), ((300_005, false), (300_005, true)));
}

#[test]
fn a_large_request_does_not_stop_the_small_ones_behind_it() {
    let mut world = World::started(Settings { window_bytes: 1 << 20, ..Settings::default() });
    world.unary(&vec![b'x'; 300_000]);
    let others: Vec<_> = (0..10).map(|_| world.unary(b"small")).collect();
    world.sent();
    // The first turn is for the large one, then the others have theirs.
    world.receive(&window_update(0, 80_000));
    let frames = world.sent();
    assert_eq!(data(&frames, 1).0, 80_000 - 10 * 10);
    for id in others {
        assert_eq!(data(&frames, 2 * id as u32 + 1), (10, true));
    }
}

#[test]
fn calls_above_the_limit_of_streams_wait_in_order() {
    let mut world = World::started(Settings { streams_max: 2, ..Settings::default() });
    let ids: Vec<_> = (0..6).map(|at| world.unary(format!("{at}").as_bytes())).collect();
    let stream = world.bidi();
    item(&mut world, stream, 10);
    assert_eq!(world.sent_heads().len(), 4);
    assert!(world.client.is_blocked(stream) && world.client.queued_bytes() == 4 * 6 + 15);
    world.client.cancel(ids[3], &mut world.out);
    assert!(world.sent().is_empty(), "a call that was not sent is not reset");
    let reply = world.plain_reply(1, b"a");
    assert_eq!(world.receive(&reply), ["0 reply a"]);
    assert_eq!(world.sent_heads(), [(kind::HEADERS, END_HEADERS, 5), (kind::DATA, END_STREAM, 5)]);
    world.client.cancel(ids[1], &mut world.out);
    let sent = world.sent_heads();
    assert_eq!(
        sent,
        [(kind::RST_STREAM, 0, 3), (kind::HEADERS, END_HEADERS, 9), (kind::DATA, END_STREAM, 9)]
    );
    let raised = settings(Settings { streams_max: 100, ..Settings::default() });
    assert_eq!(world.receive(&raised), ["settings", "6 credit 0"]);
    let streams: Vec<_> =
        world.sent_heads().iter().filter(|head| head.0 == kind::HEADERS).map(|head| head.2).collect();
    assert_eq!(streams, [11, 13]);
    assert_eq!(world.client.queued_bytes(), 0);
}

#[test]
fn a_hundred_calls_are_sent_before_the_settings_of_the_server() {
    let mut world = World::new(Limits::default());
    (0..150).for_each(|_| {
        world.unary(b"x");
    });
    let heads = |world: &mut World| world.sent_heads().iter().filter(|head| head.0 == kind::HEADERS).count();
    assert_eq!(heads(&mut world), 100);
    world.receive(&settings(Settings::default()));
    assert_eq!(heads(&mut world), 50);
}

#[test]
fn readers_open_the_window_and_large_messages_are_let_in() {
    let limits = Limits { stream_window_bytes: 1000, ..Limits::default() };
    let mut world = World::new(limits);
    world.receive(&settings(Settings::default()));
    let id = world.bidi();
    world.sent();
    let head = world.headers(1, 0, HEAD);
    world.receive(&head);
    let message = |len: usize| frame_bytes(kind::DATA, 0, 1, &envelope(0, &vec![b'x'; len]));
    assert_eq!(world.receive(&message(600)), ["0 item 600 bytes"]);
    assert!(world.sent().is_empty());
    world.client.credit(id, 600, &mut world.out);
    assert_eq!(world.sent(), [(kind::WINDOW_UPDATE, 0, 1, 605u32.to_be_bytes().to_vec())]);
    // A message of 5000 bytes: its first 1000 bytes fill the window.
    let large = envelope(0, &vec![b'x'; 5000]);
    assert!(world.receive(&frame_bytes(kind::DATA, 0, 1, &large[..1000])).is_empty());
    assert_eq!(world.sent(), [(kind::WINDOW_UPDATE, 0, 1, 4005u32.to_be_bytes().to_vec())]);
    assert_eq!(world.receive(&frame_bytes(kind::DATA, 0, 1, &large[1000..])), ["0 item 5000 bytes"]);
    // The server has no window until the reader has taken the message.
    let excess = world.receive(&message(1));
    assert!(excess[0].contains("sent more than the window of the stream"), "{excess:?}");
}

#[test]
fn many_empty_messages_neither_stall_nor_exceed_the_window() {
    let limits = Limits { stream_window_bytes: 1000, ..Limits::default() };
    let mut world = World::new(limits);
    world.receive(&settings(Settings::default()));
    let id = world.bidi();
    let head = world.headers(1, 0, HEAD);
    world.receive(&head);
    let (mut taken, mut window) = (0, 1000i64);
    for _ in 0..10_000 {
        let bytes = frame_bytes(kind::DATA, 0, 1, &envelope(0, b""));
        window -= 5;
        assert!(window >= 0, "the server would wait for ever");
        assert_eq!(world.receive(&bytes), ["0 item "]);
        taken += 1;
        // As a reader does: credit by quarters of the window.
        if taken == 250 {
            world.client.credit(id, 250, &mut world.out);
            taken = 0;
        }
        let updates = world.sent().into_iter().filter(|frame| (frame.0, frame.2) == (kind::WINDOW_UPDATE, 1));
        window +=
            updates.map(|frame| i64::from(u32::from_be_bytes(frame.3.try_into().unwrap()))).sum::<i64>();
    }
}

#[test]
fn large_replies_of_unary_calls_are_let_in() {
    let limits = Limits { stream_window_bytes: 1000, ..Limits::default() };
    let mut world = World::new(limits);
    world.receive(&settings(Settings::default()));
    world.unary(b"x");
    world.sent();
    let head = world.headers(1, 0, HEAD);
    let message = envelope(0, &vec![b'x'; 100_000]);
    world.receive(&[head, frame_bytes(kind::DATA, 0, 1, &message[..1000])].concat());
    assert_eq!(world.sent(), [(kind::WINDOW_UPDATE, 0, 1, 99_005u32.to_be_bytes().to_vec())]);
    world.receive(&frame_bytes(kind::DATA, 0, 1, &message[1000..]));
    let end = world.headers(1, END_STREAM, &[("grpc-status", "0")]);
    assert_eq!(world.receive(&end), ["0 reply 100000 bytes"]);
}

#[test]
fn calls_above_the_last_stream_of_a_goaway_did_not_begin() {
    let mut world = World::started(Settings { streams_max: 3, ..Settings::default() });
    (0..5).for_each(|_| {
        world.unary(b"x");
    });
    let away = |last: u32, code: u32, text: &str| {
        let payload = [&last.to_be_bytes()[..], &code.to_be_bytes(), text.as_bytes()].concat();
        frame_bytes(kind::GOAWAY, 0, 0, &payload)
    };
    let refused = "Unavailable Safe tcp://a:1 takes no more calls: the server is going away";
    assert_eq!(
        world.receive(&away(WINDOW_MAX, 0, "")),
        [
            "go away: tcp://a:1 takes no more calls: the server is going away".to_owned(),
            format!("3 {refused}"),
            format!("4 {refused}"),
        ]
    );
    assert_eq!(world.receive(&away(3, 0, ""))[1..], [format!("2 {refused}")]);
    let metadata = Metadata::new();
    let late = world.client.open(5, open(UNARY, false, &metadata), Some(Outgoing::EMPTY), &mut world.out);
    assert_eq!(late.unwrap_err().retry(), Retry::Safe);
    // The others end as if nothing had happened.
    let replies = [world.plain_reply(1, b"a"), world.plain_reply(3, b"b")].concat();
    assert_eq!(world.receive(&replies), ["0 reply a", "1 reply b"]);
    let pings = world.receive(&away(3, 11, "too_many_pings"));
    assert_eq!(pings, ["go away: tcp://a:1 takes no more calls: ENHANCE_YOUR_CALM too_many_pings"]);
    assert!(world.client.refuses_pings());
}

#[test]
fn resets_become_statuses() {
    for (code, wanted) in [
        (ErrorCode::REFUSED_STREAM, "Unavailable Safe"),
        (ErrorCode::CANCEL, "Canceled No"),
        (ErrorCode::ENHANCE_YOUR_CALM, "ResourceExhausted No"),
        (ErrorCode::INADEQUATE_SECURITY, "PermissionDenied No"),
        (ErrorCode::INTERNAL_ERROR, "Internal No"),
        (ErrorCode::NO_ERROR, "Internal No"),
    ] {
        let mut world = World::started(Settings::default());
        world.unary(b"x");
        let events = world.receive(&reset(1, code));
        assert!(events[0].starts_with(&format!("0 {wanted} tcp://a:1")), "{events:?}");
        assert_eq!(world.client.streams.len(), 0);
    }
}

#[test]
fn the_connection_is_replaced_before_its_numbers_end() {
    let mut world = World::started(Settings::default());
    world.client = std::mem::replace(&mut world.client, Client::new(Limits::default(), "", "", false))
        .with_next_stream(STREAM_MAX - 2 * STREAMS_RESERVED - 2);
    let (metadata, id) = (Metadata::new(), ClientCallId::from((STREAM_MAX - 2 * STREAMS_RESERVED) / 2));
    world.client.open(id, open(UNARY, false, &metadata), Some(Outgoing::EMPTY), &mut world.out).unwrap();
    let events = world.receive(b"");
    assert!(events.is_empty());
    let events = world.receive(&settings(Settings::default()));
    assert!(events[0].contains("the numbers of its streams end"), "{events:?}");
    assert_eq!(events[1..], ["settings"]);
    // Calls that come meanwhile are sent.
    world.client.open(id + 1, open(UNARY, false, &metadata), Some(Outgoing::EMPTY), &mut world.out).unwrap();
    let again = world.client.open(0, open(UNARY, false, &metadata), Some(Outgoing::EMPTY), &mut world.out);
    assert_eq!(again.unwrap_err().retry(), Retry::Safe, "no number is used again");
}

#[test]
fn calls_that_end_while_they_wait_for_the_connection_are_forgotten() {
    let mut world = World::started(Settings { window_bytes: 1 << 20, ..Settings::default() });
    world.unary(&vec![b'x'; 65_535]);
    for _ in 0..5000 {
        let id = world.unary(b"small");
        world.client.cancel(id, &mut world.out);
        world.sent();
    }
    assert!(world.client.sending.listed.len() <= 2 + 256);
    assert_eq!(world.client.queued_bytes(), 5);
}

#[test]
fn a_canceled_call_makes_room_without_input() {
    let mut world = World::started(Settings { streams_max: 1, ..Settings::default() });
    let first = world.unary(b"x");
    world.bidi();
    assert!(!world.client.has_events());
    world.client.cancel(first, &mut world.out);
    assert!(world.client.has_events());
    let event = world.client.recv(&mut world.input, &mut world.out);
    assert!(matches!(event, Ok(Some(ClientEvent::Credit { id: 1, .. }))), "{event:?}");
    assert!(!world.client.has_events());
}
