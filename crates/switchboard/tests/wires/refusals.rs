//! A refusal has the same code, text and next step for the caller on every wire; what a wire cannot carry of it is in
//! [`LACKS`].

use crate::{
    cases::MESSAGE_BYTES_MAX,
    channel::bytes,
    probe::{decode, encode},
    spec::Body,
    support::raw::soon,
    wires::CHANNELS,
};
use std::{sync::Arc, time::Duration};
use switchboard::{
    Call, Channel, ClientMethod, Code, Codec, Kind, Limit, MethodInfo, Reply, Result, Retry, Running, Server,
    Service, ServiceInfo, Status,
    auth::{Caller, Tokens},
    guard::{Rate, Rule},
};
use tokio::sync::Notify;

const fn unary(name: &'static str) -> MethodInfo {
    MethodInfo::new(name, Kind::Unary)
}

const KNOWN: &[MethodInfo] = &[
    unary("Say"),
    unary("Panic"),
    unary("Hold"),
    unary("Rated"),
    unary("Admin"),
    unary("Late"),
    unary("Missing"),
];
static INFO: ServiceInfo =
    ServiceInfo { name: "test.v1.Refusals", methods: KNOWN.split_at(6).0, descriptor: &[] };
/// As a client of another version knows it.
static NEWER: ServiceInfo = ServiceInfo { name: "test.v1.Refusals", methods: KNOWN, descriptor: &[] };
static NOWHERE: ServiceInfo =
    ServiceInfo { name: "test.v1.Nowhere", methods: KNOWN.split_at(1).0, descriptor: &[] };

const fn method(service: &'static ServiceInfo, index: u16, path: &'static str) -> ClientMethod {
    ClientMethod { service, index, path }
}

static SAY: ClientMethod = method(&NEWER, 0, "test.v1.Refusals/Say");
static PANIC: ClientMethod = method(&NEWER, 1, "test.v1.Refusals/Panic");
static HOLD: ClientMethod = method(&NEWER, 2, "test.v1.Refusals/Hold");
static RATED: ClientMethod = method(&NEWER, 3, "test.v1.Refusals/Rated");
static ADMIN: ClientMethod = method(&NEWER, 4, "test.v1.Refusals/Admin");
static LATE: ClientMethod = method(&NEWER, 5, "test.v1.Refusals/Late");
static MISSING: ClientMethod = method(&NEWER, 6, "test.v1.Refusals/Missing");
static ELSEWHERE: ClientMethod = method(&NOWHERE, 0, "test.v1.Nowhere/Say");

/// Why the refusals of a wire differ, by the start of the wire's name.
const LACKS: &[(&str, Lack, &str)] = &[
    ("kiss-rpc", Lack::All, "of a failure there is one bit"),
    ("hulu", Lack::Code, "of a failure there are a number of brpc and a text"),
    ("sofa", Lack::Code, "of a failure there are a number of brpc and a text"),
    ("sofa", Lack::Credentials, "a meta has no fields for metadata"),
    (
        "channel on JSON-RPC over WebSocket",
        Lack::Credentials,
        "a text has no place for metadata, and a connection that calls share none for that of one",
    ),
    (
        "channel on JSON-RPC over WebSocket",
        Lack::Large,
        "the connection is closed with a code of its own, and nothing says for which of its calls",
    ),
    ("gRPC-Web on HTTP/1.1", Lack::Notice, HTTP1),
    ("channel on gRPC-Web text on HTTP/1.1", Lack::Notice, HTTP1),
    ("Connect on HTTP/1.1", Lack::Notice, HTTP1),
    ("channel on JSON-RPC over POST", Lack::Notice, HTTP1),
    ("rpcx", Lack::Name, "callers of rpcx know its own words for a method or service that is not there"),
    ("baidu_std with JSON", Lack::Package, "this caller leaves packages out"),
    ("erpc with JSON", Lack::Package, "this caller leaves packages out"),
];

const HTTP1: &str = "HTTP/1.1 has no notice, and an idle connection is closed when a drain begins";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Lack {
    /// Every refusal is another.
    All,
    /// The code is another.
    Code,
    Credentials,
    Large,
    /// The text for a name that is not known.
    Name,
    /// A call may cross the end of its connection when the server drains, and its caller cannot know whether it began.
    Notice,
    /// The package of a service that is not known.
    Package,
}

fn lacks(wire: &str, lack: Lack) -> bool {
    LACKS.iter().any(|(start, lacked, _)| wire.starts_with(start) && *lacked == lack)
}

const DRAINS: &str = "a server that drains";

/// The service; `Hold` says when it is called, and never answers.
#[derive(Clone, Default)]
struct Refusals(Arc<Notify>);

