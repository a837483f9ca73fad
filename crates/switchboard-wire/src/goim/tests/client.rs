use super::*;

/// Feeds a client with these bytes.
fn received(client: &mut Client, bytes: &[u8]) -> Vec<ClientEvent> {
    let mut input = Input::default();
    let mut events = Vec::new();
    for byte in bytes {
        input.extend(&[*byte]);
        while let Some(event) = client.recv(&mut input).unwrap() {
            events.push(event);
        }
    }
    events
}

#[test]
fn replies_are_those_to_the_oldest_request() {
    let (mut client, mut out) = (Client::new(Variant::Goim, PushLimits::default()), Outbox::new());
    assert_eq!(client.auth(&Auth { mid: 1, ..Auth::default() }, &mut out), Ok(1));
    assert_eq!(client.heartbeat(&mut out), Ok(2));
    assert_eq!(client.change_room(Some("live://1"), &mut out), Ok(3));
    assert_eq!(client.request(1000, b"x", &mut out), Ok(4));
    assert_eq!(client.outstanding(), 4);
    let (_, replies, error) = run_split(Variants::default(), &out.take_all());
    assert_eq!(error, None);
    // A push with the number of an application's request is none of its replies.
    let bytes = [&packet(1, 1000, 0, b"push")[..], &replies, &packet(1, 1000, 0, b"push")].concat();
    let events = received(&mut client, &bytes);
    let push = ClientEvent::Push { operation: 1000, payload: Bytes::from_static(b"push") };
    let reply = |operation, sequence, body: &'static [u8]| ClientEvent::Reply {
        operation,
        sequence,
        body: Bytes::from_static(body),
    };
    assert_eq!(
        events,
        [
            push.clone(),
            reply(operation::AUTH_REPLY, 1, b""),
            reply(operation::HEARTBEAT_REPLY, 2, b"\0\0\x01\x03"),
            reply(operation::CHANGE_ROOM_REPLY, 3, b"live://1"),
            reply(1000, 4, b""),
            push,
        ]
    );
    let counts: Vec<_> = events.iter().filter_map(ClientEvent::room_connections).collect();
    assert_eq!((counts, client.outstanding()), (vec![259], 0));
}

#[test]
fn an_empty_container_has_no_pushes() {
    let mut client = Client::new(Variant::Goim, PushLimits::default());
    assert_eq!(received(&mut client, &packet(1, operation::RAW, 0, b"")), []);
}
