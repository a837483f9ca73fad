//! State machines of kiss-rpc, against arbitrary bytes and against each other.

use super::{Choices, feed::feed, machines};
use crate::{
    Code, Encodings, Input, Kind, Limits, Metadata, MethodInfo, MethodTable, Outbox, ServiceInfo,
    kiss::{BODY_BYTES_MAX, Client, Compression, MESSAGE_BYTES_MAX, Server},
    wire::{ClientEvent, ClientWire, Codec, Encoding, Open, ServerEvent, ServerWire},
};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

const FRAME_MAX: usize = 23 + u16::MAX as usize;
const ADD: &str = "calc.Calc/Add";

static CALC: ServiceInfo =
    ServiceInfo { name: "calc.Calc", methods: &[MethodInfo::new("Add", Kind::Unary)], descriptor: &[] };

fn table() -> Arc<MethodTable> {
    let mut table = MethodTable::default();
    table.add(&CALC).expect("one service");
    table.alias("kiss/7", ADD).expect("it is there");
    Arc::new(table)
}

/// Feeds either machine with bytes of a peer that follows no rule. Checks that it does not panic, that events and
/// responses do not depend on the split, that it respects the limits, and that a server sends no response without a
/// request.
///
/// # Panics
/// If the property does not hold.
pub fn kiss_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = machines::limits(&mut choices);
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let encodings = machines::encodings(&mut choices);
    let bytes = frames(&mut choices);
    let message_max = limits.message_bytes_max as usize;
    // The output is taken after each event.
    let written_max = |_: usize| 0;
    let served = |steps: &[u8]| {
        let mut server = Server::new(limits, table()).with_encodings(encodings);
        let (mut written, mut requests) = (Vec::new(), 0);
        let events = feed(&bytes, steps, FRAME_MAX, written_max, |input, out| {
            let event = server.recv(input, out)?;
            match &event {
                Some(ServerEvent::Open { id, head, first: Some(first), compressed: false, more: false }) => {
                    assert!(first.len() <= message_max && head.metadata.is_empty());
                    requests += usize::from(!head.oneway);
                    server.reply(*id, first.into(), out);
                }
                Some(ServerEvent::Refused { id, status }) => {
                    requests += 1;
                    server.end(*id, Err(status), out);
                }
                Some(ServerEvent::Handled) => requests += 1,
                Some(event) => panic!("{event:?}"),
                None => {}
            }
            written.extend(out.take_all());
            Ok(event)
        });
        assert!(written.len() <= requests * FRAME_MAX, "{} bytes for {requests} frames", written.len());
        (events, written)
    };
    assert_eq!(served(&[]), served(&steps));
    let called = |steps: &[u8]| {
        let mut client = Client::new(limits);
        feed(&bytes, steps, FRAME_MAX, written_max, |input, out| {
            let event = client.recv(input, out)?;
            if let Some(ClientEvent::Reply { item, .. }) = &event {
                assert!(item.len() <= message_max, "a reply of {} bytes", item.len());
            }
            Ok(event)
        })
    };
    assert_eq!(called(&[]), called(&steps));
}

/// Mostly well-formed frames with unusual contents, sometimes only noise.
fn frames(choices: &mut Choices<'_>) -> Vec<u8> {
    if choices.one_in(8) {
        return choices.rest().to_vec();
    }
    let mut bytes = Vec::new();
    while !choices.is_over() {
        if choices.one_in(64) {
            bytes.extend_from_slice(choices.bytes(30));
            continue;
        }
        let message = choices.message();
        let is_packed = choices.one_in(3);
        let body = match is_packed && !choices.one_in(8) {
            true => snap::raw::Encoder::new().compress_vec(&message).expect("a short message"),
            false => message.to_vec(),
        };
        let len = if choices.one_in(32) { choices.short() } else { body.len() as u16 };
        bytes.extend_from_slice(&[0xFF, 0xFF, 20, 1]);
        bytes.push(if is_packed { 0xF0 } else { 0 } | (choices.byte() % 4));
        bytes.extend_from_slice(&[[0, 2, 4, 5][usize::from(choices.byte()) % 4]]);
        bytes.extend_from_slice(&[[0, 1, 0x20, 0x80][usize::from(choices.byte()) % 4], 0, 0]);
        let function: u64 = if choices.one_in(4) { u64::from(choices.byte()) } else { 7 };
        bytes.extend_from_slice(&function.to_be_bytes());
        bytes.extend_from_slice(&choices.long().to_be_bytes());
        bytes.extend_from_slice(&len.to_be_bytes());
        bytes.extend_from_slice(&body);
    }
    bytes
}

