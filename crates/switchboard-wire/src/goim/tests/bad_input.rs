use super::*;

/// Returns a header with any lengths.
fn header(length: i32, header_length: i16) -> Vec<u8> {
    [&length.to_be_bytes()[..], &header_length.to_be_bytes(), b"\0\x01\0\0\0\x07\0\0\0\x01"].concat()
}

fn check(bytes: &[u8], kind: ErrorKind, text: &str) {
    let (events, output, error) = run_split(Variants::default(), bytes);
    let error = error.unwrap_or_else(|| panic!("no error for {}", bytes.escape_ascii()));
    assert_eq!((error.kind(), error.message()), (kind, text), "{}", bytes.escape_ascii());
    assert_eq!((events, output), (Vec::new(), Vec::new()));
    assert_eq!(error.to_string(), format!("goim: {text}"));
}

#[test]
fn bad_lengths_close_the_connection() {
    let short = |length| format!("packet has the length {length}, which is less than its header of 16 bytes");
    for length in [15, 0, -1, i32::MIN] {
        check(&header(length, 16), ErrorKind::PackageLength, &short(length));
    }
    for length in [4113, i32::MAX] {
        let text = format!("body of a packet has {} bytes; the limit is 4096 (body_bytes_max)", length - 16);
        check(&header(length, 16), ErrorKind::Limit, &text);
    }
    for length in [17, 0, -16, 4096] {
        let text = format!("header has the length {length}; it must be 16");
        check(&header(20, length), ErrorKind::HeaderLength, &text);
    }
}

#[test]
fn bad_lengths_are_found_before_the_rest_of_the_packet_arrives() {
    for bytes in [&header(15, 16)[..4], &header(4113, 16)[..4], &header(20, 17)[..6]] {
        assert!(run_split(Variants::default(), bytes).2.is_some(), "{}", bytes.escape_ascii());
    }
}

#[test]
fn bad_authentications_close_the_connection() {
    let not_json = "authentication is not an object of JSON: ";
    for (body, text) in [
        (&b""[..], format!("{not_json}EOF while parsing a value at line 1 column 0")),
        (b"token", format!("{not_json}expected ident at line 1 column 2")),
        (b"[1]", format!("{not_json}invalid type: sequence, expected a map at line 1 column 0")),
        (b"{\"mid\":1} x", format!("{not_json}trailing characters at line 1 column 11")),
        (b"{\"mid\":1.5}", "member \"mid\" of the authentication is not an integer of 64 bits".to_owned()),
        (
            b"{\"mid\":9223372036854775808}",
            "member \"mid\" of the authentication is not an integer of 64 bits".to_owned(),
        ),
        (b"{\"mid\":[]}", "member \"mid\" of the authentication is not an integer of 64 bits".to_owned()),
        (b"{\"room_id\":1000}", "member \"room_id\" of the authentication is not a string".to_owned()),
        (b"{\"accepts\":1000}", "member \"accepts\" of the authentication is not an array".to_owned()),
        (
            b"{\"accepts\":[1000,2147483648]}",
            "member \"accepts\" of the authentication is not an array of integers of 32 bits".to_owned(),
        ),
    ] {
        check(&packet(1, operation::AUTH, 1, body), ErrorKind::Auth, &text);
    }
    let nested = [&b"{\"x\":"[..], &[b'['; 200]].concat();
    let (_, _, error) = run_split(Variants::default(), &packet(1, operation::AUTH, 1, &nested));
    assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Auth));
}

