//! Older layouts, checked against frames of brpc peers.

use super::*;
use crate::{MethodId, Outgoing};

/// "abc" to the first method of `Echo`, as brpc's client writes it.
const HULU: &str = "48554c55 11000000 0c000000 0a044563686f 1000 1800 2001 0a03616263";
const SOFA: &str = "534f4641 17000000 0500000000000000 1c00000000000000 0800 1001 \
                    a2060d746573742e4563686f2e536179 e01200 0a03616263";

fn server_of(layout: Layout) -> Server {
    server(Limits::default()).with_layout(layout)
}

fn client_of(layout: Layout) -> Client {
    Client::new(Limits::default()).with_layout(layout)
}

/// A frame of hulu with this meta and payload.
fn hulu(meta: &str, payload: &[u8]) -> Vec<u8> {
    let meta = hex(meta);
    let sizes = [(meta.len() + payload.len()) as u32, meta.len() as u32];
    [&b"HULU"[..], &sizes[0].to_le_bytes(), &sizes[1].to_le_bytes(), &meta, payload].concat()
}

/// Returns the events of a client with this layout that receives these bytes.
fn client_events_in(layout: Layout, bytes: &[u8]) -> Vec<ClientEvent> {
    let (mut input, mut out, mut events) = (Input::default(), Outbox::new(), Vec::new());
    input.extend(bytes);
    while let Some(event) = client_of(layout).recv(&mut input, &mut out).unwrap() {
        events.push(event);
    }
    events
}

#[test]
fn requests_are_read_and_get_a_response() {
    for (layout, request, answer) in [
        (Layout::Hulu, HULU, "48554c55 09000000 04000000 0800 1802 0a03616263"),
        (
            Layout::Sofa,
            SOFA,
            "534f4641 0a000000 0500000000000000 0f00000000000000 0801 1001 c00c00 c80c00 0a03616263",
        ),
    ] {
        let mut server = server_of(layout);
        let (id, head, first) = opened(&mut server, &hex(request));
        assert_eq!((head.codec, &first[..]), (Codec::Proto, &b"\x0a\x03abc"[..]));
        assert!(head.metadata.is_empty() && head.timeout.is_none());
        let mut out = Outbox::new();
        server.reply(id, (&first).into(), &mut out);
        assert_eq!(out.take_all(), hex(answer), "{layout:?}");
        // The fast path (`next_call`), one byte at a time.
        let mut input = Input::default();
        for byte in hex(request) {
            assert!(server.next_call(&mut input).is_none());
            input.extend(&[byte]);
        }
        let Opened { id, len, .. } = server.next_call(&mut input).unwrap();
        let first = input.take(len);
        server.reply_with(id, (&first).into(), false, &Metadata::new(), &mut out);
        assert_eq!(out.take_all(), hex(answer));
        let [ClientEvent::Reply { id: 1, item, .. }] = &client_events_in(layout, &hex(answer))[..] else {
            panic!()
        };
        assert_eq!(item, &first);
        let mut client = client_of(layout);
        input.extend(&hex(answer));
        assert_eq!(client.take_reply(&mut input), Some((1, first)));
    }
}

#[test]
fn clients_write_what_servers_read() {
    let mut metadata = Metadata::new();
    for (name, value) in [
        ("baidu-log-id", "77"),
        ("baidu-trace-id", "1"),
        ("baidu-span-id", "2"),
        ("baidu-parent-span-id", "-3"),
        ("baidu-authentication", "s3cret"),
        ("x-request-id", "r-1"),
    ] {
        metadata.insert(name, value).unwrap();
    }
    metadata.insert("who-bin", vec![0, 255]).unwrap();
    metadata.set_attachment("behind");
    for names in [Names::Full, Names::Short] {
        for layout in [Layout::Hulu, Layout::Sofa] {
            let mut client = client_of(layout).naming(names);
            let mut out = Outbox::new();
            client.method(0, "test.Echo/Say", None, &mut out);
            client.index(0, 0);
            let sent = if layout == Layout::Hulu { metadata.clone() } else { Metadata::new() };
            client.open(9, call(&sent), Some(Outgoing::Lent(b"abc")), &mut out).unwrap();
            let (_, head, first) = opened(&mut server_of(layout), &out.take_all());
            assert_eq!(first, "abc");
            assert_eq!(head.metadata.attachment(), sent.attachment());
            let came: Vec<_> = head.metadata.iter().collect();
            assert_eq!(came.len(), sent.len(), "{came:?}");
            if layout == Layout::Hulu {
                assert_eq!(head.metadata.text("authorization"), Some("Bearer s3cret"));
                for (name, value) in sent.iter().filter(|(name, _)| *name != "baidu-authentication") {
                    assert_eq!(head.metadata.value(name), Some(value), "{name}");
                }
            }
        }
    }
}

