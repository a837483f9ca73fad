//! Commands that are changed, repeated, exchanged or of another connection.

use super::*;
use crate::zmtp::command::write_error;

/// Flips one bit of each byte of each command of the handshake: the receiver never continues.
#[test]
fn each_byte_of_the_handshake_matters() {
    for (number, name) in HANDSHAKE.into_iter().enumerate() {
        let (mut one, mut other) = sides(SocketType::Push, SocketType::Pull);
        let len = advance(&mut one, &mut other, number).len();
        for at in 0..len {
            let (mut client, mut server) = sides(SocketType::Push, SocketType::Pull);
            let mut bytes = advance(&mut client, &mut server, number);
            bytes[at] ^= 1 << (at % 8);
            let to = if number % 2 == 0 { &mut server } else { &mut client };
            to.out.take_all();
            to.read(&bytes, bytes.len());
            assert_eq!(to.events, [], "{name}, byte {at}");
            let response = to.out.take_all();
            let is_error = response.is_empty() || response[2..].starts_with(b"\x05ERROR");
            // A larger size in the header waits for the rest.
            let is_size = at < 9 && to.error.is_none() && !to.input.is_empty();
            assert!(is_error && (is_size || to.error.is_some()), "{name}, byte {at}: {response:?}");
        }
    }
}

#[test]
fn each_byte_of_a_message_matters() {
    for (len, is_client) in [(0, true), (3, false), (300, true)] {
        let total = 33 + len + if len + 33 > 255 { 9 } else { 2 };
        for at in 0..total {
            let (mut client, mut server) = open(SocketType::Pair, SocketType::Pair);
            let (from, to) = if is_client { (&mut client, &mut server) } else { (&mut server, &mut client) };
            assert!(from.connection.send([&Bytes::from(vec![7; len])], &mut from.out));
            let mut bytes = from.out.take_all();
            assert_eq!(bytes.len(), total);
            bytes[at] ^= 1 << (at % 8);
            to.read(&bytes, bytes.len());
            assert_eq!(to.events, [], "byte {at}");
            assert!(to.error.is_some() || (at < 9 && !to.input.is_empty()), "byte {at}");
            assert!(to.out.is_empty(), "there is no ERROR after the handshake");
        }
    }
}

#[test]
fn a_repeated_message_is_refused() {
    let (mut one, mut other) = open(SocketType::Push, SocketType::Pull);
    assert!(one.connection.send([&Bytes::from_static(b"a")], &mut one.out));
    let first = one.out.take_all();
    assert!(one.connection.send([&Bytes::from_static(b"b")], &mut one.out));
    let second = one.out.take_all();
    other.read(&[&first[..], &second].concat(), 100);
    assert_eq!(other.frames().len(), 2);
    let error = other.refuses(&second);
    assert_eq!(error.kind(), ErrorKind::Curve);
    assert_eq!(error.message(), "MESSAGE of CURVE has the nonce 4 after 4");
}

#[test]
fn messages_in_another_order_are_refused() {
    let (mut one, mut other) = open(SocketType::Push, SocketType::Pull);
    let mut message = |text: &'static [u8]| {
        assert!(one.connection.send([&Bytes::from_static(text)], &mut one.out));
        one.out.take_all()
    };
    let (first, second) = (message(b"a"), message(b"b"));
    other.read(&second, 100);
    assert_eq!(other.frames(), [(Bytes::from_static(b"b"), false)]);
    assert_eq!(other.refuses(&first).message(), "MESSAGE of CURVE has the nonce 3 after 4");
}

#[test]
fn messages_of_the_other_direction_are_refused() {
    let (mut one, mut other) = open(SocketType::Pair, SocketType::Pair);
    for side in [&mut one, &mut other] {
        assert!(side.connection.send([&Bytes::from_static(b"a")], &mut side.out));
        let mut bytes = side.out.take_all();
        // A nonce that is new in both directions.
        bytes[2 + 8 + 7] = 9;
        let error = side.refuses(&bytes);
        assert_eq!(error.message(), "MESSAGE of CURVE has a box that does not open");
    }
}

/// Bytes that an observer recorded open nothing on another connection.
#[test]
fn a_recorded_handshake_cannot_be_replayed() {
    let (mut recorded, mut server) = sides(SocketType::Push, SocketType::Pull);
    let hello = advance(&mut recorded, &mut server, 0);
    server.read(&hello, 1000);
    recorded.read(&server.out.take_all(), 1000);
    let initiate = recorded.out.take_all();
    server.read(&initiate, 1000);
    assert!(matches!(server.events[..], [Event::ClientKey(_), Event::Ready(_)]));

    let (mut client, mut again) = sides(SocketType::Push, SocketType::Pull);
    advance(&mut client, &mut again, 0);
    again.read(&hello, 1000);
    assert_eq!(again.error, None, "HELLO proves nothing");
    let error = again.refuses(&initiate);
    assert_eq!(error.message(), "INITIATE of CURVE has a cookie that is not of this connection");
}

