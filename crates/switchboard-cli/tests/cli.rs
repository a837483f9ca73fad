//! The program from the outside: help, errors, exit codes, the demo, and how a server starts and ends.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use serde_json::Value;
use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

fn switchboard() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchboard"));
    command.env_remove("COLUMNS").stdin(Stdio::null());
    command
}

fn run(line: &str) -> Output {
    switchboard().args(line.split_whitespace()).output().expect("the program was built for this test")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Compares with a file in `tests/cli`; with `UPDATE_EXPECTED=1` writes it instead.
fn expect(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli").join(file);
    if env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{file}: if this is as it should be, run again with UPDATE_EXPECTED=1");
}

#[test]
fn help_is_as_expected() {
    for (line, file) in [
        ("--help", "help.txt"),
        ("demo --help", "demo.txt"),
        ("serve --help", "serve.txt"),
        ("call --help", "call.txt"),
        ("config --help", "config.txt"),
        ("replay --help", "replay.txt"),
        ("bus --help", "bus.txt"),
        ("bus sub --help", "bus_sub.txt"),
        ("push --help", "push.txt"),
        ("push serve --help", "push_serve.txt"),
        ("push send --help", "push_send.txt"),
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(0), "{line}");
        expect(file, &stdout(&output));
    }
}

#[test]
fn strict_fields_refuse_unknown_fields_of_protobuf_messages() {
    let post = |address: &str, method: &str, header: &str, body: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "POST /demo.v1.Greeter/{method} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{header}\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    };
    let mut lenient = Running::start("serve --listen 127.0.0.1:0");
    let mut strict = Running::start("serve --listen 127.0.0.1:0 --strict-fields");
    let addresses = [&mut lenient, &mut strict].map(|server| server.line("listening on http://"));
    let header = |value: &str| format!("switchboard-strict-fields: {value}\r\n");
    for (server, header, refused) in [
        (&addresses[0], String::new(), false),
        (&addresses[0], header("true"), true),
        (&addresses[1], String::new(), true),
        (&addresses[1], header("false"), false),
    ] {
        for (method, body, error) in [
            ("Greet", r#"{"name": "Ada", "nmae": "Bob"}"#, "unknown field nmae; did you mean name?"),
            // A stream of requests.
            ("Sum", "{\"value\": 1}\n{\"valeu\": 2}\n", "unknown field valeu; did you mean value?"),
        ] {
            let response = post(server, method, &header, body);
            assert_eq!(response.starts_with("HTTP/1.1 400"), refused, "{response}");
            assert_eq!(response.contains(error), refused, "{response}");
        }
    }
}

#[test]
fn usage_errors_exit_with_2_and_name_the_expected_input() {
    let mut all = String::new();
    for line in [
        "",
        "sevre",
        "serve --lisen 127.0.0.1:0",
        "serve --listen nowhere",
        "serve --limit calls_max",
        "serve --limit calls_max=0",
        "serve --sniff-timeout 300",
        "serve --drain-timeout soon",
        "serve --workers 0",
        "serve --spin-us 1000001",
        "serve --log loud",
        "serve --register 127.0.0.1:7000",
        "serve --register-as colour=red",
        "push serve --open --hs256-key-file key",
        "push serve --room live/7 --room=",
        "push send",
        "push watch localhost:8080 live/7 --after 7",
        "demo --onse",
        "demo --listen quic://127.0.0.1:1",
        "serve --tls-cert cert.pem",
        "serve --tls-client-ca ca.pem",
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{line}");
        if !line.is_empty() {
            all.push_str(&format!("$ switchboard {line}\n{}\n", stderr(&output)));
        }
    }
    expect("usage.txt", &all);
}

#[test]
fn limits_are_printed_with_their_sources() {
    let output = run("serve --print-limits --limit message_bytes_max=8MiB --sniff-timeout 300ms");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let table = stdout(&output);
    let row = |name: &str| {
        let line = table.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().skip(1).take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("message_bytes_max"), ["8MiB", "flag"], "{table}");
    assert_eq!(row("sniff_timeout"), ["300ms", "flag"], "{table}");
    assert_eq!(row("drain_timeout"), ["30s", "default"], "{table}");
}

#[test]
fn demo_calls_every_wire_and_compares_the_answers() {
    let output = run("demo --once");
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let table = stdout(&output);
    for wire in [
        "native, TCP",
        "native, WebSocket",
        "native, in process",
        "direct, in process",
        "gRPC, HTTP/2",
        "gRPC-Web, HTTP/1.1",
        "Connect proto, HTTP/1.1",
        "Connect proto, HTTP/2",
        "Connect JSON, HTTP/1.1",
        "Connect JSON, HTTP/2",
        "Connect GET, HTTP/1.1",
        "HTTP/JSON, HTTP/1.1",
        "JSON-RPC, HTTP/1.1",
        "JSON-RPC, WebSocket",
        "JSON-RPC, TCP",
        "erpc, TCP",
        "hulu, TCP",
        "rpcx proto, TCP",
        "kiss-rpc, TCP",
        "rpcx MessagePack, TCP",
        "sofa, TCP",
        "Thrift binary, framed",
        "Thrift binary, buffered",
        "Thrift compact, framed",
        "Thrift header",
    ] {
        let rows: Vec<_> = table.lines().filter(|line| line.starts_with(wire)).collect();
        assert!(rows.iter().any(|row| row.contains("Greeter.Greet  hello Ada")), "{wire}: {table}");
    }
    for subscriber in ["native", "ZeroMQ SUB", "NATS", "Redis"] {
        let row = table.lines().find(|line| line.starts_with(&format!("topic, {subscriber}, TCP"))).unwrap();
        assert!(row.contains("subscribe      12.5"), "{row}");
    }
    for member in ["server-sent events", "goim, TCP", "MQTT, TCP"] {
        let row = table.lines().find(|line| line.starts_with(&format!("room, {member}"))).unwrap();
        assert!(row.contains("join           goal"), "{row}");
    }
    assert!(table.contains("Bench.Message  OK 100, 581 bytes"), "{table}");
    assert!(table.contains("1. One port for every caller by ada"), "{table}");
    assert!(!table.contains("WRONG") && !table.contains("FAILED"), "{table}");
    let wide = table.lines().find(|line| line.chars().count() > 80 && !line.contains("by "));
    assert_eq!(wide, None, "{table}");
}

#[test]
fn demo_prints_json_for_programs() {
    let output = run("demo --once --json");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("nothing but JSON is printed");
    assert!(
        rows.len() > 30 && rows.iter().all(|row| row["ok"] == true && row["error"].is_null()),
        "{rows:?}"
    );
    assert!(rows.iter().all(|row| row["us"].as_f64().unwrap() > 0.0), "{rows:?}");
    // `gRPC-Web` for grpc-web, `HTTP/JSON` for http-json.
    let plain = |text: &str| {
        text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
    };
    for spec in switchboard::wire::WIRES.iter().filter(|spec| spec.is_served()) {
        let of_wire = |row: &Value| plain(row["wire"].as_str().unwrap()).starts_with(&plain(spec.name));
        assert!(rows.iter().any(of_wire), "{} is not in the demo", spec.name);
    }
    for wire in ["native, TCP", "gRPC, HTTP/2"] {
        for method in ["Greeter.Greet", "Greeter.Watch", "Greeter.Sum", "Greeter.Chat"] {
            let found = rows.iter().any(|row| row["wire"] == wire && row["method"] == method);
            assert!(found, "{wire} {method}: {rows:?}");
        }
    }
}

#[test]
fn a_taken_port_is_named_with_a_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for command in ["demo", "serve"] {
        let output = run(&format!("{command} --listen {address}"));
        assert_eq!(output.status.code(), Some(1), "{command}");
        let error = stderr(&output);
        assert!(error.contains(&format!("listen on tcp://{address}")), "{error}");
        assert!(error.contains("or choose another with --listen"), "{error}");
    }
}

