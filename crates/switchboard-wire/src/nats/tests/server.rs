//! The server's side.

use super::*;

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn subscribe(pattern: &str, queue: Option<&str>, sid: &str) -> ServerEvent {
    ServerEvent::Subscribe { pattern: bytes(pattern), queue: queue.map(bytes), sid: bytes(sid) }
}

#[test]
fn commands() {
    let publish = |subject, reply, payload| ServerEvent::Publish(message(subject, reply, payload));
    let unsubscribe = |sid, max| ServerEvent::Unsubscribe { sid: bytes(sid), max: NonZeroU64::new(max) };
    let cases: &[(&str, &[ServerEvent])] = &[
        ("PUB a 2\r\nhi\r\n", &[publish("a", None, "hi")]),
        ("pub a.b _INBOX.1 0\r\n\r\n", &[publish("a.b", Some("_INBOX.1"), "")]),
        ("PUB \t a\t b  4 \r\n\r\n\r\n\r\n", &[publish("a", Some("b"), "\r\n\r\n")]),
        ("PUB a 2\nhi\n", &[publish("a", None, "hi")]),
        ("PUB a* 002\r\nhi\r\n", &[publish("a*", None, "hi")]),
        ("SUB a.* 1\r\n", &[subscribe("a.*", None, "1")]),
        ("Sub a.> q s-1\r\n", &[subscribe("a.>", Some("q"), "s-1")]),
        (
            "UNSUB 1\r\nUNSUB 1 5\r\nUNSUB 1 0\r\n",
            &[unsubscribe("1", 0), unsubscribe("1", 5), unsubscribe("1", 0)],
        ),
        ("PONG\r\n \t\r\n\n\r\nPONG\r\n", &[ServerEvent::Pong, ServerEvent::Pong]),
        ("PUB *.a 2\r\nhi\r\nPONG\r\n", &[ServerEvent::InvalidSubject, ServerEvent::Pong]),
        ("PUB a.>.b 2\r\nhi\r\n", &[ServerEvent::InvalidSubject]),
        ("PUB a..b 0\r\n\r\n", &[ServerEvent::InvalidSubject]),
        ("PUB a b..c 0\r\n\r\n", &[ServerEvent::InvalidSubject]),
    ];
    for (input, events) in cases {
        assert_eq!(served(input.as_bytes()), (events.to_vec(), String::new(), None), "{input:?}");
    }
    assert_eq!(served(b"PING\r\nping\n"), (vec![ServerEvent::Ping; 2], "PONG\r\nPONG\r\n".to_owned(), None));
}

#[test]
fn headers_come_with_their_message() {
    let (events, out, error) = served(b"HPUB a r 23 25\r\nNATS/1.0 503\r\nA: b\r\n\r\nhi\r\n".as_slice());
    assert!(
        events.is_empty() && out.starts_with("-ERR 'Parser Error'"),
        "the blank line is outside: {error:?}"
    );
    let block = "NATS/1.0\r\nA: b\r\n\r\n";
    let input = format!("HPUB a r {} {}\r\n{block}hi\r\n", block.len(), block.len() + 2);
    let (events, out, error) = served(input.as_bytes());
    let headers = Headers::new([("A", &b"b"[..])]).unwrap();
    let expected = Message { headers: Some(headers), ..message("a", Some("r"), "hi") };
    assert_eq!((events, out, error), (vec![ServerEvent::Publish(expected)], String::new(), None));
}