impl Service for Refusals {
    fn info(&self) -> &'static ServiceInfo {
        &INFO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let (codec, method) = (call.codec(), call.method());
        let (bytes, cx) = call.into_one()?;
        let said = decode(codec, bytes)?;
        match method {
            1 => panic!("the handler of a test panics"),
            2 => {
                self.0.notify_one();
                std::future::pending::<()>().await;
            }
            5 => std::future::pending::<()>().await,
            _ => {}
        }
        Ok(Reply::one(encode(&said, codec)?, cx))
    }
}

/// A server on one wire, with and without guards of callers.
struct Wire {
    name: &'static str,
    open: Channel,
    guarded: Channel,
    held: Arc<Notify>,
    servers: [Running; 2],
}

impl Wire {
    async fn start(name: &'static str, options: &str) -> Wire {
        let service = Refusals::default();
        let listen = |server: Server| server.add(service.clone()).listen("tcp://127.0.0.1:0").start();
        let open = Server::new()
            .limit(Limit::MessageBytesMax, MESSAGE_BYTES_MAX)
            .method_concurrency("test.v1.Refusals/Hold", 1)
            .method_deadline_max("test.v1.Refusals/Late", Duration::from_millis(20))
            .rate(Rate::per_second(1e-6).burst(1).methods("test.v1.Refusals/Rated"));
        let guarded = Server::new()
            .auth(Tokens::default().token("t0ken", Caller::new("alice")))
            .rule(Rule::methods("test.v1.Refusals/Admin").roles(["admin"]));
        let servers = [listen(open).await.unwrap(), listen(guarded).await.unwrap()];
        // The numbers of the methods, for callers that have no names.
        let methods = [&SAY, &PANIC, &HOLD, &RATED, &ADMIN, &LATE, &MISSING, &ELSEWHERE];
        let index = methods
            .iter()
            .map(|method| format!("&index={}:{}", method.path, method.index))
            .collect::<String>();
        let connect = async |running: &Running| {
            let url = match options.strip_prefix("ws") {
                Some(options) => running.url().replace("tcp://", "ws://") + options,
                None => format!("{}{options}", running.url()),
            };
            let url = match url.split_once("&index=") {
                Some((before, _)) => format!("{before}{index}"),
                None => url,
            };
            Channel::connect(&url).await.unwrap()
        };
        let (open, guarded) = (connect(&servers[0]).await, connect(&servers[1]).await);
        Wire { name, open, guarded, held: service.0, servers }
    }

    /// Every refusal by name.
    async fn refusals(self) -> Vec<(&'static str, Status)> {
        let say = |text: &str| Body::Text(text.to_owned());
        let large = say(&"x".repeat(2 * MESSAGE_BYTES_MAX as usize));
        let (open, guarded) = (&self.open, &self.guarded);
        let token = |token| Some(("authorization", token));
        let mut all = vec![
            ("an unknown method", refused(open, &MISSING, &say("a"), None).await),
            ("an unknown service", refused(open, &ELSEWHERE, &say("a"), None).await),
            ("a message that cannot be read", refused(open, &SAY, &Body::Bad, None).await),
            ("a handler that panics", refused(open, &PANIC, &say("a"), None).await),
            ("no credentials", refused(guarded, &SAY, &say("a"), None).await),
            ("no credentials, an unknown method", refused(guarded, &MISSING, &say("a"), None).await),
            ("no credentials, an unknown service", refused(guarded, &ELSEWHERE, &say("a"), None).await),
        ];
        if !lacks(self.name, Lack::Large) {
            all.push(("a large message", refused(open, &SAY, &large, None).await));
        }
        if !lacks(self.name, Lack::Credentials) {
            all.push(("wrong credentials", refused(guarded, &SAY, &say("a"), token("Bearer token")).await));
            all.push((
                "a method of others",
                refused(guarded, &ADMIN, &say("a"), token("Bearer t0ken")).await,
            ));
            for (case, method) in
                [("a caller's unknown method", &MISSING), ("a caller's unknown service", &ELSEWHERE)]
            {
                all.push((case, refused(guarded, method, &say("a"), token("Bearer t0ken")).await));
            }
        }
        call(open, &RATED, &say("a"), None).await.unwrap();
        all.push(("over the rate", refused(open, &RATED, &say("a"), None).await));
        let (channel, first) = (open.clone(), say("a"));
        let first = tokio::spawn(async move { call(&channel, &HOLD, &first, None).await });
        self.held.notified().await;
        all.push(("over the concurrency", refused(open, &HOLD, &say("a"), None).await));
        all.push(("a deadline that passed", refused(open, &LATE, &say("a"), None).await));
        let [server, _guarded] = self.servers;
        let drained = tokio::spawn(server.drain(Duration::from_secs(60)));
        all.push((DRAINS, soon(drain_refusal(open)).await));
        first.abort();
        // Some wires cannot cancel the call that waits.
        drained.abort();
        all
    }
}

type Entry = (&'static str, &'static str);

