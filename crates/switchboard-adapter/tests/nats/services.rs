//! Requests that are calls of the server's services.

use crate::client::Client;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use switchboard::{Caller, Cx, Result, Running, Server, Status, StopOptions, auth::Tokens, guard::Rule};
use switchboard_adapter::Nats;
use switchboard_message::Bus;
use tokio::sync::Notify;

#[switchboard::service(name = "demo.v1.Greeter")]
trait Greeter {
    async fn greet(&self, name: String, cx: &Cx) -> Result<String>;
    async fn wait(&self, name: String, cx: &Cx) -> Result<String>;
    async fn admin(&self, name: String, cx: &Cx) -> Result<String>;
}

#[derive(Clone, Default)]
struct Desk {
    open: Arc<Notify>,
    waiting: Arc<AtomicUsize>,
}

/// Counts a handler while it waits.
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Greeter for Desk {
    async fn greet(&self, name: String, cx: &Cx) -> Result<String> {
        if name.is_empty() {
            return Err(Status::invalid_argument("the name\r\nis empty"));
        }
        let trace = cx.metadata().text("trace-id").unwrap_or("none").to_owned();
        let caller = cx.caller().map_or("unknown", |caller| &caller.name);
        Ok(format!("hello {name}, {trace}, {caller}, {}", cx.peer().wire()))
    }

    async fn wait(&self, name: String, _: &Cx) -> Result<String> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(self.waiting.clone());
        self.open.notified().await;
        Ok(name)
    }

    async fn admin(&self, name: String, _: &Cx) -> Result<String> {
        Ok(name)
    }
}

async fn start(desk: &Desk, nats: &Nats) -> Running {
    let server = Server::new().add(GreeterServer::new(desk.clone())).plugin(nats.clone());
    server.listen("nats://127.0.0.1:0").start().await.unwrap()
}

async fn requester(running: &Running) -> Client {
    let mut client = Client::connect(running).await;
    client.send("SUB _INBOX.r.* 1\r\n").await;
    client
}

async fn request(client: &mut Client, subject: &str, reply: &str, payload: &str) {
    client.send(&format!("PUB {subject} _INBOX.r.{reply} {}\r\n{payload}\r\n", payload.len())).await;
}