#[test]
fn errors_close_with_the_text_of_nats() {
    use ErrorKind::{Operation, Parser, Payload};
    let cases: &[(&str, ErrorKind, &str)] = &[
        ("FLY a\r\n", Operation, "no command begins with the byte 0x46"),
        ("GET / HTTP/1.1\r\n", Operation, "no command begins with the byte 0x47"),
        ("PUBLISH a 1\r\n", Operation, "a client does not send \"PUBLISH\""),
        ("MSG a 1 0\r\n\r\n", Operation, "no command begins with the byte 0x4d"),
        ("INFO {}\r\n", Operation, "no command begins with the byte 0x49"),
        ("+OK\r\n", Operation, "no command begins with the byte 0x2b"),
        ("PUB\r\n", Parser, "PUB has 0 arguments, fewer than 2"),
        ("PUB a\r\n", Parser, "PUB has 1 arguments, fewer than 2"),
        ("PUB a b c 1\r\n", Parser, "PUB has more than 3 arguments"),
        ("PUB a x\r\n", Parser, "size of PUB is not a number"),
        ("PUB a -1\r\n", Parser, "size of PUB is not a number"),
        ("PUB a +1\r\n", Parser, "size of PUB is not a number"),
        ("PUB a 2\r\nhi!\r\n", Parser, "payload of PUB has no line end after its size"),
        ("PUB a 2\r\nhi\rx", Parser, "payload of PUB has no line end after its size"),
        (
            "PUB a 1048577\r\n",
            Payload,
            "payload of PUB has 1048577 bytes; the limit is 1048576 (payload_bytes_max)",
        ),
        (
            "PUB a 99999999999999999999999\r\n",
            Payload,
            "payload of PUB has 18446744073709551615 bytes; the limit is 1048576 (payload_bytes_max)",
        ),
        ("HPUB a 1\r\n", Parser, "HPUB has 2 arguments, fewer than 3"),
        ("HPUB a b c 1 1\r\n", Parser, "HPUB has more than 4 arguments"),
        ("HPUB a x 1\r\n", Parser, "size of the headers of HPUB is not a number"),
        ("HPUB a 5 4\r\n", Parser, "HPUB has 5 bytes of headers in a total of 4"),
        ("HPUB a 0 0\r\n\r\n", Parser, "headers of a message: block does not end in a blank line"),
        (
            "HPUB a 12 12\r\nNATS/2.0\r\n\r\n\r\n",
            Parser,
            "headers of a message: block does not begin with NATS/1.0",
        ),
        ("SUB a\r\n", Parser, "SUB has 1 arguments, fewer than 2"),
        ("SUB a b c d\r\n", Parser, "SUB has more than 3 arguments"),
        ("UNSUB\r\n", Parser, "UNSUB has 0 arguments, fewer than 1"),
        ("UNSUB 1 x\r\n", Parser, "maximum of UNSUB is not a number"),
        ("UNSUB 1 1 1\r\n", Parser, "UNSUB has more than 2 arguments"),
        ("CONNECT\r\n", Parser, "CONNECT has no JSON object"),
        ("CONNECT {\"verbose\":\r\n", Parser, "JSON of CONNECT is malformed at column 11"),
    ];
    for (input, kind, message) in cases {
        let input = format!("PONG\r\n{input}");
        let (events, out, error) = served(input.as_bytes());
        let error = error.unwrap_or_else(|| panic!("{input:?}: {events:?}"));
        assert_eq!((error.kind(), error.message()), (*kind, *message), "{input:?}");
        assert_eq!(out, format!("-ERR '{}'\r\n", kind.text()));
        assert!(kind.closes() && events == [ServerEvent::Pong]);
    }
}

#[test]
fn an_invalid_subject_keeps_the_connection_open() {
    let error = "-ERR 'Invalid Subject'\r\n";
    for pattern in ["a..b", ".", "a.>.b", "\u{7f}", &"a".repeat(1025)] {
        let (events, out, failed) = served(format!("SUB {pattern} 1\r\nPONG\r\n").as_bytes());
        assert_eq!((events, failed), (vec![ServerEvent::InvalidSubject, ServerEvent::Pong], None));
        assert_eq!(out, error, "{pattern}");
    }
    for (options, expected) in [
        ("{\"verbose\":false}", error),
        ("{\"verbose\":false,\"pedantic\":false}", ""),
        ("{\"pedantic\":false}", "+OK\r\n+OK\r\n"),
        ("{}", "+OK\r\n-ERR 'Invalid Subject'\r\n"),
    ] {
        let input = format!("CONNECT {options}\r\nPUB a.* 1\r\nx\r\nPONG\r\n");
        let (events, out, failed) = served_with(&Info::default(), Limits::server(), input.as_bytes());
        assert_eq!((&events[1..], failed), (&[ServerEvent::InvalidSubject, ServerEvent::Pong][..], None));
        assert_eq!(out, expected, "{options}");
    }
}

