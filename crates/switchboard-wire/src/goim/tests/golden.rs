//! Frames as other implementations write them: the benchmark and the JavaScript client of goim, its comet and its job.

use super::*;

/// The authentication of goim's JavaScript client.
const AUTH: &[u8] = b"\0\0\0\x62\0\x10\0\x01\0\0\0\x07\0\0\0\x01\
    {\"mid\":123, \"room_id\":\"live://1000\", \"platform\":\"web\", \"accepts\":[1000,1001,1002]}";
/// Its reply.
const AUTH_REPLY: &[u8] = b"\0\0\0\x10\0\x10\0\x01\0\0\0\x08\0\0\0\x01";
/// A heartbeat of the JavaScript client.
const HEARTBEAT: &[u8] = b"\0\0\0\x10\0\x10\0\x01\0\0\0\x02\0\0\0\x01";
/// Its reply in a room of 259 connections.
const HEARTBEAT_REPLY: &[u8] = b"\0\0\0\x14\0\x10\0\x01\0\0\0\x03\0\0\0\x01\0\0\x01\x03";
/// A change of the room, with the version 0 of other clients.
const CHANGE_ROOM: &[u8] = b"\0\0\0\x1b\0\x10\0\0\0\0\0\x0c\0\0\0\x07live://1001";
const CHANGE_ROOM_REPLY: &[u8] = b"\0\0\0\x1b\0\x10\0\0\0\0\0\x0d\0\0\0\x07live://1001";
const LEAVE_ROOM: &[u8] = b"\0\0\0\x10\0\x10\0\x01\0\0\0\x0c\0\0\0\x08";
const LEAVE_ROOM_REPLY: &[u8] = b"\0\0\0\x10\0\x10\0\x01\0\0\0\x0d\0\0\0\x08";
const SUBSCRIBE: &[u8] = b"\0\0\0\x19\0\x10\0\x01\0\0\0\x0e\0\0\0\x091003,1004";
const SUBSCRIBE_REPLY: &[u8] = b"\0\0\0\x19\0\x10\0\x01\0\0\0\x0f\0\0\0\x091003,1004";
const UNSUBSCRIBE: &[u8] = b"\0\0\0\x14\0\x10\0\x01\0\0\0\x10\0\0\0\x0a1003";
const UNSUBSCRIBE_REPLY: &[u8] = b"\0\0\0\x14\0\x10\0\x01\0\0\0\x11\0\0\0\x0a1003";
/// A message, which is replied to with its own operation.
const MESSAGE: &[u8] = b"\0\0\0\x12\0\x10\0\x01\0\0\0\x04\0\0\0\x0bhi";
const MESSAGE_REPLY: &[u8] = b"\0\0\0\x10\0\x10\0\x01\0\0\0\x04\0\0\0\x0b";

/// A push with the operation 1000 on TCP.
const PUSH_TCP: &[u8] = b"\0\0\0\x15\0\x10\0\x01\0\0\x03\xe8\0\0\0\0hello";
/// This push in a WebSocket.
const PUSH_WEBSOCKET: &[u8] =
    b"\0\0\0\x25\0\x10\0\x01\0\0\0\x09\0\0\0\0\0\0\0\x15\0\x10\0\x01\0\0\x03\xe8\0\0\0\0hello";
/// This push for im-cloud.
const PUSH_IM_CLOUD: &[u8] = b"\0\0\0\x15\0\x10\0\x01\0\0\0\x09\0\0\0\0hello";

