//! A caller without credentials gets the same response to a request of a method that exists and of one that does not,
//! whatever is wrong with the request, on every wire.
#![cfg(all(feature = "auth", feature = "http", feature = "wires"))]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod http;
mod wires;

use std::time::Duration;
use switchboard::{
    Call, Kind, Limit, MethodInfo, Reply, Result, Running, Server, Service, ServiceInfo, Status,
    auth::{Caller, Tokens},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Message limit of the server and of the method `Tiny`.
const MESSAGE_BYTES_MAX: u64 = 4096;
const TINY_BYTES_MAX: u64 = 64;
/// Schema of the method `Show`.
const SCHEMA: u64 = 0x5EED;
/// Text of the refusal in every form that carries one.
const REFUSED: &str = "takes no calls without credentials";
/// Credentials of a known caller.
const TOKEN: &str = "Bearer t0ken";

static INFO: ServiceInfo = ServiceInfo {
    name: "test.Guarded",
    methods: &[
        MethodInfo::new("Show", Kind::Unary).schema(SCHEMA),
        MethodInfo::new("Flow", Kind::Bidi),
        MethodInfo::new("Feed", Kind::ServerStream),
        MethodInfo::new("Tiny", Kind::Unary),
    ],
    descriptor: &[],
};

/// Names of methods with the kinds of the service, and unknown ones of the same lengths.
const NAMES: [(&str, &str); 4] = [("Show", "Shaw"), ("Flow", "Flaw"), ("Feed", "Feet"), ("Tiny", "Tony")];

struct Guarded;

impl Service for Guarded {
    fn info(&self) -> &'static ServiceInfo {
        &INFO
    }

    async fn call(&self, _call: Call) -> Result<Reply> {
        Err(Status::data_loss("the handler was called"))
    }
}

async fn start() -> Running {
    Server::new()
        .limit(Limit::MessageBytesMax, MESSAGE_BYTES_MAX)
        .method_limit("test.Guarded/Tiny", Limit::MessageBytesMax, TINY_BYTES_MAX)
        .alias("kiss/1", "test.Guarded/Show")
        .auth(Tokens::default().token("t0ken", Caller::new("alice")))
        .add(Guarded)
        .listen("tcp://127.0.0.1:0")
        .start()
        .await
        .unwrap()
}

/// Writes the request for the method of a name.
type Write = Box<dyn Fn(&str) -> Vec<u8> + Send + Sync>;

/// A request with a fault, for the method of a name.
struct Case {
    name: &'static str,
    request: Write,
    /// The response refuses the caller; otherwise it ends the connection, or carries no reason.
    is_refused: bool,
}

fn case(name: &'static str, request: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Case {
    Case { name, request: Box::new(request), is_refused: true }
}

/// A case whose response does not depend on the method, and does not refuse the caller.
fn ends(name: &'static str, request: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Case {
    Case { is_refused: false, ..case(name, request) }
}

/// Sends the bytes and returns all that the server responds.
async fn ask(running: &Running, bytes: &[u8], half_closes: bool) -> Vec<u8> {
    let io = TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap();
    let (mut read, mut write) = io.into_split();
    let exchange = async {
        let sent = async {
            // The server may have closed the connection in the middle of the request.
            let _ = write.write_all(bytes).await;
            if half_closes {
                let _ = write.shutdown().await;
            }
        };
        let mut response = Vec::new();
        let (_, _) = tokio::join!(sent, read.read_to_end(&mut response));
        response
    };
    tokio::time::timeout(Duration::from_secs(20), exchange).await.expect("the server responds")
}

/// The response as text that does not depend on the method's name.
fn comparable(response: &[u8], known: &str, name: &str) -> String {
    let text: String = response.iter().map(|byte| char::from(*byte)).collect();
    let text =
        text.replace("%20", " ").replace(name, known).replace(&name.to_lowercase(), &known.to_lowercase());
    let lines = text.split_inclusive('\n').filter(|line| !line.to_lowercase().starts_with("date:"));
    lines.collect()
}

/// Compares the responses for methods that exist with those for unknown ones; returns the differences.
async fn differences(wire: &str, cases: Vec<Case>, half_closes: bool) -> Vec<String> {
    let running = start().await;
    let mut found = Vec::new();
    for case in cases {
        for (known, unknown) in NAMES {
            let existing = ask(&running, &(case.request)(known), half_closes).await;
            let missing = ask(&running, &(case.request)(unknown), half_closes).await;
            let (existing, missing) =
                (comparable(&existing, known, known), comparable(&missing, known, unknown));
            if existing != missing {
                found.push(format!("{wire}, {}, {known}:\n  {existing:?}\n  {missing:?}", case.name));
            } else if existing.contains(REFUSED) != case.is_refused {
                found.push(format!("{wire}, {}, {known}: {existing:?}", case.name));
            }
        }
    }
    found
}

#[tokio::test]
async fn responses_do_not_depend_on_the_method() {
    let mut found = Vec::new();
    for (wire, cases) in wires::all() {
        found.extend(differences(wire, cases, true).await);
    }
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

#[tokio::test]
async fn failures_of_kiss_do_not_depend_on_the_method() {
    let running = start().await;
    for (existing, missing) in wires::kiss(1).into_iter().zip(wires::kiss(9)) {
        let [existing, missing] = [ask(&running, &existing, true).await, ask(&running, &missing, true).await];
        // Function numbers differ.
        assert_eq!((&existing[..9], &existing[17..]), (&missing[..9], &missing[17..]));
    }
}

#[tokio::test]
async fn heartbeats_of_erpc_need_no_credentials() {
    let response = comparable(&ask(&start().await, &wires::heartbeat(), true).await, "", "Show");
    assert!(response.contains("code=0"), "{response:?}");
}

#[tokio::test]
async fn responses_of_http_do_not_depend_on_the_method() {
    let found = differences("HTTP/1.1", http::all(), false).await;
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

#[tokio::test]
async fn responses_of_grpc_do_not_depend_on_the_method() {
    let running = start().await;
    let mut found = Vec::new();
    for (case, headers, body) in http::grpc() {
        for (known, unknown) in NAMES {
            let existing = http::ask_grpc(&running, known, &headers, body.clone()).await;
            let missing =
                http::ask_grpc(&running, unknown, &headers, body.clone()).await.replace(unknown, known);
            if existing != missing || !existing.contains(REFUSED) {
                found.push(format!("{case}, {known}:\n  {existing}\n  {missing}"));
            }
        }
    }
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

#[tokio::test]
async fn callers_with_credentials_get_the_reason() {
    let running = start().await;
    for (request, reason) in wires::known() {
        let response = ask(&running, &request, true).await;
        let text = comparable(&response, "", "Show");
        assert!(text.contains(reason), "{reason}: {text:?}");
    }
    for (request, reason) in http::known() {
        let text = comparable(&ask(&running, &request, false).await, "", "Show");
        assert!(text.contains(reason), "{reason}: {text}");
    }
}
