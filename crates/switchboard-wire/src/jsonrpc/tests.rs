use super::*;
use crate::{
    Input, Kind, Limits, Metadata, MethodInfo, MethodTable, Outbox, Outgoing, Params, ServiceInfo, Status,
    wire::{CallId, ServerEvent, ServerWire},
};
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;

static MATH: ServiceInfo = ServiceInfo {
    name: "test.Math",
    methods: &[
        MethodInfo::new("subtract", Kind::Unary).params(Params::Arguments(&["minuend", "subtrahend"])),
        MethodInfo::new("sum", Kind::Unary).params(Params::Arguments(&["a", "b", "c"])),
        MethodInfo::new("update", Kind::Unary).params(Params::Arguments(&["a", "b", "c", "d", "e"])),
        MethodInfo::new("get_data", Kind::Unary).params(Params::Arguments(&[])),
        MethodInfo::new("hang", Kind::Unary),
        MethodInfo::new("count", Kind::ServerStream),
        MethodInfo::new("join", Kind::ClientStream),
        MethodInfo::new("fail", Kind::Unary),
        MethodInfo::new("void", Kind::Unary),
    ],
    descriptor: &[],
};

/// A driver whose handlers are a few lines of arithmetic.
struct Driver {
    server: Server,
    input: Input,
    out: Outbox,
    /// Calls without a response.
    hanging: Vec<CallId>,
    notified: Vec<String>,
    canceled: Vec<CallId>,
    ended: bool,
}

impl Driver {
    fn new(limits: Limits) -> Driver {
        let mut table = MethodTable::default();
        table.add(&MATH).unwrap();
        let server = Server::lines(limits, Arc::new(table));
        Driver {
            server,
            input: Input::default(),
            out: Outbox::new(),
            hanging: vec![],
            notified: vec![],
            canceled: vec![],
            ended: false,
        }
    }

    /// Sends bytes and returns the response lines.
    fn send(&mut self, bytes: &[u8]) -> Vec<String> {
        self.input.extend(bytes);
        while !self.ended {
            match self.server.recv(&mut self.input, &mut self.out) {
                Ok(Some(event)) => self.event(event),
                Ok(None) => break,
                Err(_) => self.ended = true,
            }
        }
        let written = String::from_utf8(self.out.take_all()).unwrap();
        assert!(written.is_empty() || written.ends_with('\n'));
        written.lines().map(str::to_owned).collect()
    }

    fn event(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Open { id, head, first, more: false, .. } => {
                let name = MATH.methods[usize::from(head.method.0)].name;
                let params = first.expect("a message");
                if head.oneway {
                    return self.notified.push(format!("{name} {}", String::from_utf8_lossy(&params)));
                }
                let number = |key: &str| {
                    serde_json::from_slice::<Value>(&params).unwrap()[key].as_i64().unwrap_or_default()
                };
                match name {
                    "subtract" => self.reply(id, &(number("minuend") - number("subtrahend")).to_string()),
                    "sum" => self.reply(id, &(number("a") + number("b") + number("c")).to_string()),
                    "get_data" => self.reply(id, r#"["hello",5]"#),
                    "void" => self.reply(id, ""),
                    "count" => {
                        for n in 0..2 {
                            self.server.item(id, &Bytes::from(n.to_string()), false, &mut self.out);
                        }
                        self.server.end(id, Ok(&Metadata::new()), &mut self.out);
                    }
                    "fail" => {
                        let status = Status::not_found("no such thing").with_detail("a.B", &b"\x01"[..]);
                        self.server.end(id, Err(&status), &mut self.out);
                    }
                    _ => self.hanging.push(id),
                }
            }
            ServerEvent::Cancel { id } => self.canceled.push(id),
            ServerEvent::Handled => {}
            other => panic!("{other:?}"),
        }
    }

    fn reply(&mut self, id: CallId, text: &str) {
        self.server.reply(id, Outgoing::Lent(text.as_bytes()), &mut self.out);
    }
}