#[test]
fn requests_of_goim_have_its_replies() {
    let requests =
        [AUTH, HEARTBEAT, CHANGE_ROOM, HEARTBEAT, LEAVE_ROOM, SUBSCRIBE, UNSUBSCRIBE, MESSAGE].concat();
    let (events, output, error) = run_split(Variants::default(), &requests);
    let auth = Auth {
        accepts: vec![1000, 1001, 1002],
        body: Bytes::from_static(&AUTH[16..]),
        mid: 123,
        platform: "web".to_owned(),
        room: Some("live://1000".to_owned()),
        ..Auth::default()
    };
    assert_eq!(
        events,
        [
            Event::Auth(Box::new(auth)),
            Event::Heartbeat,
            Event::ChangeRoom { room: Some("live://1001".to_owned()) },
            Event::Heartbeat,
            Event::ChangeRoom { room: None },
            Event::Subscribe { operations: vec![1003, 1004] },
            Event::Unsubscribe { operations: vec![1003] },
            Event::Message { operation: operation::MESSAGE, body: Bytes::from_static(b"hi") },
        ]
    );
    let replies = [
        AUTH_REPLY,
        HEARTBEAT_REPLY,
        CHANGE_ROOM_REPLY,
        HEARTBEAT_REPLY,
        LEAVE_ROOM_REPLY,
        SUBSCRIBE_REPLY,
        UNSUBSCRIBE_REPLY,
        MESSAGE_REPLY,
    ];
    assert_eq!(output, replies.concat());
    assert_eq!(error, None);
}

#[test]
fn pushes_have_the_bytes_of_goim_and_im_cloud() {
    for (form, bytes) in [
        (PushForm::new(Variant::Goim, false), PUSH_TCP),
        (PushForm::new(Variant::Goim, true), PUSH_WEBSOCKET),
        (PushForm::new(Variant::ImCloud, false), PUSH_IM_CLOUD),
        (PushForm::new(Variant::ImCloud, true), PUSH_IM_CLOUD),
    ] {
        let push = Push { operation: 1000, payload: b"hello" };
        let mut written = BytesMut::new();
        form.write(&[push], &mut written).unwrap();
        assert_eq!(written, bytes, "{form:?}");
        assert_eq!(form.len(&[push]), Ok(bytes.len()));
    }
}

#[test]
fn twenty_pushes_are_one_container_in_a_websocket() {
    let payloads: Vec<String> = (0..20).map(|number| format!("message {number}")).collect();
    let pushes: Vec<Push<'_>> =
        payloads.iter().map(|payload| Push { operation: 1000, payload: payload.as_bytes() }).collect();
    let inner: Vec<u8> = payloads.iter().flat_map(|payload| packet(1, 1000, 0, payload.as_bytes())).collect();
    for (form, bytes) in
        [(PushForm::Packets, inner.clone()), (PushForm::Container, packet(1, operation::RAW, 0, &inner))]
    {
        let mut written = BytesMut::new();
        form.write(&pushes, &mut written).unwrap();
        assert_eq!(written, bytes);
        let mut client = Client::new(Variant::Goim, PushLimits::default());
        let (mut input, mut read) = (Input::default(), Vec::new());
        input.extend(&written);
        while let Some(event) = client.recv(&mut input).unwrap() {
            let ClientEvent::Push { operation: 1000, payload } = event else { panic!("{event:?}") };
            read.push(String::from_utf8(payload.to_vec()).unwrap());
        }
        assert_eq!(read, payloads);
    }
    assert_eq!(PushForm::Messages.message_pushes_max(), 1);
    assert_eq!(PushForm::Container.message_pushes_max(), usize::MAX);
}

#[test]
fn the_client_writes_the_same_requests() {
    let mut client = Client::new(Variant::Goim, PushLimits::default());
    let mut out = Outbox::new();
    client.heartbeat(&mut out).unwrap();
    assert_eq!(out.take_all(), HEARTBEAT);
    (2..9).for_each(|_| assert!(client.request(operation::MESSAGE, b"", &mut out).is_ok()));
    out.take_all();
    client.subscribe(&[1003, 1004], &mut out).unwrap();
    client.unsubscribe(&[1003], &mut out).unwrap();
    client.request(operation::MESSAGE, b"hi", &mut out).unwrap();
    assert_eq!(out.take_all(), [SUBSCRIBE, UNSUBSCRIBE, MESSAGE].concat());
}
