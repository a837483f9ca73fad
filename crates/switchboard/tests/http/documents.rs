//! Details that the specifications of Connect, gRPC-Web, HTTP/JSON and JSON-RPC require, request by request.

use crate::{
    library,
    raw::{answer, chunk, dial, post},
    rest::{as_json, get, has_status, send},
    service::start,
};
use serde_json::json;
use switchboard::Running;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The request with another header.
fn with(request: &[u8], header: &str) -> Vec<u8> {
    let text = String::from_utf8(request.to_vec()).unwrap();
    text.replacen("host: x", &format!("host: x\r\n{header}"), 1).into_bytes()
}

#[tokio::test]
async fn connect_answers_in_its_own_words() {
    let (_, running) = start(&[]).await;
    let say = |kind: &str, body: &[u8]| post("/test.v1.Echo/Say", kind, body);
    // With and without the version of the protocol.
    for header in ["x-tag: 1", "x-tag: 1\r\nconnect-protocol-version: 1"] {
        let (head, body) = send(&running, &with(&say("application/json", b"\"x\""), header)).await;
        assert!(head.starts_with("http/1.1 200 ") && body == b"\"hello x\"", "{head}");
        assert!(head.contains("\r\ntrailer-x-end: bye\r\n"), "{head}");
    }
    // Errors are JSON whatever the codec.
    let (head, body) = send(&running, &say("application/proto", b"\x0a\x04fail")).await;
    assert!(
        head.starts_with("http/1.1 404 ") && head.contains("\r\ncontent-type: application/json\r\n"),
        "{head}"
    );
    assert_eq!(as_json(&body)["details"][0], json!({"type": "test.v1.Why", "value": "CAE"}));
    // Responses to GET may be cached, but not for callers that accept other codings.
    let input = "/test.v1.Echo/Say?connect=v1&encoding=proto&base64=1&message=CgN5b3U";
    for padding in ["", "="] {
        let (head, body) = get(&running, &format!("{input}{padding}")).await;
        assert!(head.starts_with("http/1.1 200 ") && body == b"\x0a\x09hello you", "{head}");
        assert!(head.contains("\r\nvary: accept-encoding\r\n"), "{head}");
    }
    for (query, part) in [
        ("encoding=json", "message"),
        ("message=%22x%22", "encoding"),
        ("encoding=xml&message=x", "xml"),
        ("encoding=json&message=%22x%22&connect=v2", "version"),
        ("encoding=json&message=InlvdSI&base64=1&compression=lzma", "lzma"),
    ] {
        let (head, body) = get(&running, &format!("/test.v1.Echo/Say?{query}")).await;
        let body = String::from_utf8_lossy(&body);
        assert!(head.starts_with("http/1.1 4") || head.starts_with("http/1.1 501"), "{query}: {head}{body}");
        assert!(body.is_empty() || body.contains(part), "{query}: {head}{body}");
    }
    // The types of content of unary calls are not for streams.
    let answered = send(&running, &post("/test.v1.Echo/Chat", "application/proto", b"\x0a\x01x")).await;
    has_status(&answered, 415, "a stream as application/proto");
    assert!(answered.0.contains("\r\naccept-post: "), "{}", answered.0);
}

#[tokio::test]
async fn callers_of_grpc_web_get_text_if_they_accept_it() {
    let (_, running) = start(&[]).await;
    let request = post("/test.v1.Echo/Say", "application/grpc-web+proto", b"\0\0\0\0\x03\x0a\x01x");
    let mut stream = dial(&running).await;
    stream.write_all(&with(&request, "accept: application/grpc-web-text")).await.unwrap();
    let (head, _) = answer(&mut stream).await;
    assert!(head.contains("content-type: application/grpc-web-text"), "{head}");
    assert!(chunk(&mut stream).await.starts_with(b"AAAAAAkK"), "a message in base64");
    // Headers of libraries for browsers are neither refused nor metadata.
    let libraries = "x-grpc-web: 1\r\nx-user-agent: grpc-web-javascript/0.1\r\ngrpc-timeout: 5S";
    let input = post("/test.v1.Echo/Say", "application/grpc-web+proto", b"\0\0\0\0\x0a\x0a\x08metadata");
    let mut stream = dial(&running).await;
    stream.write_all(&with(&input, libraries)).await.unwrap();
    let (head, _) = answer(&mut stream).await;
    assert!(
        head.starts_with("http/1.1 200 ") && head.contains("content-type: application/grpc-web+proto"),
        "{head}"
    );
    assert!(chunk(&mut stream).await.starts_with(b"\0\0\0\0\0"), "no metadata");
}

#[tokio::test]
async fn methods_have_plain_paths_for_json_and_protobuf() {
    let (_, running) = start(&[]).await;
    for kind in ["application/proto", "application/x-protobuf", "application/protobuf"] {
        let (head, body) = send(&running, &post("/test.v1.Echo/Say", kind, b"\x0a\x01x")).await;
        assert!(head.starts_with("http/1.1 200 ") && body == b"\x0a\x07hello x", "{kind}: {head}{body:?}");
        let (head, body) = send(&running, &post("/test.v1.Echo/Say", kind, b"")).await;
        assert!(head.starts_with("http/1.1 200 ") && body == b"\x0a\x06hello ", "{kind}: {head}{body:?}");
    }
    // Services may be called without their package.
    for (kind, body) in [("application/json", &b"\"x\""[..]), ("application/proto", b"\x0a\x01x")] {
        let (head, body) = send(&running, &post("/Echo/Say", kind, body)).await;
        assert!(head.starts_with("http/1.1 200 "), "{kind}: {head}{}", String::from_utf8_lossy(&body));
    }
}

