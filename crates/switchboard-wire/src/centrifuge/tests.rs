//! Conversations as bytes, and the rules of the machines.

use super::*;
use crate::{Input, Outbox};
use bytes::Bytes;

const CONNECT: &str = r#"{"id":1,"connect":{"token":"eyJ","name":"js"}}"#;

/// The last command of bytes, or the name of the broken rule.
fn received(format: Format, bytes: &[u8], limits: &Limits) -> Result<Option<Command>, &'static str> {
    let (mut server, mut input) = (Server::new(format), Input::default());
    input.extend(bytes);
    let mut last = None;
    loop {
        match server.recv(&mut input, limits) {
            Ok(Some(command)) => last = Some(command),
            Ok(None) => return Ok(last),
            Err(error) => return Err(error.kind().name()),
        }
    }
}

fn json(lines: &[&str]) -> Result<Option<Command>, &'static str> {
    received(Format::Json, &(lines.join("\n") + "\n").into_bytes(), &Limits::default())
}

fn written(format: Format, reply: &Reply) -> Option<Vec<u8>> {
    let mut out = Outbox::new();
    reply.write(format, &mut out).then(|| out.take_all())
}

#[test]
fn the_conversation_of_the_specification() {
    let subscribe = r#"{"id":2,"subscribe":{"channel":"live:7","recover":true,"epoch":"x1","offset":41}}"#;
    let command = json(&[CONNECT, subscribe]).unwrap().unwrap();
    let request = command.subscribe.unwrap();
    assert_eq!((command.id, &*request.channel, request.recover), (2, "live:7", true));
    assert_eq!((&*request.epoch, request.offset), ("x1", 41));

    let connected =
        Connected { client: "9f".into(), version: "1".into(), ping: 25, pong: true, ..Connected::default() };
    let subscribed = Subscribed {
        recoverable: true,
        epoch: "x1".into(),
        positioned: true,
        was_recovering: true,
        recovered: true,
        offset: 43,
        publications: vec![Publication {
            data: Data::from(r#"{"n":42}"#),
            offset: 42,
            ..Publication::default()
        }],
        ..Subscribed::default()
    };
    let publication = Publication { data: Data::from(r#"{"n":44}"#), offset: 44, ..Publication::default() };
    let push = Push { channel: "live:7".into(), publication: Some(Box::new(publication)), ..Push::default() };
    for (reply, expected) in [
        (
            Reply { id: 1, connect: Some(Box::new(connected)), ..Reply::default() },
            r#"{"id":1,"connect":{"client":"9f","version":"1","ping":25,"pong":true}}"#,
        ),
        (
            Reply { id: 2, subscribe: Some(Box::new(subscribed)), ..Reply::default() },
            concat!(
                r#"{"id":2,"subscribe":{"recoverable":true,"epoch":"x1","publications":"#,
                r#"[{"data":{"n":42},"offset":42}],"recovered":true,"offset":43,"positioned":true,"#,
                r#""was_recovering":true}}"#
            ),
        ),
        (Reply::push(push), r#"{"push":{"channel":"live:7","pub":{"data":{"n":44},"offset":44}}}"#),
        (
            Reply::error(7, code::INTERNAL, "internal"),
            r#"{"id":7,"error":{"code":100,"message":"internal","temporary":true}}"#,
        ),
        (Reply { id: 3, ping: Some(Box::default()), ..Reply::default() }, r#"{"id":3,"ping":{}}"#),
        (Reply::default(), "{}"),
    ] {
        let bytes = written(Format::Json, &reply).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), format!("{expected}\n"));
    }
}

#[test]
fn the_same_messages_as_protocol_buffers() {
    let connect = b"\x0b\x08\x01\x22\x07\x0a\x01t\x22\x02js";
    let command = received(Format::Protobuf, connect, &Limits::default()).unwrap().unwrap();
    let request = command.connect.unwrap();
    assert_eq!((command.id, &*request.token, &*request.name), (1, "t", "js"));
    // Since {2, "e"}, limit -1.
    let history =
        b"\x19\x08\x02\x52\x15\x0a\x01c\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x42\x05\x08\x02\x12\x01e";
    let both = [&connect[..], history, b"\x00"].concat();
    assert!(received(Format::Protobuf, &both, &Limits::default()).unwrap().unwrap().is_pong());
    let both = [&connect[..], history].concat();
    let command = received(Format::Protobuf, &both, &Limits::default()).unwrap().unwrap();
    let request = command.history.unwrap();
    let since = Position { offset: 2, epoch: "e".into() };
    assert_eq!((&*request.channel, request.limit, request.since), ("c", -1, Some(Box::new(since))));

    let publication = Publication { data: Data::from("x"), offset: 300, ..Publication::default() };
    let push = Push { channel: "c".into(), publication: Some(Box::new(publication)), ..Push::default() };
    let bytes = written(Format::Protobuf, &Reply::push(push)).unwrap();
    assert_eq!(bytes, b"\x0d\x22\x0b\x12\x01c\x22\x06\x22\x01x\x30\xac\x02");
    assert_eq!(written(Format::Protobuf, &Reply::default()).unwrap(), b"\0");
}

#[test]
fn rules_of_commands() {
    let ping = r#"{"id":2,"ping":{}}"#;
    for (lines, expected) in [
        (vec!["nonsense"], "encoding"),
        (vec!["[]"], "encoding"),
        (vec![r#"{"id":"1"}"#], "encoding"),
        (vec![r#"{"id":-1}"#], "encoding"),
        (vec![ping], "order"),
        (vec!["{}"], "order"),
        (vec![CONNECT, r#"{"id":2,"connect":{}}"#], "order"),
        (vec![CONNECT, r#"{"ping":{}}"#], "id"),
        (vec![CONNECT, r#"{"id":0,"rpc":{}}"#], "id"),
        (vec![CONNECT, ping, ping], "id"),
        (vec![r#"{"connect":{}}"#], "id"),
        (vec![CONNECT, r#"{"id":2,"ping":{},"send":{}}"#], "requests"),
    ] {
        assert_eq!(json(&lines), Err(expected), "{lines:?}");
    }
    // Unknown fields are ignored: an unknown command has an id and no request.
    let unknown = json(&[CONNECT, r#"{"id":2,"map_subscribe":{"channel":"x"},"x":1}"#]).unwrap().unwrap();
    assert_eq!((unknown.id, unknown.requests(), unknown.is_pong()), (2, 0, false));
    // `send` has no reply, and empty lines have no meaning.
    assert!(json(&[CONNECT, "", r#"{"send":{"data":1}}"#, " "]).unwrap().unwrap().send.is_some());
}

#[test]
fn limits_of_commands() {
    let limits = Limits { channel_bytes_max: 4, command_bytes_max: 64, commands_max: 2 };
    let lines = |lines: &[&str]| received(Format::Json, &(lines.join("\n") + "\n").into_bytes(), &limits);
    let named = |channel: &str| format!(r#"{{"id":2,"subscribe":{{"channel":"{channel}"}}}}"#);
    assert!(lines(&[CONNECT, &named("abcd")]).is_ok());
    assert_eq!(lines(&[CONNECT, &named("abcde")]), Err("limit"));
    assert_eq!(lines(&[CONNECT, r#"{"id":2,"ping":{}}"#, r#"{"id":3,"ping":{}}"#]), Err("limit"));
    let long = |bytes: usize| format!("{{{}}}", " ".repeat(bytes - 2));
    assert_eq!(lines(&[&long(64)]), Err("order"));
    assert_eq!(lines(&[&long(65)]), Err("limit"));
    // Before the end of the line, and before the bytes of a length.
    assert_eq!(received(Format::Json, &[b' '; 65], &limits), Err("limit"));
    assert_eq!(received(Format::Protobuf, &[65], &limits), Err("limit"));
    assert_eq!(received(Format::Protobuf, &[0xff; 5], &limits), Err("encoding"));
    assert_eq!(received(Format::Protobuf, &[0xff; 4], &limits), Ok(None));
    assert_eq!(received(Format::Protobuf, &[2, 0x0a, 9], &limits), Err("encoding"));
}

#[test]
fn data_is_the_value_itself_in_json_and_bytes_in_protocol_buffers() {
    let line = r#"{"id":2,"publish":{"channel":"a","data": {"n": [1.50, 12345678901234567890123]} }}"#;
    let data = json(&[CONNECT, line]).unwrap().unwrap().publish.unwrap().data;
    assert_eq!(data, Data::from(r#"{"n": [1.50, 12345678901234567890123]}"#));
    for (bytes, expected) in [
        (&b"{\n \"a\":1\r\n}"[..], Some(&b"{  \"a\":1  }"[..])),
        (b"\"goal\"", Some(b"\"goal\"")),
        (b"a \"text\"", Some(br#""a \"text\"""#)),
        (b"", Some(b"\"\"")),
        (b"\xff\xfe", None),
    ] {
        let data = Data::for_json(&Bytes::copy_from_slice(bytes));
        assert_eq!(data.as_ref().map(|data| &data.0[..]), expected, "{}", bytes.escape_ascii());
    }
    // Bytes that are no JSON have no reply in that format, and nothing is written.
    let rpc = |data: &'static str| Reply {
        rpc: Some(Box::new(RpcResult { data: Data::from(data) })),
        ..Reply::default()
    };
    assert_eq!(written(Format::Json, &rpc("no json")), None);
    assert!(written(Format::Protobuf, &rpc("no json")).is_some());
}

#[test]
fn a_client_reads_replies_of_its_commands_alone() {
    for format in [Format::Json, Format::Protobuf] {
        let limits = Limits { commands_max: 1, ..Limits::default() };
        let mut client = Client::new(format, limits);
        let (mut out, mut input) = (Outbox::new(), Input::default());
        let ping = || Command { ping: Some(Box::default()), ..Command::default() };
        assert_eq!(client.send(ping(), &mut out), Ok(1));
        assert_eq!(client.send(ping(), &mut out), Err(NotSent::Full));
        let bytes =
            written(format, &Reply { id: 1, ping: Some(Box::default()), ..Reply::default() }).unwrap();
        input.extend(&bytes);
        assert_eq!(client.recv(&mut input, &mut out).unwrap().map(|reply| reply.id), Some(1));
        input.extend(&bytes);
        assert_eq!(client.recv(&mut input, &mut out).unwrap_err().kind(), ErrorKind::Id);
    }
}
