//! Logs of calls, and their traces.
//!
//! One subscriber takes the events and spans of the whole process: each test has methods or traces of its own.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use std::{
    fmt,
    sync::{Mutex, OnceLock},
    time::Duration,
};
use support::{raw::soon, *};
use switchboard::{
    Call, Channel, ClientMethod, Codec, Kind, MethodInfo, Reply, Result, Server, Service, ServiceInfo,
};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Takes the target `switchboard::access`, `::slow`, and spans of `::call`.
struct Lines;

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }
}

fn keep(metadata: &Metadata<'_>, fields: &str) {
    LINES.lock().unwrap().push(format!("{} {}{fields}", metadata.level(), metadata.target()));
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("switchboard::")
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut fields = Fields(String::new());
        attributes.record(&mut fields);
        keep(attributes.metadata(), &fields.0);
        span::Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        keep(event.metadata(), &fields.0);
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

fn subscribe() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| tracing::subscriber::set_global_default(Lines).unwrap());
}

fn lines(target: &str, part: &str) -> Vec<String> {
    let lines = LINES.lock().unwrap();
    lines.iter().filter(|line| line.contains(target) && line.contains(part)).cloned().collect()
}

#[tokio::test]
async fn calls_are_logged_when_enabled() {
    subscribe();
    let server = Server::new().access_log(2).slow_call(Duration::from_millis(10));
    let running = server.add(Probe::default()).listen("tcp://127.0.0.1:0").start().await.unwrap();
    let channel = Channel::connect(&running.url()).await.unwrap();
    for _ in 0..8 {
        mirror(&channel, vec![1; 10]).await.unwrap();
    }
    let _: String = ask(&channel, &BLOCK, &"").await.unwrap();
    let access = lines("switchboard::access", "test.Probe/Mirror");
    assert_eq!(access.len(), 4, "{access:?}");
    for part in ["INFO", "wire=\"native\"", "127.0.0.1", "code=\"ok\"", "took_us=", "received=10", "sent=10"]
    {
        assert!(access[0].contains(part), "{part}: {}", access[0]);
    }
    let slow = lines("switchboard::slow", "test.Probe/Block");
    assert!(slow.len() == 1 && slow[0].contains("WARN"), "{slow:?}");
    #[cfg(feature = "http")]
    {
        let http = Channel::connect(&format!("{}?wire=connect", running.url())).await.unwrap();
        ask_json(&http, &FAIL).await;
        ask_json(&http, &FAIL).await;
        soon(async {
            while lines("switchboard::access", "not_found").is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let failed = &lines("switchboard::access", "not_found")[0];
        assert!(failed.contains("wire=\"connect\"") && failed.contains("test.Probe/Fail"), "{failed}");
    }
}

#[tokio::test]
async fn a_server_says_where_it_listens() {
    subscribe();
    let running = Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0").start().await.unwrap();
    let said = lines("switchboard::server", &running.url());
    assert!(said.len() == 1 && said[0].contains("INFO") && said[0].contains("listening"), "{said:?}");
}

/// Sends messages as its requests come, and holds its turn for as long as the first one says.
struct Steps;

static STEPS_INFO: ServiceInfo =
    ServiceInfo { name: "test.Steps", methods: &[MethodInfo::new("Run", Kind::Bidi)], descriptor: &[] };
static STEPS: ClientMethod = ClientMethod { service: &STEPS_INFO, index: 0, path: "test.Steps/Run" };

impl Service for Steps {
    fn info(&self) -> &'static ServiceInfo {
        &STEPS_INFO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let codec = call.codec();
        let (raw, cx) = call.into_many();
        let mut input = switchboard::Receiver::of_request(raw, codec, |_, message| Ok(message));
        let same = |message: &switchboard::codegen::Bytes, _| Ok(message.clone());
        Ok(switchboard::codegen::stream_reply(cx, codec, same, |_, out| async move {
            while let Some(message) = input.next().await? {
                let pause = std::str::from_utf8(&message).unwrap().parse().unwrap();
                std::thread::sleep(Duration::from_millis(pause));
                out.send(message).await?;
            }
            Ok(())
        }))
    }
}

#[cfg(all(feature = "auth", feature = "http"))]
#[tokio::test]
async fn streams_are_slow_by_their_first_message_and_callers_are_named() {
    use switchboard::{
        auth::{Caller, Tokens},
        codegen::Bytes,
    };
    const PAUSE: Duration = Duration::from_millis(300);
    subscribe();
    let tokens = Tokens::default().token("t0ken-of-wendy", Caller::new("wendy"));
    let server = Server::new().auth(tokens).access_log(1).slow_call(Duration::from_millis(1)).add(Steps);
    let running = server.listen("tcp://127.0.0.1:0").start().await.unwrap();
    for (at, wire) in ["", "?wire=grpc"].into_iter().enumerate() {
        let url = running.url() + wire;
        let channel = Channel::builder(&url).token("t0ken-of-wendy").connect().await.unwrap();
        let call = channel.bidi::<Bytes, Bytes>(
            &STEPS,
            Codec::Json,
            |bytes, _| Ok(bytes.clone()),
            |_, bytes| Ok(bytes),
        );
        let (sender, mut receiver) = call.await.unwrap();
        // The handler holds its turn for so long.
        sender.send(Bytes::from_static(b"5")).await.unwrap();
        soon(receiver.next()).await.unwrap().unwrap();
        tokio::time::sleep(PAUSE).await;
        sender.finish();
        assert!(soon(receiver.next()).await.unwrap().is_none());
        soon(async {
            while lines("switchboard::access", "test.Steps/Run").len() <= at {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let logged = lines("switchboard::access", "test.Steps/Run");
        assert!(logged[at].contains("caller=\"wendy\""), "{wire}: {logged:?}");
        let slow = lines("switchboard::slow", "test.Steps/Run");
        let number = |name: &str| {
            let (_, rest) = slow[at].split_once(name).unwrap_or_else(|| panic!("{name}: {slow:?}"));
            rest.split(' ').next().unwrap().parse::<u128>().unwrap()
        };
        let (busy, took) = (number(" busy_us="), number(" took_us="));
        // What came after the first message does not count.
        assert!(busy + PAUSE.as_micros() <= took, "{wire}: {slow:?}");
    }
}

#[cfg(feature = "http")]
async fn ask_json(channel: &Channel, method: &'static ClientMethod) {
    let codec = channel.codec(Codec::Json);
    let bytes = switchboard::codec::serde::encode(&"no", codec);
    channel.unary(method, codec, bytes, |_, _| Ok(())).await.unwrap_err();
}

/// Returns the trace of its call, and calls the next hop.
struct Hop(Option<Channel>);

static HOP_INFO: ServiceInfo =
    ServiceInfo { name: "test.Hop", methods: &[MethodInfo::new("Trace", Kind::Unary)], descriptor: &[] };
static HOP: ClientMethod = ClientMethod { service: &HOP_INFO, index: 0, path: "test.Hop/Trace" };

impl Service for Hop {
    fn info(&self) -> &'static ServiceInfo {
        &HOP_INFO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let (_, cx) = call.into_one()?;
        let mut text = match cx.trace() {
            None => "none\n".to_owned(),
            Some(trace) => format!(
                "{} {} {} {}\n",
                trace.id(),
                trace.parent_id().unwrap_or_default(),
                trace.span_id(),
                trace.state().unwrap_or("-")
            ),
        };
        if let Some(next) = &self.0 {
            // Not in the first poll, as a rule: the trace must outlive it.
            tokio::task::yield_now().await;
            text.push_str(&hop(next, None).await);
        }
        Ok(Reply::one(bytes::Bytes::from(text), cx))
    }
}

/// Returns the lines of all hops of a call.
async fn hop(channel: &Channel, traceparent: Option<&str>) -> String {
    let codec = channel.codec(Codec::Proto);
    let mut call = channel.unary(&HOP, codec, Ok(bytes::Bytes::new()), |_, reply| Ok(reply));
    if let Some(traceparent) = traceparent {
        call = call.meta("traceparent", traceparent.to_owned()).meta("tracestate", "a=b,c=d");
    }
    String::from_utf8(call.await.unwrap().into_inner().to_vec()).unwrap()
}

#[tokio::test]
async fn trace_is_read_and_forwarded_over_every_wire() {
    subscribe();
    let start = |next| async {
        let server = Server::new().add(Hop(next)).listen("tcp://127.0.0.1:0");
        server.start().await.unwrap()
    };
    let last = start(None).await;
    let mut wires = vec!["native"];
    if cfg!(feature = "http") {
        wires.extend(["grpc", "grpc-web", "connect"]);
    }
    for (at, wire) in wires.into_iter().enumerate() {
        let url = |running: &switchboard::Running| match wire {
            "native" => running.url(),
            _ => format!("{}?wire={wire}", running.url()),
        };
        let first = start(Some(Channel::connect(&url(&last)).await.unwrap())).await;
        let channel = Channel::connect(&url(&first)).await.unwrap();
        let id = format!("0af7651916cd43dd8448eb211c80319{at}");
        let text = soon(hop(&channel, Some(&format!("00-{id}-b7ad6b7169203331-01")))).await;
        let hops: Vec<Vec<_>> = text.lines().map(|line| line.split(' ').collect()).collect();
        let [outer, inner] = &hops[..] else { panic!("{wire}: {text}") };
        assert_eq!((outer[0], outer[1], outer[3]), (id.as_str(), "b7ad6b7169203331", "a=b,c=d"), "{wire}");
        // A subscriber records spans here, so each hop has one of its own.
        assert_eq!((inner[0], inner[1], inner[3]), (id.as_str(), outer[2], "a=b,c=d"), "{wire}");
        assert_ne!(inner[2], inner[1], "{wire}");
        let spans = lines("switchboard::call", &id);
        assert_eq!(spans.len(), 2, "{wire}: {spans:?}");
        assert!(spans[0].contains(&format!("wire={wire:?}")), "{spans:?}");
    }
}

#[tokio::test]
async fn call_without_trace_begins_one_where_spans_are_recorded() {
    subscribe();
    let channel = Channel::local(Hop(Some(Channel::local(Hop(None)))));
    let text = hop(&channel, None).await;
    let hops: Vec<Vec<_>> = text.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!((hops[0][0].len(), hops[0][1]), (32, ""), "{text}");
    assert_eq!((hops[1][0], hops[1][1]), (hops[0][0], hops[0][2]), "{text}");
}

#[cfg(all(feature = "auth", feature = "http"))]
#[tokio::test]
async fn every_denial_is_an_audit_line_without_secrets() {
    use std::sync::Arc;
    use switchboard::{
        Status,
        auth::{self, ApiKeys, Basic, Caller, Checked},
        guard::Rule,
    };
    subscribe();
    let later = auth::from_fn("checked-later", |credentials| {
        if credentials.metadata().text("x-session").is_none() {
            return Checked::Absent;
        }
        Checked::Later(Box::pin(async { Err::<Arc<Caller>, _>(Status::unauthenticated("no such session")) }))
    });
    let server = Server::new()
        .auth(ApiKeys::default().key("k3y-of-audit", Caller::new("bob-of-audit")))
        .auth(Basic::default().user("carol", "p4ss-of-audit", Caller::new("carol")))
        .auth(later)
        .rule(Rule::methods("test.Probe/Hang").deny())
        .rule(Rule::methods("test.Probe/Relay").addresses(["192.0.2.0/24"]))
        .rule(Rule::methods("test.Probe/Block").roles(["admin"]));
    let running = server.add(Probe::default()).listen("tcp://127.0.0.1:0").start().await.unwrap();
    for (options, codec, wire) in [("", Codec::Postcard, "native"), ("?wire=grpc", Codec::Json, "grpc")] {
        let channel = Channel::connect(&format!("{}{options}", running.url())).await.unwrap();
        for (method, key, value, by, code, parts) in [
            (
                &MIRROR,
                "x-other",
                "1",
                "none",
                "unauthenticated",
                ["without credentials", "test.Probe/Mirror"],
            ),
            (
                &MIRROR,
                "x-api-key",
                "wr0ng-of-audit",
                "api key",
                "unauthenticated",
                ["API key is not valid", "Mirror"],
            ),
            (
                &MIRROR,
                "authorization",
                "Basic d3IwbmctOm9mLWF1ZGl0",
                "basic",
                "unauthenticated",
                ["password is wrong", "Mirror"],
            ),
            (
                &MIRROR,
                "x-session",
                "s3cret-of-audit",
                "checked-later",
                "unauthenticated",
                ["no such session", "Mirror"],
            ),
            (
                &HANG,
                "x-api-key",
                "k3y-of-audit",
                "rule",
                "permission_denied",
                ["a rule denies all calls", "test.Probe/Hang"],
            ),
            (
                &RELAY,
                "x-api-key",
                "k3y-of-audit",
                "rule",
                "permission_denied",
                ["from this address", "Relay"],
            ),
            (
                &BLOCK,
                "x-api-key",
                "k3y-of-audit",
                "api key",
                "permission_denied",
                ["bob-of-audit", "test.Probe/Block"],
            ),
        ] {
            let message = switchboard::codec::serde::encode(&"x", codec);
            let call = channel.unary(method, codec, message, |_, _| Ok(()));
            soon(call.meta(key, value)).await.unwrap_err();
            let found = lines("switchboard::audit", parts[0]);
            let named = |line: &&String| {
                let fields = [format!("by={by:?}"), format!("code={code:?}"), format!("wire={wire:?}")];
                fields.iter().all(|field| line.contains(field))
                    && line.contains(parts[1])
                    && line.contains("127.0.0.1")
            };
            let count = found.iter().filter(named).count();
            assert_eq!(count, 1, "{wire} {by}: {:?}", lines("switchboard::audit", ""));
        }
    }
    // The standard services beside ours.
    let channel = Channel::connect(&format!("{}?wire=grpc", running.url())).await.unwrap();
    let reflection = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let method = ClientMethod::intern(reflection, Kind::Bidi, switchboard::Idempotency::Unknown).unwrap();
    let (up, mut down) =
        channel.bidi(method, Codec::Proto, |(), _| Ok(bytes::Bytes::new()), |_, _| Ok(())).await.unwrap();
    up.send(()).await.unwrap();
    soon(down.next()).await.unwrap_err();
    assert_eq!(lines("switchboard::audit", reflection).len(), 1);
    let all = lines("switchboard::audit", "").join("\n");
    for secret in
        ["k3y-of-audit", "p4ss-of-audit", "wr0ng-of-audit", "s3cret-of-audit", "d3IwbmctOm9mLWF1ZGl0"]
    {
        assert!(!all.contains(secret), "{secret} in {all}");
    }
    assert!(all.lines().all(|line| !line.contains("by=") || line.contains("WARN")), "{all}");
}

#[cfg(all(feature = "auth", feature = "http"))]
#[tokio::test]
async fn denied_connections_are_audit_lines() {
    subscribe();
    let lists = Server::new().deny_addresses(["127.0.0.0/8"]);
    is_denied(lists).await;
    assert!(!lines("switchboard::audit", "by=\"addresses\"").is_empty());
    let hook = Server::new().on_connect(|_| Err(switchboard::Status::permission_denied("the hook says no")));
    is_denied(hook).await;
    let found = lines("switchboard::audit", "the hook says no");
    assert!(
        !found.is_empty() && found[0].contains("by=\"on_connect\"") && found[0].contains("127.0.0.1"),
        "{found:?}"
    );
}

/// A call to this server fails, since it is not let in.
#[cfg(all(feature = "auth", feature = "http"))]
async fn is_denied(server: Server) {
    let running = server.add(Probe::default()).listen("tcp://127.0.0.1:0").start().await.unwrap();
    let channel = Channel::builder(&running.url()).lazy().unwrap();
    soon(channel.unary(&MIRROR, Codec::Postcard, Ok(vec![1u8]), |_, _| Ok(()))).await.unwrap_err();
}
