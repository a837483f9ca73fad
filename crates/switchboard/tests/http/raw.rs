//! HTTP/1.1 byte by byte, with requests that client libraries never send.

use crate::{frames::soon, service::start};
use base64::Engine;
use std::time::Duration;
use switchboard::{Limit, Running, StopOptions};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub(crate) async fn dial(running: &Running) -> TcpStream {
    let stream = TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

pub(crate) fn post(path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

/// The head and as much of the body as its length says.
pub(crate) async fn answer(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.unwrap();
    (head, body)
}

/// Another caller is served.
pub(crate) async fn serves(running: &Running) {
    soon(async {
        let mut stream = dial(running).await;
        stream.write_all(&post("/test.v1.Echo/Say", "application/json", b"\"you\"")).await.unwrap();
        let (head, body) = answer(&mut stream).await;
        assert!(head.starts_with("http/1.1 200") && body == b"\"hello you\"", "{head}");
    })
    .await;
}

/// The next chunk of a body that came without a length; empty at its end.
pub(crate) async fn chunk(stream: &mut TcpStream) -> Vec<u8> {
    let mut size = Vec::new();
    while !size.ends_with(b"\r\n") {
        size.push(stream.read_u8().await.unwrap());
    }
    let size = usize::from_str_radix(std::str::from_utf8(&size).unwrap().trim(), 16).unwrap();
    let mut data = vec![0; size + 2];
    stream.read_exact(&mut data).await.unwrap();
    data.truncate(size);
    data
}

#[tokio::test]
async fn request_may_come_byte_by_byte_and_connections_are_kept() {
    let (_, running) = start(&[]).await;
    let mut stream = dial(&running).await;
    for _ in 0..2 {
        for byte in post("/test.v1.Echo/Say", "application/json", b"\"you\"") {
            stream.write_all(&[byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        let (head, body) = answer(&mut stream).await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert_eq!(body, b"\"hello you\"");
    }
    stream.write_all(&post("/test.v1.Echo/Say", "application/json", b"\"fail\"")).await.unwrap();
    let (head, body) = answer(&mut stream).await;
    assert!(head.starts_with("http/1.1 404") && head.contains("\r\ntrailer-x-why: because\r\n"), "{head}");
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        body,
        serde_json::json!({
            "code": "not_found",
            "message": "no such thing: \u{e9}%",
            "details": [{"type": "test.v1.Why", "value": "CAE"}],
        })
    );
    assert_eq!(running.stats().accepted, 1);
}

#[tokio::test]
async fn answer_after_the_deadline_is_late_whichever_timer_fires_first() {
    let (_, running) = start(&[]).await;
    let mut stream = dial(&running).await;
    let request = String::from_utf8(post("/test.v1.Echo/Say", "application/json", br#""late""#)).unwrap();
    let request = request.replacen("host: x", "host: x\r\nconnect-timeout-ms: 20", 1);
    stream.write_all(request.as_bytes()).await.unwrap();
    let (head, body) = soon(answer(&mut stream)).await;
    let body = String::from_utf8(body).unwrap();
    assert!(body.contains("deadline_exceeded"), "{head}{body}");
}

#[tokio::test]
async fn odd_requests_get_their_http_status() {
    let (_, running) = start(&[(Limit::MessageBytesMax, 100)]).await;
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").into_bytes();
    let delete = b"DELETE /test.v1.Echo/Say HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n".to_vec();
    let large = [&b"\""[..], &[b'x'; 200], b"\""].concat();
    for (request, status, part) in [
        (get("/test.v1.Echo/Say?encoding=json&message=%22you%22&connect=v1"), 200, "hello you"),
        (get("/test.v1.Echo/Say?encoding=json&message=%22you%22&other=x"), 200, "hello you"),
        (get("/test.v1.Echo/Say?encoding=json&message=InlvdSI&base64=1&connect=v1"), 200, "hello you"),
        (get("/test.v1.Echo/Write?encoding=json&message=%22you%22"), 405, ""),
        (post("/test.v1.Echo/Note", "application/json", b"\"x\""), 200, "{}"),
        (get("/nothing/here"), 404, "nothing is at GET /nothing/here"),
        (get(&format!("/{}", "x".repeat(20_000))), 431, ""),
        (delete, 405, ""),
        (post("/test.v1.Echo/Say", "text/plain", b"x"), 415, ""),
        (post("/test.v1.Echo/Say", "application/json", b"{"), 400, "invalid_argument"),
        (post("/test.v1.Echo/Say", "application/json", &large), 429, "resource_exhausted"),
        (post("/test.v1.Echo/Say", "application/grpc", b"\0\0\0\0\0"), 505, ""),
        (b"GET /test.v1.Echo/Say nonsense\r\n\r\n".to_vec(), 400, ""),
    ] {
        let mut stream = dial(&running).await;
        stream.write_all(&request).await.unwrap();
        let (head, body) = answer(&mut stream).await;
        let input = String::from_utf8_lossy(&request);
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{input}: {head}");
        assert!(String::from_utf8_lossy(&body).contains(part), "{input}: {}", String::from_utf8_lossy(&body));
    }
    // The error names the supported values.
    let mut stream = dial(&running).await;
    stream.write_all(&post("/test.v1.Echo/Say", "application/xml", b"<x/>")).await.unwrap();
    let (head, _) = answer(&mut stream).await;
    assert!(head.starts_with("http/1.1 415") && head.contains("\r\naccept-post: "), "{head}");
    let put = b"PUT /test.v1.Echo/Write HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(put).await.unwrap();
    let (head, _) = answer(&mut stream).await;
    assert!(head.starts_with("http/1.1 405") && head.contains("\r\nallow: post\r\n"), "{head}");
    // Nothing is not compressed, whatever the head says.
    let empty = String::from_utf8(post("/test.v1.Echo/Say", "application/proto", b"")).unwrap();
    let empty = empty.replacen("host: x", "host: x\r\ncontent-encoding: gzip", 1);
    let mut stream = dial(&running).await;
    stream.write_all(empty.as_bytes()).await.unwrap();
    let (head, body) = answer(&mut stream).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(body, b"\x0a\x06hello ");
    // The answer may be here before the connection has ended.
    while running.stats().protocol_errors < 2 {
        tokio::task::yield_now().await;
    }
}

/// All chunks of a body.
async fn whole_body(stream: &mut TcpStream) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let part = chunk(stream).await;
        if part.is_empty() {
            return body;
        }
        body.extend(part);
    }
}

#[tokio::test]
async fn grpc_web_text_is_base64_both_ways() {
    let (_, running) = start(&[]).await;
    let mut stream = dial(&running).await;
    // StringValue "you", each part padded by itself, as browsers may flush it.
    let input = base64::engine::general_purpose::STANDARD.encode(b"\0\0\0\0\x05\x0a")
        + &base64::engine::general_purpose::STANDARD.encode(b"\x03you");
    for kind in ["application/grpc-web-text", "application/grpc-web-text+proto", "Application/gRPC-Web-Text"]
    {
        stream.write_all(&post("/test.v1.Echo/Say", kind, input.as_bytes())).await.unwrap();
        let (head, _) = answer(&mut stream).await;
        let kind = kind.to_lowercase();
        assert!(
            head.starts_with("http/1.1 200") && head.contains(&format!("content-type: {kind}\r\n")),
            "{head}"
        );
        let body = String::from_utf8(whole_body(&mut stream).await).unwrap();
        assert_eq!(unpadded(&body), b"\0\0\0\0\x0b\x0a\x09hello you\x80\0\0\0\x10grpc-status: 0\r\n");
    }
    stream
        .write_all(&post("/test.v1.Echo/Count", "application/grpc-web-text", input.as_bytes()))
        .await
        .unwrap();
    answer(&mut stream).await;
    let body = String::from_utf8(whole_body(&mut stream).await).unwrap();
    let body = unpadded(&body);
    assert!(body.starts_with(b"\0\0\0\0\x03\x0a\x011"), "{body:?}");
    assert!(String::from_utf8_lossy(&body).contains("x-end: bye"), "{body:?}");

    for wrong in ["!!!!", "AAAAA"] {
        stream
            .write_all(&post("/test.v1.Echo/Say", "application/grpc-web-text", wrong.as_bytes()))
            .await
            .unwrap();
        answer(&mut stream).await;
        let body = String::from_utf8(whole_body(&mut stream).await).unwrap();
        assert!(String::from_utf8_lossy(&unpadded(&body)).contains("base64"), "{body}");
    }
}

/// Decodes base64 that was padded part by part.
fn unpadded(text: &str) -> Vec<u8> {
    let groups = text.as_bytes().chunks(4);
    groups.flat_map(|group| base64::engine::general_purpose::STANDARD.decode(group).unwrap()).collect()
}

#[tokio::test]
async fn closed_connection_cancels_the_handler() {
    let (echo, running) = start(&[]).await;
    let mut stream = dial(&running).await;
    stream.write_all(&post("/test.v1.Echo/Say", "application/json", b"\"hang\"")).await.unwrap();
    while running.stats().calls_in_flight == 0 {
        tokio::task::yield_now().await;
    }
    drop(stream);
    echo.dropped.acquire().await.unwrap().forget();
}

#[tokio::test]
async fn drain_lets_an_open_stream_end_and_aborts_what_does_not() {
    let (_, running) = start(&[]).await;
    let mut stream = dial(&running).await;
    let mut idle = dial(&running).await;
    idle.write_all(&post("/test.v1.Echo/Say", "application/json", b"\"you\"")).await.unwrap();
    answer(&mut idle).await;
    let head = "POST /test.v1.Echo/Chat HTTP/1.1\r\nhost: x\r\ncontent-type: application/connect+json\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let word = b"8\r\n\0\0\0\0\x03\"a\"\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(word).await.unwrap();
    let (head, _) = answer(&mut stream).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(chunk(&mut stream).await, b"\0\0\0\0\x05\"<a>\"");

    let drained = tokio::spawn(running.drain(Duration::from_secs(60)));
    assert_eq!(idle.read(&mut [0]).await.unwrap(), 0, "the idle connection is closed at once");
    stream.write_all(word).await.unwrap();
    assert_eq!(chunk(&mut stream).await, b"\0\0\0\0\x05\"<a>\"");
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    assert_eq!(chunk(&mut stream).await, b"\x02\0\0\0\x1e{\"metadata\":{\"x-end\":[\"bye\"]}}");
    assert_eq!(drained.await.unwrap().aborted, 0);

    let (echo, running) = start(&[]).await;
    let mut stream = dial(&running).await;
    stream.write_all(&post("/test.v1.Echo/Say", "application/json", b"\"hang\"")).await.unwrap();
    while running.stats().calls_in_flight == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(running.drain(Duration::ZERO).await.aborted, 1);
    echo.dropped.acquire().await.unwrap().forget();
}

/// Until the server has read what was sent before on other connections.
async fn settle(running: &Running) {
    for _ in 0..3 {
        serves(running).await;
    }
}

#[tokio::test]
async fn incomplete_heads_are_closed_when_the_drain_begins() {
    let (_, running) = start(&[]).await;
    let mut fresh = dial(&running).await;
    fresh.write_all(b"POST /test.v1.Echo/Say HTTP/1.1\r\nhos").await.unwrap();
    let mut used = dial(&running).await;
    used.write_all(&post("/test.v1.Echo/Say", "application/json", b"\"you\"")).await.unwrap();
    answer(&mut used).await;
    used.write_all(b"POST /test.v1.Echo/Say HTTP/1.1\r\nhos").await.unwrap();
    settle(&running).await;
    let long = Duration::from_secs(3600);
    let stopped = soon(running.stop(StopOptions::new().drain(long).close(long))).await;
    assert!(stopped.is_clean(), "{stopped}");
}

#[tokio::test]
async fn incomplete_bodies_are_refused_when_calls_are_ended() {
    let half = |path: &str, headers: &str| {
        format!("POST {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\ncontent-length: 100\r\n\r\n{{")
    };
    let json = "content-type: application/json";
    for (path, headers, status) in [
        ("/test.v1.Echo/Say", json, 503),
        ("/test.v1.Echo/Count", json, 503),
        ("/test.v1.Echo/Say", "content-type: application/grpc-web+json", 200),
        ("/test.v1.Echo/Join", "content-type: application/connect+json", 200),
        ("/rpc", json, 503),
        ("/any", "content-type: application/x-thrift", 503),
        ("/test.v1.Echo", "x-rpcx-servicemethod: Say\r\nx-rpcx-serializetype: 1", 503),
    ] {
        let (_, running) = start(&[]).await;
        let mut stream = dial(&running).await;
        stream.write_all(half(path, headers).as_bytes()).await.unwrap();
        settle(&running).await;
        let long = Duration::from_secs(3600);
        let stopping = tokio::spawn(running.stop(StopOptions::new().drain(Duration::ZERO).close(long)));
        let (head, _) = soon(answer(&mut stream)).await;
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{path} {headers}: {head}");
        let stopped = soon(stopping).await.unwrap();
        assert!(stopped.connections.is_empty(), "{path} {headers}: {stopped}");
    }
}

#[tokio::test]
async fn incomplete_bodies_on_http2_are_refused_when_calls_are_ended() {
    let (_, running) = start(&[]).await;
    let (sender, connection) = h2::client::handshake(dial(&running).await).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::post("http://x/test.v1.Echo/Say").header("content-type", "application/grpc");
    let mut sender = sender.ready().await.unwrap();
    let (answered, mut body) = sender.send_request(request.body(()).unwrap(), false).unwrap();
    body.send_data(bytes::Bytes::from_static(b"\0\0\0\0\x20x"), false).unwrap();
    settle(&running).await;
    let stopping =
        tokio::spawn(running.stop(StopOptions::new().drain(Duration::ZERO).close(Duration::from_secs(3600))));
    let answered = soon(answered).await.unwrap();
    assert_eq!(answered.headers()["grpc-status"], "14");
    drop((sender, body, answered));
    let stopped = soon(stopping).await.unwrap();
    assert!(stopped.connections.is_empty(), "{stopped}");
    connection.abort();
}

#[tokio::test]
async fn old_connections_are_closed_between_requests() {
    let (_, running) = start(&[(Limit::ConnectionAge, 500)]).await;
    let mut stream = dial(&running).await;
    stream.write_all(&post("/test.v1.Echo/Say", "application/json", b"\"you\"")).await.unwrap();
    answer(&mut stream).await;
    assert_eq!(soon(stream.read(&mut [0])).await.unwrap(), 0);
}