fn answers(request: &str) -> Vec<String> {
    Driver::new(Limits::default()).send(request.as_bytes())
}

fn answer(request: &str) -> Value {
    let answers = answers(request);
    assert_eq!(answers.len(), 1, "{request}: {answers:?}");
    serde_json::from_str(&answers[0]).unwrap()
}

/// Removes the human-readable texts.
fn plain(mut value: Value) -> Value {
    let each = |value: &mut Value| {
        value.get_mut("error").and_then(Value::as_object_mut).map(|error| error.remove("data"));
    };
    match value.as_array_mut() {
        Some(values) => values.iter_mut().for_each(each),
        None => each(&mut value),
    }
    value
}

fn error(code: i32, message: &str, id: impl Into<Value>) -> Value {
    let id = id.into();
    json!({"jsonrpc": "2.0", "error": {"code": code, "message": message}, "id": id})
}

/// Section 7 of the specification, with a service name before the method names.
#[test]
fn examples_of_the_specification() {
    for (request, wanted) in [
        (
            r#"{"jsonrpc": "2.0", "method": "Math.subtract", "params": [42, 23], "id": 1}"#,
            json!({"jsonrpc": "2.0", "result": 19, "id": 1}),
        ),
        (
            r#"{"jsonrpc": "2.0", "method": "Math.subtract", "params": [23, 42], "id": 2}"#,
            json!({"jsonrpc": "2.0", "result": -19, "id": 2}),
        ),
        (
            r#"{"jsonrpc": "2.0", "method": "Math.subtract", "params": {"subtrahend": 23, "minuend": 42}, "id": 3}"#,
            json!({"jsonrpc": "2.0", "result": 19, "id": 3}),
        ),
        (
            r#"{"jsonrpc": "2.0", "method": "Math.subtract", "params": {"minuend": 42, "subtrahend": 23}, "id": 4}"#,
            json!({"jsonrpc": "2.0", "result": 19, "id": 4}),
        ),
        (
            r#"{"jsonrpc": "2.0", "method": 1, "params": "bar"}"#,
            error(-32600, "Invalid Request", Value::Null),
        ),
        ("[]", error(-32600, "Invalid Request", Value::Null)),
        ("[1]", json!([error(-32600, "Invalid Request", Value::Null)])),
        (
            "[1,2,3]",
            json!([
                error(-32600, "Invalid Request", Value::Null),
                error(-32600, "Invalid Request", Value::Null),
                error(-32600, "Invalid Request", Value::Null)
            ]),
        ),
        (
            "{\"jsonrpc\": \"2.0\", \"method\": \"foobar, \"params\": \"bar\", \"baz]\n",
            error(-32700, "Parse error", Value::Null),
        ),
        (
            "[{\"jsonrpc\": \"2.0\", \"method\": \"sum\", \"params\": [1,2,4], \"id\": \"1\"},\n\
             {\"jsonrpc\": \"2.0\", \"method\"]\n",
            error(-32700, "Parse error", Value::Null),
        ),
    ] {
        assert_eq!(plain(answer(request)), wanted, "{request}");
    }
    assert_eq!(answer(r#"{"jsonrpc": "2.0", "method": "foobar", "id": "1"}"#)["error"]["code"], -32601);
    for silent in [
        r#"{"jsonrpc": "2.0", "method": "Math.update", "params": [1,2,3,4,5]}"#,
        r#"{"jsonrpc": "2.0", "method": "foobar"}"#,
        r#"[
            {"jsonrpc": "2.0", "method": "Math.sum", "params": [1,2,4]},
            {"jsonrpc": "2.0", "method": "Math.update", "params": [7]}
        ]"#,
    ] {
        assert!(answers(silent).is_empty(), "{silent}");
    }
    let mixed = answer(
        r#"[
        {"jsonrpc": "2.0", "method": "Math.sum", "params": [1,2,4], "id": "1"},
        {"jsonrpc": "2.0", "method": "Math.update", "params": [7]},
        {"jsonrpc": "2.0", "method": "Math.subtract", "params": [42,23], "id": "2"},
        {"foo": "boo"},
        {"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"},
        {"jsonrpc": "2.0", "method": "Math.get_data", "id": "9"}
    ]"#,
    );
    let wanted = json!([
        {"jsonrpc": "2.0", "result": 7, "id": "1"},
        {"jsonrpc": "2.0", "result": 19, "id": "2"},
        error(-32600, "Invalid Request", Value::Null),
        error(-32601, "unknown service foo", json!("5")),
        {"jsonrpc": "2.0", "result": ["hello", 5], "id": "9"},
    ]);
    assert_eq!(plain(mixed), wanted);
}