async fn call(
    channel: &Channel,
    method: &'static ClientMethod,
    body: &Body,
    entry: Option<Entry>,
) -> Result<String> {
    let codec = channel.codec(Codec::Proto);
    let mut call = channel.unary(method, codec, Ok(bytes(body, codec)), decode);
    if let Some((name, value)) = entry {
        call = call.meta(name, value);
    }
    call.timeout(Duration::from_secs(60)).await.map(switchboard::Response::into_inner)
}

/// Calls until the server refuses calls: it takes those of callers that cannot know of the drain yet.
async fn drain_refusal(channel: &Channel) -> Status {
    loop {
        match call(channel, &SAY, &Body::Text("a".to_owned()), None).await {
            Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(status) => return status,
        }
    }
}

async fn refused(
    channel: &Channel,
    method: &'static ClientMethod,
    body: &Body,
    entry: Option<Entry>,
) -> Status {
    call(channel, method, body, entry).await.expect_err("the call is refused")
}

#[tokio::test]
async fn refusals_are_the_same_on_every_wire() {
    let native = Wire::start("native", "").await.refusals().await;
    let mut differences = Vec::new();
    let wires: Vec<_> = CHANNELS.iter().filter(|(name, ..)| !lacks(name, Lack::All)).collect();
    let wires = wires.into_iter().map(|(name, _, options)| {
        (name, tokio::spawn(async { Wire::start(name, options).await.refusals().await }))
    });
    for (name, refusals) in wires.collect::<Vec<_>>() {
        for (case, status) in refusals.await.unwrap() {
            let (_, wanted) = native.iter().find(|(known, _)| *known == case).unwrap();
            if !lacks(name, Lack::Code) && status.code() != wanted.code() {
                differences.push(format!("{name}, {case}: {:?}, not {:?}", status.code(), wanted.code()));
            }
            let (next, wanted_next) = (next_step(status.retry()), next_step(wanted.retry()));
            let is_lost =
                case == DRAINS && lacks(name, Lack::Notice) && status.retry() == Retry::IfIdempotent;
            if !lacks(name, Lack::Code) && !is_lost && next != wanted_next {
                differences.push(format!("{name}, {case}: {next}, not {wanted_next}"));
            }
            let (text, wanted) = (comparable(name, &status), comparable(name, wanted));
            if text != wanted && !is_lost {
                differences.push(format!("{name}, {case}: {text:?}, not {wanted:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
    let (_, listed) = native.iter().find(|(case, _)| *case == "a caller's unknown method").unwrap();
    assert!(listed.message().ends_with("has Say, Panic, Hold, Rated, Late"), "{listed}");
    let codes = native.iter().map(|(case, status)| (*case, status.code())).collect::<Vec<_>>();
    let wanted = [
        ("an unknown method", Code::Unimplemented),
        ("an unknown service", Code::Unimplemented),
        ("a message that cannot be read", Code::InvalidArgument),
        ("a handler that panics", Code::Internal),
        ("no credentials", Code::Unauthenticated),
        ("no credentials, an unknown method", Code::Unauthenticated),
        ("no credentials, an unknown service", Code::Unauthenticated),
        ("a large message", Code::ResourceExhausted),
        ("wrong credentials", Code::Unauthenticated),
        ("a method of others", Code::PermissionDenied),
        ("a caller's unknown method", Code::Unimplemented),
        ("a caller's unknown service", Code::Unimplemented),
        ("over the rate", Code::ResourceExhausted),
        ("over the concurrency", Code::ResourceExhausted),
        ("a deadline that passed", Code::DeadlineExceeded),
        (DRAINS, Code::Unavailable),
    ];
    assert_eq!(codes, wanted);
}

/// Returns the next step of the caller, without the length of a pause.
fn next_step(retry: Retry) -> &'static str {
    match retry {
        Retry::After(_) => "retry after a pause",
        Retry::Safe => "retry",
        Retry::IfIdempotent => "retry if idempotent",
        _ => "do not retry",
    }
}

/// The text without what the codec, the caller's names and the point at which a message was found too large decide.
fn comparable(wire: &str, status: &Status) -> String {
    let text = status.message();
    if text.starts_with("the json message is no ") || text.starts_with("the proto message is no ") {
        return "a message that cannot be read".to_owned();
    }
    // Callers on a wire with a notice connect again and find no server.
    if text.contains("the server is going away") || text.starts_with("connect to ") {
        return "the server is going away".to_owned();
    }
    if let Some((_, limit)) = text.split_once("over the limit of 300000 bytes (message_bytes_max") {
        assert!(text.starts_with("a request ") && limit == " of the receiver)", "{wire}: {text}");
        return "over the limit of 300000 bytes".to_owned();
    }
    if lacks(wire, Lack::Name) {
        if text.starts_with("unknown ") || text.starts_with("rpcx: can't find ") {
            return "a name that is not known".to_owned();
        }
    } else if lacks(wire, Lack::Package) {
        return text
            .replace("unknown service test.v1.", "unknown service ")
            .replace("test.v1.Nowhere", "Nowhere");
    }
    text.to_owned()
}
