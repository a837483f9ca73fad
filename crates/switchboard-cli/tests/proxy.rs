//! `switchboard proxy` between `switchboard call`, other callers, and `switchboard serve`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Output, Stdio},
};
use support::{
    greeter,
    serving::{Serving, demo_schema, file, http, lines, post, switchboard},
};

const GREET: &str = "demo.v1.Greeter/Greet";
const ADA: &str = r#"{"name": "Ada"}"#;

fn call(address: &str, arguments: &[&str]) -> Output {
    switchboard().args(["call", address]).args(arguments).output().unwrap()
}

/// The values of a call that went well.
#[track_caller]
fn values(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::Deserializer::from_slice(&output.stdout).into_iter().map(Result::unwrap).collect()
}

/// A call of each kind, and what it answers.
fn every_kind() -> [(&'static str, &'static str, Vec<Value>); 4] {
    [
        (GREET, ADA, vec![json!({"text": "hello Ada"})]),
        ("demo.v1.Greeter/Watch", r#"{"count": 2}"#, vec![json!({}), json!({"n": 1})]),
        ("demo.v1.Greeter/Sum", r#"{"value": 1}{"value": 41}"#, vec![json!({"sum": "42", "count": 2})]),
        (
            "demo.v1.Greeter/Chat",
            r#"{"text": "a"}{"text": "b"}"#,
            vec![json!({"text": "A"}), json!({"text": "B"})],
        ),
    ]
}

#[test]
fn every_kind_of_call_goes_from_wire_to_wire_without_a_schema() {
    let server = Serving::server();
    for behind in ["", "?wire=grpc", "?wire=grpc-web"] {
        let proxy = server.proxied(behind, &[]);
        for front in ["native", "grpc", "grpc-web"] {
            for (method, data, expected) in every_kind() {
                let arguments = [&[method, "-d", data, "--wire", front][..], &demo_schema()].concat();
                let done = call(&proxy.address, &arguments);
                assert_eq!(values(&done), expected, "{method} from {front} to {behind:?}");
            }
        }
    }
}

#[test]
fn every_kind_of_call_goes_from_wire_to_wire_with_a_schema() {
    let server = Serving::server();
    for (behind, schema) in
        [("", &["--reflect"][..]), ("?wire=grpc", &demo_schema()), ("?wire=connect", &["--reflect"])]
    {
        let proxy = server.proxied(behind, schema);
        for front in ["native", "grpc", "grpc-web", "connect"] {
            for (method, data, expected) in every_kind() {
                // The proxy serves the schema by reflection.
                let done = call(&proxy.address, &[method, "-d", data, "--wire", front]);
                assert_eq!(values(&done), expected, "{method} from {front} to {behind:?}");
            }
        }
    }
}

#[test]
fn without_a_schema_reflection_is_that_of_the_target() {
    let server = Serving::server();
    let proxy = server.proxied("?wire=grpc", &[]);
    let listed = call(&proxy.address, &["list"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("demo.v1.Greeter\n") && listed.contains("bench.v1.Bench\n"), "{listed}");
    assert_eq!(values(&call(&proxy.address, &[GREET, "-d", ADA])), [json!({"text": "hello Ada"})]);
}

#[switchboard::service(name = "shop.Stock")]
trait Stock {
    #[switchboard(read_only, http(get = "/v1/stock/{id}"), http(get = "/v1/shelves/{shelf}/stock/{id}"))]
    async fn find(&self, id: u32, shelf: Option<String>) -> switchboard::Result<String>;

    #[switchboard(http(post = "/v1/stock", body = "*"))]
    async fn add(&self, names: Vec<String>, count: u64) -> switchboard::Result<u64>;
}

struct Shelves;

impl Stock for Shelves {
    async fn find(&self, id: u32, shelf: Option<String>) -> switchboard::Result<String> {
        Ok(format!("{id} on {shelf:?}"))
    }

    async fn add(&self, names: Vec<String>, count: u64) -> switchboard::Result<u64> {
        Ok(names.len() as u64 * count)
    }
}

#[test]
fn http_paths_of_traits_are_learned_by_reflection() {
    let server = support::serve(switchboard::Server::new().add(StockServer::new(Shelves)));
    let get = |address: &str, path: &str| {
        http(address, &format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"))
    };
    let proxy = Serving::start(&["proxy", "--to", &server, "--reflect"]);
    for (path, reply) in [
        ("/v1/stock/7", r#""7 on None""#),
        ("/v1/stock/7?shelf=a", r#""7 on Some(\"a\")""#),
        ("/v1/shelves/b/stock/8", r#""8 on Some(\"b\")""#),
    ] {
        assert_eq!(get(&proxy.address, path), (200, reply.to_owned()), "{path}");
    }
    let (status, text) = get(&proxy.address, "/v1/stock/abc");
    assert!(status == 400 && text.contains("abc"), "{status} {text}");
    let answer = post(&proxy.address, "/v1/stock", r#"{"names": ["a", "b"], "count": 3}"#);
    assert_eq!(answer, (200, "6".to_owned()));

    let proxy = Serving::start(&["proxy", "--to", &server]);
    let (status, text) = get(&proxy.address, "/v1/stock/7");
    assert!(status == 404 && text.contains("a proxy learns paths from --reflect"), "{status} {text}");
}

#[test]
fn messages_are_rewritten_for_wires_of_other_frameworks() {
    let server = Serving::server();
    for behind in
        ["?wire=rpcx", "?wire=rpcx&codec=msgpack", "?wire=rpcx&codec=json", "?wire=baidu_std", "?wire=grpc"]
    {
        let proxy = server.proxied(behind, &demo_schema());
        let answer = post(&proxy.address, "/demo.v1.Greeter/Greet", ADA);
        assert_eq!(answer, (200, r#"{"text":"hello Ada"}"#.to_owned()), "{behind}");
        let answer =
            http(&proxy.address, "GET /v1/greetings/Ada HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        assert_eq!(answer, (200, r#"{"text":"hello Ada"}"#.to_owned()), "{behind}");
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"demo.v1.Greeter.Greet","params":["Ada"]}"#;
        let (status, body) = post(&proxy.address, "/", request);
        assert_eq!(status, 200, "{behind}: {body}");
        assert_eq!(
            serde_json::from_str::<Value>(&body).unwrap()["result"],
            json!({"text": "hello Ada"}),
            "{behind}"
        );
        let (status, body) = post(&proxy.address, "/demo.v1.Greeter/Greet", r#"{"unknown": 1}"#);
        assert_eq!(status, 400, "{behind}: {body}");
        let streamed = call(&proxy.address, &["demo.v1.Greeter/Chat", "-d", r#"{"text": "a"}"#]);
        match behind {
            "?wire=baidu_std" | "?wire=grpc" => assert_eq!(values(&streamed), [json!({"text": "A"})]),
            _ => assert_eq!(
                streamed.status.code(),
                Some(76),
                "{behind}: {}",
                String::from_utf8_lossy(&streamed.stderr)
            ),
        }
    }
}

#[test]
fn what_cannot_be_rewritten_is_refused_with_a_way_out() {
    let server = Serving::server();
    let proxy = server.proxied("?wire=rpcx&codec=proto", &[]);
    let (status, body) = post(&proxy.address, "/demo.v1.Greeter/Greet", ADA);
    assert!(status == 501 && body.contains("give the proxy a schema with --proto"), "{status} {body}");
    let proxy = server.proxied("?wire=grpc", &[&demo_schema()[..], &["--known-only"]].concat());
    let (status, body) = post(&proxy.address, "/other.Service/Method", "{}");
    assert!(status == 404 && body.contains("unknown service other.Service"), "{status} {body}");
}

#[test]
fn json_reaches_thrift_with_the_file_of_the_service() {
    let behind = greeter::serve();
    let path = format!("/{}", greeter::GREET);
    let proxied = |arguments: &[&str]| {
        Serving::start(&[&["proxy", "--to", &format!("{behind}?wire=thrift")], arguments].concat())
    };
    let proxy = proxied(&["--thrift", &greeter::file()]);
    assert_eq!(post(&proxy.address, &path, ADA), (200, r#""hello Ada""#.to_owned()));
    let by_name = r#"{"jsonrpc":"2.0","id":1,"method":"ThriftGreeter.greet","params":["Ada"]}"#;
    let (_, body) = post(&proxy.address, "/", by_name);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["result"], "hello Ada", "{body}");
    let (status, body) = post(&proxy.address, &path, r#"{"name": ""}"#);
    assert!(status == 400 && body.contains("name is empty"), "{status} {body}");
    let (status, body) = post(&proxy.address, &path, r#"{"nam": ""}"#);
    assert!(status == 400 && body.contains("did you mean name?"), "{status} {body}");
    let arguments = [greeter::GREET, "--wire", "thrift", "--thrift", &greeter::file(), "-d", ADA];
    assert_eq!(values(&call(&proxy.address, &arguments)), [json!("hello Ada")]);

    let proxy = proxied(&[]);
    assert_eq!(values(&call(&proxy.address, &arguments)), [json!("hello Ada")]);
    let (status, body) = post(&proxy.address, &path, ADA);
    assert!(status == 501 && body.contains("with --thrift"), "{status} {body}");
}

#[test]
fn settings_come_from_a_file_and_the_environment_too() {
    let server = Serving::server();
    let settings = file("proxy.toml");
    let text =
        format!("to = [\"{}\"]\nheader = [\"x-echo: of the file\"]\nknown-only = true\n", server.address);
    fs::write(&settings, text).unwrap();
    let path = settings.to_str().unwrap();
    let proxy = Serving::start(&[&["proxy", "--config", path], &demo_schema()[..]].concat());
    let done = call(&proxy.address, &[GREET, "-d", ADA, "-v"]);
    let shown = String::from_utf8_lossy(&done.stderr);
    assert!(shown.contains("x-echo: of the file"), "{shown}");

    fs::write(&settings, "too = \"a:1\"").unwrap();
    let failed = switchboard().args(["proxy", "--config", path]).output().unwrap();
    let shown = String::from_utf8_lossy(&failed.stderr);
    assert!(failed.status.code() == Some(1) && shown.contains("unknown setting \"too\""), "{shown}");
    let failed = switchboard().arg("proxy").env("SWITCHBOARD_PROXY_RATE", "many").output().unwrap();
    let shown = String::from_utf8_lossy(&failed.stderr);
    assert!(failed.status.code() == Some(1) && shown.contains("not a number"), "{shown}");

    let named = switchboard().args(["config", "default", "--proxy"]).output().unwrap();
    fs::write(&settings, &named.stdout).unwrap();
    let text = String::from_utf8_lossy(&named.stdout);
    assert!(text.contains("# deadline_max = \"30s\"") && text.contains("[limits]"), "{text}");
    let checked = switchboard().args(["config", "check", path, "--proxy"]).status().unwrap();
    assert!(checked.success());
    fs::write(&settings, "to = [\"a:1\"]\ntap_filter = [\"status=odd\"]\ntap = \"-\"\n").unwrap();
    let failed = switchboard().args(["config", "check", path, "--proxy"]).output().unwrap();
    let shown = String::from_utf8_lossy(&failed.stderr);
    assert!(failed.status.code() == Some(1) && shown.contains("--tap-filter"), "{shown}");
}

#[test]
fn metadata_and_statuses_go_both_ways() {
    let server = Serving::server();
    for behind in ["", "?wire=grpc", "?wire=connect", "?wire=rpcx", "?wire=baidu_std"] {
        let proxy = server.proxied(behind, &[&demo_schema()[..], &["-H", "x-echo: from the proxy"]].concat());
        let done = call(&proxy.address, &[GREET, "-d", ADA, "-H", "x-echo: hi", "-v"]);
        let shown = String::from_utf8_lossy(&done.stderr);
        assert!(shown.contains("x-echo: from the proxy"), "{behind}: {shown}");
        assert!(shown.contains("x-echo-trailer: from the proxy"), "{behind}: {shown}");
        let refused = call(&proxy.address, &[GREET, "-d", "{}"]);
        let shown = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(67), "{behind}: {shown}");
        assert!(shown.contains("name is empty: say whom to greet"), "{behind}: {shown}");
        let late = call(
            &proxy.address,
            &["demo.v1.Greeter/Watch", "-d", r#"{"count": 2, "intervalMs": 60000}"#, "--timeout", "300ms"],
        );
        let expected = if behind == "?wire=rpcx" { 76 } else { 68 };
        assert_eq!(late.status.code(), Some(expected), "{behind}: {}", String::from_utf8_lossy(&late.stderr));
    }
}

#[test]
fn several_servers_share_the_calls_and_one_that_is_gone_is_left_out() {
    let (first, second) = (Serving::server(), Serving::server());
    let proxy =
        Serving::start(&["proxy", "--to", &first.address, "--to", &format!("{}?wire=grpc", second.address)]);
    let greet = || values(&call(&proxy.address, &[&[GREET, "-d", ADA][..], &demo_schema()].concat()));
    assert_eq!(greet(), [json!({"text": "hello Ada"})]);
    first.stop();
    for _ in 0..4 {
        assert_eq!(greet(), [json!({"text": "hello Ada"})]);
    }
}

#[test]
fn a_registry_can_be_the_target() {
    let server = Serving::server();
    let fleet = file("proxy-fleet.json");
    let instance = json!({"service": "demo.v1.Greeter", "address": format!("tcp://{}", server.address)});
    fs::write(&fleet, json!({ "instances": [instance] }).to_string()).unwrap();
    let to = format!("file:{}?wire=grpc", fleet.display());
    for more in [&["--service", "demo.v1.Greeter"][..], &demo_schema()] {
        let proxy = Serving::start(&[&["proxy", "--to", &to], more].concat());
        let arguments = [&[GREET, "-d", ADA][..], &demo_schema()].concat();
        assert_eq!(values(&call(&proxy.address, &arguments)), [json!({"text": "hello Ada"})]);
    }
    let output = switchboard().args(["proxy", "--to", &to, "--listen", "127.0.0.1:0"]).output().unwrap();
    let shown = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && shown.contains("name them with --service"), "{shown}");
}

#[test]
fn calls_are_tapped_with_filter_and_redaction() {
    let server = Serving::server();
    let (all, failed) = (file("proxy-all.jsonl"), file("proxy-failed.jsonl"));
    let proxies = [
        server.proxied("", &["--tap", all.to_str().unwrap()]),
        server.proxied(
            "?wire=grpc",
            &[
                &[
                    "--tap",
                    failed.to_str().unwrap(),
                    "--tap-filter",
                    "demo.v1.Greeter/*",
                    "--tap-filter",
                    "status=error",
                ][..],
                &["--tap-redact", "text", "--tap-redact", "x_tenant"],
                &demo_schema(),
            ]
            .concat(),
        ),
    ];
    for proxy in &proxies {
        for (method, data, _) in every_kind() {
            let headers = ["-H", "authorization: Bearer secret", "-H", "x-tenant: acme"];
            call(&proxy.address, &[&[method, "-d", data][..], &headers, &demo_schema()].concat());
        }
        call(&proxy.address, &[&[GREET, "-d", "{}", "-H", "x-tenant: acme"][..], &demo_schema()].concat());
    }
    proxies.into_iter().for_each(Serving::stop);
    use std::os::unix::fs::PermissionsExt;
    for file in [&all, &failed] {
        let mode = std::fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    let all = lines(&all);
    assert_eq!(all.len(), 5, "{all:?}");
    let greet = &all[0];
    assert_eq!(greet["wire"], "grpc", "{greet}");
    assert_eq!(greet["method"], GREET, "{greet}");
    assert_eq!(greet["metadata"], json!({"authorization": "[redacted]", "x-tenant": ["acme"]}), "{greet}");
    assert_eq!(greet["requests"], json!([{"bytes": 5, "withheld": "not decoded"}]), "{greet}");
    assert_eq!(greet["status"], "ok", "{greet}");
    assert!(greet["micros"].as_u64().unwrap() > 0, "{greet}");
    assert_eq!(all[3]["responses"].as_array().unwrap().len(), 2, "{}", all[3]);
    assert_eq!(
        (&all[4]["status"], &all[4]["message"]),
        (&json!("invalid_argument"), &json!("name is empty: say whom to greet"))
    );
    let [failed] = &lines(&failed)[..] else { panic!("{failed:?}") };
    assert_eq!((&failed["request"], &failed["status"]), (&json!({}), &json!("invalid_argument")), "{failed}");
    assert_eq!(failed["metadata"], json!({"x-tenant": "[redacted]"}), "{failed}");
}

#[test]
fn a_tap_on_standard_output_has_it_for_itself() {
    let server = Serving::server();
    let to = format!("{}?wire=connect", server.address);
    let mut command = switchboard();
    command.args(["proxy", "--to", &to, "--listen", "127.0.0.1:0", "--workers", "1", "--tap"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.find_map(|line| Some(line.strip_prefix("listening on http://")?.to_owned())).unwrap();
    assert_eq!(post(&address, "/demo.v1.Greeter/Greet", r#"{"name": "Ada", "token": "x"}"#).0, 200);
    assert_eq!(post(&address, "/demo.v1.Greeter/Greet", ADA).0, 200);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(2).map(Result::unwrap);
    let lines: Vec<Value> = lines.map(|line| serde_json::from_str(&line).unwrap()).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(lines[0]["request"], json!({"name": "Ada", "token": "[redacted]"}));
    assert_eq!(
        (&lines[1]["wire"], &lines[1]["response"]),
        (&json!("connect"), &json!({"text": "hello Ada"}))
    );
}

#[test]
fn limits_hold_for_what_goes_through() {
    let server = Serving::server();
    let proxy = server.proxied("?wire=grpc", &["--rate", "1", "--limit", "message_bytes_max=64KiB"]);
    let greet = [&[GREET, "-d", ADA][..], &demo_schema()].concat();
    let codes: Vec<_> = (0..3).map(|_| call(&proxy.address, &greet).status.code().unwrap()).collect();
    assert!(codes[0] == 0 && codes.contains(&72), "{codes:?}");
}

#[test]
fn mistakes_say_what_to_do() {
    for (arguments, code, expected) in [
        (&["--to", "127.0.0.1:1?wire=soap"][..], 1, "expected"),
        (&["--to", "a:1?retries=1", "--to", "b:1?retries=2"], 1, "all servers must have the same"),
        (&["--to", "a:1", "--known-only"], 1, "--known-only needs a schema"),
        (&["--to", "a:1", "--proto", "nowhere.proto"], 1, "nowhere.proto"),
        (&["--to", "127.0.0.1:1", "--reflect"], 1, "reflection"),
        (&["--to", "a:1", "--tap-filter", "x"], 2, "--tap"),
        (&["--to", "a:1", "--tap", "--tap-filter", "status=lost"], 2, "status=error"),
        (&["--to", "a:1", "--tap", "/nowhere/x"], 1, "/nowhere/x"),
        (&[], 1, "--to"),
    ] {
        let mut command = switchboard();
        let output = command.args(["proxy", "--listen", "127.0.0.1:0"]).args(arguments).output().unwrap();
        let shown = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(code) && shown.contains(expected), "{arguments:?}: {shown}");
    }
}

#[test]
fn the_example_of_the_page_works() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/proxy.md")).unwrap();
    let block = page.split("```").find_map(|block| block.strip_prefix("console\n")).unwrap();
    let tap = file("proxy-page.jsonl");
    let mut running: Vec<(String, Serving)> = Vec::new();
    let mut lines = block.lines().peekable();
    while let Some(line) = lines.next() {
        let mut line =
            line.strip_prefix("$ switchboard ").unwrap().replace("calls.jsonl", tap.to_str().unwrap());
        for (written, serving) in &running {
            line = line.replace(written, &serving.address);
        }
        let words = words(&line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if let Some(at) = words.iter().position(|word| *word == "--listen") {
            let others = [&words[..at], &words[at + 2..]].concat();
            running.push((words[at + 1].to_owned(), Serving::start(&others)));
            continue;
        }
        let output = switchboard().args(words).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            shown.trim_end(),
            lines.next().unwrap(),
            "{line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    running.into_iter().rev().for_each(|(_, serving)| serving.stop());
    let tapped = fs::read_to_string(tap).unwrap();
    let greeted: Vec<Value> = tapped.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shown = page.split("```").find_map(|block| block.strip_prefix("json\n")).unwrap();
    let shown: Value = serde_json::from_str(shown).unwrap();
    let last = greeted.last().unwrap();
    for name in ["wire", "method", "metadata", "request", "response", "status"] {
        let (last, shown) = (&last[name], &shown[name]);
        assert_eq!(last, shown, "{name}");
    }
}

/// Words of a line, of which some stand between single quotes.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    parts
        .flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        })
        .collect()
}