#[test]
fn ids_are_repeated_as_written() {
    for id in [
        "1",
        "1.0",
        "1e2",
        "-0",
        "\"1\"",
        "null",
        "9007199254740993",
        "\"\\u00e9\\ud800\"",
        "\"\"",
        "123456789012345678901234567890",
    ] {
        let request = format!(r#"{{"jsonrpc":"2.0","method":"test.Math/void","id": {id} }}"#);
        assert_eq!(answers(&request), [format!(r#"{{"jsonrpc":"2.0","result":null,"id":{id}}}"#)]);
    }
    for id in ["true", "[1]", "{}"] {
        let request = format!(r#"{{"jsonrpc":"2.0","method":"Math.void","id":{id}}}"#);
        assert_eq!(plain(answer(&request)), error(-32600, "Invalid Request", Value::Null), "{id}");
    }
    let long = format!(r#"{{"jsonrpc":"2.0","method":"Math.void","id":"{}"}}"#, "x".repeat(ID_BYTES_MAX));
    assert_eq!(plain(answer(&long)), error(-32600, "Invalid Request", Value::Null));
}

#[test]
fn invalid_requests_get_a_response_with_their_id_if_readable() {
    for (request, id) in [
        (r#"{"jsonrpc":"2.0","method":1}"#, Value::Null),
        (r#"{"jsonrpc":"2.0","method":1,"id":7}"#, json!(7)),
        (r#"{"jsonrpc":"1.0","method":"Math.void","id":7}"#, json!(7)),
        (r#"{"jsonrpc":2.0,"method":"Math.void","id":7}"#, json!(7)),
        (r#"{"method":"Math.void","id":7}"#, json!(7)),
        (r#"{"jsonrpc":"2.0","id":7}"#, json!(7)),
        (r#"{"jsonrpc":"2.0","method":"Math.void","params":1,"id":7}"#, json!(7)),
        (r#"{"jsonrpc":"2.0","method":"Math.void","params":"x","id":7}"#, json!(7)),
        (r#"{"jsonrpc":"2.0","method":"\ud800","id":7}"#, json!(7)),
        (r#"{"\ud800":1,"id":7}"#, Value::Null),
    ] {
        assert_eq!(plain(answer(request)), error(-32600, "Invalid Request", id), "{request}");
    }
    // Of repeated members the last one counts; names may be escaped; other members are ignored.
    let odd =
        r#"{"id":1,"jsonrpc":"1.0","jsonrpc":"2.0","m\u0065thod":"Math.void","x":{},"id":2,"params":null}"#;
    assert_eq!(answer(odd), json!({"jsonrpc": "2.0", "result": null, "id": 2}));
}

#[test]
fn failures_carry_code_and_details() {
    assert_eq!(
        answer(r#"{"jsonrpc":"2.0","method":"Math.fail","id":1}"#),
        json!({"jsonrpc": "2.0", "id": 1, "error": {
            "code": -32004, "message": "no such thing",
            "data": {"grpcCode": 5, "details": [{"type": "a.B", "value": "AQ=="}]},
        }})
    );
    let stream = answer(r#"{"jsonrpc":"2.0","method":"Math.join","id":1}"#);
    assert_eq!(stream["error"]["code"], -32601);
    let many = answer(r#"{"jsonrpc":"2.0","method":"Math.subtract","params":[1,2,3],"id":1}"#);
    assert_eq!(many["error"]["code"], -32602);
    assert_eq!(many["error"]["data"]["grpcCode"], 3);
}

#[test]
fn texts_may_follow_one_another_in_any_way() {
    let one = r#"{"jsonrpc":"2.0","method":"Math.sum","params":[1,2,3],"id":1}"#;
    let pretty = "{\n \"jsonrpc\": \"2.0\",\r\n \"method\": \"Math.sum\", \"id\": 2\n}";
    let all = format!("\n {one}{pretty}\n\n{one}\r\n[{one}]");
    let whole = answers(&all);
    assert_eq!(whole.len(), 4);
    let mut driver = Driver::new(Limits::default());
    let stepwise: Vec<_> = all.as_bytes().chunks(1).flat_map(|piece| driver.send(piece)).collect();
    assert_eq!(stepwise, whole);
}

#[test]
fn reading_continues_at_the_next_line_after_an_error() {
    let good = r#"{"jsonrpc":"2.0","method":"Math.void","id":1}"#;
    for bad in ["garbage", "{]", "[1,]", "{\"a", "\u{7}", "{\"a\":\"\u{1}\"}", "\"text\"", "{\"a\" 1}{}{}"] {
        let answers = answers(&format!("{bad}\n{good}\n"));
        assert_eq!(answers.len(), 2, "{bad}: {answers:?}");
        assert!(answers[0].contains("-32700"), "{bad}: {answers:?}");
    }
    // Trailing garbage does not affect the request before it.
    let trailing = answers(&format!("{good} garbage\n{good}"));
    assert_eq!(trailing.len(), 3);
    assert!(trailing[1].contains("-32700"), "{trailing:?}");
    // Numbers and characters are validated once the text is complete.
    for bad in ["[1e]", "[01]", "{\"a\":\"\\x\"}"] {
        let answers = answers(&format!("{bad}{good}"));
        assert_eq!(answers.len(), 2, "{bad}");
        assert!(answers[0].contains("-32700"), "{bad}: {answers:?}");
    }
    let mut driver = Driver::new(Limits::default());
    let bad_utf8 = driver.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\",\"id\":1}");
    assert!(bad_utf8[0].contains("-32700"), "{bad_utf8:?}");
}

#[test]
fn depth_batch_and_size_are_limited() {
    let nested = |depth: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"Math.void","params":{}{}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    assert_eq!(answer(&nested(DEPTH_MAX - 1))["id"], 1);
    assert_eq!(answer(&nested(DEPTH_MAX))["error"]["code"], -32700);
    let batch = |entries: usize| {
        format!("[{}]", vec![r#"{"jsonrpc":"2.0","method":"Math.void","id":1}"#; entries].join(","))
    };
    assert_eq!(answer(&batch(100)).as_array().map(Vec::len), Some(100));
    assert_eq!(plain(answer(&batch(101))), error(-32600, "Invalid Request", Value::Null));

    let limits = Limits { message_bytes_max: 100, ..Limits::default() };
    let mut driver = Driver::new(limits);
    let large = driver.send(format!(r#"{{"jsonrpc":"2.0","id":1,"params":["{}"#, "x".repeat(100)).as_bytes());
    assert!(driver.ended && large[0].contains("message_bytes_max"), "{large:?}");
}

#[test]
fn responses_of_a_batch_wait_for_the_last() {
    let mut driver = Driver::new(Limits::default());
    let batch = r#"[
        {"jsonrpc":"2.0","method":"Math.hang","id":1},
        {"jsonrpc":"2.0","method":"Math.sum","params":[1,2,3],"id":2},
        {"jsonrpc":"2.0","method":"Math.hang","id":3}
    ]"#;
    assert!(driver.send(batch.as_bytes()).is_empty());
    assert!(driver.server.unsent_response_bytes() > 0);
    let single = driver.send(br#"{"jsonrpc":"2.0","method":"Math.sum","params":[1,2,3],"id":4}"#);
    assert_eq!(single, [r#"{"jsonrpc":"2.0","result":6,"id":4}"#]);
    let hanging = std::mem::take(&mut driver.hanging);
    driver.reply(hanging[1], "\"three\"");
    driver.server.end(hanging[0], Err(&Status::aborted("one")), &mut driver.out);
    let answers: Value = serde_json::from_str(&driver.send(b"")[0]).unwrap();
    let ids: Vec<_> = answers.as_array().unwrap().iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, [json!(2), json!(3), json!(1)]);
    assert_eq!(
        (driver.server.unsent_response_bytes(), answers[2]["error"]["code"].as_i64()),
        (0, Some(-32603))
    );
}

#[test]
fn the_responses_of_a_batch_are_limited_to_four_messages() {
    let limits = Limits { message_bytes_max: 200, ..Limits::default() };
    let mut driver = Driver::new(limits);
    let batch =
        r#"[{"jsonrpc":"2.0","method":"Math.hang","id":1},{"jsonrpc":"2.0","method":"Math.hang","id":2}]"#;
    driver.send(batch.as_bytes());
    let hanging = std::mem::take(&mut driver.hanging);
    driver.reply(hanging[0], &format!("\"{}\"", "x".repeat(700)));
    driver.reply(hanging[1], &format!("\"{}\"", "x".repeat(100)));
    let answers: Value = serde_json::from_str(&driver.send(b"")[0]).unwrap();
    assert!(answers[0]["result"].is_string());
    assert_eq!(answers[1]["error"]["code"], -32029);
}

#[test]
fn streams_are_notifications_and_a_response() {
    let lines = answers(r#"{"jsonrpc":"2.0","method":"Math.count","id":"s"}"#);
    assert_eq!(
        lines,
        [
            r#"{"jsonrpc":"2.0","method":"rpc.stream","params":{"id":"s","result":0}}"#,
            r#"{"jsonrpc":"2.0","method":"rpc.stream","params":{"id":"s","result":1}}"#,
            r#"{"jsonrpc":"2.0","result":null,"id":"s"}"#,
        ]
    );
}

#[test]
fn callers_may_cancel() {
    let mut driver = Driver::new(Limits::default());
    driver.send(
        br#"{"jsonrpc":"2.0","method":"Math.hang","id":"a"}{"jsonrpc":"2.0","method":"Math.hang","id":7}"#,
    );
    let cancel = br#"{"jsonrpc":"2.0","method":"rpc.cancel","params":{"id":7}}"#;
    let answers = driver.send(cancel);
    assert!(
        answers.len() == 1 && answers[0].contains("-32099") && answers[0].ends_with("\"id\":7}"),
        "{answers:?}"
    );
    assert_eq!(driver.canceled, [driver.hanging[1]]);
    // A second cancellation, and one without an id, have no effect.
    assert!(driver.send(cancel).is_empty());
    assert!(driver.send(br#"{"jsonrpc":"2.0","method":"rpc.cancel"}"#).is_empty());
}

#[test]
fn notifications_reach_their_handlers_and_have_no_response() {
    let mut driver = Driver::new(Limits::default());
    for params in ["[5]", "[1,2,3]"] {
        let note = format!(r#"{{"jsonrpc":"2.0","method":"Math.subtract","params":{params}}}"#);
        assert!(driver.send(note.as_bytes()).is_empty());
    }
    assert_eq!(driver.notified, [r#"subtract {"minuend":5}"#]);
}

#[test]
fn draining_rejects_new_calls_and_completes_running_ones() {
    let mut driver = Driver::new(Limits::default());
    driver.send(br#"{"jsonrpc":"2.0","method":"Math.hang","id":1}"#);
    driver.server.drain("", &mut driver.out);
    driver.server.refuse();
    let refused = driver.send(br#"{"jsonrpc":"2.0","method":"Math.sum","id":2}"#);
    assert!(refused[0].contains("-32014"), "{refused:?}");
    driver.reply(driver.hanging[0], "1");
    assert_eq!(driver.send(b""), [r#"{"jsonrpc":"2.0","result":1,"id":1}"#]);
}