#[test]
fn demo_needs_an_address_that_foreign_clients_dial() {
    let output = run("demo --once --listen memory://elsewhere");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the demo needs HOST:PORT"), "{}", stderr(&output));
}

/// A program that is killed when a test ends early.
struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Running {
    fn start(line: &str) -> Running {
        let mut command = switchboard();
        command.args(line.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Running { child, lines }
    }

    /// The next line of standard output with `start`, the rest of it.
    fn line(&mut self, start: &str) -> String {
        self.lines
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| line.strip_prefix(start).map(str::to_owned))
            .unwrap_or_else(|| panic!("no line began with {start:?}"))
    }

    fn send(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Exit code and standard error after the signal.
    fn signal(mut self, signal: rustix::process::Signal) -> (Option<i32>, String) {
        self.send(signal);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut text).unwrap();
        (self.child.wait().unwrap().code(), text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn serve_names_every_address_and_drains_on_both_signals() {
    let socket = env::temp_dir().join(format!("switchboard-cli-{}.sock", std::process::id()));
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let line = format!("serve --listen 127.0.0.1:0 --listen unix:{} --workers 1", socket.display());
        let mut server = Running::start(&line);
        let address = server.line("listening on http://");
        assert!(address.starts_with("127.0.0.1:") && !address.ends_with(":0"), "{address}");
        assert_eq!(server.line("listening on unix:"), socket.display().to_string());
        std::net::TcpStream::connect(&address).unwrap();
        let (code, log) = server.signal(signal);
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("drained"), "{log}");
    }
}

#[test]
fn calls_that_had_to_be_ended_are_counted() {
    let mut server = Running::start("serve --listen 127.0.0.1:0 --drain-timeout 0ms");
    let address = server.line("listening on http://");
    let mut caller = std::net::TcpStream::connect(address).unwrap();
    // An answer proves that the server has the connection; the call that follows it does not end.
    let request = "POST /demo.v1.Greeter/Watch HTTP/1.1\r\nhost: a\r\n\
                   content-type: application/connect+json\r\n\
                   content-length: 39\r\n\r\n\0\0\0\0\x22{\"count\":10000,\"intervalMs\":60000}";
    std::io::Write::write_all(&mut caller, request.as_bytes()).unwrap();
    assert!(std::io::Read::read(&mut caller, &mut [0; 512]).unwrap() > 0);
    let (code, log) = server.signal(rustix::process::Signal::INT);
    assert_eq!(code, Some(0), "{log}");
    let aborted = "drained; aborted 1 call of demo.v1.Greeter/Watch (connect)";
    assert!(log.contains(aborted), "{log}");
}

#[test]
fn serve_shows_admin_pages_and_logs_calls() {
    let line = "serve --listen 127.0.0.1:0 --admin 127.0.0.1:0 --access-log 1 --workers 1";
    let mut server = Running::start(line);
    let address = server.line("listening on http://");
    let admin = server.line("admin pages on http://");
    assert!(get(&admin, "/status").contains("state"));
    assert!(get(&admin, "/health/ready").starts_with("HTTP/1.1 200"));
    // Not on the public port.
    assert!(get(&address, "/status").starts_with("HTTP/1.1 404"), "{}", get(&address, "/status"));
    let mut caller = std::net::TcpStream::connect(&address).unwrap();
    let request = "POST /demo.v1.Greeter/Greet HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\
                   content-type: application/json\r\ncontent-length: 14\r\n\r\n{\"name\":\"Ada\"}";
    std::io::Write::write_all(&mut caller, request.as_bytes()).unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut caller, &mut answer).unwrap();
    assert!(answer.contains("Ada"), "{answer}");
    let (code, log) = server.signal(rustix::process::Signal::TERM);
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("demo.v1.Greeter/Greet") && log.contains("took_us"), "{log}");
}

