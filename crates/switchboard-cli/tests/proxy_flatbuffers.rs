//! `switchboard proxy` between FlatBuffers and the other codecs.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use serde_json::{Value, json};
use std::{fs, time::Duration};
use support::{
    call, echo,
    serving::{Serving, demo_schema, file, lines, post},
};

const SAY: &str = "fbs.echo.Echo/Say";
const KISS: &str = "wire=kiss&function=fbs.echo.Echo/Say:7&function=fbs.echo.Echo/Note:8";

/// Every kind of field, as the JSON of generated code has it.
fn full() -> Value {
    json!({
        "text": "h\u{e4}y", "number": i64::MIN, "none": 0, "flag": false, "mood": 0, "marks": 17,
        "at": {"id": 1, "at": -0.25, "label": [1, 65535], "mood": 3},
        "path": [{"id": 2, "at": 1e300, "label": [0, 0], "mood": 0}],
        "bytes": [0, 255, 7], "numbers": [1, u64::MAX],
        "tags": [{"key": "a", "weight": 0.5}, {"key": "", "weight": 0.1}],
        "words": ["x", ""], "moods": [0, 3, 77], "manner": {"Shout": {"times": 3}},
        "next": {"text": "inner"}, "real": 1e300,
        "manners": [{"Low": {"to": "x"}}, {"Shout": {"times": 1}}],
    })
}

/// The message with the names that `flatc` writes.
const FULL: &str = r#"{
  "text": "häy", "number": -9223372036854775808, "none": 0, "flag": false, "mood": "Calm", "marks": "Read Kept",
  "at": {"id": 1, "at": -0.25, "label": [1, 65535], "mood": "Loud"},
  "path": [{"id": 2, "at": 1e300, "label": [0, 0], "mood": "Calm"}],
  "bytes": "AP8H", "numbers": [1, 18446744073709551615], "tags": [{"key": "a"}, {"key": "", "weight": 0.1}],
  "words": ["x", ""], "moods": ["Calm", "Loud", 77], "manner_type": "Shout", "manner": {"times": 3},
  "next": {"text": "inner"}, "real": 1e300, "manners_type": ["low", "Shout"], "manners": [{"to": "x"}, {}]
}"#;