#[test]
fn methods_of_hulu_are_found_by_name_and_by_index() {
    let mut server = server_of(Layout::Hulu);
    // The full service name; the index of another method with the name of this one; the name alone.
    for meta in
        ["0a09746573742e4563686f 1000", "0a044563686f 1001 7203536179", "0a09746573742e4563686f 7203536179"]
    {
        let (_, head, _) = opened(&mut server, &hulu(meta, b""));
        assert_eq!(head.method, MethodId(0));
    }
    let status = |server: &mut Server, meta: &str| {
        let Some(ServerEvent::Refused { id, status }) = receive(server, &hulu(meta, b"")).unwrap().pop()
        else {
            panic!("not refused")
        };
        let mut out = Outbox::new();
        server.end(id, Err(&status), &mut out);
        let answer = client_events_in(Layout::Hulu, &out.take_all());
        let [ClientEvent::End { end: Err(received), .. }] = &answer[..] else { panic!("{answer:?}") };
        (error_code(received), received.message().to_owned())
    };
    let of_echo = "unknown method 17: test.Echo has 3, from 0 on";
    assert_eq!(status(&mut server, "0a044563686f 1011"), (1002, of_echo.into()));
    let negative = "0a044563686f 10ffffffffffffffffff01";
    assert_eq!(status(&mut server, negative).1, of_echo.replace("17", "-1"));
    assert_eq!(status(&mut server, "0a044e6f7065 1000"), (1001, "unknown service Nope".into()));
    assert_eq!(status(&mut server, "0a044563686f 1001").0, 1002, "the method streams");
}

#[test]
fn failures_are_a_number_and_a_text() {
    for (layout, request) in [(Layout::Hulu, HULU), (Layout::Sofa, SOFA)] {
        let mut server = server_of(layout);
        for status in [
            Status::not_found("no such thing"),
            Status::resource_exhausted("later").with_retry(Retry::Safe),
            super::super::status_of(-42, "own"),
        ] {
            let (id, _, _) = opened(&mut server, &hex(request));
            let mut out = Outbox::new();
            server.end(id, Err(&status), &mut out);
            let answer = client_events_in(layout, &out.take_all());
            let [ClientEvent::End { id: 1, end: Err(received) }] = &answer[..] else { panic!("{answer:?}") };
            assert_eq!((error_code(received), received.message()), (error_code(&status), status.message()));
        }
    }
    // A sofa response with a failure and no number.
    let failed = "534f4641 07000000 0000000000000000 0700000000000000 0801 1001 c00c01";
    let [ClientEvent::End { end: Err(received), .. }] = &client_events_in(Layout::Sofa, &hex(failed))[..]
    else {
        panic!()
    };
    assert_eq!(received.code(), Code::Internal);
}

#[test]
fn correlation_ids_of_hulu_are_zig_zag_in_responses() {
    for id in [0, 1, u64::from(u32::MAX), 1 << 63, u64::MAX] {
        let mut meta = BytesMut::from(&hex("0a044563686f 1000")[..]);
        proto::put_number(&mut meta, 4, id);
        let meta: String = meta.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut server = server_of(Layout::Hulu);
        let (place, _, first) = opened(&mut server, &hulu(&meta, b""));
        let mut out = Outbox::new();
        server.reply(place, (&first).into(), &mut out);
        let answer = out.take_all();
        let meta = Layout::Hulu.response(&answer[12..], 0).unwrap();
        assert_eq!(meta.correlation_id, id);
    }
}

#[test]
fn messages_are_compressed_as_each_layout_numbers_it() {
    let metadata = Metadata::new();
    for (encoding, hulu, sofa) in
        [(Encoding::Snappy, 1, 3), (Encoding::Gzip, 2, 1), (Encoding::Deflate, 3, 2)]
    {
        for (layout, in_request, in_response) in [
            (Layout::Hulu, vec![0x18, hulu], vec![0x20, hulu]),
            (Layout::Sofa, vec![0xE0, 0x12, sofa], vec![0xE0, 0x12, sofa]),
        ] {
            let mut client = client_of(layout);
            let mut out = Outbox::new();
            client.method(0, "test.Echo/Say", None, &mut out);
            client.index(0, 0);
            let open = Open { encoding, compressed: true, ..call(&metadata) };
            client.open(1, open, Some(Outgoing::Lent(b"squeezed")), &mut out).unwrap();
            let bytes = out.take_all();
            assert!(
                bytes.windows(in_request.len()).any(|window| window == in_request),
                "{layout:?} {encoding}"
            );
            let mut server = server_of(layout);
            let (id, head, first) = match receive(&mut server, &bytes).unwrap().pop() {
                Some(ServerEvent::Open { id, head, first: Some(first), compressed: true, .. }) => {
                    (id, head, first)
                }
                other => panic!("{other:?}"),
            };
            assert_eq!((head.encoding, &first[..]), (encoding, &b"squeezed"[..]));
            server.reply_with(id, (&first).into(), true, &metadata, &mut out);
            let answer = out.take_all();
            assert!(
                answer.windows(in_response.len()).any(|window| window == in_response),
                "{layout:?} {encoding}"
            );
        }
    }
}

