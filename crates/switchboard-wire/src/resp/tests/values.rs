use super::*;

/// Reads replies in pieces of `step` bytes, one for each of many commands.
fn read(bytes: &[u8], step: usize) -> Result<Vec<ClientEvent>, ProtocolError> {
    let mut client = Client::new(ReplyLimits::default());
    (0..20).for_each(|_| client.command([Outgoing::Lent(b"x")], &mut Outbox::new()).unwrap());
    let (mut input, mut events) = (Input::default(), Vec::new());
    for piece in bytes.chunks(step) {
        input.extend(piece);
        while let Some(event) = client.recv(&mut input)? {
            events.push(event);
        }
    }
    Ok(events)
}

fn simple(text: &str) -> Value {
    Value::Simple(bytes(text))
}

fn bulk(text: &str) -> Value {
    Value::Bulk(bytes(text))
}

#[test]
fn every_type_is_read_and_written() {
    let table = [
        ("+OK\r\n", simple("OK")),
        ("+\r\n", simple("")),
        ("-ERR no\r\n", Value::Error(bytes("ERR no"))),
        (":-5\r\n", Value::Integer(-5)),
        (":9223372036854775807\r\n", Value::Integer(i64::MAX)),
        ("$0\r\n\r\n", bulk("")),
        ("$5\r\na\r\nbc\r\n", bulk("a\r\nbc")),
        ("_\r\n", Value::Null),
        ("#t\r\n", Value::Boolean(true)),
        ("#f\r\n", Value::Boolean(false)),
        (",1.5\r\n", Value::Double(1.5)),
        (",-inf\r\n", Value::Double(f64::NEG_INFINITY)),
        ("(-123456789012345678901234567890\r\n", Value::BigNumber(bytes("-123456789012345678901234567890"))),
        ("!6\r\nERR\r\nx\r\n", Value::BulkError(bytes("ERR\r\nx"))),
        ("=6\r\ntxt:hi\r\n", Value::Verbatim { format: *b"txt", text: bytes("hi") }),
        ("*0\r\n", Value::Array(Vec::new())),
        (
            "*2\r\n:1\r\n*1\r\n$1\r\na\r\n",
            Value::Array(vec![Value::Integer(1), Value::Array(vec![bulk("a")])]),
        ),
        ("~1\r\n#t\r\n", Value::Set(vec![Value::Boolean(true)])),
        ("%1\r\n+k\r\n*1\r\n_\r\n", Value::Map(vec![(simple("k"), Value::Array(vec![Value::Null]))])),
        (
            "|1\r\n+ttl\r\n:5\r\n*1\r\n|0\r\n:2\r\n",
            Value::Attributed {
                attributes: vec![(simple("ttl"), Value::Integer(5))],
                value: Box::new(Value::Array(vec![Value::Attributed {
                    attributes: Vec::new(),
                    value: Box::new(Value::Integer(2)),
                }])),
            },
        ),
    ];
    for (wire, value) in &table {
        for step in [1, 2, 3, 100] {
            assert_eq!(read(wire.as_bytes(), step), Ok(vec![ClientEvent::Reply(value.clone())]), "{wire}");
        }
        let mut out = Outbox::new();
        crate::resp::write_value(Version::Resp3, value, &mut out);
        assert_eq!(out.take_all(), wire.as_bytes());
    }
    let all: String = table.iter().map(|(wire, _)| *wire).collect();
    assert_eq!(read(all.as_bytes(), 7).map(|events| events.len()), Ok(table.len()));
    assert_eq!(read(b">1\r\n+x\r\n", 1), Ok(vec![ClientEvent::Push(vec![simple("x")])]));
}

