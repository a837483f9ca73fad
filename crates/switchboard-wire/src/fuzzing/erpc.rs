//! Both state machines of erpc, against arbitrary bytes and against each other.

use super::{
    Choices,
    feed::feed,
    machines::{limits, table},
    outcomes::{self, Outcome},
    rpcx::within,
};
use crate::{
    Codec, Input, Limits, Metadata, Outbox,
    erpc::{Client, Framing, HEAD_BYTES_MAX, Names, Server, Settings},
    wire::{ClientEvent, ClientWire, Encoding, Open, Push, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::time::Duration;

/// Feeds either machine with bytes of a peer that follows no rule. Checks that it does not panic, that events do not
/// depend on the split, that it respects the limits, and that its output is proportional to the input.
///
/// # Panics
/// If the property does not hold.
pub fn erpc_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = limits(&mut choices);
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let framing = framing(&mut choices);
    let bytes = frames(framing, &mut choices);
    let kept_max = 2 * limits.message_bytes_max as usize + HEAD_BYTES_MAX + 256;
    // The shortest call with a response has ten bytes, and an error repeats its cause.
    let written_max = |read| 64 * read;
    let served = |steps: &[u8]| {
        let mut server = Server::new(limits, table());
        feed(&bytes, steps, kept_max, written_max, |input, out| {
            let event = server.recv(input, out)?;
            if let Some(ServerEvent::Open { head, first, .. }) = &event {
                within(&head.metadata, said(first.as_ref()), &limits);
            }
            Ok(event)
        })
    };
    assert_eq!(served(&[]), served(&steps));
    let called = |steps: &[u8]| {
        let mut client = Client::new(limits, Settings { framing, ..Settings::default() });
        feed(&bytes, steps, kept_max, written_max, |input, out| {
            let event = client.recv(input, out)?;
            match &event {
                Some(ClientEvent::Head { metadata, .. }) => within(metadata, None, &limits),
                Some(ClientEvent::Push(push)) => within(&push.metadata, Some(&push.message), &limits),
                Some(ClientEvent::Reply { item, .. }) => within(&Metadata::new(), said(Some(item)), &limits),
                _ => {}
            }
            Ok(event)
        })
    };
    assert_eq!(called(&[]), called(&steps));
}

/// Checks that a server receives what a client sends and the reverse, for any order of responses.
///
/// # Panics
/// If the property does not hold.
pub fn erpc_conversation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = Limits::default();
    let framing = framing(&mut choices);
    let names = [Names::Full, Names::Path, Names::Rpc][usize::from(choices.byte()) % 3];
    let settings = Settings { framing, gzip: choices.one_in(2), names, prefix: String::new() };
    let (mut client, mut server) = (Client::new(limits, settings), Server::new(limits, table()));
    let (mut to_server, mut to_client) = (Input::default(), Input::default());
    let (mut sent, mut answered) = (Outbox::new(), Outbox::new());
    client.method(0, "calc.Calc/Add", None, &mut sent);
    let mut open = Vec::new();
    for id in 0..u64::from(choices.byte() % 8) {
        let codec = if choices.one_in(2) { Codec::Json } else { Codec::Proto };
        let milliseconds = choices.one_in(2).then(|| 1 + u64::from(choices.short()));
        let timeout = milliseconds.map(Duration::from_millis);
        let metadata = choices.metadata(4);
        // An empty message becomes another one in JSON.
        let message = Bytes::from([b"1", choices.bytes(20)].concat());
        let oneway = choices.one_in(4);
        let call = Open {
            method: 0,
            codec,
            timeout,
            metadata: &metadata,
            oneway,
            more: false,
            encoding: Encoding::Identity,
            compressed: false,
            rest: &[],
        };
        client.open(id, call, Some((&message).into()), &mut sent).expect("nothing is over a limit");
        to_server.extend(&sent.take_all());
        let event = server.recv(&mut to_server, &mut answered).expect("a valid client").expect("a call");
        let ServerEvent::Open { id: at, head, first, compressed: false, more: false } = event else {
            panic!("{event:?}")
        };
        assert_eq!((head.method.0, head.codec, head.timeout, head.oneway), (0, codec, timeout, oneway));
        assert_eq!((head.metadata, first), (metadata, Some(message)));
        if !oneway {
            open.push((id, at));
        }
    }
    while !open.is_empty() {
        let (id, at) = open.swap_remove(usize::from(choices.byte()) % open.len());
        let message = Bytes::from([b"1", choices.bytes(20)].concat());
        let push = choices.one_in(4).then(|| {
            let codec = if choices.one_in(2) { Codec::Json } else { Codec::Raw };
            let push = Push::new("feed/flash", message.clone()).with_metadata(choices.metadata(4));
            let push = push.with_codec(codec);
            server.push(&push, &mut answered);
            push
        });
        let expected = outcomes::end(&mut server, at, message, &mut choices, &mut answered);
        to_client.extend(&answered.take_all());
        let received = outcomes::receive(&mut client, id, &mut to_client, &mut sent);
        assert_eq!(received, Outcome { push, ..expected });
    }
}

