//! Every limit: its largest value passes, and one more has an error with the name of the limit.

use super::*;

const SMALL: Limits = Limits {
    control_line_bytes_max: 60,
    headers_bytes_max: 30,
    headers_max: 2,
    info_bytes_max: 200,
    payload_bytes_max: 40,
    sid_bytes_max: 5,
    subject_bytes_max: 10,
};

fn check(kind: ErrorKind, fits: &[u8], exceeds: &[u8], text: &str) {
    let (events, _, error) = served_with(&Info::default(), SMALL, fits);
    assert_eq!((events.len(), error), (1, None));
    let (_, out, error) = served_with(&Info::default(), SMALL, exceeds);
    let error = error.expect(text);
    assert_eq!((error.kind(), error.to_string()), (kind, format!("nats: {text}")));
    assert_eq!(out, format!("-ERR '{}'\r\n", kind.text()));
}

#[test]
fn control_lines() {
    let line = |len: usize, end: &str| format!("PONG{}{end}", " ".repeat(len - 4)).into_bytes();
    let text = "control line has more than 60 bytes (control_line_bytes_max)";
    for end in ["\r\n", "\n"] {
        check(ErrorKind::ControlLine, &line(60, end), &line(61, end), text);
    }
    // Refused before its end arrives.
    check(ErrorKind::ControlLine, &line(60, "\n"), &line(62, ""), text);
}

#[test]
fn info_lines() {
    let line = |len: usize| format!("info {{\"go\":\"{}\"}}\r\n", "x".repeat(len - 14)).into_bytes();
    assert_eq!(line(20).len(), 22);
    let (events, ..) = called(SMALL, &line(200));
    assert!(matches!(&events[..], [ClientEvent::Info(_)]));
    let (.., error) = called(SMALL, &line(201));
    let text = "control line has more than 200 bytes (info_bytes_max)";
    assert_eq!(error.map(|error| error.message().to_owned()).as_deref(), Some(text));
    let (.., error) = called(SMALL, format!("-ERR '{}'\r\n", "x".repeat(60)).as_bytes());
    assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::ControlLine));
}

#[test]
fn payloads() {
    let publish = |len: usize| format!("PUB a {len}\r\n{}\r\n", "x".repeat(len)).into_bytes();
    let text = "payload of PUB has 41 bytes; the limit is 40 (payload_bytes_max)";
    check(ErrorKind::Payload, &publish(40), &publish(41), text);
    check(ErrorKind::Payload, &publish(40), b"PUB a 41\r\n", text);
}

#[test]
fn headers() {
    let publish = |len: usize| {
        let block = format!("NATS/1.0\r\nA:{}\r\n\r\n", "x".repeat(len - 16));
        format!("HPUB a {len} {len}\r\n{block}\r\n").into_bytes()
    };
    let text = "block of headers of HPUB has 31 bytes; the limit is 30 (headers_bytes_max)";
    check(ErrorKind::Payload, &publish(30), &publish(31), text);
    let text = "message has 3 headers or more; the limit is 2 (headers_max)";
    let two = b"HPUB a 22 22\r\nNATS/1.0\r\nA:1\r\nB:2\r\n\r\n\r\n";
    let three = b"HPUB a 27 27\r\nNATS/1.0\r\nA:1\r\nB:2\r\nC:3\r\n\r\n\r\n";
    check(ErrorKind::Parser, two, three, text);
}

#[test]
fn sids() {
    let text = "sid of SUB has 6 bytes; the limit is 5 (sid_bytes_max)";
    check(ErrorKind::Parser, b"SUB a 12345\r\n", b"SUB a 123456\r\n", text);
    let text = "sid of UNSUB has 6 bytes; the limit is 5 (sid_bytes_max)";
    check(ErrorKind::Parser, b"UNSUB 12345\r\n", b"UNSUB 123456\r\n", text);
}

#[test]
fn subjects() {
    for (fits, exceeds) in [
        ("SUB 1234567890 1\r\n", "SUB 12345678901 1\r\n"),
        ("SUB a 1234567890 1\r\n", "SUB a 12345678901 1\r\n"),
        ("PUB 1234567890 0\r\n\r\n", "PUB 12345678901 0\r\n\r\n"),
        ("PUB a 1234567890 0\r\n\r\n", "PUB a 12345678901 0\r\n\r\n"),
    ] {
        let (events, ..) = served_with(&Info::default(), SMALL, fits.as_bytes());
        assert!(!matches!(events[0], ServerEvent::InvalidSubject), "{fits}");
        let (events, out, error) = served_with(&Info::default(), SMALL, exceeds.as_bytes());
        assert_eq!((events, error), (vec![ServerEvent::InvalidSubject], None), "{exceeds}");
        assert_eq!(out, "-ERR 'Invalid Subject'\r\n");
    }
}
