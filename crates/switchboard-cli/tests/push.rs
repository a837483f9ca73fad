//! `switchboard push` with a gateway of its own: `switchboard push serve`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Lines, Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, ChildStderr, ChildStdout, Output, Stdio},
};
use support::switchboard;

/// Secret of tokens, and a token of `ali` that is valid for a century.
const SECRET: &str = "0123456789abcdef0123456789abcdef";
const ALI: &str = concat!(
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbGkiLCJleHAiOjQwMDAwMDAwMDB9.",
    "tw02YwREsDukMYhHmPKKESBhnH_0EBm0uD-I2JQS66I"
);

/// `switchboard push serve` on a free port, killed at the end of the test.
struct Gateway {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    address: String,
}

impl Gateway {
    fn with(arguments: &[&str]) -> Gateway {
        let mut command = switchboard();
        command.args(["push", "serve", "--listen", "127.0.0.1:0", "--workers", "1"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let address = first.strip_prefix("listening on http://").unwrap().to_owned();
        Gateway { child, lines, address }
    }

    /// Returns the printed lines, up to the last one.
    fn printed(&mut self) -> Vec<String> {
        let lines = self.lines.by_ref().map(Result::unwrap);
        lines.take_while(|line| !line.starts_with("Ctrl-C")).collect()
    }

    fn push(&self, verb: &str, rest: &[&str]) -> Output {
        switchboard().args(["push", verb, &self.address]).args(rest).output().unwrap()
    }

    /// Standard output of a command that succeeds.
    fn out(&self, verb: &str, rest: &[&str]) -> String {
        let output = self.push(verb, rest);
        assert!(output.status.success(), "{verb} {rest:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts `watch`, and waits until it is in its rooms.
    fn watch(&self, rest: &[&str]) -> (Child, Lines<BufReader<ChildStderr>>) {
        let mut command = switchboard();
        command.args(["push", "watch", &self.address]).args(rest);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        assert!(line.starts_with("connected with key "), "{line}");
        (child, lines)
    }

    /// Returns the response to a request of HTTP, the head in front of the body.
    fn http(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let host = &self.address;
        let request = format!(
            "{head} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn end(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Writes a file that only this test has.
fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("switchboard-push-{name}-{}", std::process::id()));
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn messages_reach_the_members_of_a_room_with_their_positions() {
    let gateway = Gateway::with(&["--open"]);
    let (child, _lines) = gateway.watch(&["live/7", "--count", "2"]);
    let first = gateway.out("send", &["live/7", "half time"]);
    let second = gateway.out("send", &["live/7", r#"{"goals":2}"#, "--codec", "json", "--json"]);
    let first = first.trim();
    let (epoch, offset) = first.split_once(':').unwrap();
    assert_eq!(offset, "1");
    let position = format!("{epoch}:2");
    assert_eq!(json_lines(&second), [json!({"room": "live/7", "position": position, "offset": 2})]);
    let expected = format!("room/live/7 {first} half time\nroom/live/7 {position} {{\"goals\":2}}\n");
    assert_eq!(end(child), (Some(0), expected));
    let kept = gateway.out("watch", &["live/7", "--last", "1", "--count", "1", "--json"]);
    let entry = json_lines(&kept).pop().unwrap();
    assert_eq!((&entry["topic"], &entry["payload"]), (&json!("room/live/7"), &json!({"goals": 2})));
    let later = gateway.out("watch", &["live/7", "--after", first, "--count", "1"]);
    assert_eq!(later, format!("room/live/7 {position} {{\"goals\":2}}\n"));
}

#[test]
fn users_keys_patterns_and_all_devices_are_targets() {
    let gateway = Gateway::with(&["--open"]);
    let flags = ["live/7", "--user", "42", "--key", "phone", "--accepts", "5", "--count", "4", "--json"];
    let (child, _lines) = {
        let mut command = switchboard();
        command.args(["push", "watch", &gateway.address]).args(flags);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let connected: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(connected, json!({"connected": {"key": "phone", "user": "42"}}));
        (child, lines)
    };
    // The filter of the device.
    gateway.out("send", &["live/7", "no", "--operation", "6"]);
    let sent = gateway.out("send", &["--user", "42", "--key", "phone", "--rooms", "live/*", "--all", "hi"]);
    let kinds: Vec<_> = sent.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(kinds, ["user", "key", "rooms", "all"], "{sent}");
    assert!(sent.contains("rooms live/* 1 room\n"), "{sent}");
    let mut child = child;
    let entries: Vec<Value> = _lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    let mut topics: Vec<_> = entries.iter().map(|entry| entry["topic"].as_str().unwrap()).collect();
    topics.sort_unstable();
    assert_eq!(topics, ["all", "key", "room/live/7", "user"]);
    assert!(entries.iter().all(|entry| entry["payload"] == "hi"), "{entries:?}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn lines_are_messages_and_top_shows_the_room() {
    let gateway = Gateway::with(&["--open"]);
    let (child, _lines) = gateway.watch(&["live/7", "live/8"]);
    let mut command = switchboard();
    command.args(["push", "send", &gateway.address, "live/7", "--lines"]);
    let mut sender = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    sender.stdin.take().unwrap().write_all(b"1\n2\n3\n").unwrap();
    assert_eq!(end(sender).1.lines().count(), 3);
    let top = gateway.out("top", &["live/*", "--once", "--interval", "10ms", "--json"]);
    let top = &json_lines(&top)[0];
    assert_eq!((&top["devices"], &top["rooms"], &top["memberships"]), (&json!(1), &json!(2), &json!(2)));
    let room = json!({"room": "live/7", "members": 1, "published": 3, "published_per_s": 0.0});
    assert_eq!(top["top"][0], room);
    let table = gateway.out("top", &["--once", "--interval", "10ms", "--limit", "1"]);
    assert!(table.starts_with("devices 1, users 0, rooms 2, memberships 2\n"), "{table}");
    assert_eq!(table.lines().filter(|line| line.starts_with("live/")).count(), 1, "{table}");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(end(child).0, Some(0));
}

#[test]
fn a_newer_device_with_the_key_ends_watch_with_the_reason() {
    let gateway = Gateway::with(&["--open"]);
    let (older, mut lines) = gateway.watch(&["live/7", "--key", "phone"]);
    let (newer, _lines) = gateway.watch(&["live/7", "--key", "phone", "--count", "1"]);
    let reason = lines.next().unwrap().unwrap();
    assert_eq!(end(older).0, Some(74), "{reason}");
    assert!(reason.contains("aborted (10): the gateway disconnected the device: replaced"), "{reason}");
    gateway.out("send", &["--key", "phone", "hi"]);
    assert_eq!(end(newer).0, Some(0));
}

#[test]
fn failures_have_exit_codes_and_are_json_on_request() {
    let gateway = Gateway::with(&["--open"]);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let run = |line: &[&str]| switchboard().arg("push").args(line).output().unwrap();
    for (line, code) in [
        (&["send", &gateway.address, "--user", "", "x"][..], 67),
        (&["send", &gateway.address, "live/*", "x"], 67),
        (&["send", &gateway.address], 2),
        (&["send", &gateway.address, "live/7", "x", "--all"], 2),
        (&["send", &gateway.address, "live/7", "x", "--codec", "json"], 2),
        (&["send", &closed, "live/7", "x"], 78),
        (&["top", &closed, "--once"], 78),
        (&["watch", &closed, "live/7"], 78),
        (&["watch", &gateway.address, "live/*"], 67),
        (&["watch", &gateway.address, "a", "b", "--after", "1:1"], 2),
        (&["watch", &gateway.address, "live/7", "--timeout", "50ms"], 68),
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(code), "{line:?}: {output:?}");
        let output = run(&[line, &["--json"]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let last = json_lines(&text).pop().unwrap();
        assert!(last["status"]["code"].is_string(), "{line:?}: {last}");
    }
    // One of two targets fails: the other has its entry.
    let output = gateway.push("send", &["--user", "", "--user", "42", "hi"]);
    assert_eq!(output.status.code(), Some(67), "{output:?}");
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("user 42 "));
}

#[test]
fn tokens_are_required_without_open() {
    let (key, api) = (file("key", &format!("{SECRET}\n")), file("api", "a long secret\n"));
    let gateway = Gateway::with(&[
        "--hs256-key-file",
        key.to_str().unwrap(),
        "--api-token-file",
        api.to_str().unwrap(),
    ]);
    for (line, token, code) in [
        (&["send", &gateway.address, "live/7", "x"][..], "", 80),
        (&["send", &gateway.address, "live/7", "x"], "guess", 80),
        (&["send", &gateway.address, "live/7", "x"], "a long secret", 0),
        (&["top", &gateway.address, "--once", "--interval", "10ms"], "a long secret", 0),
        (&["top", &gateway.address, "--once"], "", 80),
        (&["watch", &gateway.address, "live/7", "--last", "1", "--count", "1"], "", 80),
        (&["watch", &gateway.address, "live/7", "--last", "1", "--count", "1"], "a long secret", 80),
        (&["watch", &gateway.address, "live/7", "--last", "1", "--count", "1"], ALI, 0),
    ] {
        let output = switchboard().arg("push").args(line).args(["--token", token]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{line:?} {token}: {output:?}");
        let by_variable = switchboard().arg("push").args(line).env("SWITCHBOARD_TOKEN", token).output();
        assert_eq!(by_variable.unwrap().status.code(), Some(code), "{line:?} {token}");
    }
    let push = "POST /goim/push/room?operation=1000&type=live&room=7";
    assert!(gateway.http(push, "x").starts_with("HTTP/1.1 401"));
    let authorized = format!("{push} HTTP/1.1\r\nauthorization: Bearer a long secret\r\nx: y");
    assert!(gateway.http(&authorized, "x").contains("{\"code\":0,\"message\":\"\"}"));
    let closed = Gateway::with(&["--hs256-key-file", key.to_str().unwrap()]);
    assert_eq!(closed.push("send", &["live/7", "x"]).status.code(), Some(76), "the API is not served");
    [key, api].iter().for_each(|path| fs::remove_file(path).unwrap());
}

/// A client of MQTT 3.1.1 that sends and reads bytes.
struct Mqtt(TcpStream);

impl Mqtt {
    /// Connects with a token as the password, if there is one; returns the code of CONNACK as well.
    fn connect(address: &str, token: Option<&str>) -> (Mqtt, u8) {
        let text = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
        // User name and password, clean session, no keep alive, client identifier.
        let flags = if token.is_some() { 0xC2 } else { 0x02 };
        let mut body = [text("MQTT"), vec![4, flags, 0, 0], text("")].concat();
        body.extend(token.into_iter().flat_map(|token| [text(""), text(token)].concat()));
        let mut mqtt = Mqtt(TcpStream::connect(address).unwrap());
        mqtt.send(0x10, &body);
        let code = mqtt.read()[3];
        (mqtt, code)
    }

    fn send(&mut self, first: u8, body: &[u8]) {
        let (low, high) = (body.len() % 128, body.len() / 128);
        let length = if high == 0 { vec![low as u8] } else { vec![low as u8 | 0x80, high as u8] };
        self.0.write_all(&[&[first][..], &length, body].concat()).unwrap();
    }

    /// Returns the next packet, of fewer than 128 bytes; nothing at the end of the connection.
    fn read(&mut self) -> Vec<u8> {
        let mut head = [0; 2];
        if self.0.read_exact(&mut head).is_err() {
            return Vec::new();
        }
        let mut body = vec![0; head[1].into()];
        self.0.read_exact(&mut body).unwrap();
        [&head[..], &body].concat()
    }

    /// Returns the code of SUBACK.
    fn subscribe(&mut self, filter: &str) -> u8 {
        let filter = [&[0, 1, 0, filter.len() as u8][..], filter.as_bytes(), &[0]].concat();
        self.send(0x82, &filter);
        self.read()[4]
    }

    fn publish(&mut self, topic: &str, message: &str) {
        let topic = [&[0, topic.len() as u8][..], topic.as_bytes()].concat();
        self.send(0x30, &[&topic, message.as_bytes()].concat());
    }
}

#[test]
fn clients_of_mqtt_are_in_rooms_and_not_in_topics_with_orders() {
    const REFUSED: u8 = 0x80;
    let gateway = Gateway::with(&["--open"]);
    let (mut member, code) = Mqtt::connect(&gateway.address, None);
    assert_eq!((code, member.subscribe("room/live/+")), (0, 0));
    for filter in ["#", "user/#", "user/42", "key/#", "push/all", "push/#", "+/x", "other"] {
        assert_eq!(member.subscribe(filter), REFUSED, "{filter}");
    }
    gateway.out("send", &["live/7", "hi"]);
    assert!(member.read().ends_with(b"room/live/7hi"));
    member.publish("room/live/8", "by mqtt");
    assert!(member.read().ends_with(b"room/live/8by mqtt"));
    let kept = gateway.out("watch", &["live/8", "--last", "1", "--count", "1"]);
    assert!(kept.ends_with(" by mqtt\n"), "{kept}");
    // An order to a device closes the connection.
    member.publish("key/phone", "close");
    assert_eq!(member.read(), [0; 0]);

    let key = file("mqtt-key", SECRET);
    let path = key.to_str().unwrap();
    let api = file("mqtt-api", "a long secret");
    let flags = ["--hs256-key-file", path, "--api-token-file", api.to_str().unwrap(), "--mqtt"];
    let gateway = Gateway::with(&flags);
    // The check of MQTT's logins is none of other callers.
    gateway.out("send", &["live/7", "hi", "--token", "a long secret"]);
    gateway.out("watch", &["live/7", "--last", "1", "--count", "1", "--token", ALI]);
    assert!(gateway.http("GET /", "").starts_with("HTTP/1.1 200"));
    for token in [None, Some("guess")] {
        let (_, code) = Mqtt::connect(&gateway.address, token);
        assert!(matches!(code, 4 | 5), "credentials that are not accepted, or not authorized: {code}");
    }
    let (mut member, code) = Mqtt::connect(&gateway.address, Some(ALI));
    assert_eq!((code, member.subscribe("room/live/7"), member.subscribe("user/ali")), (0, 0, REFUSED));
    // Without the role.
    member.publish("room/live/7", "no");
    assert_eq!(member.read(), [0; 0]);
    let without = Gateway::with(&["--hs256-key-file", path]);
    let mut stream = TcpStream::connect(&without.address).unwrap();
    stream.write_all(&[0x10, 12, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 0, 0, 0]).unwrap();
    let mut response = Vec::new();
    // The connection may be reset with bytes of the client unread.
    let _ = stream.read_to_end(&mut response);
    assert_ne!(response.first(), Some(&0x20), "no CONNACK: MQTT is not served");
    [key, api].iter().for_each(|path| fs::remove_file(path).unwrap());
}

#[test]
fn goim_has_a_listener_of_its_own() {
    let mut gateway = Gateway::with(&["--open", "--goim-listen", "127.0.0.1:0"]);
    let second = gateway.lines.next().unwrap().unwrap();
    let address = second.strip_prefix("listening on tcp://").unwrap().strip_suffix(" for goim").unwrap();
    for address in [address, &gateway.address] {
        let body = br#"{"mid":7,"room_id":"live://7","accepts":[1000]}"#;
        let length = 16 + body.len() as u32;
        let head = [&length.to_be_bytes()[..], &[0, 16, 0, 1, 0, 0, 0, 7, 0, 0, 0, 1]].concat();
        let mut device = TcpStream::connect(address).unwrap();
        device.write_all(&[&head[..], body].concat()).unwrap();
        let mut reply = [0; 16];
        device.read_exact(&mut reply).unwrap();
        assert_eq!(reply[8..12], [0, 0, 0, 8], "the operation of the reply");
        gateway.out("send", &["live/7", "hi"]);
        let mut push = [0; 18];
        device.read_exact(&mut push).unwrap();
        assert_eq!(push[16..], *b"hi");
    }
    let elsewhere = switchboard().args(["push", "send", address, "live/7", "hi"]).output().unwrap();
    assert_ne!(elsewhere.status.code(), Some(0), "calls are not served there");
}

#[test]
fn the_printed_lines_work() {
    let mut gateway = Gateway::with(&["--open"]);
    let lines = gateway.printed();
    let commands: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix("  ")).collect();
    let follow = |start: &str| {
        let line =
            commands.iter().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{lines:?}"));
        let mut shell = std::process::Command::new("sh");
        let folder = PathBuf::from(env!("CARGO_BIN_EXE_switchboard"));
        let path = format!("{}:{}", folder.parent().unwrap().display(), std::env::var("PATH").unwrap());
        shell.args(["-c", &format!("exec {line}")]).env("PATH", path);
        shell.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    // The room keeps the entries, so these get them whenever they connect.
    let mut followers = vec![follow("curl -N"), follow("switchboard push watch")];
    for publisher in ["switchboard push send", "curl -d"] {
        let (code, printed) = end(follow(publisher));
        assert_eq!(code, Some(0), "{publisher}: {printed}");
    }
    for follower in &mut followers {
        let lines = BufReader::new(follower.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(lines.filter(|line| line.contains("half time")).take(2).count(), 2);
        follower.kill().unwrap();
        follower.wait().unwrap();
    }
    let page = commands.iter().find(|line| line.starts_with("http://")).unwrap();
    assert_eq!(**page, format!("http://{}/", gateway.address));
    for (path, text) in [("/", "room.mjs"), ("/room.mjs", "new EventSource"), ("/room.css", "main")] {
        let response = gateway.http(&format!("GET {path}"), "");
        assert!(response.starts_with("HTTP/1.1 200") && response.contains(text), "{path}: {response}");
    }
    assert!(commands.iter().any(|line| line.starts_with("mosquitto_sub ")), "{lines:?}");
}

#[test]
fn settings_come_from_a_file_and_are_explained() {
    let settings =
        "open = true\nroom = [\"live/* history=3 age=1min\", \"> presence\"]\n[limits]\ncalls_max = 9\n";
    let settings = file("settings.toml", settings);
    let path = settings.to_str().unwrap();
    let mut gateway = Gateway::with(&["--config", path]);
    assert!(gateway.printed().iter().any(|line| line.contains("(--open)")));
    for number in 1..=5 {
        gateway.out("send", &["live/7", &number.to_string()]);
    }
    let kept = gateway.out("watch", &["live/7", "--last", "9", "--count", "3"]);
    let offsets: Vec<_> = kept.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(offsets, ["3", "4", "5"], "{kept}");
    let config = |line: &[&str]| switchboard().args(["config", "--push"]).args(line).output().unwrap();
    let explained = String::from_utf8(config(&["explain", path]).stdout).unwrap();
    let row =
        |name: &str| explained.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(row("open ").contains("true") && row("room ").contains("> presence"), "{explained}");
    assert!(row("limits.calls_max").contains(":4") && row("listen").contains("default"), "{explained}");
    assert!(config(&["check", path]).status.success());
    for (text, expected) in [
        ("opne = true\n", "did you mean open?"),
        ("open = true\nroom = [\"live/* histroy=3\"]\n", "no setting of rooms"),
        ("room = [\"live/* history=3\"]\n", "a push gateway needs to know its devices"),
        ("hs256_key_file = \"/does/not/exist\"\n", "/does/not/exist: "),
        ("open = true\nroom = [\"live/>/x\"]\n", "pattern of rooms"),
        ("open = true\nhs256_key_file = \"k\"\n", "cannot be used with"),
    ] {
        fs::write(&settings, text).unwrap();
        let output = config(&["check", path]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && error.contains(expected), "{text}: {error}");
    }
    let short = file("short-key", "too short");
    fs::write(&settings, format!("hs256_key_file = {short:?}\n")).unwrap();
    let error = String::from_utf8(config(&["check", path]).stderr).unwrap();
    assert!(error.contains("keys of JSON Web Tokens: "), "{error}");
    fs::remove_file(&short).unwrap();
    let template = String::from_utf8(config(&["default"]).stdout).unwrap();
    let rooms = template.lines().find_map(|line| line.strip_prefix("# room = ")).unwrap();
    fs::write(&settings, format!("open = true\nroom = {rooms}\n")).unwrap();
    assert!(config(&["check", path]).status.success(), "{template}");
    fs::remove_file(&settings).unwrap();
}