#[test]
fn nulls_and_numbers_have_other_forms() {
    for wire in ["$-1\r\n", "*-1\r\n", "_\r\n"] {
        assert_eq!(read(wire.as_bytes(), 1), Ok(vec![ClientEvent::Reply(Value::Null)]));
    }
    assert_eq!(read(b":+5\r\n", 1), Ok(vec![ClientEvent::Reply(Value::Integer(5))]));
    let Ok(events) = read(b",nan\r\n", 1) else { panic!() };
    assert!(matches!(events[..], [ClientEvent::Reply(Value::Double(double))] if double.is_nan()));
}

#[test]
fn resp2_has_fewer_types() {
    let entries = vec![(bulk("k"), Value::Boolean(true))];
    let attributed = Value::Attributed { attributes: entries.clone(), value: Box::new(Value::Null) };
    for (value, wire) in [
        (Value::Map(entries), "*2\r\n$1\r\nk\r\n:1\r\n"),
        (Value::Set(vec![Value::Double(0.5)]), "*1\r\n$3\r\n0.5\r\n"),
        (Value::Push(vec![Value::BigNumber(bytes("12"))]), "*1\r\n$2\r\n12\r\n"),
        (attributed, "$-1\r\n"),
        (Value::BulkError(bytes("ERR a\r\nb")), "-ERR a  b\r\n"),
        (Value::Verbatim { format: *b"txt", text: bytes("hi") }, "$2\r\nhi\r\n"),
    ] {
        let mut out = Outbox::new();
        crate::resp::write_value(Version::Resp2, &value, &mut out);
        assert_eq!(out.take_all(), wire.as_bytes());
    }
}

#[test]
fn malformed_replies_close_the_connection() {
    for (wire, text) in [
        (&b"HTTP/1.1 400\r\n"[..], "reply begins with 'H', which is no type"),
        (b"\r\n", "reply begins with '\\r', which is no type"),
        (b"+a\rb\r\n", "simple string has a line without an end"),
        (b"+a\nb\r\n", "simple string has a line without an end"),
        (b":111111111111111111111111\r\n", "integer has a line without an end"),
        (b":x\r\n", "integer is malformed: \"x\""),
        (b":\r\n", "integer is malformed: \"\""),
        (b"_x\r\n", "null is malformed: \"x\""),
        (b"#x\r\n", "boolean is malformed: \"x\""),
        (b",x\r\n", "double is malformed: \"x\""),
        (b"(1x\r\n", "big number is malformed: \"1x\""),
        (b"$-2\r\n", "bulk string has the size \"-2\", which is not a number"),
        (b"$?\r\n", "bulk string has the size \"?\", which is not a number"),
        (b"*-2\r\n", "array has the size \"-2\", which is not a number"),
        (b"%-1\r\n", "map has the size \"-1\", which is not a number"),
        (b"$1\r\nab\r\n", "bulk string does not end where its length says"),
        (b"=3\r\ntxt\r\n", "verbatim string does not begin with a format of three characters and ':'"),
        (b"=0\r\n\r\n", "verbatim string does not begin with a format of three characters and ':'"),
        (b"*1\r\n>1\r\n", "push is inside another value"),
    ] {
        for step in [1, 2, 100] {
            let error = read(wire, step).expect_err(text);
            assert_eq!((error.kind(), error.message()), (ErrorKind::Reply, text));
        }
    }
}

#[test]
fn an_incomplete_reply_is_examined_once() {
    let mut wire = b"*2000\r\n".to_vec();
    (0..1000).for_each(|_| wire.extend(b"$5\r\nhello\r\n*2\r\n:1\r\n+text\r\n"));
    let (mut input, mut client) = (Input::default(), Client::new(ReplyLimits::default()));
    client.command([Outgoing::Lent(b"x")], &mut Outbox::new()).unwrap();
    crate::fuzzing::take_work();
    for at in 0..wire.len() {
        input.extend(&wire[at..=at]);
        assert_eq!(client.recv(&mut input).unwrap().is_some(), at + 1 == wire.len());
    }
    assert!(crate::fuzzing::take_work() <= 2 * wire.len() as u64);
}