#[test]
fn attachments_of_hulu_follow_a_message_of_known_size() {
    let named = "0a044563686f 1000 2001";
    let mut server = server_of(Layout::Hulu);
    for (size, message, attachment) in
        [("6003", "abc", "de"), ("6000", "", "abcde"), ("6005", "abcde", ""), ("", "abcde", "")]
    {
        let (id, head, first) = opened(&mut server, &hulu(&format!("{named} {size}"), b"abcde"));
        assert_eq!(first, message);
        assert_eq!(head.metadata.attachment().map_or("".into(), Bytes::clone), attachment);
        let mut out = Outbox::new();
        server.head(id, &head.metadata, &mut out);
        server.reply_with(id, (&first).into(), false, &Metadata::new(), &mut out);
        let events = client_events_in(Layout::Hulu, &out.take_all());
        let Some(ClientEvent::Reply { item, .. }) = events.first().filter(|_| attachment.is_empty()) else {
            assert!(!attachment.is_empty());
            continue;
        };
        assert_eq!(item, message);
    }
    let events = receive(&mut server, &hulu(&format!("{named} 6006"), b"abcde")).unwrap();
    let [ServerEvent::Refused { status, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((status.code(), error_code(status)), (Code::InvalidArgument, 1003));
}

#[test]
fn invalid_frames_end_the_connection() {
    let cases = [
        (Layout::Hulu, "48554c55 01000000 02000000"),
        (Layout::Hulu, "48554c55 00000200 00000200"),
        (Layout::Hulu, "48554c54"),
        (Layout::Hulu, "50525043"),
        (Layout::Hulu, "5354524d"),
        (Layout::Hulu, "48554c55 01000000 01000000 ff"),
        (Layout::Sofa, "534f4641 01000000 0000000000000000 0000000000000000"),
        (Layout::Sofa, "534f4641 01000000 0000000001000000 0100000001000000"),
        (Layout::Sofa, "534f4641 01000000 ffffffffffffffff 0000000000000000"),
        (Layout::Sofa, "534f4641 00000200 0000000000000000 0000020000000000"),
        (Layout::Standard, "48554c55"),
    ];
    for (layout, bytes) in cases {
        assert!(receive(&mut server_of(layout), &hex(bytes)).is_err(), "{bytes}");
        let mut input = Input::default();
        input.extend(&hex(bytes));
        assert!(client_of(layout).recv(&mut input, &mut Outbox::new()).is_err(), "{bytes}");
    }
}

#[test]
fn clients_reject_calls_that_the_layout_cannot_carry() {
    let metadata = Metadata::new();
    let mut out = Outbox::new();
    for layout in [Layout::Hulu, Layout::Sofa] {
        let mut client = client_of(layout);
        client.method(0, "test.Echo/Say", None, &mut out);
        let mut refused = |open| client.open(1, open, Some(Outgoing::Lent(b"x")), &mut out).unwrap_err();
        let name = layout.name();
        let status = refused(Open { more: true, ..call(&metadata) });
        assert!(status.message().starts_with(&format!("{name} carries no streams")), "{status}");
        let status = refused(Open { codec: Codec::Json, ..call(&metadata) });
        assert_eq!(status.message(), format!("codec json is not supported on {name}; use proto"));
        assert_eq!(client.carries_attachments(), layout == Layout::Hulu);
    }
    let mut client = client_of(Layout::Hulu);
    client.method(0, "test.Echo/Say", None, &mut out);
    let status = client.open(1, call(&metadata), Some(Outgoing::Lent(b"x")), &mut out).unwrap_err();
    assert!(status.message().contains("index=test.Echo/Say:INDEX"), "{status}");
    assert!(out.is_empty());
    let places = [("test.Echo/Say".to_owned(), 300)].into_iter().collect();
    let mut client = client_of(Layout::Hulu).indexes(Arc::new(places));
    client.method(0, "test.Echo/Say", None, &mut out);
    // The index from the URL takes precedence, for a server with another order.
    client.index(0, 0);
    client.open(1, call(&metadata), Some(Outgoing::Lent(b"x")), &mut out).unwrap();
    let meta = out.take_all();
    let meta = Layout::Hulu.request(&meta[12..meta.len() - 1], 1).unwrap();
    assert_eq!(meta.request.unwrap().method_index, Some(300));
}
