//! HTTP/JSON: paths, queries and bodies of requests, and statuses and bodies of replies.

use crate::{
    library,
    raw::{answer, chunk, dial, post},
};
use serde_json::{Value, json};
use switchboard::{HttpJson, Limit, Running};
use tokio::io::AsyncWriteExt;

/// Status line and headers, and the body.
pub(crate) async fn send(running: &Running, request: &[u8]) -> (String, Vec<u8>) {
    let mut stream = dial(running).await;
    stream.write_all(request).await.unwrap();
    answer(&mut stream).await
}

pub(crate) async fn get(running: &Running, path: &str) -> (String, Vec<u8>) {
    send(running, format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await
}

/// A request with a body of JSON.
pub(crate) fn with_body(verb: &str, path: &str, body: &str) -> Vec<u8> {
    let post = String::from_utf8(post(path, "application/json", body.as_bytes())).unwrap();
    post.replacen("POST", verb, 1).into_bytes()
}

pub(crate) fn as_json(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(body)))
}

#[track_caller]
pub(crate) fn has_status(answer: &(String, Vec<u8>), status: u16, request: &str) {
    let (head, body) = answer;
    assert!(
        head.starts_with(&format!("http/1.1 {status} ")),
        "{request}: {head}{}",
        String::from_utf8_lossy(body)
    );
}

#[tokio::test]
async fn paths_and_queries_become_messages() {
    let running = library::start(|server| server).await;
    for (path, message) in [
        ("/v1/books/7", json!({"bookId": "7"})),
        ("/v1/books/a%2Fb%20c+", json!({"bookId": "a/b c+"})),
        // Literal text beats a variable, and a verb beats text with a colon.
        ("/v1/books/new", json!({})),
        ("/v1/books/7:peek?text=p", json!({"bookId": "7", "text": "p"})),
        ("/v1/books/7:other", json!({"bookId": "7:other"})),
        ("/v1/%62ooks/7", json!({"bookId": "7"})),
        // Text of several segments keeps its escaped slashes.
        ("/v1/shelves/a%2Fb/books/c%20d", json!({"text": "shelves/a%2Fb/books/c d"})),
        ("/v1/files/", json!({"text": ""})),
        ("/v1/files", json!({"text": ""})),
        ("/v1/files/a/b%2fc/d", json!({"text": "a/b%2fc/d"})),
        ("/v1/inner/a/b", json!({"inner": {"name": "a", "deeper": {"name": "b"}}})),
        (
            "/v1/kinds/DARK_BLUE/-5/AP8/2026-01-02T03:04:05Z",
            json!({"color": "DARK_BLUE", "small": -5, "data": "AP8=", "at": "2026-01-02T03:04:05Z"}),
        ),
        // What the path says holds.
        ("/v1/books/7?book_id=8&bookId=9", json!({"bookId": "7"})),
        (
            "/v1/inner/a/b?inner.deeper.deeper.name=c",
            json!({
                "inner": {"name": "a", "deeper": {"name": "b", "deeper": {"name": "c"}}}
            }),
        ),
        ("/v1/books?", json!({})),
        (
            "/v1/books?flag=true&data=_-8%3D&ratio=1e3&small=-1&large=-9007199254740993",
            json!({
                "flag": true, "data": "/+8=", "ratio": 1000.0, "small": -1, "large": -9007199254740993i64
            }),
        ),
        (
            "/v1/books?count=7&hash=18446744073709551615&text=a+b%26&color=2",
            json!({
                "count": 7, "hash": u64::MAX, "text": "a b&", "color": 2
            }),
        ),
        (
            "/v1/books?numbers=1&numbers=2&colors=RED&numbers=3&colors=GREY",
            json!({
                "numbers": [1, 2, 3], "colors": ["RED", "GREY"]
            }),
        ),
        (
            "/v1/books?at=2026-01-02T03:04:05.5Z&waitTime=1.5s&mask=text,inner.name&maybe=5&note=x",
            json!({
                "at": "2026-01-02T03:04:05.5Z", "waitTime": "1.5s", "mask": "text,inner.name", "maybe": 5, "note": "x"
            }),
        ),
        ("/v1/books?wait_time=2s&ratio=NaN&left=l", json!({"waitTime": "2s", "ratio": "NaN", "left": "l"})),
        ("/v1/books?text", json!({"text": ""})),
    ] {
        let answered = get(&running, path).await;
        has_status(&answered, 200, path);
        assert_eq!(as_json(&answered.1), message, "{path}");
    }
}