#[tokio::test]
async fn texts_of_parameters_are_read_as_their_types_ask() {
    let running = library::start(|server| server).await;
    for (query, field, value) in [
        ("data=%2B%2F8%3D", "data", json!("+/8=")),
        ("data=-_8", "data", json!("+/8=")),
        ("flag=false", "flag", json!(false)),
        ("color=1", "color", json!(1)),
        ("inner.deeper.name=x", "inner", json!({"deeper": {"name": "x"}})),
    ] {
        let answered = get(&running, &format!("/v1/books?{query}")).await;
        has_status(&answered, 200, query);
        assert_eq!(as_json(&answered.1)[field], value, "{query}");
    }
    for query in ["flag=2", "flag=yes", "flag=", "data=!", "count=-1", "large=9223372036854775808", "ratio=x"]
    {
        has_status(&get(&running, &format!("/v1/books?{query}")).await, 400, query);
    }
    let many = "numbers=1&".repeat(256);
    has_status(&get(&running, &format!("/v1/books?{many}")).await, 200, "256 parameters");
    has_status(&get(&running, &format!("/v1/books?{many}numbers=1")).await, 400, "257 parameters");
    let long = |length: usize| format!("/v1/books/{}", "x".repeat(length - "/v1/books/".len()));
    has_status(&get(&running, &long(8192)).await, 200, "a path of 8 KiB");
    has_status(&get(&running, &long(8193)).await, 414, "a longer path");
}

#[tokio::test]
async fn trailers_come_behind_the_body_for_those_who_read_them() {
    let running = library::start(|server| server).await;
    let request = "GET /v1/follow HTTP/1.1\r\nhost: x\r\nte: trailers\r\nconnection: close\r\n\r\n";
    let mut stream = dial(&running).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut whole = String::new();
    stream.read_to_string(&mut whole).await.unwrap();
    assert!(whole.to_lowercase().contains("\r\ntransfer-encoding: chunked\r\n"), "{whole}");
    let request = "GET /v1/books HTTP/1.1\r\nhost: x\r\ngrpc-metadata-x-a: 1\r\nte: trailers\r\nconnection: close\r\n\r\n";
    let mut stream = dial(&running).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut whole = String::new();
    stream.read_to_string(&mut whole).await.unwrap();
    let (_, end) = whole.split_once("\r\n0\r\n").expect("chunks");
    assert_eq!(end.to_lowercase(), "grpc-trailer-x-a: 1\r\n\r\n");
}

/// Requests of JSON-RPC on HTTP/2.
async fn on_http2(running: &Running, body: &'static str) -> (http::StatusCode, Vec<u8>) {
    let io = dial(running).await;
    let (sender, connection) = h2::client::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post("http://x/rpc").header("content-type", "application/json");
    let mut sender = sender.ready().await.unwrap();
    let (answer, mut send) = sender.send_request(request.body(()).unwrap(), false).unwrap();
    send.send_data(bytes::Bytes::from_static(body.as_bytes()), true).unwrap();
    let answer = answer.await.unwrap();
    let (status, mut body, mut bytes) = (answer.status(), answer.into_body(), Vec::new());
    while let Some(data) = body.data().await {
        bytes.extend(data.unwrap());
    }
    (status, bytes)
}

#[tokio::test]
async fn json_rpc_works_on_http2_and_forgives_what_it_may() {
    let (_, running) = start(&[]).await;
    for (request, status, body) in [
        (
            r#"{"jsonrpc":"2.0","method":"test.v1.Echo.Say","params":["x"],"id":1e2}"#,
            200,
            r#"{"jsonrpc":"2.0","result":"hello x","id":1e2}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"test.v1.Echo/Say","params":["x"],"id":null}"#,
            200,
            r#"{"jsonrpc":"2.0","result":"hello x","id":null}"#,
        ),
        // Of a key that comes twice the last counts.
        (
            r#"{"jsonrpc":"2.0","method":"no.such","method":"Echo.Say","params":["x"],"id":0,"id":"a"}"#,
            200,
            r#"{"jsonrpc":"2.0","result":"hello x","id":"a"}"#,
        ),
        (r#"{"jsonrpc":"2.0","method":"Echo.Note","params":["x"]}"#, 204, ""),
    ] {
        let (found, answered) = on_http2(&running, request).await;
        assert_eq!(
            (found.as_u16(), String::from_utf8_lossy(&answered).as_ref()),
            (status, body),
            "{request}"
        );
    }
    let many = |count: usize| {
        format!("[{}]", vec![r#"{"jsonrpc":"2.0","method":"no.such","id":1}"#; count].join(","))
    };
    let (_, answers) = on_http2(&running, many(100).leak()).await;
    assert_eq!(as_json(&answers).as_array().map(Vec::len), Some(100));
    let (_, refused) = on_http2(&running, many(101).leak()).await;
    assert_eq!(as_json(&refused)["error"]["code"], -32600, "{}", as_json(&refused));
}