/// The answer of `Say` to JSON in a POST.
fn said(address: &str, message: &str) -> Value {
    let (status, body) = post(address, &format!("/{SAY}"), message);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// The proxy in front of a server.
fn proxied(server: &str, options: &str, arguments: &[&str]) -> Serving {
    let to = format!("{server}?{options}");
    Serving::start(&[&["proxy", "--to", &to], arguments].concat())
}

#[test]
fn callers_in_json_reach_servers_of_tables_and_read_what_those_would_answer_in_json() {
    let (server, notes) = echo::serve();
    let path = echo::file();
    // A server made of the file reads JSON itself.
    let direct = server.strip_prefix("tcp://").unwrap_or(&server).to_owned();
    for behind in [KISS, "wire=grpc", "wire=grpc&codec=proto", ""] {
        let proxy = proxied(&server, behind, &["--fbs", &path]);
        for message in ["{}".to_owned(), full().to_string()] {
            assert_eq!(said(&proxy.address, &message), said(&direct, &message), "{behind}");
        }
        let noted = post(&proxy.address, "/fbs.echo.Echo/Note", r#"{"number": 5}"#);
        assert_eq!(
            (noted.0, notes.recv_timeout(Duration::from_secs(20))),
            (200, Ok(5)),
            "{behind}: {noted:?}"
        );
    }
    // What people write is written as a table where the server takes no JSON.
    for behind in [KISS, "wire=grpc"] {
        let proxy = proxied(&server, behind, &["--fbs", &path]);
        assert_eq!(said(&proxy.address, FULL), said(&direct, &full().to_string()), "{behind}");
        // MessagePack, which another proxy makes of JSON.
        let packed = proxied(&proxy.address, "wire=rpcx&codec=msgpack", &[]);
        assert_eq!(said(&packed.address, FULL), said(&direct, &full().to_string()), "{behind}");
    }
}

/// Ways of calling with tables.
const FRONTS: [&str; 4] = ["wire=native", "wire=grpc", "wire=grpc&codec=proto", KISS];
/// Flags that map function numbers of kiss-rpc.
const FUNCTIONS: [&str; 4] = ["--function", "fbs.echo.Echo/Say:7", "--function", "fbs.echo.Echo/Note:8"];

#[test]
fn callers_in_tables_reach_servers_in_json_and_messagepack() {
    let (server, notes) = echo::serve();
    let path = echo::file();
    let file = ["--fbs", path.as_str()];
    for behind in ["wire=connect", "wire=jsonrpc", "wire=rpcx", "wire=rpcx&codec=msgpack", "wire=baidu_std"] {
        let proxy = proxied(&server, behind, &[&FUNCTIONS[..], &file].concat());
        for front in FRONTS {
            let through = format!("{}?{front}", proxy.address);
            let direct = format!("{server}?{front}");
            for message in ["{}", FULL] {
                let [done, wanted] =
                    [&through, &direct].map(|url| call(url, &[&[SAY, "-d", message][..], &file].concat()));
                assert_eq!(done.values(), wanted.values(), "{front} to {behind}");
            }
            let failed = call(&through, &[&[SAY, "-d", r#"{"text": "fail"}"#][..], &file].concat());
            let code = if front == KISS { 66 } else { 69 };
            assert_eq!(failed.code, code, "{front} to {behind}: {}", failed.stderr);
            // gRPC answers what goes one way once it is taken.
            if front.starts_with("wire=grpc") {
                let note = [&["Echo/Note", "-d", r#"{"number": 3}"#][..], &file].concat();
                assert_eq!(call(&through, &note).code, 0, "{front} to {behind}");
                assert_eq!(notes.recv_timeout(Duration::from_secs(20)), Ok(3), "{front} to {behind}");
            }
        }
    }
}

#[test]
fn streams_of_tables_are_rewritten_message_by_message() {
    let (server, _notes) = echo::serve();
    let path = echo::file();
    let file = ["--fbs", path.as_str()];
    let proxy = proxied(&server, "wire=connect", &file);
    let messages_of = |method: &str, data: &str| {
        let done = call(&proxy.address, &[&[method, "-d", data][..], &file].concat());
        done.values()
    };
    assert_eq!(messages_of("Echo/Count", r#"{"number": 2}"#), [json!({"number": 0}), json!({"number": 1})]);
    assert_eq!(messages_of("Echo/Join", r#"{"text": "a"}{"text": "b"}"#), [json!({"text": "ab"})]);
    let chat = messages_of("Echo/Chat", r#"{"text": "a"}{"mood": "Calm"}"#);
    assert_eq!(chat, [json!({"text": "a"}), json!({"mood": "Calm"})]);
}

#[test]
fn what_does_not_fit_is_refused_and_named() {
    let (server, _notes) = echo::serve();
    let path = echo::file();
    let proxy = proxied(&server, KISS, &["--fbs", &path, "--known-only"]);
    let deep = (0..70).fold("{}".to_owned(), |next, _| format!(r#"{{"next":{next}}}"#));
    for (path, message, status, expected) in [
        (SAY, r#"{"txt": ""}"#, 400, "fbs.echo.Message has no \\\"txt\\\"; did you mean text?"),
        (SAY, r#"{"mood": "Lod"}"#, 400, "field mood: fbs.echo.Mood has no Lod"),
        (SAY, r#"{"at": {"id": 256}}"#, 400, "field at.id: expected a whole number of 8 bits and not 256"),
        (SAY, r#"{"tags": [{}]}"#, 400, "field tags[0]: fbs.echo.Tag has no key, which is required"),
        (SAY, r#"{"manner": {"Shot": {}}}"#, 400, "has manner and no manner_type: Shout, low"),
        (SAY, &deep, 400, "tables lie deeper than 64 in one another"),
        ("fbs.echo.Echo/Missing", "{}", 404, "Missing"),
        ("fbs.echo.Other/Say", "{}", 404, "fbs.echo.Other"),
    ] {
        let (found, body) = post(&proxy.address, &format!("/{path}"), message);
        assert!(found == status && body.contains(expected), "{path}: {found} {body}");
    }
}

/// The demo's greeter, written for FlatBuffers.
const GREETER: &str = "
namespace demo.v1;
table GreetRequest { name: string; }
table GreetReply { text: string; }
rpc_service Greeter { Greet(GreetRequest): GreetReply; Watch(GreetRequest): GreetReply; }";
/// The demo's greeter, written for Thrift.
const THRIFT: &str = "
namespace * demo.v1
struct GreetRequest { 1: string name }
struct GreetReply { 1: string text }
service Greeter { GreetReply Greet(1: GreetRequest request) }";
const GREET: &str = "demo.v1.Greeter/Greet";

/// Where a test finds a schema.
fn schema(name: &str, text: &str) -> String {
    let path = file(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn without_a_schema_the_text_says_which_is_missing() {
    let (server, _notes) = echo::serve();
    let path = echo::file();
    let refused = |proxy: &Serving, data: &str| {
        let refused = call(&format!("{}?wire=native", proxy.address), &[SAY, "--fbs", &path, "-d", data]);
        assert_eq!(refused.code, 76, "{}", refused.stderr);
        refused.stderr
    };
    let text = refused(&proxied(&server, "wire=connect", &[]), "{}");
    assert!(text.contains("expects json: its tables are unknown: give the proxy the .fbs file"), "{text}");
    let text = refused(&proxied(&server, "wire=thrift", &["--fbs", &path]), "{}");
    assert!(text.contains("a .fbs file has no Thrift types"), "{text}");
}

#[test]
fn with_a_schema_of_protobuf_tables_are_its_messages_and_structs_of_thrift() {
    let server = Serving::server();
    let (fbs, thrift) = (schema("greeter.fbs", GREETER), schema("greeter.thrift", THRIFT));
    let both = [&demo_schema()[..], &["--fbs", &fbs]].concat();
    let numbered = [&both[..], &["--function", "demo.v1.Greeter/Greet:9"]].concat();
    let front = server.proxied("?wire=grpc", &numbered);
    // The second proxy forwards calls as tables to the first, which rewrites them as messages.
    let back = front.proxied(&format!("?wire=kiss&function={GREET}:9"), &both);
    let ada = r#"{"name": "Ada"}"#;
    for proxy in [&front, &back] {
        let url = |wire: &str| format!("{}?wire={wire}", proxy.address);
        let in_proto = [&[GREET, "-d", ada][..], &demo_schema()].concat();
        let in_tables = [GREET, "-d", ada, "--fbs", &fbs];
        let in_thrift = [GREET, "-d", r#"{"request": {"name": "Ada"}}"#, "--thrift", &thrift];
        for (wire, arguments) in [
            ("grpc", &in_proto[..]),
            ("connect", &in_proto),
            ("rpcx", &in_proto),
            ("native", &in_tables),
            ("grpc", &in_tables),
            ("thrift", &in_thrift),
        ] {
            let done = call(&url(wire), arguments);
            assert_eq!(done.values(), [json!({"text": "hello Ada"})], "{wire} {arguments:?}");
        }
        let answer = post(&proxy.address, &format!("/{GREET}"), ada);
        assert_eq!(answer, (200, r#"{"text":"hello Ada"}"#.to_owned()));
    }
    // Fields that one of them does not have are named.
    let odd = schema("odd.fbs", &GREETER.replace("name: string", "nickname: string"));
    let proxy = server.proxied("?wire=grpc", &[&demo_schema()[..], &["--fbs", &odd]].concat());
    let refused = call(
        &format!("{}?wire=native", proxy.address),
        &[GREET, "--fbs", &odd, "-d", r#"{"nickname": "Ada"}"#],
    );
    assert!(refused.code == 67 && refused.stderr.contains("nickname"), "{}", refused.stderr);
}

/// A part of the service of `echo.fbs`, in both languages.
const PART: &str = "
namespace fbs.echo;
enum Mood : byte { Calm, Loud = 3 }
table Message {
  text: string; number: long = -7; none: int = null; flag: bool = true; mood: Mood = Loud;
  bytes: [ubyte] (id: 8); numbers: [ulong]; words: [string] (id: 11); moods: [Mood]; next: Message (id: 16);
}
rpc_service Echo { Say(Message): Message; }";
const PART_IN_PROTO: &str = "
syntax = \"proto3\";
package fbs.echo;
enum Mood { CALM = 0; LOUD = 3; }
message Message {
  string text = 1; int64 number = 2; optional int32 none = 3; bool flag = 4; Mood mood = 5; bytes bytes = 6;
  repeated uint64 numbers = 7; repeated string words = 8; repeated Mood moods = 9; Message next = 10;
}
service Echo { rpc Say(Message) returns (Message); }";

#[test]
fn values_of_protobuf_are_the_same_behind_tables() {
    let (server, _notes) = echo::serve();
    let (fbs, proto) = (schema("part.fbs", PART), schema("part.proto", PART_IN_PROTO));
    let proxy = proxied(&server, KISS, &["--proto", &proto, "--fbs", &fbs]);
    for message in [
        json!({}),
        json!({
            "text": "h\u{e4}y", "number": "-9007199254740993", "none": 0, "flag": true, "mood": "LOUD",
            "bytes": "AP8=", "numbers": ["18446744073709551615", "0"], "words": ["a", ""],
            "moods": ["CALM", "LOUD"], "next": {"text": "inner", "bytes": "AA=="},
        }),
    ] {
        let data = message.to_string();
        let done = call(&proxy.address, &[SAY, "--proto", &proto, "-d", &data]);
        assert_eq!(done.values(), std::slice::from_ref(&message));
        let (status, body) = post(&proxy.address, &format!("/{SAY}"), &data);
        assert_eq!((status, serde_json::from_str::<Value>(&body).unwrap()), (200, message));
    }
}

#[test]
fn the_tap_shows_tables_for_people() {
    let (server, _notes) = echo::serve();
    let path = echo::file();
    let tap = file("tables.jsonl").to_str().unwrap().to_owned();
    let proxy = proxied(&server, KISS, &[&FUNCTIONS[..], &["--fbs", &path, "--tap", &tap]].concat());
    let data = r#"{"mood": "Calm", "manner_type": "low", "manner": {"to": "x"}}"#;
    for front in ["wire=native", "wire=grpc&codec=proto", KISS] {
        call(&format!("{}?{front}", proxy.address), &[SAY, "--fbs", &path, "-d", data]).values();
    }
    proxy.stop();
    let lines = lines(tap.as_ref());
    assert_eq!(lines.len(), 3);
    let wanted: Value = serde_json::from_str(data).unwrap();
    for line in lines {
        assert_eq!((&line["method"], &line["request"], &line["response"]), (&json!(SAY), &wanted, &wanted));
    }
}

#[test]
fn servers_that_know_no_flatbuffers_are_sent_json_whatever_callers_say() {
    let (server, _notes) = echo::serve();
    let path = echo::file();
    for (behind, codec) in
        [("wire=connect", "json"), ("wire=rpcx", "json"), ("wire=rpcx&codec=msgpack", "msgpack")]
    {
        let tap = file(&format!("{codec}-{}.jsonl", behind.len())).to_str().unwrap().to_owned();
        let seen = proxied(&server, behind, &["--tap", &tap]);
        let proxy = proxied(&seen.address, behind, &["--fbs", &path]);
        for front in ["wire=grpc", "wire=grpc&codec=proto"] {
            let url = format!("{}?{front}", proxy.address);
            let done = call(&url, &[SAY, "--fbs", &path, "-d", r#"{"mood": "Calm"}"#]);
            assert_eq!(done.values(), [json!({"mood": "Calm"})], "{front} to {behind}");
        }
        drop(proxy);
        seen.stop();
        let lines = lines(tap.as_ref());
        assert_eq!(lines.len(), 2, "{behind}");
        for line in lines {
            assert_eq!((&line["codec"], &line["request"]["mood"]), (&json!(codec), &json!(0)), "{behind}");
        }
    }
}

#[test]
fn bytes_that_are_no_tables_are_refused_with_a_reason() {
    let (server, _notes) = echo::serve();
    let path = echo::file();
    let proxy = proxied(&server, "wire=connect", &["--fbs", &path]);
    for (bytes, expected) in [
        (
            "ffffffff",
            "the request is not flatbuffers of its method: the offset at 0 leads out of the message",
        ),
        ("", "the message ends within the value at 0"),
        ("04000000ffffff7f", "the table at 4 has no vtable"),
    ] {
        let refused =
            call(&proxy.address, &[SAY, "--wire", "native", "--raw", "unary", "--bytes", "hex", "-d", bytes]);
        assert_eq!(refused.code, 67, "{bytes}: {}", refused.stderr);
        assert!(refused.stderr.contains(expected), "{bytes}: {}", refused.stderr);
    }
    // A server that answers with a field that the file does not have.
    let text = fs::read_to_string(&path).unwrap().replace("  real: double;\n", "");
    let proxy = proxied(&server, "wire=connect", &["--fbs", &schema("older.fbs", &text)]);
    let url = format!("{}?wire=native", proxy.address);
    let refused = call(&url, &[SAY, "--fbs", &path, "-d", r#"{"text": "a"}"#]);
    let expected = "the reply is not json of its method: fbs.echo.Message has no \"real\"";
    assert!(refused.code == 77 && refused.stderr.contains(expected), "{}", refused.stderr);
}

#[test]
fn settings_name_files_and_functions() {
    let (server, _notes) = echo::serve();
    let config = schema(
        "tables.toml",
        &format!(
            "to = [\"{server}?wire=connect\"]\nfbs = [{:?}]\nfunction = [\"{SAY}:7\"]\nknown_only = true\n",
            echo::file()
        ),
    );
    let proxy = Serving::start(&["proxy", "--config", &config]);
    let url = format!("{}?{KISS}", proxy.address);
    let done = call(&url, &[SAY, "--fbs", &echo::file(), "-d", r#"{"text": "a"}"#]);
    assert_eq!(done.values(), [json!({"text": "a"})]);
    // Fields in their order.
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "fbs.echo.Echo.Say", "params": ["b", 5]});
    let (_, body) = post(&proxy.address, "/", &request.to_string());
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&answer["result"]["text"], &answer["result"]["number"]), (&json!("b"), &json!(5)), "{body}");
}

#[test]
fn functions_and_files_that_cannot_be_are_named() {
    let path = echo::file();
    for (arguments, expected) in [
        (&["--fbs", "nowhere.fbs"][..], "cannot read nowhere.fbs"),
        (&["--fbs", &path, "--function", "fbs.echo.Echo/Missing:7"], "unknown method"),
        (&["--fbs", &path, "--function", "fbs.echo.Echo/Say"], "package.Service/Method:NUMBER"),
        (&["--fbs", &path, "--known-only", "--service", "demo.v1.Greeter"], "--known-only needs a schema"),
    ] {
        let mut command = serving_command();
        let output = command.args(["--to", "127.0.0.1:1"]).args(arguments).output().unwrap();
        let shown = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && shown.contains(expected), "{arguments:?}: {shown}");
    }
}

fn serving_command() -> std::process::Command {
    let mut command = support::serving::switchboard();
    command.args(["proxy", "--listen", "127.0.0.1:0"]);
    command
}