#[tokio::test]
async fn bodies_become_messages() {
    let running = library::start(|server| server).await;
    for (verb, path, body, message) in [
        (
            "POST",
            "/v1/books",
            r#"{"text":"t","labels":{"a":"b"}}"#,
            json!({"text": "t", "labels": {"a": "b"}}),
        ),
        ("POST", "/v1/books", "", json!({})),
        ("PUT", "/v1/books/7", r#"{"text":"t"}"#, json!({"text": "t", "bookId": "7"})),
        // What the path says holds, whatever name the body uses.
        ("PUT", "/v1/books/7", r#"{"book_id":"8"}"#, json!({"bookId": "7"})),
        ("PUT", "/v1/books/7", r#"{"bookId":"8"}"#, json!({"bookId": "7"})),
        (
            "PATCH",
            "/v1/books/n?text=t",
            r#"{"deeper":{"name":"d"}}"#,
            json!({
                "text": "t", "inner": {"name": "n", "deeper": {"name": "d"}}
            }),
        ),
        ("PATCH", "/v1/books/n", "", json!({"inner": {"name": "n"}})),
        ("PROPFIND", "/v1/books", "{}", json!({})),
        ("DELETE", "/v1/books/7", "", json!({"bookId": "7"})),
        ("POST", "/library.v1.Library/Get", r#"{"text":"t"}"#, json!({"text": "t"})),
        ("POST", "/library.v1.Library/Get", "", json!({})),
    ] {
        let answered = send(&running, &with_body(verb, path, body)).await;
        has_status(&answered, 200, &format!("{verb} {path}"));
        assert_eq!(as_json(&answered.1), message, "{verb} {path}");
    }
    let bare = b"POST /library.v1.Library/Get HTTP/1.1\r\nhost: x\r\n\r\n";
    let answered = send(&running, bare).await;
    has_status(&answered, 415, "no content type");
    let charset = post("/library.v1.Library/Get", "application/json; charset=utf-8", b"{}");
    has_status(&send(&running, &charset).await, 200, "charset");
}

#[tokio::test]
async fn mistakes_are_named() {
    let running = library::start(|server| server.limit(Limit::MessageBytesMax, 100)).await;
    let deep = format!("{}1{}", "[".repeat(101), "]".repeat(101));
    let deep_field = format!("/v1/books?inner.{}name=1", "deeper.".repeat(1000));
    for (request, status, part) in [
        (with_body("GET", "/v1/books?nope=1", ""), 400, "`nope`: library.v1.Kinds has no field `nope`"),
        (with_body("GET", "/v1/books?inner.nope=1", ""), 400, "library.v1.Inner has no field `nope`"),
        (with_body("GET", "/v1/books?text.nope=1", ""), 400, "before `nope` has no fields"),
        (with_body("GET", &deep_field, ""), 400, "fields inside of more than 100 others"),
        (with_body("GET", "/v1/books?labels=1", ""), 400, "is a map"),
        (with_body("GET", "/v1/books?inner=1", ""), 400, "it is a library.v1.Inner"),
        (with_body("GET", "/v1/books?inners=1", ""), 400, "it is a library.v1.Inner"),
        (with_body("GET", "/v1/books?inners.name=1", ""), 400, "before `name` has no fields"),
        (with_body("GET", "/v1/books?small=1&small=2", ""), 400, "given twice"),
        (with_body("GET", "/v1/books?small=1.5", ""), 400, "`1.5` is not a number of 32 bits"),
        (with_body("GET", "/v1/books?color=PINK", ""), 400, "GREY, RED, DARK_BLUE"),
        (with_body("GET", "/v1/books?text=%ff", ""), 400, "not UTF-8"),
        (with_body("GET", "/v1/books/%zz", ""), 400, "without two hex digits"),
        (with_body("GET", "/v1/kinds/RED/x/AA/now", ""), 400, "`small` in the path: `x` is not a number"),
        (with_body("POST", "/v1/books?text=1", "{}"), 400, "the body contains all fields"),
        (with_body("PATCH", "/v1/books/n?inner.name=1", "{}"), 400, "`inner` is in the body"),
        (with_body("PATCH", "/v1/books/n", "5"), 400, "`inner.name` in the body has another type"),
        (with_body("PUT", "/v1/books/7", "[]"), 400, "not a JSON object"),
        (with_body("PUT", "/v1/books/7", "{"), 400, "not JSON"),
        (with_body("PUT", "/v1/books/7", r#"{"text":"a","text":"b"}"#), 400, "`text` is duplicate"),
        (
            with_body("POST", "/v1/books", &deep),
            413,
            "over the limit of 100 bytes (message_bytes_max of the receiver)",
        ),
        (with_body("GET", &format!("/v1/books?text={}", "x".repeat(9000)), ""), 414, "8192"),
        (with_body("GET", "/v1/fail", ""), 404, "no such book"),
        (
            with_body("GET", "/v1/nope", ""),
            404,
            "nothing is at GET /v1/nope; available: GET /v1/books/{book_id}",
        ),
        (with_body("GET", "/v1/books/", ""), 404, "nothing is at GET /v1/books/"),
        (with_body("POST", "/v1/fail", ""), 405, "this path has GET"),
        (
            post("/v1/books", "text/plain", b"{}"),
            415,
            "text/plain: send JSON with content-type application/json",
        ),
        (post("/library.v1.Library/Get", "text/plain", b"{}"), 415, "text/plain: send JSON"),
        (post("/library.v1.Library/Nope", "application/json", b"{}"), 404, "library.v1.Library has Get, Put"),
    ] {
        let request_text = String::from_utf8_lossy(&request).into_owned();
        let answered = send(&running, &request).await;
        has_status(&answered, status, &request_text);
        let error = as_json(&answered.1);
        assert!(error["message"].as_str().unwrap().contains(part), "{request_text}: {error}");
    }
    let deep = library::start(|server| server).await;
    let nested = with_body("POST", "/v1/books", &format!("{}1{}", "[".repeat(101), "]".repeat(101)));
    let answered = send(&deep, &nested).await;
    assert!(as_json(&answered.1)["message"].as_str().unwrap().contains("100 levels"), "{answered:?}");
}

#[tokio::test]
async fn errors_have_code_status_and_details() {
    let running = library::start(|server| server).await;
    let answered = get(&running, "/v1/fail").await;
    has_status(&answered, 404, "fail");
    assert_eq!(
        as_json(&answered.1),
        json!({
            "code": 5,
            "message": "no such book",
            "details": [{"@type": "type.googleapis.com/library.v1.Why", "value": "CAE"}],
        })
    );
    let (head, _) = send(&running, &with_body("PUT", "/v1/books", "{}")).await;
    assert!(
        head.starts_with("http/1.1 405") && head.contains("\r\nallow: get, post, propfind\r\n"),
        "{head}"
    );
}

#[tokio::test]
async fn replies_may_be_a_field_or_a_file() {
    let running = library::start(|server| server).await;
    for (path, body) in [
        ("/v1/title?text=t", "\"t\""),
        ("/v1/title", "\"\""),
        ("/v1/numbers?numbers=1", "[1]"),
        ("/v1/numbers", "[]"),
    ] {
        let answered = get(&running, path).await;
        assert_eq!(String::from_utf8_lossy(&answered.1), body, "{path}");
    }
    let (head, file) = get(&running, "/v1/file").await;
    assert!(head.contains("\r\ncontent-type: text/csv\r\n"), "{head}");
    assert_eq!(file, b"a,b\n");
    let (head, back) = send(&running, &post("/v1/file", "image/png", b"\x89PNG\0")).await;
    assert!(head.contains("\r\ncontent-type: image/png\r\n"), "{head}");
    assert_eq!(back, b"\x89PNG\0");
}

#[tokio::test]
async fn metadata_and_deadlines_travel_in_headers() {
    let running = library::start(|server| server).await;
    let request =
        "GET /v1/books HTTP/1.1\r\nhost: x\r\ngrpc-metadata-x-a: 1\r\nx-b: 2\r\ngrpc-timeout: 30S\r\n\r\n";
    let (head, _) = send(&running, request.as_bytes()).await;
    for line in ["x-a: 1", "x-b: 2", "x-left: some", "x-wire: http-json"] {
        assert!(head.contains(&format!("\r\ngrpc-metadata-{line}\r\n")), "{line}: {head}");
    }
    assert!(!head.contains("trailer"), "{head}");
    let mut stream = dial(&running).await;
    let request = "GET /v1/books HTTP/1.1\r\nhost: x\r\ngrpc-metadata-x-a: 1\r\nte: trailers\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let (head, _) = answer(&mut stream).await;
    assert!(head.contains("\r\ntrailer: grpc-trailer-x-a\r\n"), "{head}");
    assert_eq!(chunk(&mut stream).await, b"{}");
    let wrong = "GET /v1/books HTTP/1.1\r\nhost: x\r\ngrpc-timeout: soon\r\n\r\n";
    has_status(&send(&running, wrong.as_bytes()).await, 400, wrong);
    let late = "GET /v1/follow?text=hang HTTP/1.1\r\nhost: x\r\ngrpc-timeout: 50m\r\n\r\n";
    let mut stream = dial(&running).await;
    stream.write_all(late.as_bytes()).await.unwrap();
    answer(&mut stream).await;
    chunk(&mut stream).await;
    chunk(&mut stream).await;
    assert_eq!(as_json(&chunk(&mut stream).await)["error"]["code"], 4);
}

#[tokio::test]
async fn streams_are_lines_or_events() {
    let running = library::start(|server| server).await;
    let mut stream = dial(&running).await;
    stream.write_all(b"GET /v1/follow?text=fail HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let (head, _) = answer(&mut stream).await;
    assert!(
        head.contains("content-type: application/json") && head.contains("grpc-metadata-x-head: first"),
        "{head}"
    );
    assert_eq!(chunk(&mut stream).await, b"{\"result\":{\"text\":\"fail\"}}\n");
    assert_eq!(chunk(&mut stream).await, b"{\"result\":{\"text\":\"fail\"}}\n");
    let error = chunk(&mut stream).await;
    assert_eq!(as_json(&error), json!({"error": {"code": 10, "message": "half way", "details": []}}));
    assert_eq!(chunk(&mut stream).await, b"");

    let mut stream = dial(&running).await;
    let request = "GET /v1/follow?text=fail HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let (head, _) = answer(&mut stream).await;
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    assert_eq!(chunk(&mut stream).await, b"data: {\"text\":\"fail\"}\n\n");
    assert_eq!(chunk(&mut stream).await, b"data: {\"text\":\"fail\"}\n\n");
    let error = chunk(&mut stream).await;
    assert!(error.starts_with(b"event: error\ndata: {\"code\":10,"), "{}", String::from_utf8_lossy(&error));

    let mut stream = dial(&running).await;
    let post = post("/library.v1.Library/Follow", "application/json", b"{}");
    let post = String::from_utf8(post).unwrap().replace("host: x", "host: x\r\naccept: text/event-stream");
    stream.write_all(post.as_bytes()).await.unwrap();
    answer(&mut stream).await;
    chunk(&mut stream).await;
    chunk(&mut stream).await;
    assert_eq!(chunk(&mut stream).await, b"event: end\ndata: {}\n\n");
}

#[tokio::test]
async fn requests_may_come_in_lines() {
    let running = library::start(|server| server.limit(Limit::MessageBytesMax, 40)).await;
    for (path, body, count) in [
        ("/v1/load", "{\"text\":\"a\"}\n\n{\"text\":\"b\"}\r\n{\"text\":\"c\"}", 3),
        ("/v1/load", "", 0),
        ("/library.v1.Library/Load", "{\"text\":\"c\"}\n", 1),
    ] {
        let answered = send(&running, &with_body("POST", path, body)).await;
        has_status(&answered, 200, path);
        assert!(answered.0.contains(&format!("\r\ngrpc-metadata-x-count: {count}\r\n")), "{}", answered.0);
        let last = if count == 0 { json!({}) } else { json!({"text": "c"}) };
        assert_eq!(as_json(&answered.1), last);
    }
    let long = format!("{{\"text\":\"{}\"}}\n", "x".repeat(40));
    let answered = send(&running, &with_body("POST", "/v1/load", &long)).await;
    has_status(&answered, 429, "a long line");
    assert!(
        as_json(&answered.1)["message"].as_str().unwrap().contains("a line is over the limit of 40 bytes")
    );
}

#[tokio::test]
async fn a_stream_ends_when_its_caller_goes() {
    let running = library::start(|server| server).await;
    let mut stream = dial(&running).await;
    stream.write_all(b"GET /v1/follow?text=hang HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    answer(&mut stream).await;
    chunk(&mut stream).await;
    while running.stats().calls_in_flight == 0 {
        tokio::task::yield_now().await;
    }
    drop(stream);
    while running.stats().calls_in_flight > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn defaults_are_printed_and_unknown_parameters_ignored_on_request() {
    let options = HttpJson::new().print_defaults().ignore_unknown_parameters();
    let running = library::start(|server| server.http_json(options)).await;
    let answered = get(&running, "/v1/books?utm=1&labels=2&inner.name=n&numbers=1").await;
    has_status(&answered, 200, "unknown parameters");
    assert_eq!(
        as_json(&answered.1),
        json!({
            "flag": false, "data": "", "ratio": 0, "small": 0, "large": "0", "count": 0, "hash": "0",
            "text": "", "color": "GREY", "numbers": [1], "colors": [], "labels": {}, "inners": [], "bookId": "",
            "inner": {"name": "n"},
        })
    );
    let answered = send(&running, &with_body("POST", "/v1/books?utm=1", r#"{"inners":[{}]}"#)).await;
    assert_eq!(as_json(&answered.1)["inners"], json!([{"name": ""}]));
    let answered = get(&running, "/v1/title").await;
    assert_eq!(as_json(&answered.1), json!(""));
}