#[test]
fn verbose_clients_get_ok_after_each_command() {
    // Without CONNECT, as with a terminal.
    let input = b"SUB a 1\r\nPUB a 1\r\nx\r\nUNSUB 1\r\nPING\r\nPONG\r\nCONNECT {}\r\n";
    let (events, out, error) = served_with(&Info::default(), Limits::server(), input);
    assert_eq!((events.len(), error), (6, None));
    assert_eq!(out, "+OK\r\n+OK\r\n+OK\r\nPONG\r\n+OK\r\n");
}

#[test]
fn ok_precedes_the_messages_of_its_command() {
    let mut out = Outbox::new();
    let mut server = Server::new(&Info::default(), Limits::server(), &mut out);
    let mut input = Input::default();
    out.take_all();
    input.extend(b"CONNECT {\"headers\":true,\"no_responders\":true}\r\nPUB a r 0\r\n\r\n");
    while server.recv(&mut input, &mut out).unwrap()
        != Some(ServerEvent::Publish(message("a", Some("r"), "")))
    {}
    assert_eq!(server.no_responders(b"1", b"r", &mut out), Ok(true));
    assert_eq!(server.recv(&mut input, &mut out), Ok(None));
    assert_eq!(text(&mut out), "+OK\r\n+OK\r\nHMSG r 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n");
}

#[test]
fn a_denied_command_has_no_ok() {
    let mut out = Outbox::new();
    let mut server = Server::new(&Info::default(), Limits::server(), &mut out);
    let mut input = Input::default();
    out.take_all();
    input.extend(b"SUB a.b 1\r\nPUB c 1\r\nx\r\n");
    assert!(matches!(server.recv(&mut input, &mut out), Ok(Some(ServerEvent::Subscribe { .. }))));
    server.deny(ErrorKind::SubscribeDenied, b"a.b", &mut out);
    assert!(matches!(server.recv(&mut input, &mut out), Ok(Some(ServerEvent::Publish(_)))));
    server.deny(ErrorKind::PublishDenied, b"c\r\n", &mut out);
    assert_eq!(server.recv(&mut input, &mut out), Ok(None));
    let expected = "-ERR 'Permissions Violation for Subscription to \"a.b\"'\r\n\
                    -ERR 'Permissions Violation for Publish to'\r\n";
    assert_eq!(text(&mut out), expected);
    assert!(server.is_open());
}

#[test]
fn credentials_are_judged_before_any_other_command() {
    let info = Info { auth_required: true, ..Info::default() };
    let input = b"\r\nCONNECT {\"user\":\"a\",\"pass\":\"b\"}\r\nPING\r\n";
    let (events, out, error) = served_with(&info, Limits::server(), input);
    assert!(matches!(&events[..], [ServerEvent::Connect(_), ServerEvent::Ping]) && error.is_none());
    assert_eq!(out, "+OK\r\nPONG\r\n");
    for early in ["PING\r\n", "SUB a 1\r\n", "PUB a 999999999\r\n", "HPUB x\r\n"] {
        let (events, out, error) = served_with(&info, Limits::server(), early.as_bytes());
        assert_eq!(out, "-ERR 'Authorization Violation'\r\n", "{early}");
        assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Authorization));
        assert!(events.is_empty());
    }
    let mut out = Outbox::new();
    let mut server = Server::new(&info, Limits::server(), &mut out);
    let mut input_bytes = Input::default();
    out.take_all();
    input_bytes.extend(input);
    assert!(matches!(server.recv(&mut input_bytes, &mut out), Ok(Some(ServerEvent::Connect(_)))));
    assert_eq!(server.recv(&mut input_bytes, &mut out), Ok(None));
    assert!(!server.is_open() && !server.ping(&mut out));
    assert_eq!(server.send(b"1", &message("a", None, "").outgoing(), &mut out), Err(SendError::NotOpen));
    server.reject(&mut out);
    assert_eq!(server.recv(&mut input_bytes, &mut out), Ok(None));
    assert!(server.is_closed() && input_bytes.is_empty());
    assert_eq!(text(&mut out), "-ERR 'Authorization Violation'\r\n");
}

