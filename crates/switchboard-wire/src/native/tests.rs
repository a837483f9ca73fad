//! Conversations on the native wire, as bytes and events.

use super::*;
use crate::{
    Code, Idempotency, Input, Kind, Limits, Metadata, MethodId, MethodInfo, MethodTable, Outbox, Outgoing,
    Retry, SchemaId, ServiceInfo, Status,
    wire::{ClientEvent, ClientWire, Codec, Encoding, Encodings, Open, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

static CALC: ServiceInfo = ServiceInfo {
    name: "calc.Calc",
    methods: &[
        MethodInfo::new("Add", Kind::Unary).idempotency(Idempotency::NoSideEffects),
        MethodInfo::new("Sum", Kind::ClientStream),
        MethodInfo::new("Split", Kind::Unary).schema(0x5EED),
    ],
    descriptor: &[],
};

struct Pair {
    client: Client,
    server: Server,
    to_server: Outbox,
    to_client: Outbox,
    server_input: Input,
    client_input: Input,
}

impl Pair {
    fn new(limits: Limits) -> Pair {
        let mut table = MethodTable::default();
        table.add(&CALC).unwrap();
        let mut pair = Pair {
            client: Client::new(limits),
            server: Server::new(limits, Arc::new(table)),
            to_server: Outbox::new(),
            to_client: Outbox::new(),
            server_input: Input::default(),
            client_input: Input::default(),
        };
        pair.client.greet(&mut pair.to_server);
        pair
    }

    fn call<'a>(metadata: &'a Metadata) -> Open<'a> {
        Open {
            method: 0,
            codec: Codec::Proto,
            timeout: None,
            metadata,
            oneway: false,
            more: false,
            encoding: Encoding::Identity,
            compressed: false,
            rest: &[],
        }
    }

    fn at_server(&mut self) -> Vec<ServerEvent> {
        self.server_input.extend(&self.to_server.take_all());
        let mut events = Vec::new();
        while let Some(event) = self.server.recv(&mut self.server_input, &mut self.to_client).unwrap() {
            events.push(event);
        }
        // Frames without an event for a call: the preface, names of methods, pings.
        events.retain(|event| !matches!(event, ServerEvent::Handled));
        events
    }

    fn at_client(&mut self) -> Vec<ClientEvent> {
        self.client_input.extend(&self.to_client.take_all());
        let mut events = Vec::new();
        while let Some(event) = self.client.recv(&mut self.client_input, &mut self.to_server).unwrap() {
            events.push(event);
        }
        events
    }
}

#[test]
fn unary_call_is_one_frame_each_way() {
    let mut pair = Pair::new(Limits::default());
    pair.client.method(0, "calc.Calc/Add", None, &mut pair.to_server);
    let mut metadata = Metadata::new();
    metadata.insert("tenant", "a").unwrap();
    let open = Open { timeout: Some(Duration::from_micros(1500)), ..Pair::call(&metadata) };
    pair.client.open(7, open, Some(Outgoing::Lent(b"1+2")), &mut pair.to_server).unwrap();
    let events = pair.at_server();
    let [ServerEvent::Open { id: 7, head, first: Some(first), compressed: false, more: false }] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((head.method, head.codec), (MethodId(0), Codec::Proto));
    assert_eq!(head.timeout, Some(Duration::from_millis(2)));
    assert_eq!(head.metadata.text("tenant"), Some("a"));
    assert_eq!(first, "1+2");
    pair.server.head(7, &metadata, &mut pair.to_client);
    pair.server.reply(7, Outgoing::Lent(b"3"), &mut pair.to_client);
    let events = pair.at_client();
    assert!(matches!(&events[0], ClientEvent::Settings { .. }), "{events:?}");
    assert!(matches!(&events[1], ClientEvent::Head { id: 7, metadata } if metadata.len() == 1));
    assert!(matches!(&events[2], ClientEvent::Reply { id: 7, item, compressed: false } if item == "3"));
}