/// A file with this content, for one test.
fn file(name: &str, content: &str) -> String {
    let path = env::temp_dir().join(format!("switchboard-cli-{}-{name}", std::process::id()));
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}

#[test]
fn settings_are_checked_explained_and_printed() {
    let default = run("config default");
    let text = stdout(&default);
    assert!(text.contains("# listen = [\"127.0.0.1:8080\"]") && text.contains("[limits]"), "{text}");
    // The output is a valid file, also with every setting set.
    let all: String = text
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(setting) if setting.contains(" = ") => format!("{setting}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    for (name, content) in [("default.toml", &text), ("all.toml", &all)] {
        let output = run(&format!("config check {}", file(name, content)));
        assert_eq!(output.status.code(), Some(0), "{name}: {}{content}", stderr(&output));
    }
    let wrong = file("wrong.toml", "lisen = [\"127.0.0.1:0\"]\n");
    for line in [format!("config check {wrong}"), format!("serve --config {wrong}")] {
        let output = run(&line);
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(stderr(&output).contains("did you mean listen?"), "{line}: {}", stderr(&output));
    }
    let good = file("good.toml", "slow_call = \"200ms\"\n[limits]\ncalls_max = 7\n");
    let explained = stdout(&run(&format!("config explain {good}")));
    let row = explained.lines().find(|line| line.starts_with("limits.calls_max")).unwrap_or_default();
    assert!(row.contains("7 ") && row.contains("good.toml"), "{explained}");
    let limits =
        stdout(&run(&format!("serve --config {good} --print-limits --limit metadata_entries_max=9")));
    let row = |name: &str| limits.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(row("calls_max").contains("file"), "{limits}");
    assert!(row("metadata_entries_max").contains("flag"), "{limits}");
}

