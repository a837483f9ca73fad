//! JSON-RPC over bare TCP, HTTP and WebSocket, byte by byte.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use serde_json::{Value, json};
use std::sync::Arc;
use support::{Probe, Seen, raw::soon};
use switchboard::{Limit, Running, Server};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

async fn start(limits: &[(Limit, u64)]) -> (Running, Arc<Seen>) {
    let probe = Probe::default();
    let seen = probe.seen.clone();
    let server = Server::new().add(probe).listen_with("tcp://127.0.0.1:0", limits);
    (server.start().await.unwrap(), seen)
}

async fn dial(running: &Running) -> BufReader<TcpStream> {
    BufReader::new(TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap())
}

async fn line(stream: &mut BufReader<TcpStream>) -> Value {
    let mut line = String::new();
    soon(stream.read_line(&mut line)).await.unwrap();
    serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"))
}

fn request(method: &str, params: impl Into<Value>, id: impl Into<Value>) -> String {
    json!({"jsonrpc": "2.0", "method": method, "params": params.into(), "id": id.into()}).to_string()
}

fn post(path: &str, headers: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

/// A request that a browser sends for a page of another origin.
fn from_page(request: &str) -> String {
    request.replace("host: x\r\n", "host: localhost\r\norigin: https://other.example\r\n")
}

const JSON: &str = "content-type: application/json\r\n";

/// Status line and headers, and the body.
async fn answer(stream: &mut BufReader<TcpStream>) -> (String, String) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(soon(stream.read_line(&mut head)).await.unwrap() > 0, "closed after {head:?}");
    }
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    soon(stream.read_exact(&mut body)).await.unwrap();
    (head, String::from_utf8(body).unwrap())
}

/// The status and body of a request on a connection of its own.
async fn ask(running: &Running, request: &str) -> (u16, String) {
    let mut stream = dial(running).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let (head, body) = answer(&mut stream).await;
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
}

#[tokio::test]
async fn tcp_carries_requests_one_byte_at_a_time() {
    let (running, seen) = start(&[]).await;
    let mut stream = dial(&running).await;
    let echo = request("test.Probe.Echo", json!([[1, 2]]), json!(1));
    let batch = format!("[{echo},{}]", request("Probe.Fail", json!(["no such post"]), json!("x")));
    for byte in format!("{echo}\n  {batch}").bytes() {
        stream.write_all(&[byte]).await.unwrap();
        stream.flush().await.unwrap();
    }
    assert_eq!(line(&mut stream).await, json!({"jsonrpc": "2.0", "result": [1, 2], "id": 1}));
    let answers = line(&mut stream).await;
    assert_eq!(answers[0]["result"], json!([1, 2]));
    assert_eq!((&answers[1]["error"]["code"], &answers[1]["id"]), (&json!(-32004), &json!("x")));
    assert_eq!(answers[1]["error"]["data"]["details"][0]["type"], "test.Detail");
    // Notifications arrive and are not answered; what comes next is.
    stream
        .write_all(
            br#"{"jsonrpc":"2.0","method":"Probe.Note","params":[5]}{"jsonrpc":"2.0","method":"no.such"}"#,
        )
        .await
        .unwrap();
    stream.write_all(request("Probe.Block", json!([""]), json!(2)).as_bytes()).await.unwrap();
    assert_eq!(line(&mut stream).await["result"], "jsonrpc");
    seen.until(|seen| seen.notes.load(std::sync::atomic::Ordering::SeqCst) == 5).await;
}

#[tokio::test]
async fn answers_come_as_handlers_end_and_closing_cancels_them() {
    let (running, seen) = start(&[]).await;
    let mut stream = dial(&running).await;
    stream.write_all(request("Probe.Hang", json!([""]), json!(1)).as_bytes()).await.unwrap();
    stream.write_all(request("Probe.Hang", json!([""]), json!(2)).as_bytes()).await.unwrap();
    stream.write_all(request("Probe.Echo", json!([[7]]), json!(3)).as_bytes()).await.unwrap();
    assert_eq!(line(&mut stream).await, json!({"jsonrpc": "2.0", "result": [7], "id": 3}));
    seen.until(|seen| seen.hanging() == 2).await;
    let cancel = br#"{"jsonrpc":"2.0","method":"rpc.cancel","params":{"id":2}}"#;
    stream.write_all(cancel).await.unwrap();
    assert_eq!(line(&mut stream).await["error"]["code"], -32099);
    seen.until(|seen| seen.hanging() == 1).await;
    drop(stream);
    seen.until(|seen| seen.hanging() == 0).await;
}

