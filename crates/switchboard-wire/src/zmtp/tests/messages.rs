//! Messages and commands after the handshake.

use super::*;
use crate::zmtp::{ErrorKind, frame_bytes, write_message};
use std::time::Duration;

#[test]
fn messages_arrive_for_any_size() {
    for size in [0, 1, 255, 256, 65_535, 65_536, 100_000] {
        let sent: Vec<u8> = (0..size).map(|n| n as u8).collect();
        let mut out = Outbox::new();
        let part = Bytes::from(sent.clone());
        write_message([&part, &part], &mut out);
        let bytes = out.take_all();
        assert_eq!(bytes.len(), 2 * frame_bytes(size));
        let (events, _, error) = traffic(SocketType::Pull, SocketType::Push, &bytes);
        assert_eq!((events, error), (vec![body(&sent, true), body(&sent, false)], None), "{size}");
    }
    let mut out = Outbox::new();
    write_message(<[&Bytes; 0]>::default(), &mut out);
    assert!(out.is_empty(), "no message without a frame");
}

#[test]
fn the_long_form_of_a_short_frame_is_accepted() {
    let bytes = [&[2][..], &3u64.to_be_bytes(), b"abc"].concat();
    let (events, ..) = traffic(SocketType::Pull, SocketType::Push, &bytes);
    assert_eq!(events, [body(b"abc", false)]);
}

#[test]
fn commands_between_the_frames_of_a_message_do_not_disturb_it() {
    let ping = command("PING", b"\0\0ctx1");
    let long = command("PING", b"\0\x05sixteen bytes is the limit");
    let parts =
        [frame(1, b"a"), ping, frame(1, b"b"), command("LATER", b"data"), frame(0, b"c"), long].concat();
    let (events, out, error) = traffic(SocketType::Pull, SocketType::Push, &parts);
    let (none, some) = (Event::Ping { ttl: None }, Event::Ping { ttl: Some(Duration::from_millis(500)) });
    assert_eq!(events, [body(b"a", true), none, body(b"b", true), body(b"c", false), some]);
    assert_eq!(out, [hex("040904504f4e4763747831"), command("PONG", b"sixteen bytes is")].concat());
    assert_eq!(error, None);
}

#[test]
fn heartbeats_are_commands_of_3_1() {
    for (minor, can_ping) in [(1, true), (0, false)] {
        let mut out = Outbox::new();
        let mut connection = Connection::new(Arc::new(Settings::new(SocketType::Pair)), &mut out);
        let mut input = Input::default();
        input.extend(&[greeting("NULL", minor), ready(SocketType::Pair)].concat());
        assert!(!connection.ping(None, b"", &mut out), "before the handshake");
        assert!(matches!(connection.recv(&mut input, &mut out), Ok(Some(Event::Ready(_)))));
        out.take_all();
        assert_eq!(connection.ping(Some(Duration::from_millis(1401)), b"", &mut out), can_ping);
        let expected = if can_ping { hex("04070450494e47000f") } else { Vec::new() };
        assert_eq!(out.take_all(), expected);
        if can_ping {
            assert!(connection.ping(Some(Duration::MAX), &[b'x'; 20], &mut out));
            assert_eq!(out.take_all(), command("PING", &[&[0xFF; 2][..], &[b'x'; 16]].concat()));
        }
    }
    let (events, ..) = traffic(SocketType::Pair, SocketType::Pair, &command("PONG", b"abc"));
    assert_eq!(events, [Event::Pong(Bytes::from_static(b"abc"))]);
    let (.., error) = traffic(SocketType::Pair, SocketType::Pair, &command("PING", b"\0"));
    assert_eq!(error.unwrap().to_string(), "zmtp: PING has 1 bytes; the time to live alone has 2");
}

#[test]
fn flags_that_are_not_valid_are_refused() {
    for (flags, text) in [
        (0x08, "frame has the flags 0x08: a reserved bit is set"),
        (0x80, "frame has the flags 0x80: a reserved bit is set"),
        (0x05, "frame has the flags 0x05: a command has one frame"),
        (0x07, "frame has the flags 0x07: a command has one frame"),
    ] {
        let (.., error) = traffic(SocketType::Pull, SocketType::Push, &[flags]);
        let error = error.unwrap();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Frame, text));
    }
}