/// Returns the message, unless it represents an absent one.
fn said(message: Option<&Bytes>) -> Option<&Bytes> {
    message.filter(|message| !matches!(&message[..], b"{}" | b"null"))
}

fn framing(choices: &mut Choices<'_>) -> Framing {
    [Framing::Json, Framing::Proto, Framing::Raw][usize::from(choices.byte()) % 3]
}

/// Mostly well-formed frames with unusual contents, sometimes only noise.
fn frames(framing: Framing, choices: &mut Choices<'_>) -> Vec<u8> {
    if choices.one_in(8) {
        return choices.rest().to_vec();
    }
    let mut bytes = Vec::new();
    while !choices.is_over() {
        if choices.one_in(32) {
            bytes.extend_from_slice(choices.bytes(20));
        }
        let names: [&[u8]; 6] =
            [b"/calc/add", b"Calc.Sum", b"/heartbeat", b"/calc/add?a=%41", b"", b"/a/\xFF"];
        let name = names[usize::from(choices.byte()) % names.len()];
        let statuses: [&[u8]; 4] = [b"code=0", b"code=404&msg=Not%20Found", b"", b"code=1001&cause=x"];
        let status = statuses[usize::from(choices.byte()) % statuses.len()];
        let queries: [&[u8]; 5] = [b"", b"a=b&c", b"x-timeout-ms=5", b"grpc-status=5", b"k=%FF&l=%zz"];
        let query = queries[usize::from(choices.byte()) % queries.len()];
        let kind = if choices.one_in(8) { choices.byte() } else { 1 + choices.byte() % 5 };
        let codec = [b'j', b'p', 0, b'x'][usize::from(choices.byte()) % 4];
        let sequence = u32::from(choices.byte() % 8);
        let body = choices.message();
        let payload = match framing {
            Framing::Raw => raw(sequence, kind, name, status, query, codec, &body),
            Framing::Json => json(sequence, kind, name, status, query, codec, &body),
            Framing::Proto => proto(sequence, kind, name, status, query, codec, &body),
        };
        let counted = payload.len() as u32 + if framing == Framing::Raw { 5 } else { 1 };
        let lie = if choices.one_in(32) { choices.long() >> (choices.byte() % 32) } else { 0 };
        bytes.extend_from_slice(&(counted ^ lie).to_be_bytes());
        bytes.push(if choices.one_in(64) { choices.byte() } else { 0 });
        bytes.extend_from_slice(&payload);
    }
    bytes
}

fn raw(sequence: u32, kind: u8, name: &[u8], status: &[u8], query: &[u8], codec: u8, body: &[u8]) -> Vec<u8> {
    let mut payload = vec![1, b'0' + sequence as u8, kind, name.len() as u8];
    payload.extend_from_slice(name);
    for query in [status, query] {
        payload.extend_from_slice(&(query.len() as u16).to_be_bytes());
        payload.extend_from_slice(query);
    }
    payload.push(codec);
    [&payload, body].concat()
}

fn json(
    sequence: u32,
    kind: u8,
    name: &[u8],
    status: &[u8],
    query: &[u8],
    codec: u8,
    body: &[u8],
) -> Vec<u8> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let head = format!(
        r#"{{"seq":{sequence},"mtype":{kind},"serviceMethod":"{}","status":"{}","meta":"{}","bodyCodec":{codec},"#,
        text(name),
        text(status),
        text(query)
    );
    [head.as_bytes(), b"\"body\":\"", body, b"\"}"].concat()
}

fn proto(
    sequence: u32,
    kind: u8,
    name: &[u8],
    status: &[u8],
    query: &[u8],
    codec: u8,
    body: &[u8],
) -> Vec<u8> {
    let mut payload = bytes::BytesMut::new();
    crate::proto::put_number(&mut payload, 1, sequence.into());
    crate::proto::put_number(&mut payload, 2, kind.into());
    for (field, text) in (3..).zip([name, status, query]) {
        crate::proto::put_bytes(&mut payload, field, text);
    }
    crate::proto::put_number(&mut payload, 6, codec.into());
    crate::proto::put_bytes(&mut payload, 7, body);
    payload.to_vec()
}