#[test]
fn required_tls_begins_after_info() {
    let info = Info { tls_required: true, ..Info::default() };
    let (events, out, error) = served_with(&info, Limits::server(), b"CONNECT {}\r\n");
    assert_eq!((events, error.map(|error| error.kind())), (Vec::new(), Some(ErrorKind::TlsRequired)));
    assert_eq!(out, "-ERR 'Secure Connection - TLS Required'\r\n");

    let mut out = Outbox::new();
    let mut server = Server::new(&info, Limits::server(), &mut out);
    out.take_all();
    let mut input = Input::default();
    assert_eq!(server.recv(&mut input, &mut out), Ok(None));
    input.extend(b"\x16\x03\x01");
    assert_eq!(server.recv(&mut input, &mut out), Ok(Some(ServerEvent::Tls)));
    assert_eq!(server.recv(&mut input, &mut out), Ok(None));
    assert_eq!(input.rest(), b"\x16\x03\x01", "for the TLS session");
    server.secured();
    let mut input = Input::default();
    input.extend(b"PING\r\n");
    assert_eq!(server.recv(&mut input, &mut out), Ok(Some(ServerEvent::Ping)));
}

#[test]
fn messages_are_written_for_the_options_of_the_client() {
    let block = Headers::new([("A", &b"b"[..])]).unwrap();
    let plain = message("a.b", Some("r"), "hi");
    let with_headers = Message { headers: Some(block), ..message("a.b", None, "hi") };
    for (options, plain_bytes, headers_bytes, no_responders) in [
        ("{\"verbose\":false}", "MSG a.b 7 r 2\r\nhi\r\n", "MSG a.b 7 2\r\nhi\r\n", ""),
        (
            "{\"verbose\":false,\"headers\":true}",
            "MSG a.b 7 r 2\r\nhi\r\n",
            "HMSG a.b 7 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n",
            "",
        ),
        (
            "{\"verbose\":false,\"headers\":true,\"no_responders\":true}",
            "MSG a.b 7 r 2\r\nhi\r\n",
            "HMSG a.b 7 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n",
            "HMSG r 7 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        ),
    ] {
        let mut out = Outbox::new();
        let mut server = Server::new(&Info::default(), Limits::server(), &mut out);
        let mut input = Input::default();
        input.extend(format!("CONNECT {options}\r\n").as_bytes());
        assert!(server.recv(&mut input, &mut out).unwrap().is_some());
        out.take_all();
        server.send(b"7", &plain.outgoing(), &mut out).unwrap();
        assert_eq!(text(&mut out), plain_bytes);
        server.send(b"7", &with_headers.outgoing(), &mut out).unwrap();
        assert_eq!(text(&mut out), headers_bytes);
        let expected = !no_responders.is_empty();
        assert_eq!(server.no_responders(b"7", b"r", &mut out), Ok(expected));
        assert_eq!(text(&mut out), no_responders);
        let draining = Info { ldm: true, ..Info::default() };
        assert!(!server.send_info(&draining, &mut out), "an old client");
        input.extend(b"CONNECT {\"protocol\":1,\"verbose\":false}\r\n");
        assert!(server.recv(&mut input, &mut out).unwrap().is_some());
        out.take_all();
        assert!(server.send_info(&draining, &mut out));
        assert!(text(&mut out).contains("\"max_payload\":1048576,\"client_id\":0,\"ldm\":true}\r\n"));
    }
}

#[test]
fn nothing_that_breaks_a_line_is_written() {
    let mut out = Outbox::new();
    let mut server = Server::new(&Info::default(), Limits::server(), &mut out);
    out.take_all();
    for (sid, subject, reply) in [
        ("", "a", None),
        ("1 2", "a", None),
        ("1\r\n", "a", None),
        ("1", "", None),
        ("1", "a b", None),
        ("1", "a\r\nPING", None),
        ("1", "*", None),
        ("1", "a", Some("")),
        ("1", "a", Some("b\n")),
    ] {
        let written = server.send(sid.as_bytes(), &message(subject, reply, "").outgoing(), &mut out);
        assert_eq!(written, Err(SendError::InvalidSubject), "{sid:?} {subject:?} {reply:?}");
    }
    let subject = "a".repeat(4088);
    assert_eq!(server.send(b"1", &message(&subject, None, "").outgoing(), &mut out), Ok(()));
    assert_eq!(out.take_all().len(), 4096 + 4);
    let written = server.send(b"12", &message(&subject, None, "").outgoing(), &mut out);
    assert_eq!(written, Err(SendError::ControlLine(4097, 4096)));
    assert!(out.is_empty());
}