#[test]
fn an_error_command_ends_an_open_connection() {
    let (events, out, error) = traffic(
        SocketType::Pull,
        SocketType::Push,
        &[frame(0, b"a"), command("ERROR", b"\x02no"), frame(0, b"b")].concat(),
    );
    assert_eq!((events, out), (vec![body(b"a", false)], vec![]));
    assert_eq!(error.unwrap().kind(), ErrorKind::Refused);
}

#[test]
fn sockets_that_only_send_skip_messages() {
    let bytes = [frame(1, &[9; 5000]), frame(0, b"\x01not a subscription"), frame(0, b""), frame(0, b"\x02")];
    for (ours, theirs) in [(SocketType::Push, SocketType::Pull), (SocketType::Pub, SocketType::Sub)] {
        let after = command("PING", b"\0\0");
        let (events, _, error) = traffic(ours, theirs, &[&bytes.concat()[..], &after].concat());
        assert_eq!((events, error), (vec![Event::Ping { ttl: None }], None));
    }
    // XPUB delivers all but subscriptions.
    let (events, ..) = traffic(SocketType::Xpub, SocketType::Xsub, &bytes.concat());
    let expected = [body(&[9; 5000], true), body(b"\x01not a subscription", false), body(b"", false)];
    assert_eq!(events[..3], expected);
    assert_eq!(events[3..], [body(b"\x02", false)]);
}

#[test]
fn skipped_frames_are_not_kept() {
    let mut out = Outbox::new();
    let mut connection = Connection::new(Arc::new(Settings::new(SocketType::Push)), &mut out);
    let mut input = Input::default();
    input.extend(&[greeting("NULL", 1), ready(SocketType::Pull)].concat());
    assert!(matches!(connection.recv(&mut input, &mut out), Ok(Some(Event::Ready(_)))));
    input.extend(&[&[2][..], &1_000_000u64.to_be_bytes()].concat());
    for _ in 0..1000 {
        input.extend(&[0; 1000]);
        assert_eq!(connection.recv(&mut input, &mut out), Ok(None));
        assert!(input.is_empty());
    }
    input.extend(&command("PONG", b""));
    assert_eq!(connection.recv(&mut input, &mut out), Ok(Some(Event::Pong(Bytes::new()))));
}

#[test]
fn other_sockets_ignore_subscriptions() {
    let bytes =
        [command("SUBSCRIBE", b"a"), command("CANCEL", b"a"), command("JOIN", b"a"), frame(0, b"\x01a")]
            .concat();
    let (events, ..) = traffic(SocketType::Pull, SocketType::Push, &bytes);
    assert_eq!(events, [body(b"\x01a", false)]);
}

#[test]
fn groups_of_radio_and_dish() {
    let bytes = [command("JOIN", b"news"), command("LEAVE", b"news"), frame(0, b"skipped")].concat();
    let (events, ..) = traffic(SocketType::Radio, SocketType::Dish, &bytes);
    let news = Bytes::from_static(b"news");
    assert_eq!(events, [Event::Join(news.clone()), Event::Leave(news)]);
    let message = [frame(1, b"news"), frame(0, b"text")].concat();
    let (events, ..) = traffic(SocketType::Dish, SocketType::Radio, &message);
    assert_eq!(events, [body(b"news", true), body(b"text", false)]);
    for bytes in [frame(0, b"news"), [frame(1, b"news"), frame(1, b"text")].concat()] {
        let (.., error) = traffic(SocketType::Dish, SocketType::Radio, &bytes);
        let text = "message to DISH does not have two frames, the group and the body";
        assert_eq!(error.unwrap().message(), text);
    }
}

#[test]
fn draft_sockets_have_messages_of_one_frame() {
    let (events, _, error) = traffic(SocketType::Server, SocketType::Client, &frame(0, b"one"));
    assert_eq!((events, error), (vec![body(b"one", false)], None));
    let (.., error) = traffic(SocketType::Server, SocketType::Client, &frame(1, b"one"));
    assert_eq!(error.unwrap().message(), "message to SERVER does not have one frame");
}