#[test]
fn status_arrives_with_text_details_metadata_and_retry() {
    let mut pair = Pair::new(Limits::default());
    pair.at_server();
    let mut metadata = Metadata::new();
    metadata.insert("why", "because").unwrap();
    let sent = Status::not_found("no such post")
        .with_detail("google.rpc.Help", &b"\x01\x02"[..])
        .with_metadata(metadata.clone())
        .with_retry(Retry::After(Duration::from_millis(40)));
    pair.server.end(1, Err(&sent), &mut pair.to_client);
    pair.server.end(2, Ok(&metadata), &mut pair.to_client);
    pair.server.end(3, Ok(&Metadata::new()), &mut pair.to_client);
    let events = pair.at_client();
    let ClientEvent::End { id: 1, end: Err(status) } = &events[1] else { panic!("{events:?}") };
    assert_eq!((status.code(), status.message()), (Code::NotFound, "no such post"));
    assert_eq!(status.details(), sent.details());
    assert_eq!(status.metadata(), &metadata);
    assert_eq!(status.retry(), Retry::After(Duration::from_millis(40)));
    assert!(matches!(&events[2], ClientEvent::End { id: 2, end: Ok(trailers) } if *trailers == metadata));
    assert!(matches!(&events[3], ClientEvent::End { id: 3, end: Ok(trailers) } if trailers.is_empty()));
}

#[test]
fn any_split_of_the_input_gives_the_same_events() {
    let mut pair = Pair::new(Limits::default());
    pair.client.method(1, "calc.Calc/Sum", None, &mut pair.to_server);
    let metadata = Metadata::new();
    let open = Open { method: 1, more: true, ..Pair::call(&metadata) };
    pair.client.open(1, open, None, &mut pair.to_server).unwrap();
    pair.client.item(1, &Bytes::from(vec![5; 3000]), false, &mut pair.to_server).unwrap();
    pair.client.credit(1, 99, &mut pair.to_server);
    pair.client.half_close(1, &mut pair.to_server);
    pair.client.ping(&mut pair.to_server);
    pair.client.cancel(1, &mut pair.to_server);
    let bytes = pair.to_server.take_all();
    let mut seen = Vec::new();
    for step in [1, 2, 3, 11, 13, 1000, bytes.len()] {
        let mut pair = Pair::new(Limits::default());
        pair.to_server.take_all();
        let mut events = Vec::new();
        for chunk in bytes.chunks(step) {
            pair.to_server.tail().extend_from_slice(chunk);
            events.extend(pair.at_server());
        }
        seen.push(format!("{events:?}"));
    }
    assert!(seen.iter().all(|events| *events == seen[0]));
    assert!(seen[0].contains("HalfClose") && seen[0].contains("Cancel") && seen[0].contains("Credit"));
}

#[test]
fn message_over_the_limit_is_refused_before_it_is_read() {
    let limits = Limits { message_bytes_max: 100, ..Limits::default() };
    let mut pair = Pair::new(limits);
    pair.client.method(0, "calc.Calc/Add", None, &mut pair.to_server);
    let metadata = Metadata::new();
    // This client has not received the limit yet, so it sends.
    let large = Bytes::from(vec![0; 1 << 20]);
    pair.client.open(1, Pair::call(&metadata), Some((&large).into()), &mut pair.to_server).unwrap();
    pair.client.open(2, Pair::call(&metadata), Some(Outgoing::Lent(b"ok")), &mut pair.to_server).unwrap();
    let bytes = pair.to_server.take_all();
    let mut events = Vec::new();
    for chunk in bytes.chunks(4096) {
        pair.to_server.tail().extend_from_slice(chunk);
        events.extend(pair.at_server());
        assert!(pair.server_input.len() < 8192, "the rejected message is buffered");
    }
    let ServerEvent::Refused { id: 1, status } = &events[0] else { panic!("{events:?}") };
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(
        status.message().contains("limit of 100 bytes") && status.message().contains("message_bytes_max")
    );
    assert!(matches!(&events[1], ServerEvent::Open { id: 2, .. }));
    // Once it has received the limit, the client rejects the message itself.
    pair.at_client();
    let refused =
        pair.client.open(3, Pair::call(&metadata), Some((&large).into()), &mut pair.to_server).unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(pair.to_server.is_empty());
}