/// Checks that a server receives exactly the calls that a client sends, and the client exactly the responses.
///
/// # Panics
/// If the property does not hold.
pub fn kiss_conversation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = Limits { message_bytes_max: MESSAGE_BYTES_MAX as u32, ..Limits::default() };
    let compression =
        [Compression::None, Compression::Dynamic, Compression::Forced][usize::from(choices.byte()) % 3];
    let functions = Arc::new(HashMap::from([(ADD.to_owned(), 7)]));
    let mut client = Client::new(limits).functions(functions).compressing(compression);
    let mut server = Server::new(limits, table()).with_encodings(Encodings::ALL);
    let (mut up, mut down) = (Outbox::new(), Outbox::new());
    client.method(0, ADD, None, &mut up);
    let (mut at_server, mut at_client) = (Input::default(), Input::default());
    let mut waiting = Vec::new();
    for id in 1.. {
        if choices.is_over() {
            break;
        }
        if choices.one_in(16) {
            client.ping(&mut up);
            at_server.extend(&up.take_all());
            assert!(matches!(server.recv(&mut at_server, &mut down), Ok(Some(ServerEvent::Handled))));
            at_client.extend(&down.take_all());
            assert!(matches!(client.recv(&mut at_client, &mut up), Ok(Some(ClientEvent::Pong))));
        }
        let codec = [Codec::FlatBuffers, Codec::Json, Codec::Proto][usize::from(choices.byte()) % 3];
        let message = choices.message();
        let oneway = choices.one_in(8);
        let (first, rest) = (message.slice(..message.len() / 2), [message.slice(message.len() / 2..)]);
        let open = Open {
            method: 0,
            codec,
            timeout: None,
            metadata: &Metadata::new(),
            oneway,
            more: false,
            encoding: if choices.one_in(3) { Encoding::Snappy } else { Encoding::Identity },
            compressed: false,
            rest: &rest,
        };
        if let Err(status) = client.open(id, open, Some((&first).into()), &mut up) {
            assert!(message.len() > BODY_BYTES_MAX - 8, "{status} for {} bytes", message.len());
            assert!(up.is_empty());
            continue;
        }
        at_server.extend(&up.take_all());
        let received = server.recv(&mut at_server, &mut down).expect("a frame").expect("a call");
        let ServerEvent::Open { id: place, head, first: Some(came), .. } = received else {
            panic!("{received:?}")
        };
        assert_eq!((came, head.codec, head.oneway), (message.clone(), codec, oneway));
        if !oneway {
            waiting.push((id, place, message));
        }
        if choices.one_in(2) {
            continue;
        }
        // In any order.
        while !waiting.is_empty() {
            let (id, place, message) = waiting.swap_remove(usize::from(choices.byte()) % waiting.len());
            let fails = choices.one_in(4);
            match fails {
                true => server.end(place, Err(&choices.status()), &mut down),
                false => server.reply(place, (&message).into(), &mut down),
            }
            at_client.extend(&down.take_all());
            match client.recv(&mut at_client, &mut up).expect("a frame").expect("an answer") {
                ClientEvent::Reply { id: received, item, .. } => assert_eq!((received, item), (id, message)),
                ClientEvent::End { id: received, end: Err(status) } => {
                    assert_eq!((received, status.code()), (id, Code::Unknown));
                    assert!(fails || message.len() > BODY_BYTES_MAX - 8);
                }
                event => panic!("{event:?}"),
            }
        }
    }
    let places: HashSet<_> = waiting.iter().map(|(_, place, _)| place).collect();
    assert_eq!(places.len(), waiting.len(), "two calls have one slot");
}