#[tokio::test]
async fn replies_stream_as_notifications() {
    let (running, seen) = start(&[]).await;
    let mut stream = dial(&running).await;
    stream.write_all(request("Probe.Count", json!([[3, 1]]), json!("s")).as_bytes()).await.unwrap();
    for n in 0..3 {
        let item = json!({"jsonrpc": "2.0", "method": "rpc.stream", "params": {"id": "s", "result": [n]}});
        assert_eq!(line(&mut stream).await, item);
    }
    assert_eq!(line(&mut stream).await, json!({"jsonrpc": "2.0", "result": null, "id": "s"}));
    stream.write_all(request("Probe.Count", json!([[13, 1]]), json!(1)).as_bytes()).await.unwrap();
    for _ in 0..13 {
        line(&mut stream).await;
    }
    assert_eq!(line(&mut stream).await["error"]["message"], "13 is unlucky");
    // A reader that stops holds the writer back; the peer that goes ends it.
    stream.write_all(request("Probe.Count", json!([[u32::MAX, 10_000]]), json!(2)).as_bytes()).await.unwrap();
    line(&mut stream).await;
    seen.until(|seen| seen.hanging() == 1).await;
    drop(stream);
    seen.until(|seen| seen.hanging() == 0).await;
    for method in ["Probe.Sum", "Probe.Chat"] {
        let mut stream = dial(&running).await;
        stream.write_all(request(method, json!([]), json!(1)).as_bytes()).await.unwrap();
        assert_eq!(line(&mut stream).await["error"]["code"], -32601);
    }
}

#[tokio::test]
async fn calls_of_a_connection_are_limited() {
    let (running, seen) = start(&[(Limit::CallsMax, 2), (Limit::MessageBytesMax, 1000)]).await;
    let mut stream = dial(&running).await;
    let batch: Vec<_> = (0..3).map(|id| request("Probe.Hang", json!([""]), json!(id))).collect();
    stream.write_all(format!("[{}]", batch.join(",")).as_bytes()).await.unwrap();
    seen.until(|seen| seen.hanging() == 2).await;
    let over = request("Probe.Echo", json!([[1]]), json!("over"));
    stream.write_all(over.as_bytes()).await.unwrap();
    let refused = line(&mut stream).await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("over"), &json!(-32029)));
    assert!(refused["error"]["message"].as_str().unwrap().contains("calls_max"), "{refused}");
    let mut stream = dial(&running).await;
    stream
        .write_all(format!(r#"{{"jsonrpc":"2.0","id":1,"x":"{}"}}"#, "x".repeat(2000)).as_bytes())
        .await
        .unwrap();
    let refused = line(&mut stream).await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(-32029)));
    assert_eq!(refused["error"]["data"]["grpcCode"], 8);
    assert!(refused["error"]["message"].as_str().unwrap().contains("message_bytes_max"), "{refused}");
    assert_eq!(soon(stream.read(&mut [0; 10])).await.unwrap(), 0, "closed");
}

#[tokio::test]
async fn drain_answers_what_runs() {
    let (running, seen) = start(&[]).await;
    let mut stream = dial(&running).await;
    stream.write_all(request("Probe.Count", json!([[u32::MAX, 10]]), json!(1)).as_bytes()).await.unwrap();
    line(&mut stream).await;
    seen.until(|seen| seen.hanging() == 1).await;
    let drained = tokio::spawn(running.drain(std::time::Duration::from_secs(60)));
    // Refused once the connection has seen the drain.
    let late = loop {
        stream.write_all(request("Probe.Echo", json!([[1]]), json!("late")).as_bytes()).await.unwrap();
        let late = loop {
            let line = line(&mut stream).await;
            if line["id"] == "late" {
                break line;
            }
        };
        if late.get("error").is_some() {
            break late;
        }
    };
    assert_eq!(late["error"]["code"], -32014);
    let cancel = br#"{"jsonrpc":"2.0","method":"rpc.cancel","params":{"id":1}}"#;
    stream.write_all(cancel).await.unwrap();
    let mut rest = String::new();
    soon(stream.read_to_string(&mut rest)).await.unwrap();
    assert!(rest.contains("-32099"), "the stream ends with its answer");
    assert_eq!(drained.await.unwrap().aborted, 0);
}

