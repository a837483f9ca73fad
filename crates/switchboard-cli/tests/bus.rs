//! `switchboard bus` with a server of its own: `switchboard serve --topics`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Lines},
    net::TcpListener,
    process::{Child, ChildStderr, Command, Output, Stdio},
};
use support::{Server, switchboard};

fn bus(address: &str, verb: &str, rest: &[&str]) -> Command {
    let mut command = switchboard();
    command.args(["bus", verb, address]).args(rest);
    command
}

fn run(address: &str, verb: &str, rest: &[&str]) -> Output {
    bus(address, verb, rest).output().unwrap()
}

/// Standard output of a command that succeeds.
fn out(address: &str, verb: &str, rest: &[&str]) -> String {
    let output = run(address, verb, rest);
    assert!(output.status.success(), "{verb} {rest:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Starts a command that receives entries, and waits until it does.
fn receiver(address: &str, verb: &str, rest: &[&str]) -> (Child, Lines<BufReader<ChildStderr>>) {
    let mut command = bus(address, verb, rest);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    assert!(line.starts_with("subscribed to") || line.starts_with("replying to"), "{line}");
    (child, lines)
}

/// Starts a command that binds port 0 of ZeroMQ, and returns the address that others connect to.
fn bound(verb: &str, rest: &[&str]) -> (Child, Lines<BufReader<ChildStderr>>, String) {
    let mut command = bus("zmq+tcp://127.0.0.1:0", verb, rest);
    let mut child = command.arg("--bind").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let endpoint = line.strip_prefix("bound to ").unwrap();
    (child, lines, format!("zmq+{endpoint}"))
}

fn end(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn entries_in_a_folder_survive_a_killed_server() {
    let folder = std::env::temp_dir().join(format!("switchboard-topics-folder-{}", std::process::id()));
    let arguments = ["--topics-folder", folder.to_str().unwrap()];
    let server = Server::with(&arguments);
    let positions = ["1", "2"].map(|number| out(&server.address, "pub", &["jobs", number]));
    let [first, second] = positions.each_ref().map(|position| position.trim());
    // Ends it with SIGKILL.
    drop(server);
    let server = Server::with(&arguments);
    let rest = out(&server.address, "sub", &["jobs", "--from", first, "--count", "1"]);
    assert_eq!(rest, format!("jobs {second} 2\n"));
    drop(server);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn entries_are_published_received_and_kept() {
    let server = Server::with(&["--topics"]);
    let (child, _lines) = receiver(&server.address, "sub", &["quotes/*", "--count", "2"]);
    let positions = ["1.5", "2.5", "3.5"].map(|price| out(&server.address, "pub", &["quotes/acme", price]));
    let [first, second, third] = positions.each_ref().map(|position| position.trim());
    let expected = format!("quotes/acme {first} 1.5\nquotes/acme {second} 2.5\n");
    assert_eq!(end(child), (Some(0), expected));
    let kept = out(&server.address, "sub", &["quotes/acme", "--from", "last:2", "--count", "2"]);
    assert_eq!(kept, format!("quotes/acme {second} 2.5\nquotes/acme {third} 3.5\n"));
    let later = out(&server.address, "sub", &["quotes/acme", "--from", first, "--count", "1"]);
    assert_eq!(later, format!("quotes/acme {second} 2.5\n"));
    let topics = out(&server.address, "topics", &["quotes/>", "--json"]);
    let listed = &json_lines(&topics)[0];
    assert_eq!((&listed["topic"], &listed["entries"]), (&json!("quotes/acme"), &json!(3)));
}

#[test]
fn a_group_receives_unacknowledged_entries_again() {
    let server = Server::with(&["--topics"]);
    let durable = ["jobs", "--group", "workers", "--durable", "--count"];
    // The cursor exists from here on.
    let (child, _lines) = receiver(&server.address, "pull", &[&durable[..], &["1"]].concat());
    for job in ["a", "b", "c"] {
        out(&server.address, "push", &["jobs", job]);
    }
    let payloads = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
    };
    let (code, first) = end(child);
    assert_eq!((code, payloads(&first)), (Some(0), vec!["a".to_owned()]));
    let rest = out(&server.address, "pull", &[&durable[..], &["2"]].concat());
    assert_eq!(payloads(&rest), ["b", "c"]);
    // All are acknowledged.
    let ended = run(&server.address, "pull", &[&durable[..], &["1", "--timeout", "300ms"]].concat());
    assert_eq!((ended.status.code(), ended.stdout), (Some(68), Vec::new()));
}

#[test]
fn requests_are_replied_to() {
    let server = Server::with(&["--topics"]);
    let (child, _lines) = receiver(&server.address, "rep", &["echo", "--echo", "--count", "2"]);
    assert_eq!(out(&server.address, "req", &["echo", "hello"]), "hello\n");
    let reply = out(&server.address, "req", &["echo", r#"{"a":1}"#, "--codec", "json", "--json"]);
    assert_eq!(json_lines(&reply), [json!({"topic": "echo", "codec": "json", "payload": {"a": 1}})]);
    assert_eq!(end(child).0, Some(0));
}

#[test]
fn sockets_of_zeromq_have_the_verbs() {
    let (puller, _lines, address) = bound("pull", &["--count", "2"]);
    assert_eq!(out(&address, "push", &["job"]), "");
    assert_eq!(out(&address, "push", &["name", "job"]), "");
    assert_eq!(end(puller), (Some(0), "job\nname job\n".to_owned()));
    let (subscriber, _lines, address) = bound("sub", &["quotes/", "--count", "1", "--json"]);
    out(&address, "pub", &["quotes/acme", "1.5"]);
    let (code, printed) = end(subscriber);
    assert_eq!(
        (code, json_lines(&printed)),
        (Some(0), vec![json!({"topic": "quotes/acme", "payload": "1.5"})])
    );
    let (replier, _lines, address) = bound("rep", &["--echo", "--count", "1"]);
    assert_eq!(out(&address, "req", &["hello"]), "hello\n");
    assert_eq!(end(replier), (Some(0), "hello\n".to_owned()));
}

#[test]
fn a_signal_ends_a_subscription() {
    let server = Server::with(&["--topics"]);
    let (child, _lines) = receiver(&server.address, "sub", &["t"]);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(end(child), (Some(0), String::new()));
}

#[test]
fn json_has_codecs_headers_and_keys() {
    let server = Server::with(&["--topics"]);
    let sent = ["t", r#"{"n":7}"#, "--codec", "json", "-H", "trace: 1", "--key", "k", "--id", "i", "--json"];
    let published = &json_lines(&out(&server.address, "pub", &sent))[0];
    assert_eq!(published["offset"], 1);
    // The second one with the id is not appended.
    assert_eq!(json_lines(&out(&server.address, "pub", &sent))[0], *published);
    let entries = out(&server.address, "sub", &["t", "--from", "last:9", "--count", "1", "--json"]);
    let expected = json!({
        "topic": "t", "position": published["position"], "offset": 1, "codec": "json", "payload": {"n": 7},
        "key": "k", "id": "i", "headers": {"trace": ["1"]},
    });
    assert_eq!(json_lines(&entries), [expected]);
}

#[test]
fn failures_have_exit_codes_and_are_json_on_request() {
    let server = Server::with(&["--topics"]);
    let plain = Server::start();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for (address, rest, code, name) in [
        (server.address.as_str(), &["$private", "x"][..], 67, "invalid_argument"),
        (&server.address, &["a/*", "x"], 67, "invalid_argument"),
        (&plain.address, &["t", "x"], 76, "unimplemented"),
        (&closed, &["t", "x"], 78, "unavailable"),
        (&format!("nats://{closed}"), &["t", "x"], 78, "unavailable"),
        (&format!("redis://{closed}"), &["t", "x"], 78, "unavailable"),
        // Neither a server of NATS nor one of Redis.
        (&format!("redis://{}", plain.address), &["t", "x"], 78, "unavailable"),
        ("rediss://127.0.0.1:6379", &["t", "x"], 2, "invalid_argument"),
        (&format!("zmq+tcp://{closed}"), &["t", "x", "--timeout", "100ms"], 68, "deadline_exceeded"),
        ("zmq+tcp://127.0.0.1", &["t", "x"], 2, "invalid_argument"),
        ("nats://127.0.0.1:x", &["t", "x"], 2, "invalid_argument"),
        ("localhost", &["t", "x"], 2, "invalid_argument"),
    ] {
        let output = run(address, "pub", rest);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout), (Some(code), Vec::new()), "{address}: {text}");
        assert!(text.starts_with("switchboard: "), "{text}");
        let output = run(address, "pub", &[rest, &["--json"]].concat());
        assert_eq!((output.status.code(), output.stderr), (Some(code), Vec::new()), "{address}");
        let object: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(object["status"]["code"], name, "{object}");
    }
    let unanswered = run(&server.address, "req", &["t", "x", "--timeout", "100ms"]);
    assert_eq!(unanswered.status.code(), Some(78), "no subscriber: {unanswered:?}");
    assert_eq!(run(&server.address, "sub", &["t", "--ack"]).status.code(), Some(2));
}
