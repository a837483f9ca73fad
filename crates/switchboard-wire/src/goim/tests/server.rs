use super::*;

#[test]
fn each_packet_has_one_reply_with_its_version_and_sequence() {
    for version in [0, 1, -1, 7] {
        for operation in [0, 4, 5, 7, 9, 10, 1000, -3] {
            let (events, output, _) = after_auth(Variant::Goim, &packet(version, operation, -9, b"body"));
            assert_eq!(events, [Event::Message { operation, body: Bytes::from_static(b"body") }]);
            assert_eq!(output, packet(version, operation, -9, b""), "{operation}");
        }
    }
}

#[test]
fn the_authentication_has_optional_members_in_any_case() {
    for (body, auth) in [
        ("{}", Auth::default()),
        (r#"{"mid":null,"accepts":null,"key":null,"room_id":null}"#, Auth::default()),
        (
            r#"{"MID":"42","Key":"k","Token":"secret","unknown":{"mid":1}}"#,
            Auth { mid: 42, key: Some("k".to_owned()), token: Some("secret".to_owned()), ..Auth::default() },
        ),
        (r#"{"mid":-1,"key":"","room_id":""}"#, Auth { mid: -1, ..Auth::default() }),
    ] {
        let (events, _, error) =
            run_split(Variants::default(), &packet(1, operation::AUTH, 1, body.as_bytes()));
        let auth = Auth { body: Bytes::copy_from_slice(body.as_bytes()), ..auth };
        assert_eq!((events, error), (vec![Event::Auth(Box::new(auth))], None));
    }
}

#[test]
fn replies_that_no_event_waits_for_have_no_effect() {
    let (mut server, mut out) = (Server::new(Variants::default()), Outbox::new());
    server.accept(&mut out);
    server.heartbeat(1, &mut out);
    assert!(out.is_empty() && !server.is_authenticated());
    let mut input = Input::default();
    input.extend(&auth_packet());
    assert!(matches!(server.recv(&mut input, &Limits::default(), &mut out), Ok(Some(Event::Auth(_)))));
    server.heartbeat(1, &mut out);
    assert!(out.is_empty() && server.is_waiting());
    server.accept(&mut out);
    assert!(server.is_authenticated() && !server.is_waiting());
}

#[test]
fn a_connection_needs_few_bytes() {
    assert!(size_of::<Server>() <= 24, "{} bytes", size_of::<Server>());
}

#[test]
fn lists_of_operations_are_numbers_between_commas() {
    for (list, operations) in [
        (&b""[..], Some(vec![])),
        (b"1000", Some(vec![1000])),
        (b"1,-2,2147483647", Some(vec![1, -2, i32::MAX])),
        (b"1,2,3,4", None),
        (b",", None),
        (b"1 ,2", None),
        (b"1.5", None),
    ] {
        assert_eq!(operation::parse_list(list, 3), operations, "{}", list.escape_ascii());
    }
}
