//! The client's side.

use super::*;

#[test]
fn events() {
    let message_of =
        |sid: &str, message| ClientEvent::Message { sid: Bytes::copy_from_slice(sid.as_bytes()), message };
    let cases: &[(&str, &[ClientEvent])] = &[
        ("MSG a 1 2\r\nhi\r\n", &[message_of("1", message("a", None, "hi"))]),
        ("msg a 1 r 0\n\n", &[message_of("1", message("a", Some("r"), ""))]),
        ("MSG a..> 1 0\r\n\r\n", &[message_of("1", message("a..>", None, ""))]),
        ("+OK\r\n\r\nPONG\r\n", &[ClientEvent::Ok, ClientEvent::Pong]),
    ];
    for (input, events) in cases {
        let outcome = called(Limits::client(), input.as_bytes());
        assert_eq!(outcome, (events.to_vec(), String::new(), None), "{input:?}");
    }
    let outcome = called(Limits::client(), b"PING\r\n");
    assert_eq!(outcome, (vec![ClientEvent::Ping], "PONG\r\n".to_owned(), None));
    let (events, ..) = called(Limits::client(), b"HMSG a 1 16 17\r\nNATS/1.0 503\r\n\r\nx\r\n");
    let Some(ClientEvent::Message { message, .. }) = events.first() else { panic!("{events:?}") };
    assert_eq!(message.headers.as_ref().and_then(Headers::status), Some(503));
}

#[test]
fn errors_of_the_server() {
    for kind in ErrorKind::ALL {
        for text in [kind.text().to_owned(), kind.text().to_lowercase()] {
            let (events, out, error) =
                called(Limits::client(), format!("-ERR '{text}'\r\nPING\r\n").as_bytes());
            let Some(ClientEvent::Error(reported)) = events.first() else { panic!("{events:?}") };
            assert_eq!((reported.kind, reported.closes()), (Some(kind), kind.closes()), "{text}");
            assert_eq!((out.is_empty(), error), (kind.closes(), None), "nothing is read after it");
        }
    }
    let (events, ..) = called(Limits::client(), b"-ERR 'Invalid Publish Subject'\r\n");
    assert!(
        matches!(&events[..], [ClientEvent::Error(error)] if error.kind == Some(ErrorKind::InvalidSubject))
    );
    let (events, ..) = called(Limits::client(), b"-ERR 'User Authentication Expired'\r\n-ERR\r\n-err x \r\n");
    let texts: Vec<_> = events
        .iter()
        .map(|event| match event {
            ClientEvent::Error(error) if error.kind.is_none() => error.text.as_str(),
            event => panic!("{event:?}"),
        })
        .collect();
    assert_eq!(texts, ["User Authentication Expired", "", "x"]);
}

#[test]
fn malformed_input_of_a_server() {
    use ErrorKind::{Operation, Parser};
    let cases: &[(&str, ErrorKind, &str)] = &[
        ("PUB a 1\r\n", Operation, "a server does not send \"PUB\""),
        ("HTTP/1.1 400\r\n", Operation, "a server does not send \"HTTP/1.1\""),
        ("SUB a 1\r\n", Operation, "no command begins with the byte 0x53"),
        ("MSG a 1\r\n", Parser, "MSG has 2 arguments, fewer than 3"),
        ("HMSG a 1 2 1\r\n", Parser, "HMSG has 2 bytes of headers in a total of 1"),
        ("HMSG a 1 r 2 x 2\r\n", Parser, "HMSG has more than 5 arguments"),
        ("INFO\r\n", Parser, "INFO has no JSON object"),
    ];
    for (input, kind, message) in cases {
        let (events, out, error) = called(Limits::client(), input.as_bytes());
        let error = error.unwrap_or_else(|| panic!("{input:?}: {events:?}"));
        assert_eq!((error.kind(), error.message()), (*kind, *message), "{input:?}");
        assert!(out.is_empty());
    }
}

#[test]
fn info_is_first() {
    for (first, message) in
        [("PING\r\n", "PING arrived before INFO"), ("MSG a 1 0\r\n", "MSG arrived before INFO")]
    {
        let mut client = Client::new(Limits::client());
        let (mut input, mut out) = (Input::default(), Outbox::new());
        assert_eq!(client.connect(&Connect::default(), &mut out), Err(SendError::NotOpen));
        input.extend(first.as_bytes());
        let error = client.recv(&mut input, &mut out).unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Operation, message));
        assert!(client.is_closed() && out.is_empty());
    }
    let mut client = Client::new(Limits::client());
    let (mut input, mut out) = (Input::default(), Outbox::new());
    input.extend(b"INFO {\"tls_required\":true,\"later\":1}\r\n");
    let Ok(Some(ClientEvent::Info(info))) = client.recv(&mut input, &mut out) else { panic!("INFO") };
    assert!(info.tls_required);
    assert_eq!(client.publish(&message("a", None, "").outgoing(), &mut out), Err(SendError::NotOpen));
    assert!(!client.ping(&mut out) && out.is_empty());
}

#[test]
fn commands_are_written() {
    let mut out = Outbox::new();
    let client = connected(Limits::client(), &Info { headers: true, max_payload: 20, ..Info::default() });
    let headers = Headers::new([("A", &b"b"[..])]).unwrap();
    client.publish(&message("a", None, "hi").outgoing(), &mut out).unwrap();
    client.publish(&message("a", Some("r"), "").outgoing(), &mut out).unwrap();
    let with_headers = Message { headers: Some(headers), ..message("a", Some("r"), "hi") };
    client.publish(&with_headers.outgoing(), &mut out).unwrap();
    client.subscribe(b"a.>", None, b"1", &mut out).unwrap();
    client.subscribe(b"a.*", Some(b"q"), b"2", &mut out).unwrap();
    client.unsubscribe(b"1", None, &mut out).unwrap();
    client.unsubscribe(b"1", NonZeroU64::new(5), &mut out).unwrap();
    let expected = "PUB a 2\r\nhi\r\nPUB a r 0\r\n\r\nHPUB a r 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n\
                    SUB a.> 1\r\nSUB a.* q 2\r\nUNSUB 1\r\nUNSUB 1 5\r\n";
    assert_eq!(text(&mut out), expected);

    let over = Message { payload: Bytes::from_static(b"hi!"), ..with_headers.clone() };
    assert_eq!(client.publish(&over.outgoing(), &mut out), Err(SendError::Payload(21, 20)));
    assert_eq!(client.publish(&message("*", None, "").outgoing(), &mut out), Err(SendError::InvalidSubject));
    for (pattern, queue, sid) in
        [("a..b", None, "1"), ("a", Some("q r"), "1"), ("a", None, ""), ("a", None, "1\n")]
    {
        let subscribed =
            client.subscribe(pattern.as_bytes(), queue.map(str::as_bytes), sid.as_bytes(), &mut out);
        assert_eq!(subscribed, Err(SendError::InvalidSubject));
    }
    assert_eq!(client.unsubscribe(b"1 2", None, &mut out), Err(SendError::InvalidSubject));
    let long = "a".repeat(5000);
    let subscribed = client.subscribe(long.as_bytes(), None, b"1", &mut out);
    assert_eq!(subscribed, Err(SendError::ControlLine(5006, 4096)));
    let client = connected(Limits::client(), &Info { max_payload: 100, ..Info::default() });
    assert_eq!(client.publish(&with_headers.outgoing(), &mut out), Err(SendError::HeadersUnsupported));
    assert!(out.is_empty());
}