#[test]
fn invalid_calls_get_a_status_and_the_connection_continues() {
    let mut pair = Pair::new(Limits::default());
    let metadata = Metadata::new();
    pair.client.method(0, "calc.Calc/Nope", None, &mut pair.to_server);
    pair.client.open(1, Pair::call(&metadata), None, &mut pair.to_server).unwrap();
    pair.client.open(2, Open { method: 9, ..Pair::call(&metadata) }, None, &mut pair.to_server).unwrap();
    let events = pair.at_server();
    let codes: Vec<_> = events
        .iter()
        .map(|event| match event {
            ServerEvent::Refused { id, status } => (*id, status.code()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(codes, [(1, Code::Unimplemented), (2, Code::Internal)]);
    pair.server.drain("upgrade", &mut pair.to_client);
    assert!(pair.at_client().iter().any(|event| matches!(event, ClientEvent::GoAway { status }
        if status.message() == "upgrade" && status.retry() == Retry::Safe)));
    pair.client.method(1, "calc.Calc/Add", None, &mut pair.to_server);
    let call = Open { method: 1, ..Pair::call(&metadata) };
    pair.client.open(3, call, None, &mut pair.to_server).unwrap();
    assert!(matches!(&pair.at_server()[..], [ServerEvent::Open { id: 3, .. }]), "it was in flight");
    pair.server.refuse();
    pair.client.open(4, call, None, &mut pair.to_server).unwrap();
    assert!(matches!(&pair.at_server()[..], [ServerEvent::Refused { id: 4, status }]
        if status.code() == Code::Unavailable));
}

#[test]
fn server_that_speaks_first_begins_with_its_preface() {
    for (speak, pings) in [
        ((|server, out| server.drain("upgrade", out)) as fn(&mut Server, &mut Outbox), 0),
        (|server, out| server.ping(out), 1),
    ] {
        let mut pair = Pair::new(Limits::default());
        speak(&mut pair.server, &mut pair.to_client);
        // What the client wrote meanwhile is read as usual, and the preface is not written twice.
        pair.client.method(0, "calc.Calc/Add", None, &mut pair.to_server);
        let metadata = Metadata::new();
        pair.client.open(1, Pair::call(&metadata), None, &mut pair.to_server).unwrap();
        assert!(matches!(&pair.at_server()[..], [ServerEvent::Open { id: 1, .. }]));
        let events = pair.at_client();
        assert!(matches!(&events[0], ClientEvent::Settings { .. }), "{events:?}");
        let goes = events.iter().filter(|event| matches!(event, ClientEvent::GoAway { .. })).count();
        assert_eq!(goes, 1 - pings, "{events:?}");
        pair.at_server();
        assert_eq!(pair.to_server.len(), 0);
    }
}

#[test]
fn caller_of_another_schema_is_rejected_for_codecs_without_field_names() {
    let mut pair = Pair::new(Limits::default());
    let metadata = Metadata::new();
    let mut refused = |name: &str, schema: u64, codec| {
        pair.client.method(0, name, SchemaId::new(schema), &mut pair.to_server);
        let first = Bytes::from_static(b"1");
        pair.client
            .open(1, Open { codec, ..Pair::call(&metadata) }, Some((&first).into()), &mut pair.to_server)
            .unwrap();
        match &pair.at_server()[..] {
            [ServerEvent::Open { .. }] => None,
            [ServerEvent::Refused { id: 1, status }] => Some(status.clone()),
            other => panic!("{other:?}"),
        }
    };
    let status = refused("calc.Calc/Split", 0xBAD, Codec::Postcard).expect("another schema");
    assert_eq!(status.code(), Code::FailedPrecondition);
    for part in ["calc.Calc/Split", "0000000000005eed here", "0000000000000bad in the caller"] {
        assert!(status.message().contains(part), "{status}");
    }
    assert!(refused("calc.Calc/Split", 0x5EED, Codec::Postcard).is_none());
    assert!(refused("calc.Calc/Split", 0, Codec::Postcard).is_none());
    assert!(refused("calc.Calc/Split", 0xBAD, Codec::Json).is_none());
    assert!(refused("calc.Calc/Add", 0xBAD, Codec::Postcard).is_none());
    assert_eq!(refused("calc.Calc/Nope", 0xBAD, Codec::Postcard).unwrap().code(), Code::Unimplemented);
}

#[test]
fn compressed_messages_are_carried_in_encodings_that_the_server_takes() {
    let mut pair = Pair::new(Limits::default());
    let mut table = MethodTable::default();
    table.add(&CALC).unwrap();
    pair.server =
        Server::new(Limits::default(), Arc::new(table)).with_encodings(Encodings(1 << 1 | 1 << 3 | 1 << 20));
    pair.client.method(0, "calc.Calc/Add", None, &mut pair.to_server);
    pair.client.method(1, "calc.Calc/Sum", None, &mut pair.to_server);
    assert!(
        !pair.client.knows_server() && !pair.client.accepts(Encoding::Gzip),
        "the settings of the server have not arrived"
    );
    assert!(pair.at_server().is_empty() && pair.at_client().len() == 1);
    assert!(pair.client.knows_server() && pair.client.accepts(Encoding::Gzip));
    assert!(pair.client.accepts(Encoding::Deflate) && !pair.client.accepts(Encoding::Zstd));

    // A small message: these machines do not parse it.
    let message = Bytes::from_static(b"small");
    let metadata = Metadata::new();
    let open = |encoding, compressed| Open { encoding, compressed, ..Pair::call(&metadata) };
    pair.client.open(1, open(Encoding::Gzip, true), Some((&message).into()), &mut pair.to_server).unwrap();
    pair.client
        .open(2, open(Encoding::Deflate, false), Some((&message).into()), &mut pair.to_server)
        .unwrap();
    let stream = Open { method: 1, more: true, ..open(Encoding::Gzip, true) };
    pair.client.open(3, stream, None, &mut pair.to_server).unwrap();
    pair.client.item(3, &message, true, &mut pair.to_server).unwrap();
    pair.client.item(3, &message, false, &mut pair.to_server).unwrap();
    let seen: Vec<_> = pair
        .at_server()
        .iter()
        .map(|event| match event {
            ServerEvent::Open { id, head, compressed, .. } => (*id, Some(head.encoding), *compressed),
            ServerEvent::Item { id, compressed, .. } => (*id, None, *compressed),
            other => panic!("{other:?}"),
        })
        .collect();
    let (gzip, deflate) = (Some(Encoding::Gzip), Some(Encoding::Deflate));
    assert_eq!(
        seen,
        [(1, gzip, true), (2, deflate, false), (3, gzip, false), (3, None, true), (3, None, false)]
    );
    pair.server.item(3, &message, true, &mut pair.to_client);
    pair.server.reply_with(1, (&message).into(), true, &Metadata::new(), &mut pair.to_client);
    let events = pair.at_client();
    assert!(matches!(&events[0], ClientEvent::Item { id: 3, item, compressed: true } if *item == message));
    assert!(matches!(&events[1], ClientEvent::Reply { id: 1, item, compressed: true } if *item == message));

    for (encoding, compressed, code, text) in [
        (Encoding::Zstd, false, Code::Unimplemented, "zstd is not accepted; accepted: gzip, deflate"),
        (Encoding::Identity, true, Code::Internal, "without an encoding"),
    ] {
        pair.client
            .open(4, open(encoding, compressed), Some((&message).into()), &mut pair.to_server)
            .unwrap();
        let events = pair.at_server();
        let [ServerEvent::Refused { id: 4, status }] = &events[..] else { panic!("{events:?}") };
        assert_eq!(status.code(), code);
        assert!(status.message().contains(text), "{status}");
    }
}

#[test]
fn unknown_frames_are_skipped_and_garbage_is_fatal() {
    let mut pair = Pair::new(Limits::default());
    let unknown = frame::Header { len: 300_000, kind: 77, flags: 0, aux: 0, id: 0 };
    unknown.put(pair.to_server.tail());
    pair.to_server.tail().extend_from_slice(&vec![9; 300_000]);
    pair.client.ping(&mut pair.to_server);
    assert!(pair.at_server().is_empty());
    assert!(pair.at_client().iter().any(|event| matches!(event, ClientEvent::Pong)));
    let mut table = MethodTable::default();
    table.add(&CALC).unwrap();
    let mut server = Server::new(Limits::default(), Arc::new(table));
    let mut input = Input::default();
    input.extend(b"\xF5SWB\x02\0\0\0");
    let fatal = server.recv(&mut input, &mut Outbox::new()).unwrap_err();
    assert!(fatal.to_string().contains("version 2"), "{fatal}");
}
