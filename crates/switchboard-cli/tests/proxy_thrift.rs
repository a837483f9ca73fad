//! `switchboard proxy` between Thrift and the other codecs.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use serde_json::{Value, json};
use std::fs;
use support::{
    call, greeter,
    serving::{Serving, demo_schema, file, http, lines, post},
};

const GREET: &str = "demo.v1.Greeter/Greet";
const ADA: &str = r#"{"name": "Ada"}"#;

/// The demo's greeter, written for Thrift.
const FILE: &str = "
namespace * demo.v1
struct GreetRequest { 1: string name }
struct GreetReply { 1: string text }
service Greeter {
  GreetReply Greet(1: GreetRequest request)
  GreetReply Watch(1: GreetRequest request)
  GreetReply Missing(1: GreetRequest request)
}";

/// The service with a field of another type.
const ODD: &str = "
namespace * demo.v1
struct GreetRequest { 1: i32 name }
struct GreetReply { 1: string text }
service Greeter { GreetReply Greet(1: GreetRequest request) }";

/// The service with a function that is not a method in protobuf.
const OTHER: &str = "
namespace * demo.v1
service Greeter { string Greet(1: string name) }";

/// Ways of Thrift, as options of a URL.
const WAYS: [&str; 5] = [
    "wire=thrift",
    "wire=thrift&protocol=compact&framed=false",
    "wire=thrift&protocol=header-compact&zlib=true",
    "wire=thrift&multiplexed=true",
    "wire=thrift&path=/any",
];