#[test]
fn a_client_of_another_server_is_refused() {
    let keys = CurveClient::new(secret(2), secret(3).public_key(), random());
    let settings = Settings::new(SocketType::Push).with_mechanism(Mechanism::CurveClient(keys));
    let (mut client, mut server) = (Side::new(settings), Side::new(server(SocketType::Pull)));
    let hello = advance(&mut client, &mut server, 0);
    let error = server.refuses(&hello);
    assert_eq!(error.kind(), ErrorKind::Curve);
    let text = "HELLO of CURVE has a box that does not open with the key of this server";
    assert_eq!(error.message(), text);
    client.read(&server.out.take_all(), 1000);
    assert_eq!(client.error.map(|error| error.kind()), Some(ErrorKind::Refused));
}

/// A weak key of a client makes a shared key that all know.
#[test]
fn a_weak_key_is_refused() {
    let (mut client, mut server) = sides(SocketType::Push, SocketType::Pull);
    let mut hello = advance(&mut client, &mut server, 0);
    hello[2 + 6 + 2 + 72..][..32].fill(0);
    assert_eq!(server.refuses(&hello).message(), "HELLO of CURVE has a weak key");
    let keys = CurveClient::new(secret(2), PublicKey::new([0; 32]), random());
    let settings = Settings::new(SocketType::Push).with_mechanism(Mechanism::CurveClient(keys));
    let (mut client, mut server) = (Side::new(settings), Side::new(super::server(SocketType::Pull)));
    let error = client.refuses(&server.out.take_all());
    assert_eq!(error.message(), "HELLO of CURVE is not sent: the public key of the server is weak");
}

#[test]
fn commands_out_of_turn_are_refused() {
    let cases = [
        (0, command("INITIATE", &[0; 300]), "handshake: INITIATE arrived, expected HELLO"),
        (0, frame(0, b"job"), "handshake: a message arrived, expected HELLO"),
        (0, command("HELLO", &[0; 193]), "HELLO of CURVE has 193 bytes after its name, expected 194"),
        (0, command("HELLO", b""), "HELLO of CURVE has 0 bytes after its name, expected 194"),
        (0, command("HELLO", &[1; 194]), "HELLO of CURVE has the version 1.1; this side has 1.0"),
        (1, command("WELCOME", &[0; 161]), "WELCOME of CURVE has 161 bytes after its name, expected 160"),
        (1, ready(SocketType::Pull), "handshake: READY arrived, expected WELCOME"),
        (2, command("HELLO", &[0; 194]), "handshake: HELLO arrived, expected INITIATE"),
        (
            2,
            command("INITIATE", &[0; 247]),
            "INITIATE of CURVE has 247 bytes after its name, expected 248 or more",
        ),
        (3, command("READY", &[0; 23]), "READY of CURVE has 23 bytes after its name, expected 24 or more"),
        (3, command("READY", &[0; 24]), "READY of CURVE has the nonce 0; the first is 1"),
        (3, command("WELCOME", &[0; 160]), "handshake: WELCOME arrived, expected READY"),
        (3, command("ERROR", b"\x03400"), "peer sent ERROR \"400\""),
    ];
    for (at, bytes, text) in cases {
        let (mut client, mut server) = sides(SocketType::Push, SocketType::Pull);
        advance(&mut client, &mut server, at);
        let to = if at % 2 == 0 { &mut server } else { &mut client };
        to.out.take_all();
        let before = to.events.len();
        to.read(&bytes, 7);
        assert_eq!(to.error.as_ref().map(ProtocolError::message), Some(text));
        assert_eq!(to.events.len(), before);
        let mut expected = Outbox::new();
        if at % 2 == 0 {
            write_error(text, &mut expected);
        }
        assert_eq!(to.out.take_all(), expected.take_all(), "only servers send ERROR");
    }
}

/// libzmq marks a MESSAGE as a frame of a message, other peers mark it as a command: both are read.
#[test]
fn the_command_flag_of_a_message_does_not_matter() {
    for flags in [0, 4] {
        let (mut one, mut other) = open(SocketType::Push, SocketType::Pull);
        assert!(one.connection.send([&Bytes::from_static(b"a")], &mut one.out));
        let mut bytes = one.out.take_all();
        assert_eq!(bytes[0], 0, "the form of libzmq");
        bytes[0] = flags;
        other.read(&bytes, 100);
        assert_eq!(other.frames(), [(Bytes::from_static(b"a"), false)]);
    }
}

/// Plain frames after the handshake, such as a forged ERROR, are no traffic.
#[test]
fn plain_frames_are_refused_once_the_connection_is_open() {
    let text = "traffic of CURVE has another command than MESSAGE, or an incomplete one";
    for (bytes, text) in [
        (frame(0, b"job"), "MESSAGE of CURVE has 3 bytes; the least is 33"),
        (frame(0, &[0; 60]), text),
        (frame(1, &[0; 60]), "MESSAGE of CURVE has another frame behind it"),
        (command("ERROR", b"\x03400"), "MESSAGE of CURVE has 10 bytes; the least is 33"),
        (command("ERROR", &[0; 60]), text),
        (command("PING", &[0; 60]), text),
        (command("MESSAGE", &[0; 25]), "MESSAGE of CURVE has the nonce 0 after 2"),
        (command("MESSAGE", &[0; 24]), "MESSAGE of CURVE has 32 bytes; the least is 33"),
    ] {
        let (_, mut server) = open(SocketType::Push, SocketType::Pull);
        assert_eq!(server.refuses(&bytes).message(), text);
    }
}
