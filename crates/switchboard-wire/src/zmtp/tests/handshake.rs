//! Greetings and handshakes, valid and not.

use super::*;
use crate::zmtp::{Credentials, ErrorKind, Properties};

/// Runs a handshake that fails; returns the kind and the text of the error, and the reason of the ERROR that was sent.
fn failure(settings: &Settings, bytes: &[u8]) -> (ErrorKind, String, Option<String>) {
    let (events, out, error) = run_split(settings, bytes);
    let error = error.unwrap_or_else(|| panic!("{events:?}"));
    let at = out.windows(6).position(|window| window == b"\x05ERROR");
    let sent = at.map(|at| String::from_utf8(out[at + 7..].to_vec()).unwrap());
    if let Some(at) = at {
        assert_eq!(usize::from(out[at + 6]), out.len() - at - 7, "size of the reason");
    }
    (error.kind(), error.to_string(), sent)
}

fn pull() -> Settings {
    Settings::new(SocketType::Pull)
}

#[test]
fn other_greetings_are_refused_by_their_first_wrong_byte() {
    let with = |at: usize, byte: u8| {
        let mut bytes = greeting("NULL", 1);
        bytes[at] = byte;
        bytes.truncate(at + 1);
        bytes
    };
    for (bytes, text) in [
        (b"\x01".to_vec(), "zmtp: greeting begins with 0x01 instead of 0xff"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "zmtp: greeting begins with 0x47 instead of 0xff"),
        (with(9, 0x7E), "zmtp: greeting has no signature"),
        (with(10, 0), "zmtp: greeting has the version 0"),
        (with(10, 2), "zmtp: greeting has the version 2"),
    ] {
        let (kind, message, sent) = failure(&pull(), &bytes);
        assert_eq!((kind, sent), (ErrorKind::Greeting, None));
        assert!(message.starts_with(text), "{message}");
    }
}

#[test]
fn later_versions_and_unused_fields_are_accepted() {
    for (major, minor, version) in
        [(3, 0, Version::V3_0), (3, 1, Version::V3_1), (3, 9, Version::V3_1), (4, 0, Version::V3_1)]
    {
        let mut bytes = greeting("NULL", minor);
        bytes[10] = major;
        bytes[1..9].fill(0x55);
        // The role of the peer, and the rest of the greeting.
        bytes[32] = 1;
        bytes[63] = 9;
        let (events, ..) = run_split(&pull(), &[bytes, ready(SocketType::Push)].concat());
        assert!(matches!(&events[..], [Event::Ready(peer)] if peer.version == version), "{events:?}");
    }
}

#[test]
fn mechanisms_are_compared_with_all_their_bytes() {
    let mut dirty = greeting("NULL", 1);
    dirty[31] = b'x';
    for (bytes, theirs) in [
        (greeting("PLAIN", 1), "PLAIN"),
        (greeting("CURVE", 1), "CURVE"),
        (greeting("NUL", 1), "NUL"),
        (greeting("NULLS", 1), "NULLS"),
        (greeting("", 1), ""),
    ] {
        let (kind, message, sent) = failure(&pull(), &bytes);
        assert_eq!((kind, sent), (ErrorKind::Mechanism, None));
        assert_eq!(message, format!("zmtp: greeting has the mechanism \"{theirs}\"; this side has NULL"));
    }
    assert_eq!(failure(&pull(), &dirty).0, ErrorKind::Mechanism);
}