/// Where a test finds a schema.
fn thrift_file(name: &str, text: &str) -> String {
    let path = file(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A JSON-RPC request and what it answers.
fn json_rpc(address: &str, method: &str, params: &Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let (_, body) = post(address, "/", &request.to_string());
    serde_json::from_str(&body).unwrap()
}

#[test]
fn callers_on_thrift_reach_services_of_protobuf_on_every_wire() {
    let server = Serving::server();
    let path = thrift_file("callers.thrift", FILE);
    for (behind, schema) in [
        ("", &demo_schema()[..]),
        ("?wire=grpc", &["--reflect"]),
        ("?wire=connect&codec=json", &demo_schema()),
        ("?wire=rpcx", &demo_schema()),
        ("?wire=rpcx&codec=msgpack", &demo_schema()),
        ("?wire=rpcx&codec=thrift", &demo_schema()),
        ("?wire=baidu_std", &demo_schema()),
        ("?wire=thrift", &demo_schema()),
    ] {
        let proxy = server.proxied(behind, schema);
        for way in WAYS {
            let url = format!("{}?{way}", proxy.address);
            let greet = |method: &str, name: &str| {
                let data = json!({"request": {"name": name}}).to_string();
                call(&url, &[method, "--thrift", &path, "-d", &data])
            };
            let done = greet(GREET, "Ada");
            assert_eq!(done.values(), [json!({"text": "hello Ada"})], "{way} to {behind:?}");
            let refused = greet(GREET, "");
            assert_eq!(refused.code, 67, "{way} to {behind:?}: {}", refused.stderr);
            assert!(refused.stderr.contains("name is empty: say whom to greet"), "{}", refused.stderr);
        }
    }
}

#[test]
fn what_thrift_has_nothing_for_is_refused_with_a_reason() {
    let server = Serving::server();
    let (path, odd) = (thrift_file("refused.thrift", FILE), thrift_file("odd.thrift", ODD));
    let proxy = server.proxied("?wire=grpc", &demo_schema());
    let url = format!("{}?wire=thrift&multiplexed=true", proxy.address);
    for (file, method, data, code, text) in [
        (&path, "demo.v1.Greeter/Watch", r#"{"request": {}}"#, 76, "streams, which Thrift cannot carry"),
        (
            &path,
            "demo.v1.Greeter/Missing",
            r#"{"request": {}}"#,
            76,
            "unknown method demo.v1.Greeter/Missing",
        ),
        (&odd, GREET, r#"{"request": {"name": 5}}"#, 67, "name is a string or binary and not of type 8"),
    ] {
        let refused = call(&url, &[method, "--thrift", file, "-d", data]);
        assert_eq!(refused.code, code, "{method}: {}", refused.stderr);
        assert!(refused.stderr.contains(text), "{method}: {}", refused.stderr);
    }
    let proxy = server.proxied("?wire=grpc", &[]);
    let url = format!("{}?wire=thrift&multiplexed=true", proxy.address);
    let refused = call(&url, &[GREET, "--thrift", &path, "-d", r#"{"request": {}}"#]);
    assert!(
        refused.code == 76 && refused.stderr.contains("with --thrift, or a schema"),
        "{}",
        refused.stderr
    );
    let proxy =
        server.proxied("?wire=thrift", &[&demo_schema()[..], &["--thrift", &greeter::file()]].concat());
    let greeting = call(&proxy.address, &[GREET, "-d", ADA]);
    assert_eq!(greeting.values(), [json!({"text": "hello Ada"})]);
    let streamed = call(&proxy.address, &["demo.v1.Greeter/Watch", "-d", r#"{"count": 1}"#]);
    assert!(streamed.code == 76 && streamed.stderr.contains("streams"), "{}", streamed.stderr);
    let other = thrift_file("other.thrift", OTHER);
    let proxy = server.proxied("?wire=thrift", &[&demo_schema()[..], &["--thrift", &other]].concat());
    let refused = call(&proxy.address, &[GREET, "-d", ADA]);
    assert!(refused.code == 76 && refused.stderr.contains("a struct of number 1"), "{}", refused.stderr);
}

#[test]
fn servers_on_thrift_answer_callers_in_every_codec_by_the_schema_of_protobuf() {
    let server = Serving::server();
    for way in WAYS {
        let proxy = server.proxied(&format!("?{way}"), &demo_schema());
        for front in ["native", "grpc", "grpc-web", "connect", "rpcx", "rpcx&codec=json", "baidu_std"] {
            let url = format!("{}?wire={front}", proxy.address);
            let done = call(&url, &[GREET, "-d", ADA]);
            assert_eq!(done.values(), [json!({"text": "hello Ada"})], "{front} to {way}");
            let refused = call(&url, &[GREET, "-d", "{}"]);
            assert!(refused.code == 67 && refused.stderr.contains("name is empty"), "{front} to {way}");
        }
        let in_msgpack = proxy.proxied("?wire=rpcx&codec=msgpack", &demo_schema());
        for address in [&proxy.address, &in_msgpack.address] {
            let answer = post(address, "/demo.v1.Greeter/Greet", ADA);
            assert_eq!(answer, (200, r#"{"text":"hello Ada"}"#.to_owned()), "{way}");
        }
        let answer =
            http(&proxy.address, "GET /v1/greetings/Ada HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        assert_eq!(answer, (200, r#"{"text":"hello Ada"}"#.to_owned()), "{way}");
        let (status, body) = post(&proxy.address, "/demo.v1.Greeter/Greet", r#"{"name": 5}"#);
        assert!(status == 400 && body.contains("the request is not json of its method"), "{status} {body}");
    }
}

#[test]
fn callers_on_thrift_reach_servers_in_json_with_the_file_of_the_service() {
    let server = greeter::serve();
    let path = greeter::file();
    for behind in [
        "wire=connect",
        "wire=grpc",
        "wire=jsonrpc",
        "wire=rpcx&codec=json",
        "wire=rpcx&codec=msgpack",
        "wire=rpcx",
        "",
    ] {
        let to = format!("{server}?{behind}");
        let proxy = Serving::start(&["proxy", "--to", &to, "--thrift", &path]);
        for way in WAYS {
            let url = format!("{}?{way}", proxy.address);
            let greet = |data: &str| call(&url, &[greeter::GREET, "--thrift", &path, "-d", data]);
            assert_eq!(greet(ADA).values(), [json!("hello Ada")], "{way} to {behind}");
            let thrown = greet(r#"{"name": ""}"#);
            assert_eq!(thrown.code, 67, "{way} to {behind}: {}", thrown.stderr);
            let exception = r#"thrift.demo.Nameless {"message":"name is empty"}"#;
            // rpcx has one text for an error, and no place for what it is.
            let text = if behind.contains("rpcx") { "name is empty" } else { exception };
            assert!(thrown.stderr.contains(text), "{way} to {behind}: {}", thrown.stderr);
        }
    }
}

#[test]
fn exceptions_are_statuses_with_their_details() {
    let server = greeter::serve();
    let proxy =
        Serving::start(&["proxy", "--to", &format!("{server}?wire=thrift"), "--thrift", &greeter::file()]);
    let (status, body) = post(&proxy.address, &format!("/{}", greeter::GREET), r#"{"name": ""}"#);
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, &body["code"], &body["message"]),
        (400, &json!("invalid_argument"), &json!("name is empty"))
    );
    assert_eq!(body["details"][0]["type"], "thrift.demo.Nameless", "{body}");
    let error = &json_rpc(&proxy.address, "ThriftGreeter.greet", &json!([""]))["error"];
    assert_eq!(error["message"], "name is empty", "{error}");
}

#[test]
fn the_tap_shows_thrift() {
    let (server, greeter) = (Serving::server(), greeter::serve());
    let path = thrift_file("tapped.thrift", FILE);
    let tap = |name: &str| file(name).to_str().unwrap().to_owned();
    let taps = ["thrift-to-proto.jsonl", "thrift-to-thrift.jsonl", "by-file.jsonl"].map(tap);
    let by_schema = server.proxied("?wire=grpc", &[&demo_schema()[..], &["--tap", &taps[0]]].concat());
    let bytes = server.proxied("?wire=thrift", &[&demo_schema()[..], &["--tap", &taps[1]]].concat());
    let to = format!("{greeter}?wire=thrift");
    let by_file = Serving::start(&["proxy", "--to", &to, "--thrift", &greeter::file(), "--tap", &taps[2]]);
    for proxy in [&by_schema, &bytes] {
        let url = format!("{}?wire=thrift", proxy.address);
        call(&url, &[GREET, "--thrift", &path, "-d", r#"{"request": {"name": "Ada"}}"#]).values();
    }
    let url = format!("{}?wire=thrift", by_file.address);
    for data in [ADA, r#"{"name": ""}"#] {
        call(&url, &[greeter::GREET, "--thrift", &greeter::file(), "-d", data]);
    }
    [by_schema, bytes, by_file].into_iter().for_each(Serving::stop);
    let seen = |line: &Value| (line["wire"].clone(), line["request"].clone(), line["response"].clone());
    for path in &taps[..2] {
        let [line] = &lines(path.as_ref())[..] else { panic!("one call") };
        assert_eq!(seen(line), (json!("thrift"), json!({"name": "Ada"}), json!({"text": "hello Ada"})));
    }
    let [greeted, thrown] = &lines(taps[2].as_ref())[..] else { panic!("two calls") };
    assert_eq!(seen(greeted), (json!("thrift"), json!({"name": "Ada"}), json!("hello Ada")));
    assert_eq!(thrown["response"], json!({"thrift.demo.Nameless": {"message": "name is empty"}}));
}