#[test]
fn settings_are_reloaded_as_far_as_they_can_be() {
    for command in ["serve", "proxy --to 127.0.0.1:1"] {
        let path = file("reload.toml", "slow_call = \"100ms\"\nadmin = \"127.0.0.1:0\"\n");
        let mut server = Running::start(&format!("{command} --listen 127.0.0.1:0 --config {path}"));
        server.line("listening on http://");
        let admin = server.line("admin pages on http://");
        let flags = || get(&admin, "/flags?format=json");
        assert!(flags().contains("\"value\": \"100ms\""), "{}", flags());
        std::fs::write(&path, "slow_call = \"300ms\"\nadmin = \"127.0.0.1:0\"\nworkers = 3\n").unwrap();
        server.send(rustix::process::Signal::HUP);
        let start = std::time::Instant::now();
        while !flags().contains("\"value\": \"300ms\"") {
            assert!(start.elapsed() < std::time::Duration::from_secs(30), "{}", flags());
            std::thread::yield_now();
        }
        let (code, log) = server.signal(rustix::process::Signal::TERM);
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("workers changed: it takes effect with the next start"), "{log}");
    }
}

/// Returns head and body of the response to a GET of the path.
fn get(address: &str, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    answer
}

#[test]
fn serve_has_the_page_and_everything_that_it_names() {
    let mut server = Running::start("serve --listen 127.0.0.1:0");
    let address = server.line("listening on http://");
    let page = get(&address, "/");
    assert!(page.contains("content-security-policy: default-src 'none'"), "{page}");
    let names = page
        .split(['"'])
        .filter(|text| text.ends_with(".mjs") || text.ends_with(".css") || text.ends_with(".svg"));
    let mut named = 0;
    for name in names {
        let file = get(&address, &format!("/{name}"));
        assert!(
            file.starts_with("HTTP/1.1 200 ") && file.contains("x-content-type-options: nosniff"),
            "{name}: {file}"
        );
        named += 1;
    }
    assert!(named >= 6, "{page}");
}

#[test]
fn demo_serves_on_after_the_table() {
    let mut demo = Running::start("demo --listen 127.0.0.1:0");
    let page = demo.line("  http://");
    assert!(
        get(page.trim_end_matches('/'), "/").contains("<title>Switchboard in the browser</title>"),
        "{page}"
    );
    let command = demo.line("  curl ");
    assert!(command.contains("/v1/greetings/Ada"), "{command}");
    demo.line("Ctrl-C");
    let (code, log) = demo.signal(rustix::process::Signal::INT);
    assert_eq!(code, Some(0), "{log}");
}
