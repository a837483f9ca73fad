//! Recorded and constructed messages, and conversations byte by byte.
#![allow(clippy::unwrap_used)]

use super::{
    scan::Scanner,
    transcode,
    value::{put_field, put_field_head, put_stop},
    *,
};
use crate::{
    Code, Codec, Input, Kind, Limits, Metadata, MethodInfo, MethodTable, Outbox, Outgoing, ServiceInfo,
    Status,
    wire::{ClientEvent, ClientWire, Encoding, Open, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::sync::Arc;

static CALC: ServiceInfo = ServiceInfo {
    name: "demo.Calc",
    methods: &[
        MethodInfo::new("add", Kind::Unary),
        MethodInfo::new("note", Kind::Unary).oneway(),
        MethodInfo::new("watch", Kind::ServerStream),
    ],
    descriptor: &[],
};

static OTHER: ServiceInfo =
    ServiceInfo { name: "demo.Other", methods: &[MethodInfo::new("add", Kind::Unary)], descriptor: &[] };

/// `{1: i32 5, 2: "hi", 3: true, 4: 1.0, 20: [true, false]}`
const BODY: &str =
    "0800010000000 50b000200000002 6869 02000301 0400043ff0000000000000 0f0014 02 00000002 0100 00";
const BODY_COMPACT: &str = "150a 18026869 11 17000000000000f03f 0928 22 0102 00";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|digit| !digit.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

fn server(limits: Limits) -> Server {
    let mut table = MethodTable::default();
    table.add(&CALC).unwrap();
    table.add(&OTHER).unwrap();
    Server::new(limits, Arc::new(table))
}

/// Feeds bytes one by one and replies to each call with its own body.
fn echoes(server: &mut Server, bytes: &[u8]) -> (Vec<Bytes>, Vec<u8>, Option<String>) {
    let (mut input, mut out, mut seen) = (Input::default(), Outbox::new(), Vec::new());
    for byte in bytes {
        input.extend(&[*byte]);
        loop {
            match server.recv(&mut input, &mut out) {
                Ok(Some(ServerEvent::Open { id, first, head, .. })) => {
                    assert_eq!(head.codec, Codec::Thrift);
                    let first = first.unwrap();
                    server.reply(id, (&first).into(), &mut out);
                    seen.push(first);
                }
                Ok(Some(ServerEvent::Handled)) => {}
                Ok(Some(event)) => panic!("{event:?}"),
                Ok(None) => break,
                Err(fatal) => return (seen, out.take_all(), Some(fatal.0)),
            }
        }
    }
    (seen, out.take_all(), None)
}

#[test]
fn every_form_is_read_byte_by_byte_and_gets_a_reply_in_the_same_form() {
    let strict = format!("80010001 00000003616464 00000007 {BODY}");
    let compact = format!("8221 07 03616464 {BODY_COMPACT}");
    let old = format!("00000003 616464 01 00000007 {BODY}");
    let framed = |message: &str| {
        let message = hex(message);
        [&(message.len() as u32).to_be_bytes()[..], &message].concat()
    };
    let header = |text: &str| [hex("0000004b 0fff 0000 00000007 0002 00000101016b0176"), hex(text)].concat();
    let reply = |mut bytes: Vec<u8>, at: usize, kind: u8| {
        bytes[at] = kind;
        bytes
    };
    let cases = [
        (hex(&strict), reply(hex(&strict), 3, 2)),
        (hex(&compact), reply(hex(&compact), 1, 0x41)),
        (framed(&strict), reply(framed(&strict), 7, 2)),
        (framed(&compact), reply(framed(&compact), 5, 0x41)),
        (framed(&old), reply(framed(&old), 11, 2)),
    ];
    for (request, reply) in cases {
        let twice = [&request[..], &request].concat();
        let (seen, answers, fatal) = echoes(&mut server(Limits::default()), &twice);
        assert_eq!((seen, fatal), (vec![Bytes::from(hex(BODY)); 2], None), "{request:02x?}");
        assert_eq!(answers, [&reply[..], &reply].concat(), "{request:02x?}");
    }
    let (seen, answers, fatal) = echoes(&mut server(Limits::default()), &header(&strict));
    assert_eq!((seen, fatal), (vec![Bytes::from(hex(BODY))], None));
    // The header of the reply does not repeat the metadata and transforms of the request.
    assert_eq!(answers[4..14], hex("0fff 0000 00000007 0001"));
    assert_eq!(answers[14..18], hex("00000000"));
    assert_eq!(answers[18..], reply(hex(&strict), 3, 2));
}

#[test]
fn structs_go_from_one_protocol_to_the_other_and_back() {
    let (binary, compact) = (hex(BODY), hex(BODY_COMPACT));
    assert_eq!(transcode::to_compact(&binary).unwrap(), (compact.clone(), binary.len()));
    assert_eq!(transcode::to_binary(&compact, 1000).unwrap(), (binary.clone(), compact.len()));
    // Python writes elements of type bool as 1.
    let python = BODY_COMPACT.replace(" 22 ", " 21 ");
    assert_eq!(transcode::to_binary(&hex(&python), 1000).unwrap().0, binary);
    for (bytes, encoded) in [(&binary, Encoded::Binary), (&compact, Encoded::Compact)] {
        let mut scanner = Scanner::new(encoded);
        for end in 0..bytes.len() {
            assert_eq!(scanner.scan(&bytes[..end], 1000).unwrap(), None);
        }
        assert_eq!(scanner.scan(&[&bytes[..], b"more"].concat(), 1000).unwrap(), Some(bytes.len()));
        for end in 0..bytes.len() {
            assert!(transcode::to_binary(&compact[..end.min(compact.len() - 1)], 1000).is_err());
            assert!(transcode::to_compact(&binary[..end.min(binary.len() - 1)]).is_err());
        }
    }
}

#[test]
fn invalid_calls_get_an_exception() {
    let body = "00";
    for (name, code, text) in [
        ("nope", 1, "unknown method nope"),
        ("demo.Calc:nope", 1, "demo.Calc has add, note"),
        ("No:add", 1, "unknown service No"),
        ("watch", 1, "streams"),
    ] {
        let mut message = hex("80010001");
        message.extend((name.len() as u32).to_be_bytes());
        message.extend(name.as_bytes());
        message.extend(hex("ffffffff"));
        message.extend(hex(body));
        let (seen, answers, fatal) = echoes(&mut server(Limits::default()), &message);
        assert_eq!((seen.len(), fatal), (0, None));
        let head = message::Head::read(&answers).unwrap().unwrap();
        let bare = name.rsplit(':').next().unwrap();
        assert_eq!((head.kind, head.name, head.sequence), (message::Kind::Exception, bare.as_bytes(), -1));
        let body = Bytes::copy_from_slice(&answers[head.len..]);
        let status = exception::read(&body).unwrap();
        assert_eq!(status.code(), Code::Unimplemented);
        assert!(status.message().contains(text), "{status}");
        assert_eq!(body[body.len() - 2], code);
    }
}

#[test]
fn multiplexed_and_bare_names_find_their_service() {
    let mut table = MethodTable::default();
    table.add(&CALC).unwrap();
    table.add(&OTHER).unwrap();
    table.alias("Old/plus", "demo.Other/add").unwrap();
    let find = |name: &str| {
        let found = names::find(&table, name.as_bytes())?;
        Ok::<_, Status>(
            found.undeclared_name.map_or_else(|| table.full_name(found.method), |name| name.to_string()),
        )
    };
    assert_eq!(find("add").unwrap(), "demo.Calc/add");
    assert_eq!(find("Other:add").unwrap(), "demo.Other/add");
    assert_eq!(find("demo.Other:add").unwrap(), "demo.Other/add");
    assert_eq!(find("Old:plus").unwrap(), "demo.Other/add");
    assert!(find("ther:add").is_err() && find(":add").is_err());
}

#[test]
fn hostile_sizes_end_the_connection_with_an_error() {
    let limits = Limits { message_bytes_max: 100, ..Limits::default() };
    let call = "80010001 00000003616464 00000001";
    // A frame over the limit, and unframed: a list of 2^31-1 booleans and a string of negative length.
    let frame = [hex("00ffffff"), hex(call)].concat();
    let list = hex(&format!("{call} 0f0001 02 7fffffff"));
    let string = hex(&format!("{call} 0b0001 ffffffff"));
    for (bytes, at, text) in [(frame, 4, "message_bytes_max"), (list, 0, "more than 100"), (string, 0, "-1")]
    {
        let (_, answers, fatal) = echoes(&mut server(limits), &[&bytes[..], &[0; 20]].concat());
        assert!(fatal.as_ref().is_some_and(|fatal| fatal.contains(text)), "{fatal:?}");
        let head = message::Head::read(&answers[at..]).unwrap().unwrap();
        assert_eq!((head.kind, head.sequence), (message::Kind::Exception, 1));
    }
    for bytes in ["00000000", "00000004 80010009", "8221 ffffffffffffffffffff 00", "00000003 0fff00"] {
        let (seen, _, fatal) = echoes(&mut server(limits), &hex(bytes));
        assert!(seen.is_empty() && fatal.is_some(), "{bytes}");
    }
}

#[test]
fn too_deep_nesting_is_rejected() {
    let deep = |levels: usize| [hex("0c0001").repeat(levels), vec![0; levels + 1]].concat();
    for (levels, fits) in [(63, true), (64, false)] {
        let bytes = Bytes::from(deep(levels));
        assert_eq!(Reader::new(&bytes).skip(Type::STRUCT).is_ok(), fits);
        assert_eq!(transcode::to_compact(&bytes).is_ok(), fits);
    }
    let mut scanner = Scanner::new(Encoded::Binary);
    assert!(scanner.scan(&deep(70), 10_000).is_err());
    let compact = [vec![0x1C; 70], vec![0; 71]].concat();
    assert!(transcode::to_binary(&compact, 10_000).is_err());
    assert!(Scanner::new(Encoded::Compact).scan(&compact, 10_000).is_err());
}

#[test]
fn replies_wait_for_earlier_ones_unless_the_client_matches_them() {
    let call = |sequence: u8| hex(&format!("00000010 80010001 00000003616464 000000{sequence:02x} 00"));
    let mut server_ = server(Limits::default());
    let (mut input, mut out) = (Input::default(), Outbox::new());
    let note = hex("00000011 80010001 000000046e6f7465 00000009 00");
    input.extend(&[call(1), note, call(2), call(3)].concat());
    let mut ids = Vec::new();
    while let Some(event) = server_.recv(&mut input, &mut out).unwrap() {
        let ServerEvent::Open { id, head, .. } = event else { panic!("{event:?}") };
        assert_eq!(head.oneway, ids.len() == 1);
        ids.push(id);
    }
    server_.reply(ids[3], Outgoing::Lent(&[0]), &mut out);
    server_.end(ids[2], Err(&Status::not_found("gone")), &mut out);
    server_.reply(ids[1], Outgoing::Lent(&[0]), &mut out);
    assert!(out.is_empty() && server_.unsent_response_bytes() > 0);
    server_.reply(ids[0], Outgoing::Lent(&[0]), &mut out);
    assert_eq!(server_.unsent_response_bytes(), 0);
    let answers = out.take_all();
    let mut rest = &answers[..];
    for (sequence, kind) in
        [(1, message::Kind::Reply), (2, message::Kind::Exception), (3, message::Kind::Reply)]
    {
        let len = u32::from_be_bytes(*rest.first_chunk().unwrap()) as usize;
        let head = message::Head::read(&rest[4..]).unwrap().unwrap();
        assert_eq!((head.sequence, head.kind), (sequence, kind));
        rest = &rest[4 + len..];
    }
    assert!(rest.is_empty());
}

#[test]
fn values_survive_and_fields_of_other_types_are_skipped() {
    type Map = std::collections::BTreeMap<String, Vec<std::collections::BTreeSet<Double>>>;
    let map =
        Map::from([("a".to_owned(), vec![[Double(f64::NAN), Double(-0.0)].into()]), (String::new(), vec![])]);
    let uuid: Uuid = "123e4567-e89b-12d3-a456-426614174000".parse().unwrap();
    let mut bytes = Vec::new();
    put_field(&mut bytes, 1, &map);
    put_field(&mut bytes, -2, &uuid);
    put_field(&mut bytes, 3, &i64::MIN);
    put_stop(&mut bytes);
    let (compact, _) = transcode::to_compact(&bytes).unwrap();
    let bytes = Bytes::from(bytes);
    assert_eq!(transcode::to_binary(&compact, 10_000).unwrap().0, bytes);
    let mut reader = Reader::new(&bytes);
    let (mut one, mut two, mut three) = (None::<Map>, None::<Uuid>, None::<String>);
    while let Some((kind, id)) = reader.field().unwrap() {
        match id {
            1 => reader.known(kind, &mut one).unwrap(),
            -2 => reader.known(kind, &mut two).unwrap(),
            _ => reader.known(kind, &mut three).unwrap(),
        }
    }
    assert_eq!((one, two, three), (Some(map), Some(uuid), None));
    assert_eq!(uuid.to_string(), "123e4567-e89b-12d3-a456-426614174000");
    // Containers without an element type are empty; a list with unexpected elements is skipped.
    let mut odd = Vec::new();
    put_field_head(&mut odd, Type::MAP, 1);
    odd.extend(hex("0000 00000000"));
    put_stop(&mut odd);
    let odd = Bytes::from(odd);
    let mut reader = Reader::new(&odd);
    let (kind, _) = reader.field().unwrap().unwrap();
    let mut empty = None::<Map>;
    reader.known(kind, &mut empty).unwrap();
    assert_eq!(empty, Some(Map::new()));
}

#[test]
fn elements_may_not_take_more_memory_than_the_budget() {
    let count = 5_000_000u32;
    let list = [&[12][..], &count.to_be_bytes(), &vec![0; count as usize]].concat();
    #[derive(Debug)]
    struct Wide(#[expect(dead_code, reason = "only its size matters")] [u64; 16]);
    impl Value for Wide {
        const TYPE: Type = Type::STRUCT;
        fn write(&self, _out: &mut Vec<u8>) {}
        fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
            input.field().map(|_| Wide([0; 16]))
        }
    }
    let list = Bytes::from(list);
    let refused = Vec::<Wide>::read(&mut Reader::new(&list)).unwrap_err();
    assert!(refused.to_string().contains("bytes of memory"), "{refused}");
}

#[test]
fn a_reply_that_names_another_method_fails_its_call() {
    let reply = |name: &str, sequence: u8| {
        let body = hex(BODY);
        let len = 12 + name.len() + body.len();
        let head = [&(len as u32).to_be_bytes()[..], &[0x80, 1, 0, 2, 0, 0, 0, name.len() as u8]].concat();
        [&head[..], name.as_bytes(), &[0, 0, 0, sequence], &body].concat()
    };
    let settings = Settings { multiplexed: true, ..Settings::default() };
    let mut client = Client::new(Limits::default(), settings);
    let (mut out, body) = (Outbox::new(), Bytes::from(hex(BODY)));
    client.method(0, "demo.Calc/add", None, &mut out);
    let open = Open {
        method: 0,
        codec: Codec::Thrift,
        timeout: None,
        metadata: &Metadata::new(),
        oneway: false,
        more: false,
        encoding: Encoding::Identity,
        compressed: false,
        rest: &[],
    };
    for (id, name) in ["Calc:add", "add", ""].into_iter().enumerate() {
        let mut input = Input::default();
        client.open(id as u64, open, Some((&body).into()), &mut out).unwrap();
        input.extend(&reply(name, id as u8));
        assert_eq!(client.take_reply(&mut input), Some((id as u64, body.clone())), "{name:?}");
    }
    let mut input = Input::default();
    client.open(7, open, Some((&body).into()), &mut out).unwrap();
    input.extend(&reply("note", 7));
    assert!(client.take_reply(&mut input).is_none());
    let Some(ClientEvent::End { id: 7, end: Err(status) }) = client.recv(&mut input, &mut out).unwrap()
    else {
        panic!()
    };
    assert!(
        status.message().contains("names the method \"note\", but its call is of \"Calc:add\""),
        "{status}"
    );
    assert!(input.is_empty(), "the connection continues");
}

#[test]
fn client_and_server_understand_each_other_in_every_way() {
    let body = Bytes::from(hex(BODY));
    let ways = [Framing::Unframed, Framing::Framed, Framing::Header];
    for (framing, encoded) in
        ways.into_iter().flat_map(|way| [(way, Encoded::Binary), (way, Encoded::Compact)])
    {
        for zlib in [false, true] {
            let settings = Settings { framing, encoded, multiplexed: zlib, zlib };
            let mut client = Client::new(Limits::default(), settings);
            let mut server = server(Limits::default());
            let mut metadata = Metadata::new();
            metadata.insert("tenant", "a").unwrap();
            let (mut there, mut back) = (Outbox::new(), Outbox::new());
            client.method(0, "demo.Other/add", None, &mut there);
            let open = Open {
                method: 0,
                codec: Codec::Thrift,
                timeout: Some(std::time::Duration::from_micros(1500)),
                metadata: &metadata,
                oneway: false,
                more: false,
                encoding: Encoding::Identity,
                compressed: false,
                rest: &[],
            };
            for id in [7, 0xFFFF_FFFF] {
                client.open(id, open, Some((&body).into()), &mut there).unwrap();
            }
            let mut input = Input::default();
            input.extend(&there.take_all());
            let mut calls = Vec::new();
            while let Some(event) = server.recv(&mut input, &mut back).unwrap() {
                let ServerEvent::Open { id, head, first, .. } = event else { panic!("{event:?}") };
                assert_eq!(first.as_ref(), Some(&body));
                assert_eq!(head.method.0, if zlib { 3 } else { 0 });
                if framing == Framing::Header {
                    assert_eq!(head.timeout, Some(std::time::Duration::from_millis(2)));
                    assert_eq!(head.metadata.text("tenant"), Some("a"));
                }
                calls.push(id);
            }
            server.head(calls[0], &metadata, &mut back);
            server.reply(calls[0], (&body).into(), &mut back);
            server.end(calls[1], Err(&Status::not_found("no such post")), &mut back);
            let mut input = Input::default();
            input.extend(&back.take_all());
            let mut events = Vec::new();
            while let Some(event) = client.recv(&mut input, &mut there).unwrap() {
                events.push(event);
            }
            if framing == Framing::Header {
                let ClientEvent::Head { id: 7, metadata } = events.remove(0) else { panic!("{events:?}") };
                assert_eq!(metadata.text("tenant"), Some("a"));
            }
            let [
                ClientEvent::Reply { id: 7, item, .. },
                ClientEvent::End { id: 0xFFFF_FFFF, end: Err(status) },
            ] = &events[..]
            else {
                panic!("{events:?}")
            };
            assert_eq!(item, &body);
            assert_eq!((status.code(), status.message()), (Code::NotFound, "no such post"));
        }
    }
}

#[test]
fn headers_over_the_limit_refuse_the_call_and_no_more() {
    let mut metadata = Metadata::new();
    metadata.insert("long", "x".repeat(300)).unwrap();
    let encoded = Encoded::Binary;
    let long = header::Header { sequence: 1, flags: 0, encoded, zlib: false, metadata };
    let short = header::Header { metadata: Metadata::new(), ..long.clone() };
    let call = hex("80010001 00000003616464 00000001 00");
    let mut bytes = Vec::new();
    long.write(&call, &mut bytes);
    short.write(&call, &mut bytes);
    let limits = Limits { metadata_bytes_max: 256, ..Limits::default() };
    let (seen, answers, fatal) = echoes(&mut server(limits), &bytes);
    assert_eq!((seen.len(), fatal), (1, None));
    let text = String::from_utf8_lossy(&answers).into_owned();
    assert!(text.contains("resource_exhausted: ") && text.contains("metadata_bytes_max"), "{text}");
}

#[test]
fn unknown_transforms_and_protocols_are_named() {
    for (header, number) in [("03000000", 9), ("00010300", 8)] {
        let bytes = hex(&format!("00000010 0fff 0000 00000007 0001 {header} 0000"));
        let (_, answers, fatal) = echoes(&mut server(Limits::default()), &bytes);
        assert!(fatal.is_some());
        let (_, at) = header::Header::read(&answers[4..], 1).unwrap();
        let message = &answers[4 + at..];
        let head = message::Head::read(message).unwrap().unwrap();
        let body = &message[head.len..];
        assert_eq!((head.kind, body[body.len() - 2]), (message::Kind::Exception, number));
    }
}