#[tokio::test]
async fn a_request_to_a_method_is_a_call() {
    let nats = Nats::new(Bus::new());
    let running = start(&Desk::default(), &nats).await;
    let mut client = requester(&running).await;
    request(&mut client, "demo.v1.Greeter.Greet", "1", r#"{"name":"Ali"}"#).await;
    client.expect("MSG _INBOX.r.1 1 32", r#""hello Ali, none, unknown, nats""#).await;
    // Parameters as a list, and metadata as headers.
    let headers = "NATS/1.0\r\nTrace-Id: 7\r\n\r\n";
    let total = headers.len() + 7;
    let head = headers.len();
    client
        .send(&format!("HPUB demo.v1.Greeter.Greet _INBOX.r.2 {head} {total}\r\n{headers}[\"Bea\"]\r\n"))
        .await;
    let (_, text) = client.message().await;
    assert_eq!(text, r#""hello Bea, 7, unknown, nats""#);
    assert_eq!(nats.stats().calls, 2);
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn the_status_of_a_failed_call_is_in_headers() {
    let nats = Nats::new(Bus::new());
    let running = start(&Desk::default(), &nats).await;
    let mut client = requester(&running).await;
    for (payload, code, name, text) in [
        (r#"{"name":""}"#, "400", "invalid_argument", "the name  is empty"),
        ("{", "400", "invalid_argument", ""),
        ("[1,2,3,4]", "400", "invalid_argument", ""),
    ] {
        request(&mut client, "demo.v1.Greeter.Greet", "1", payload).await;
        let (line, headers) = client.message().await;
        assert!(line.starts_with("HMSG _INBOX.r.1 1 "), "{line}");
        assert!(headers.contains(&format!("Nats-Service-Error-Code: {code}\r\n")), "{headers}");
        assert!(headers.contains(&format!("Switchboard-Code: {name}\r\n")), "{headers}");
        assert!(headers.contains(&format!("Nats-Service-Error: {text}")), "{headers}");
        assert!(headers.ends_with("\r\n\r\n"), "no payload: {headers}");
    }
    // No such method, and a publication without a reply, which is no request.
    request(&mut client, "demo.v1.Greeter.Nope", "2", "").await;
    client.expect("HMSG _INBOX.r.2 1 16 16", "NATS/1.0 503\r\n\r\n").await;
    client.publish("demo.v1.Greeter.Greet", "{}").await;
    client.settled().await;
    assert_eq!((nats.stats().calls, nats.stats().published), (3, 2));
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn calls_wait_beside_each_other_and_end_with_their_client() {
    let (desk, nats) = (Desk::default(), Nats::new(Bus::new()).calls_max(3));
    let running = start(&desk, &nats).await;
    let mut client = requester(&running).await;
    for reply in ["1", "2", "3", "4"] {
        request(&mut client, "demo.v1.Greeter.Wait", reply, &format!("[\"{reply}\"]")).await;
    }
    let (line, headers) = client.message().await;
    assert!(line.starts_with("HMSG _INBOX.r.4 1 "), "{line}");
    assert!(
        headers.contains("Nats-Service-Error-Code: 429\r\n") && headers.contains("(calls_max)"),
        "{headers}"
    );
    // Another call is not delayed.
    request(&mut client, "demo.v1.Greeter.Greet", "5", "[\"x\"]").await;
    assert!(client.message().await.1.contains("calls_max"), "all of its calls wait");
    let mut other = requester(&running).await;
    request(&mut other, "demo.v1.Greeter.Greet", "6", "[\"x\"]").await;
    assert!(other.message().await.1.contains("hello x"));
    crate::until(|| desk.waiting.load(Ordering::Relaxed) == 3).await;
    desk.open.notify_one();
    let (line, _) = client.message().await;
    assert!(line.starts_with("MSG _INBOX.r."), "{line}");
    drop(client);
    crate::until(|| desk.waiting.load(Ordering::Relaxed) == 0).await;
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn calls_pass_the_guards_with_the_credentials_of_the_connection() {
    let nats = Nats::new(Bus::new());
    let tokens = Tokens::default()
        .token("t0ken-of-alice", Caller::new("alice"))
        .token("t0ken-of-root", Caller::new("root").role("admin"));
    let server = Server::new()
        .add(GreeterServer::new(Desk::default()))
        .auth(tokens)
        .rule(Rule::methods("demo.v1.Greeter/Admin").roles(["admin"]))
        .plugin(nats.clone());
    let running = server.listen("nats://127.0.0.1:0").start().await.unwrap();
    for (token, greeting, admin) in [("alice", "alice", "403"), ("root", "root", "")] {
        let options = format!("{{\"verbose\":false,\"headers\":true,\"auth_token\":\"t0ken-of-{token}\"}}");
        let mut client = Client::with(&running, &options).await;
        client.send("SUB _INBOX.r.* 1\r\n").await;
        request(&mut client, "demo.v1.Greeter.Greet", "1", "[\"x\"]").await;
        let (_, text) = client.message().await;
        assert_eq!(text, format!("\"hello x, none, {greeting}, nats\""));
        request(&mut client, "demo.v1.Greeter.Admin", "1", "[\"x\"]").await;
        let (_, text) = client.message().await;
        assert_eq!(text.contains("Nats-Service-Error-Code: 403"), admin == "403", "{text}");
    }
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn services_describe_themselves() {
    let nats = Nats::new(Bus::new());
    let running = start(&Desk::default(), &nats).await;
    let mut client = requester(&running).await;
    request(&mut client, "demo.v1.Greeter.Greet", "0", "[\"x\"]").await;
    client.message().await;
    let mut id = String::new();
    for (subject, kind) in
        [("$SRV.PING", "ping"), ("$SRV.INFO.demo-v1-Greeter", "info"), ("$SRV.STATS", "stats")]
    {
        request(&mut client, subject, "1", "").await;
        let (_, text) = client.message().await;
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["type"], format!("io.nats.micro.v1.{kind}_response"));
        assert_eq!(json["name"], "demo-v1-Greeter");
        json["id"].as_str().unwrap().clone_into(&mut id);
        match kind {
            "info" => assert_eq!(json["endpoints"][0]["subject"], "demo.v1.Greeter.Greet"),
            "stats" => assert_eq!(json["endpoints"][0]["num_requests"], 1),
            _ => {}
        }
    }
    request(&mut client, &format!("$SRV.PING.demo-v1-Greeter.{id}"), "2", "").await;
    assert!(client.message().await.0.starts_with("MSG _INBOX.r.2 1 "));
    for subject in ["$SRV.PING.other", "$SRV.NOPE", "$SRV.PING.demo-v1-Greeter.other"] {
        request(&mut client, subject, "3", "").await;
        client.expect("HMSG _INBOX.r.3 1 16 16", "NATS/1.0 503\r\n\r\n").await;
    }
    running.stop(StopOptions::new()).await;
}