#[tokio::test]
async fn post_answers_with_status_200_whatever_the_outcome() {
    let (running, _) = start(&[]).await;
    let mut stream = dial(&running).await;
    for (body, wanted) in [
        (request("Probe.Echo", json!([[1]]), json!(1)), json!({"jsonrpc": "2.0", "result": [1], "id": 1})),
        (
            request("Probe.Block", json!([""]), json!(1)),
            json!({"jsonrpc": "2.0", "result": "jsonrpc", "id": 1}),
        ),
        (request("Probe.Note", json!([1]), json!(1)), json!({"jsonrpc": "2.0", "result": null, "id": 1})),
    ] {
        for path in ["/", "/rpc"] {
            stream.write_all(post(path, JSON, &body).as_bytes()).await.unwrap();
            let (head, body) = answer(&mut stream).await;
            assert!(
                head.starts_with("http/1.1 200") && head.contains("content-type: application/json\r\n"),
                "{head}"
            );
            assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), wanted);
        }
    }
    for (body, code) in [
        ("{", -32700),
        ("", -32700),
        ("{} x", -32700),
        (r#"{"jsonrpc":"2.0","method":"Probe.Fail","params":["\ud800"],"id":1}"#, -32602),
        ("\u{feff}{}", -32700),
        ("[]", -32600),
        ("1", -32600),
        (r#"{"jsonrpc":"2.0","method":1}"#, -32600),
        (&request("no.such", json!([]), json!(1)), -32601),
        (&request("Probe.Count", json!([[1, 1]]), json!(1)), -32601),
        (&request("Probe.Echo", json!({"x": 1}), json!(1)), -32602),
        (&request("Probe.Fail", json!(["x"]), json!(1)), -32004),
        (&request("Probe.Panic", json!([""]), json!(1)), -32603),
    ] {
        let (status, answer) = ask(&running, &post("/rpc", JSON, body)).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!((status, &answer["error"]["code"]), (200, &json!(code)), "{body}: {answer}");
    }
    let batch = format!(
        "[{},1,{{\"jsonrpc\":\"2.0\",\"method\":\"Probe.Note\",\"params\":[1]}}]",
        request("Probe.Echo", json!([[1]]), json!(1))
    );
    let (_, answers) = ask(&running, &post("/", JSON, &batch)).await;
    assert_eq!(serde_json::from_str::<Value>(&answers).unwrap().as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn http_errors_have_http_statuses() {
    let (running, seen) = start(&[(Limit::MessageBytesMax, 100)]).await;
    let echo = request("Probe.Echo", json!([[1]]), json!(1));
    let note = r#"{"jsonrpc":"2.0","method":"Probe.Note","params":[3]}"#;
    for (request, status) in [
        (post("/rpc", "content-type: application/json-rpc; charset=utf-8\r\n", &echo), 200),
        (post("/rpc", "content-type: application/jsonrequest\r\n", &echo), 200),
        (post("/rpc", "content-type: text/plain\r\n", &echo), 415),
        (post("/rpc", "", &echo), 415),
        (post("/rpc", "content-type: application/json\r\ncontent-encoding: gzip\r\n", &echo), 415),
        (post("/any/path", "x-jsonrpc-2.0: true\r\n", &echo), 200),
        (post("/any/path", JSON, &echo), 404),
        (post("/", JSON, note), 204),
        (post("/", JSON, &format!("[{note}]")), 204),
        (post("/", JSON, r#"{"jsonrpc":"2.0","method":"no.such"}"#), 204),
        (post("/", JSON, &" ".repeat(101)), 413),
        (from_page(&post("/rpc", "", &echo)), 403),
        (from_page(&post("/", "content-type: text/plain\r\n", &echo)), 403),
        (post("/rpc", "user-agent: Mozilla/5.0\r\n", &echo), 421),
        ("GET /rpc HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(), 405),
        ("PUT /rpc HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n".to_owned(), 405),
    ] {
        let (found, body) = ask(&running, &request).await;
        assert_eq!(found, status, "{request}: {body}");
        if [403, 405, 413, 415, 421].contains(&status) {
            assert!(body.contains(r#""jsonrpc":"2.0""#) && body.contains(r#""error""#), "{request}: {body}");
        }
    }
    seen.until(|seen| seen.notes.load(std::sync::atomic::Ordering::SeqCst) == 6).await;
}

#[tokio::test]
async fn post_brings_deadline_and_metadata_and_is_cancelled_with_its_connection() {
    let (running, seen) = start(&[]).await;
    let hang = request("Probe.Hang", json!([""]), json!(1));
    for header in ["connect-timeout-ms: 20\r\n", "grpc-timeout: 20m\r\n"] {
        let (_, body) = ask(&running, &post("/rpc", &format!("{JSON}{header}"), &hang)).await;
        assert!(body.contains("-32008"), "{body}");
    }
    let (_, body) = ask(&running, &post("/rpc", &format!("{JSON}grpc-timeout: x\r\n"), &hang)).await;
    assert!(body.contains("-32602"), "{body}");
    let mut stream = dial(&running).await;
    let headers = format!("{JSON}x-head: a\r\nx-rpcx-meta: x-head-more=b%20c&X-Head-Q=d\r\n");
    stream
        .write_all(post("/rpc", &headers, &request("Probe.Echo", json!([[1]]), json!(1))).as_bytes())
        .await
        .unwrap();
    let (head, _) = answer(&mut stream).await;
    for header in ["\r\nx-head: a\r\n", "\r\nx-head-more: b c\r\n", "\r\nx-head-q: d\r\n"] {
        assert!(head.contains(header), "{head}");
    }
    stream.write_all(post("/rpc", JSON, &format!("[{hang},{hang}]")).as_bytes()).await.unwrap();
    seen.until(|seen| seen.hanging() == 2).await;
    drop(stream);
    seen.until(|seen| seen.hanging() == 0).await;
    assert_eq!(running.stats().calls_in_flight, 0);
}
