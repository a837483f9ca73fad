//! `switchboard call` against `switchboard serve`, and against servers that are not what the caller thinks.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
};
use support::*;

const GREET: &str = "demo.v1.Greeter/Greet";
const WIRES: [&str; 5] = ["grpc", "grpc-web", "grpc-web-text", "connect", "native"];

fn proto_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("proto")
}

#[test]
fn every_kind_of_call_takes_every_wire_and_every_schema() {
    let server = Server::start();
    let folder = folder("call-schemas");
    let (proto, set) = (proto_folder(), folder.join("demo.binpb"));
    let options = proto.join("../../switchboard-build/proto");
    let mut compiler = protox::Compiler::new([&proto, &options]).unwrap();
    compiler.include_imports(true).open_file("demo/v1/demo.proto").unwrap();
    fs::write(&set, compiler.encode_file_descriptor_set()).unwrap();
    let (proto, set) = (proto.to_str().unwrap(), set.to_str().unwrap());
    for schema in
        [&[][..], &["--proto", "demo/v1/demo.proto", "-I", proto][..], &["--descriptor-set", set][..]]
    {
        for wire in WIRES {
            for (method, data, expected) in [
                (GREET, r#"{"name": "Ada"}"#, vec![json!({"text": "hello Ada"})]),
                ("demo.v1.Greeter/Watch", r#"{"count": 2}"#, vec![json!({}), json!({"n": 1})]),
                (
                    "demo.v1.Greeter/Sum",
                    r#"{"value": 1}{"value": "41"}"#,
                    vec![json!({"sum": "42", "count": 2})],
                ),
                (
                    "demo.v1.Greeter/Chat",
                    "{\"text\": \"a\"}\n{\"text\": \"b\"}",
                    vec![json!({"text": "A"}), json!({"text": "B"})],
                ),
                ("demo.v1.Greeter/Chat", "", vec![]),
            ] {
                let mut arguments = vec![method, "-d", data, "--wire", wire];
                arguments.extend(schema);
                let done = call(&server.address, &arguments);
                assert_eq!(done.values(), expected, "{arguments:?}");
            }
        }
    }
}

#[test]
fn wires_without_streams_both_ways_at_once_carry_reflection() {
    let server = Server::start();
    for wire in ["connect", "grpc-web"] {
        let url = format!("http://{}?http=1&wire={wire}", server.address);
        let done = call(&url, &[GREET, "-d", r#"{"name": "Ada"}"#]);
        assert_eq!(done.values(), [json!({"text": "hello Ada"})]);
    }
    let url = format!("{}?http=1&wire=connect&codec=json", server.address);
    assert_eq!(call(&url, &[GREET, "-d", r#"{"name": "Ada"}"#]).values(), [json!({"text": "hello Ada"})]);
}

/// A call of each kind that JSON-RPC has in a WebSocket, and the printed output.
fn unary_and_replies() -> [(&'static str, &'static str, Vec<Value>); 2] {
    [
        (GREET, r#"{"name": "Ada"}"#, vec![json!({"text": "hello Ada"})]),
        ("demo.v1.Greeter/Watch", r#"{"count": 2}"#, vec![json!({}), json!({"n": 1})]),
    ]
}

#[test]
fn websockets_and_json_rpc_are_called_with_the_schema_of_the_port_beneath() {
    for server in [Server::start(), Server::with(&["--websocket-deflate"])] {
        for url in ["ws://ADDRESS", "ws://ADDRESS/x?deflate=true", "ws://ADDRESS/?wire=jsonrpc"] {
            let url = url.replace("ADDRESS", &server.address);
            for (method, data, expected) in unary_and_replies() {
                assert_eq!(call(&url, &[method, "-d", data]).values(), expected, "{url}");
            }
            assert!(call(&url, &["list"]).stdout.contains("demo.v1.Greeter\n"));
            let refused = call(&url, &[GREET, "-d", "{}"]);
            assert_eq!(refused.code, 67, "{url}: {}", refused.stderr);
            assert!(refused.stderr.contains("name is empty"), "{url}: {}", refused.stderr);
        }
        let url = format!("ws://{}", server.address);
        let sum = ["demo.v1.Greeter/Sum", "-d", r#"{"value": 1}{"value": "41"}"#];
        assert_eq!(call(&url, &sum).values(), [json!({"sum": "42", "count": 2})]);
    }
    let server = Server::start();
    let (plain, http) = (server.address.clone(), format!("http://{}", server.address));
    for url in [format!("{plain}?http=2"), http.clone(), format!("{http}/rpc")] {
        let json_rpc = |arguments: &[&str]| call(&url, &[arguments, &["--wire", "jsonrpc"]].concat());
        let done = json_rpc(&[GREET, "-d", r#"{"name": "Ada"}"#, "-H", "x-echo: hi", "-v"]);
        assert_eq!(done.values(), [json!({"text": "hello Ada"})], "{url}");
        assert!(done.stderr.contains("metadata x-echo: hi\n"), "{}", done.stderr);
        let raw = json_rpc(&[GREET, "-d", r#"{"name": "Ada"}"#, "--raw", "unary"]);
        assert_eq!(raw.values(), [json!({"text": "hello Ada"})], "{url}");
        for (arguments, code, expected) in [
            (&[GREET, "-d", "{}"][..], 67, "name is empty: say whom to greet"),
            (
                &["demo.v1.Greeter/Watch", "-d", r#"{"count": 1}"#],
                76,
                "over ws:// it supports streams of replies",
            ),
            (&["demo.v1.Greeter/Sum", "-d", r#"{"value": 1}"#], 76, "JSON-RPC over POST does not support"),
        ] {
            let done = json_rpc(arguments);
            assert_eq!(done.code, code, "{arguments:?}: {}", done.stderr);
            assert!(done.stderr.contains(expected), "{arguments:?}: {}", done.stderr);
        }
    }
    let metadata =
        call(&format!("ws://{plain}?wire=jsonrpc"), &[GREET, "-d", r#"{"name": "Ada"}"#, "-H", "x-echo: hi"]);
    assert!(metadata.stderr.contains("no place for a call's metadata"), "{}", metadata.stderr);
}

#[test]
fn servers_of_json_rpc_that_are_not_ours_are_called() {
    let result = impostor(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: 41\r\n\r\n\
          {\"jsonrpc\":\"2.0\",\"result\":[1,2],  \"id\":1}",
    );
    let done =
        call(&format!("http://{result}/api?wire=jsonrpc"), &["math.calc/add", "--raw", "unary", "-d", "[1]"]);
    assert_eq!(done.values(), [json!([1, 2])]);
    let failure = impostor(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 70\r\n\r\n\
          {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32601,\"message\":\"no such\"},  \"id\":1}",
    );
    let done = call(&failure, &["a/b", "--raw", "unary", "-d", "{}", "--wire", "jsonrpc"]);
    assert_eq!(done.code, 76, "{}", done.stderr);
    assert!(done.stderr.contains("no such"), "{}", done.stderr);
}

#[test]
fn every_wire_goes_inside_tls() {
    let folder = folder("call-tls");
    let file = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (cert, key) =
        (file("cert.pem", &made.cert.pem()), file("key.pem", &made.signing_key.serialize_pem()));
    let server = Server::with(&["--tls-cert", &cert, "--tls-key", &key]);
    for url in WIRES.map(|wire| format!("tls://ADDRESS?wire={wire}")).into_iter().chain(
        ["https://ADDRESS?wire=jsonrpc", "wss://ADDRESS/x", "wss://ADDRESS?wire=jsonrpc"].map(str::to_owned),
    ) {
        let url = url.replace("ADDRESS", &server.address);
        let done = call(&url, &[GREET, "-d", r#"{"name": "Ada"}"#, "--ca", &cert]);
        assert_eq!(done.values(), [json!({"text": "hello Ada"})], "{url}");
        let refused = call(&url, &[GREET, "-d", "{}", "--server-name", "elsewhere.example", "--ca", &cert]);
        assert_eq!(refused.code, 78, "{url}: {}", refused.stderr);
        assert!(refused.stderr.contains("not for \"elsewhere.example\""), "{url}: {}", refused.stderr);
    }
    let plain = call(&server.address, &[GREET, "-d", "{}"]);
    assert_eq!(plain.code, 78, "{}", plain.stderr);
}

#[test]
fn requests_come_from_files_and_standard_input() {
    let server = Server::start();
    let file = folder("call-input").join("ada.json");
    fs::write(&file, r#"{"name": "file"}"#).unwrap();
    let from_file = format!("@{}", file.display());
    assert_eq!(call(&server.address, &[GREET, "-d", &from_file]).values(), [json!({"text": "hello file"})]);
    for data in [&["-d", "-"][..], &[]] {
        let mut command = switchboard();
        command.args(["call", &server.address, GREET]).args(data);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(br#"{"name": "pipe"}"#).unwrap();
        let done = Done::of(child.wait_with_output().unwrap());
        assert_eq!(done.values(), [json!({"text": "hello pipe"})]);
    }
}

#[test]
fn a_conversation_goes_back_and_forth() {
    let server = Server::start();
    for wire in ["grpc", "native"] {
        let mut command = switchboard();
        command.args(["call", &server.address, "demo.v1.Greeter/Chat", "--compact", "--wire", wire]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, mut replies) =
            (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
        for text in ["one", "two"] {
            // The next note is written when the reply to this one is there.
            writeln!(input, r#"{{"text": "{text}"}}"#).unwrap();
            assert_eq!(replies.next().unwrap().unwrap(), format!(r#"{{"text":"{}"}}"#, text.to_uppercase()));
        }
        drop(input);
        assert!(replies.next().is_none() && child.wait().unwrap().success());
    }
}

#[test]
fn services_are_listed_and_described() {
    let server = Server::start();
    let list = call(&server.address, &["list"]).stdout;
    assert!(list.starts_with("bench.v1.Bench\ndemo.v1.Greeter\ndemo.v1.Posts\n"), "{list}");
    let methods = call(&server.address, &["list", "demo.v1.Greeter"]).stdout;
    assert_eq!(methods.lines().next(), Some(GREET));
    let signatures = call(&server.address, &["list", "Greeter", "-v"]).stdout;
    assert!(signatures.contains("Watch(demo.v1.WatchRequest) returns (stream demo.v1.Tick)"), "{signatures}");
    let list = call(&server.address, &["list", "--json"]).values();
    assert_eq!(list[0][1], "demo.v1.Greeter");
    for (name, expected) in [
        ("demo.v1.Greeter", "rpc Sum(stream demo.v1.Number) returns (demo.v1.Total);"),
        ("demo.v1.Greeter/Greet", "message demo.v1.GreetRequest {\n  string name = 1;\n}\n"),
        ("demo.v1.Total", "int64 sum = 1;"),
        ("demo.v1.Total.count", "uint32 count = 2;"),
        ("Post", "repeated string tags = 4;"),
    ] {
        let described = call(&server.address, &["describe", name]);
        assert_eq!(described.code, 0, "{}", described.stderr);
        assert!(described.stdout.contains(expected), "{name}: {}", described.stdout);
    }
    // Files have comments, which servers leave out. `describe` with a file needs no server.
    let proto = proto_folder().join("demo/v1/demo.proto");
    let described = call("127.0.0.1:1", &["describe", "--proto", proto.to_str().unwrap()]).stdout;
    assert!(
        described.starts_with("// Greets in every kind of call.\nservice demo.v1.Greeter {"),
        "{described}"
    );
}

#[test]
fn metadata_goes_both_ways() {
    let server = Server::start();
    for wire in WIRES {
        let done = call(
            &server.address,
            &[GREET, "-d", r#"{"name": "Ada"}"#, "-H", "X-Echo: hi", "-v", "--timings", "--wire", wire],
        );
        let expected = "metadata x-echo: hi\ntrailer x-echo-trailer: hi\n";
        assert!(done.stderr.contains(expected), "{wire}: {}", done.stderr);
        for part in ["connect ", "schema ", "first message ", "total "] {
            assert!(done.stderr.contains(part), "{wire}: {}", done.stderr);
        }
    }
}

#[test]
fn programs_get_one_object() {
    let server = Server::start();
    for compact in [&[][..], &["--compact"]] {
        let watch = ["demo.v1.Greeter/Watch", "-d", r#"{"count": 2}"#, "--json", "--emit-defaults"];
        let done = call(&server.address, &[&watch, compact].concat());
        let object = done.values().remove(0);
        assert_eq!(object["messages"], json!([{"n": 0}, {"n": 1}]));
        assert_eq!(object["status"], json!({"code": "ok", "number": 0}));
        assert!(object["timings"]["first_message_ms"].is_number(), "{object}");
        assert_eq!(done.stdout.lines().count() == 1, !compact.is_empty(), "{}", done.stdout);
        let greet = [GREET, "-d", r#"{"name": "Ada"}"#, "--json", "-H", "x-echo: hi"];
        let object = call(&server.address, &[&greet, compact].concat()).values().remove(0);
        assert_eq!(object["metadata"], json!({"x-echo": ["hi"]}));
        assert_eq!(object["trailers"], json!({"x-echo-trailer": ["hi"]}));

        let refused = call(&server.address, &[&[GREET, "-d", "{}", "--json"], compact].concat());
        assert_eq!(refused.code, 67);
        let object: Value = serde_json::from_str(&refused.stdout).unwrap();
        assert_eq!(object["messages"], json!([]));
        assert_eq!(object["status"]["code"], "invalid_argument");
        assert_eq!(object["status"]["message"], "name is empty: say whom to greet");
        assert_eq!(refused.stderr, "");
    }
}

#[test]
fn errors_name_the_expected_input_and_exit_codes_the_side() {
    let server = Server::start();
    let table: &[(&[&str], i32, &str)] = &[
        (&["demo.v1.Greter/Greet"], 2, "unknown service demo.v1.Greter; did you mean demo.v1.Greeter?"),
        (&["demo.v1.Greeter/Gret"], 2, "unknown method Gret of demo.v1.Greeter; did you mean Greet?"),
        (&["Greet"], 2, "expected pkg.Service/Method"),
        (&["list", "demo.v1.Grete"], 2, "did you mean demo.v1.Greeter?"),
        (&["describe", "demo.v1.Totl"], 2, "unknown name demo.v1.Totl; did you mean demo.v1.Total?"),
        (&[GREET, "-d", r#"{"nam": "x"}"#], 2, "no field \"nam\" at line 1 column 7; did you mean name?"),
        (
            &[GREET, "-d", r#"{"name": 5}"#],
            2,
            "field name: invalid type: integer `5`, expected a string at line 1",
        ),
        (&[GREET, "-d", "{} {}"], 2, "takes one request, and more were given"),
        (&[GREET, "-d", "@/nowhere.json"], 2, "/nowhere.json: No such file"),
        (&[GREET, "extra"], 2, "requests go into -d"),
        (&["demo.v1.Greeter/Sum", "-d", r#"{"value": 1}{"value": "x"}"#], 2, "field value: "),
        (&[GREET, "--proto", "/nowhere/a.proto"], 2, "name its folder with -I"),
        (&[GREET, "--descriptor-set", "/nowhere.binpb"], 2, "descriptor set /nowhere.binpb: No such file"),
        (&[GREET, "-H", "x"], 2, "expected 'name: value'"),
        (&[GREET, "-H", "x-bin: ?"], 2, "is not base64"),
        (&[GREET, "--timeout", "5"], 2, "as in 5s"),
        (&[GREET, "--max-message-size", "much"], 2, "is not a number with B, KiB"),
        (
            &[GREET, "--wire", "soap"],
            2,
            "possible values: baidu_std, connect, erpc, grpc, grpc-web, grpc-web-text, hulu, jsonrpc, kiss, native, rpcx, sofa, thrift",
        ),
        (&[GREET], 67, "invalid_argument (3): name is empty"),
        (&["demo.v1.Greeter/Watch", "-d", "{}"], 67, "count is 0"),
        (
            &["demo.v1.Greeter/Sum", "-d", r#"{"value": "9223372036854775807"}{"value": 1}"#],
            75,
            "out_of_range (11): the sum is over 64 bits",
        ),
        (
            &["demo.v1.Greeter/Watch", "-d", r#"{"count": 2, "intervalMs": 60000}"#, "--timeout", "200ms"],
            68,
            "deadline_exceeded (4)",
        ),
        (
            &[GREET, "-d", r#"{"name": "Ada"}"#, "--wire", "native", "--max-message-size", "1"],
            72,
            "--max-message-size",
        ),
    ];
    for (arguments, code, expected) in table {
        let done = call(&server.address, arguments);
        assert_eq!(done.code, *code, "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(expected), "{arguments:?}: {}", done.stderr);
    }
}

#[test]
fn servers_of_other_protocols_are_distinguished() {
    let http1 = impostor(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let tls = impostor(b"\x15\x03\x01\x00\x02\x02\x46");
    let other = impostor(b"SSH-2.0-OpenSSH_9.9\r\n");
    let silent = impostor(b"");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let table: &[(&str, &[&str], i32, &str)] = &[
        (&closed, &["list"], 78, "nothing listens at tcp://"),
        (&closed, &["list", "--wire", "native"], 78, "nothing listens at tcp://"),
        ("unix:/nowhere.sock", &["list"], 78, "there is no socket at unix:/nowhere.sock"),
        ("127.0.0.1", &["list"], 2, "expected HOST:PORT"),
        (&http1, &["list"], 78, "responds in HTTP/1.1"),
        (&tls, &["list"], 78, "call it as tls://127.0.0.1:"),
        (&other, &["list"], 78, "with another protocol"),
        (&silent, &["list"], 78, "accepts connections and sends nothing"),
        (
            &format!("{http1}?http=1"),
            &["list", "--wire", "connect"],
            76,
            "offers no reflection: give the schema with --proto",
        ),
        (
            &http1,
            &[GREET, "--wire", "native", "--proto", "demo/v1/demo.proto", "-I", "proto", "--timeout", "20s"],
            78,
            "responds in HTTP: try --wire grpc",
        ),
    ];
    for (address, arguments, code, expected) in table {
        let done = call(address, arguments);
        assert_eq!(done.code, *code, "{address} {arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(expected), "{address} {arguments:?}: {}", done.stderr);
    }
}

#[switchboard::service]
trait Calc {
    /// Numbers that no double holds.
    async fn divide(&self, a: i64, b: i64) -> switchboard::Result<i64>;
    async fn all(&self) -> switchboard::Result<Vec<String>>;
    async fn powers(&self, of: u64, count: u32, out: switchboard::Sender<u64>) -> switchboard::Result<()>;
    async fn sum(&self, numbers: switchboard::Receiver<u64>) -> switchboard::Result<u64>;
}

struct Exact;

impl Calc for Exact {
    async fn divide(&self, a: i64, b: i64) -> switchboard::Result<i64> {
        let quotient = a.checked_div(b);
        quotient.ok_or_else(|| switchboard::Status::invalid_argument("b is 0: nothing is divided by it"))
    }

    async fn all(&self) -> switchboard::Result<Vec<String>> {
        Ok(vec!["divide".into()])
    }

    async fn powers(&self, of: u64, count: u32, out: switchboard::Sender<u64>) -> switchboard::Result<()> {
        for exponent in 0..count {
            out.send(of.pow(exponent)).await?;
        }
        Ok(())
    }

    async fn sum(&self, mut numbers: switchboard::Receiver<u64>) -> switchboard::Result<u64> {
        let mut sum = 0;
        while let Some(number) = numbers.next().await? {
            sum += number;
        }
        Ok(sum)
    }
}

#[test]
fn services_of_traits_are_listed_described_and_called() {
    let calc = serve(switchboard::Server::new().add(CalcServer::new(Exact)));
    assert!(call(&calc, &["list"]).stdout.contains("Calc\n"));
    let methods = ["Divide", "All", "Powers", "Sum"].map(|name| format!("Calc/{name}\n")).concat();
    assert_eq!(call(&calc, &["list", "Calc"]).stdout, methods);
    let described = call(&calc, &["describe", "Calc"]).stdout;
    assert!(described.starts_with("// A Rust trait. It takes JSON, not protobuf: "), "{described}");
    assert!(
        described.contains("rpc Divide(CalcDivideArguments) returns (google.protobuf.Value);"),
        "{described}"
    );
    assert!(described.contains("rpc Sum(stream google.protobuf.Value) returns"), "{described}");
    let method = call(&calc, &["describe", "Calc/Divide"]).stdout;
    let arguments =
        "message CalcDivideArguments {\n  google.protobuf.Value a = 1;\n  google.protobuf.Value b = 2;\n}";
    assert!(method.contains(arguments), "{method}");

    for wire in WIRES {
        let call = |arguments: &[&str]| call(&calc, &[arguments, &["--wire", wire, "--compact"]].concat());
        assert_eq!(call(&["Calc/Divide", "-d", r#"{"a": 84, "b": 2}"#]).values(), [json!(42)], "{wire}");
        let exact = call(&["Calc/Divide", "-d", r#"{"b": 1, "a": 9007199254740993}"#]);
        assert_eq!(exact.values(), [json!(9_007_199_254_740_993i64)], "{wire}");
        assert_eq!(call(&["Calc/All"]).values(), [json!(["divide"])], "{wire}");
        let powers = call(&["Calc/Powers", "-d", r#"{"of": 3, "count": 3}"#]);
        assert_eq!(powers.values(), [json!(1), json!(3), json!(9)], "{wire}");
        assert_eq!(call(&["Calc/Sum", "-d", "1 2 39"]).values(), [json!(42)], "{wire}");
        let refused = call(&["Calc/Divide", "-d", r#"{"a": 1}"#]);
        assert_eq!(refused.code, 67, "{wire}: {}", refused.stderr);
        assert!(refused.stderr.contains("missing field `b`"), "{wire}: {}", refused.stderr);
    }
}

/// A service written without a schema.
struct ByHand;

impl switchboard::Service for ByHand {
    fn info(&self) -> &'static switchboard::ServiceInfo {
        static INFO: switchboard::ServiceInfo = switchboard::ServiceInfo {
            name: "Hand",
            methods: &[switchboard::MethodInfo::new("Echo", switchboard::Kind::Unary)],
            descriptor: &[],
        };
        &INFO
    }

    async fn call(&self, call: switchboard::Call) -> switchboard::Result<switchboard::Reply> {
        let (message, cx) = call.into_one()?;
        match &message[..] {
            b"{}" => Err(switchboard::Status::invalid_argument("nothing to echo")),
            _ => Ok(switchboard::Reply::one(message, cx)),
        }
    }
}

#[test]
fn services_without_a_schema_are_called_with_raw_json() {
    let hand = serve(switchboard::Server::new().add(ByHand));
    let by_schema = call(&hand, &["Hand/Echo"]);
    assert_eq!(by_schema.code, 2, "{}", by_schema.stderr);
    assert!(by_schema.stderr.contains("--raw"), "{}", by_schema.stderr);
    assert!(call(&hand, &["list", "-v"]).stdout.contains("Hand\n"));
    assert!(call(&hand, &["describe"]).stdout.contains("no schema of Hand"));
    let demo = Server::start();
    for wire in WIRES {
        let raw = |address: &str, arguments: &[&str]| {
            call(address, &[arguments, &["--wire", wire, "--compact"]].concat())
        };
        let echo = |data| raw(&hand, &["Hand/Echo", "--raw", "unary", "-d", data]);
        assert_eq!(echo(r#"{"a": 84, "b": 2}"#).values(), [json!({"a": 84, "b": 2})], "{wire}");
        let refused = echo("{}");
        assert_eq!(refused.code, 67, "{wire}: {}", refused.stderr);
        assert!(refused.stderr.contains("nothing to echo"), "{wire}: {}", refused.stderr);
        assert_eq!(echo("{,}").code, 2, "{wire}");

        // What has a schema takes JSON as well.
        let chat = ["demo.v1.Greeter/Chat", "--raw", "bidi", "-d", r#"{"text": "a"}{"text": "b"}"#];
        assert_eq!(
            raw(&demo.address, &chat).values(),
            [json!({"text": "A"}), json!({"text": "B"})],
            "{wire}"
        );
        let sum = ["demo.v1.Greeter/Sum", "--raw", "client-stream", "-d", r#"{"value": "2"}"#];
        assert_eq!(raw(&demo.address, &sum).values(), [json!({"sum": "2", "count": 1})], "{wire}");
        let watch = ["demo.v1.Greeter/Watch", "--raw", "server-stream", "-d", r#"{"count": 2}"#];
        assert_eq!(raw(&demo.address, &watch).values()[1], json!({"n": 1}), "{wire}");
    }
}

#[test]
fn help_in_a_pipe_has_unbroken_lines_and_examples() {
    let help = Done::of(switchboard().args(["call", "--help"]).output().unwrap()).stdout;
    assert!(help.lines().any(|line| line.chars().count() > 80), "{help}");
    assert!(help.contains("Examples:\n  switchboard call localhost:8080 list\n"), "{help}");
}