#[test]
fn properties_come_in_any_order_and_case() {
    let metadata = [
        property("X-Foo", b"\0\x01"),
        property("identity", b"me"),
        property("SOCKET-TYPE", b"DEALER"),
        property("x.y_z+0", b""),
    ];
    let bytes = [greeting("NULL", 1), command("READY", &metadata.concat())].concat();
    let (events, ..) = run_split(&Settings::new(SocketType::Rep), &bytes);
    let [Event::Ready(peer)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((peer.socket, &peer.identity[..]), (SocketType::Dealer, &b"me"[..]));
    assert_eq!(peer.properties.find("x-foo").map(|value| &value[..]), Some(&b"\0\x01"[..]));
    assert_eq!(peer.properties.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["X-Foo", "x.y_z+0"]);
}

#[test]
fn own_properties_are_sent() {
    let mut properties = Properties::new();
    properties.insert("X-Zone", "b").unwrap();
    assert!(properties.insert("x-zone", "c").is_err_and(|why| why.contains("repeated")));
    assert!(properties.insert("X Zone", "c").is_err() && properties.insert("", "c").is_err());
    let settings = pull().with_properties(properties);
    let (_, out, _) = run(settings, &greeting("NULL", 1), 64);
    let metadata = [property("Socket-Type", b"PULL"), property("X-Zone", b"b")].concat();
    assert_eq!(out, command("READY", &metadata));
}

#[test]
fn metadata_that_is_not_valid_is_refused() {
    let socket = property("Socket-Type", b"PUSH");
    let cases = [
        (vec![], "property \"Socket-Type\" is missing"),
        (property("Socket-Type", b"push"), "socket type \"push\" is unknown"),
        ([&socket[..], b"\x03abc"].concat(), "property 2 at byte 20: the value is incomplete"),
        ([&socket[..], b"\x04abc"].concat(), "property 2 at byte 20: the name is incomplete"),
        ([&socket[..], b"\0"].concat(), "property 2 at byte 20: the value is incomplete"),
        ([&socket[..], b"\0\0\0\0\0"].concat(), "property 2 at byte 20: name \"\" is not 1 to 255"),
        ([&socket[..], &property("a b", b"")].concat(), "name \"a b\" is not 1 to 255"),
        ([&socket[..], b"\x01\xFF\0\0\0\0"].concat(), "the name is not ASCII"),
        ([socket.clone(), socket.clone()].concat(), "name \"Socket-Type\" is repeated"),
        ([&socket[..], &property("Identity", &[1; 256])].concat(), "identity has 256 bytes"),
        ([&socket[..], &property("Identity", b"\0a")].concat(), "identity begins with a zero byte"),
    ];
    for (metadata, text) in cases {
        let bytes = [greeting("NULL", 1), command("READY", &metadata)].concat();
        let (kind, message, sent) = failure(&pull(), &bytes);
        assert_eq!(kind, ErrorKind::Metadata, "{message}");
        assert!(message.starts_with("zmtp: metadata of READY") && message.contains(text), "{message}");
        assert_eq!(sent.map(|sent| format!("zmtp: {sent}")), Some(message));
    }
}

#[test]
fn socket_types_that_may_not_talk_get_an_error() {
    let bytes = [greeting("NULL", 1), ready(SocketType::Req)].concat();
    let (kind, message, sent) = failure(&pull(), &bytes);
    assert_eq!((kind, &*message), (ErrorKind::SocketType, "zmtp: socket type REQ does not talk to PULL"));
    assert_eq!(sent.as_deref(), Some("socket type REQ does not talk to PULL"));
    // A server of PLAIN sends the error in place of READY.
    let settings = pull().with_mechanism(Mechanism::PlainServer);
    let metadata = property("Socket-Type", b"REQ");
    let bytes = [greeting("PLAIN", 1), command("HELLO", b"\0\0"), command("INITIATE", &metadata)].concat();
    let (_, out, _) = run_split(&settings, &bytes);
    assert!(
        out.starts_with(&[command("WELCOME", b""), b"\x04\x2c\x05ERROR".to_vec()].concat()),
        "{out:02x?}"
    );
}

#[test]
fn commands_out_of_turn_are_refused() {
    let server = pull().with_mechanism(Mechanism::PlainServer);
    let credentials = Credentials::new("a", "b").unwrap();
    let client = pull().with_mechanism(Mechanism::PlainClient(credentials));
    let hello = command("HELLO", b"\x01a\x01b");
    let cases = [
        (&server, ready(SocketType::Push), "handshake: READY arrived, expected HELLO"),
        (&server, [&hello[..], &hello].concat(), "handshake: HELLO arrived, expected INITIATE"),
        (&server, frame(0, b"job"), "handshake: a message arrived, expected HELLO"),
        (&server, command("NOPE", b""), "handshake: an unknown command arrived, expected HELLO"),
        (&server, command("HELLO", b"\x02a"), "HELLO of PLAIN has an incomplete username"),
        (&server, command("HELLO", b"\x01a"), "HELLO of PLAIN has an incomplete password"),
        (&server, command("HELLO", b"\x01a\x01bc"), "HELLO of PLAIN has 1 bytes after the password"),
        (&client, hello.clone(), "handshake: HELLO arrived, expected WELCOME"),
        (&client, ready(SocketType::Push), "handshake: READY arrived, expected WELCOME"),
        (&client, command("WELCOME", b"x"), "WELCOME has 1 bytes of data; it has none in PLAIN"),
    ];
    for (settings, bytes, text) in cases {
        let (kind, message, sent) = failure(settings, &[greeting("PLAIN", 1), bytes].concat());
        assert_eq!((kind, message.strip_prefix("zmtp: ")), (ErrorKind::Command, Some(text)));
        let is_server = settings.mechanism.is_server();
        assert_eq!(sent.as_deref(), is_server.then_some(text), "only servers of PLAIN send ERROR");
    }
    let (.., message, _) = failure(&pull(), &[greeting("NULL", 1), frame(4, b"\x05READ")].concat());
    assert_eq!(message, "zmtp: command has a name of 5 bytes in a body of 4");
    let (.., message, _) = failure(&pull(), &[greeting("NULL", 1), frame(4, b"\0")].concat());
    assert_eq!(message, "zmtp: command has a name of 0 bytes in a body of 0");
    let (.., message, _) = failure(&pull(), &[greeting("NULL", 1), frame(4, b"")].concat());
    assert_eq!(message, "zmtp: command is empty: it has no name");
}

#[test]
fn an_error_of_the_peer_ends_the_connection_without_another() {
    let bytes = [greeting("NULL", 1), command("ERROR", b"\x03400")].concat();
    let (kind, message, sent) = failure(&pull(), &bytes);
    assert_eq!((kind, &*message, sent), (ErrorKind::Refused, "zmtp: peer sent ERROR \"400\"", None));
    for malformed in [&b"\x04400"[..], b"", b"\0x"] {
        let bytes = [greeting("NULL", 1), command("ERROR", malformed)].concat();
        assert_eq!(failure(&pull(), &bytes).0, ErrorKind::Command);
    }
    // The answer of libzmq to a wrong password of PLAIN.
    let credentials = Credentials::new("admin", "wrong").unwrap();
    let settings = pull().with_mechanism(Mechanism::PlainClient(credentials));
    let bytes = [greeting("PLAIN", 1), hex("04095e52524f5203343030")].concat();
    let (kind, message, sent) = failure(&settings, &bytes);
    assert_eq!((kind, &*message, sent), (ErrorKind::Refused, "zmtp: peer sent ERROR \"400\"", None));
}

#[test]
fn rejected_credentials_close_the_connection() {
    let mut out = Outbox::new();
    let settings = Arc::new(pull().with_mechanism(Mechanism::PlainServer));
    let mut connection = Connection::new(Arc::clone(&settings), &mut out);
    out.take_all();
    connection.accept(&mut out);
    connection.reject("400", &mut out);
    assert!(out.is_empty() && !connection.is_closed(), "without credentials there is no verdict");
    let mut input = Input::default();
    input.extend(&[greeting("PLAIN", 1), command("HELLO", b"\x01a\x01b")].concat());
    let event = connection.recv(&mut input, &mut out).unwrap();
    let Some(Event::Credentials(credentials)) = event else { panic!("{event:?}") };
    assert_eq!((credentials.username(), credentials.password()), (&b"a"[..], &b"b"[..]));
    connection.reject("400", &mut out);
    connection.accept(&mut out);
    assert_eq!(out.take_all(), command("ERROR", b"\x03400"));
    assert!(connection.is_closed() && !connection.send([&Bytes::new()], &mut out) && out.is_empty());
}

#[test]
fn settings_have_limits() {
    assert!(pull().with_identity(vec![1; 256]).is_err_and(|why| why.contains("the limit is 255")));
    assert!(pull().with_identity("\0a").is_err_and(|why| why.contains("zero byte")));
    let long = Credentials::new("a", vec![0; 256]);
    assert!(long.is_err_and(|why| why == "password of PLAIN has 256 bytes; the limit is 255"));
}

/// The socket of an accepting side that has several, by the type of the peer; its READY follows that of the peer.
#[test]
fn the_peer_decides_the_socket_type() {
    use SocketType::{Dealer, Push, Router, Sub, Xpub, Xsub};

    let settings = Settings::by_peer(&[Xpub, Xsub, Push, Router]).unwrap();
    for (peer, ours) in [(Sub, Xpub), (Dealer, Router), (SocketType::Pub, Xsub), (SocketType::Pull, Push)] {
        let (mut out, mut theirs) = (Outbox::new(), Outbox::new());
        let mut connection = Connection::new(Arc::new(settings.clone()), &mut out);
        let mut other = Connection::new(Arc::new(Settings::new(peer)), &mut theirs);
        let (mut input, mut response) = (Input::default(), Input::default());
        input.extend(&theirs.take_all());
        assert_eq!(connection.recv(&mut input, &mut out), Ok(None), "no READY of the peer yet");
        response.extend(&out.take_all());
        assert_eq!(other.recv(&mut response, &mut theirs), Ok(None));
        input.extend(&theirs.take_all());
        let Ok(Some(Event::Ready(ready))) = connection.recv(&mut input, &mut out) else { panic!("{peer}") };
        assert_eq!((ready.socket, connection.socket()), (peer, ours));
        response.extend(&out.take_all());
        let Ok(Some(Event::Ready(ready))) = other.recv(&mut response, &mut theirs) else { panic!("{peer}") };
        assert_eq!(ready.socket, ours);
    }
    let (_, out, error) = run(settings, &hello(SocketType::Pair), 1000);
    let error = error.unwrap();
    assert_eq!(error.message(), "socket type PAIR does not talk to XPUB, XSUB, PUSH, ROUTER");
    assert!(out.ends_with(error.message().as_bytes()), "the peer gets an ERROR");
    let ambiguous = Settings::by_peer(&[SocketType::Rep, Router]).unwrap_err();
    assert_eq!(ambiguous, "a DEALER can talk to REP and to ROUTER: choose one of them");
    assert!(Settings::by_peer(&[]).is_err());
}

/// Greeting and READY of a peer.
fn hello(socket: SocketType) -> Vec<u8> {
    let mut out = Outbox::new();
    let mut connection = Connection::new(Arc::new(Settings::new(socket)), &mut out);
    let mut greeting = Input::default();
    greeting.extend(&out.take_all());
    let bytes = greeting.rest().to_vec();
    assert_eq!(connection.recv(&mut greeting, &mut out), Ok(None));
    [bytes, out.take_all()].concat()
}