#[test]
fn limits_of_the_authentication_are_enforced() {
    let limits = Limits {
        accepts_max: 2,
        body_bytes_max: 200,
        key_bytes_max: 3,
        platform_bytes_max: 4,
        room_bytes_max: 9,
    };
    let run = |body: &str| {
        let (_, _, error) =
            run(Variants::default(), &limits, &packet(1, operation::AUTH, 1, body.as_bytes()), 1);
        error.map(|error| error.message().to_owned())
    };
    let fits = r#"{"key":"abc","platform":"abcd","room_id":"live://12","accepts":[1,2]}"#;
    assert_eq!(run(fits), None);
    for (member, limit) in [
        (r#""key":"abcd""#, "bytes; the limit is 3 (key_bytes_max)"),
        (r#""platform":"abcde""#, "bytes; the limit is 4 (platform_bytes_max)"),
        (r#""room_id":"live://123""#, "bytes; the limit is 9 (room_bytes_max)"),
        (r#""accepts":[1,2,3]"#, "operations; the limit is 2 (accepts_max)"),
        (&format!(r#""x":"{}""#, "x".repeat(200)), "bytes; the limit is 200 (body_bytes_max)"),
    ] {
        let error = run(&format!("{{{member}}}")).unwrap_or_default();
        assert!(error.ends_with(limit), "{error}");
    }
}

#[test]
fn packets_before_the_authentication_are_skipped() {
    let early = [packet(1, operation::HEARTBEAT, 1, b""), packet(1, 1000, 2, b"x"), auth_packet()].concat();
    let (events, output, error) = run_split(Variants::default(), &early);
    assert_eq!(events[..2], [Event::Skipped { operation: 2 }, Event::Skipped { operation: 1000 }]);
    assert!(matches!(events[2..], [Event::Auth(_)]));
    assert_eq!(output, packet(1, operation::AUTH_REPLY, 1, b""));
    assert_eq!(error, None);
}

#[test]
fn an_incomplete_packet_waits_for_the_rest() {
    let bytes = auth_packet();
    for end in 0..bytes.len() {
        assert_eq!(
            run(Variants::default(), &Limits::default(), &bytes[..end], 1),
            (Vec::new(), Vec::new(), None)
        );
    }
}

#[test]
fn bad_lists_and_rooms_are_replied_to_without_effect() {
    let long = "x".repeat(257);
    let many = vec!["1"; 1025].join(",");
    for (operation, reply, body, refusal) in [
        (operation::SUBSCRIBE, operation::SUBSCRIBE_REPLY, &b"1000,x"[..], Refusal::Operations),
        (operation::SUBSCRIBE, operation::SUBSCRIBE_REPLY, b"1000,", Refusal::Operations),
        (operation::SUBSCRIBE, operation::SUBSCRIBE_REPLY, many.as_bytes(), Refusal::Operations),
        (operation::UNSUBSCRIBE, operation::UNSUBSCRIBE_REPLY, b"2147483648", Refusal::Operations),
        (operation::UNSUBSCRIBE, operation::UNSUBSCRIBE_REPLY, b"\xff", Refusal::Operations),
        (operation::CHANGE_ROOM, operation::CHANGE_ROOM_REPLY, b"live://\xff", Refusal::Room),
        (operation::CHANGE_ROOM, operation::CHANGE_ROOM_REPLY, long.as_bytes(), Refusal::Room),
    ] {
        let (events, output, error) = after_auth(Variant::Goim, &packet(1, operation, 5, body));
        assert_eq!(events, [Event::Refused { operation, refusal }]);
        assert_eq!(output, packet(1, reply, 5, body));
        assert_eq!(error, None);
    }
}

#[test]
fn a_client_refuses_bad_containers_and_packets_over_its_limits() {
    let run = |variant, limits, bytes: &[u8]| {
        let mut client = Client::new(variant, limits);
        let mut input = Input::default();
        input.extend(bytes);
        let error = loop {
            match client.recv(&mut input) {
                Ok(Some(_)) => {}
                Ok(None) => panic!("no error for {}", bytes.escape_ascii()),
                Err(error) => break error,
            }
        };
        assert!(client.is_closed());
        assert_eq!(client.heartbeat(&mut Outbox::new()), Err(super::super::NotSent::Closed));
        error.kind()
    };
    let limits = PushLimits::default();
    let inner = packet(1, 1000, 0, b"hello");
    let container = |body: &[u8]| packet(1, operation::RAW, 0, body);
    assert_eq!(run(Variant::Goim, limits, &container(&inner[..20])), ErrorKind::Container);
    assert_eq!(run(Variant::Goim, limits, &container(&[&inner[..], b"x"].concat())), ErrorKind::Container);
    assert_eq!(run(Variant::Goim, limits, &container(&header(15, 16))), ErrorKind::PackageLength);
    assert_eq!(run(Variant::Goim, limits, &container(&header(16, 17))), ErrorKind::HeaderLength);
    let limits = PushLimits { body_bytes_max: 4, requests_max: 1 };
    assert_eq!(run(Variant::Goim, limits, &inner), ErrorKind::Limit);
    let (mut client, mut out) = (Client::new(Variant::Goim, limits), Outbox::new());
    assert_eq!(client.heartbeat(&mut out), Ok(1));
    assert_eq!(client.heartbeat(&mut out), Err(super::super::NotSent::Full));
}
