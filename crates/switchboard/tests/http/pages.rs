//! Static pages: their requests and headers, and that calls are not affected.

use crate::{
    library,
    raw::{answer, dial, post},
};
use switchboard::{Running, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PAGE: &str = "<!doctype html><title>a page</title>";

fn with_pages(server: Server) -> Server {
    server.page("/", "text/html; charset=utf-8", PAGE).page("/a.mjs", "text/javascript", "export {};")
}

async fn send(running: &Running, method: &str, path: &str) -> (String, Vec<u8>) {
    let mut stream = dial(running).await;
    stream.write_all(format!("{method} {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
    answer(&mut stream).await
}

#[tokio::test]
async fn pages_are_sent_with_a_strict_policy() {
    let running = library::start(with_pages).await;
    for path in ["/", "/?again=1"] {
        let (head, body) = send(&running, "GET", path).await;
        assert!(head.starts_with("http/1.1 200 ") && body == PAGE.as_bytes(), "{head}");
        for line in [
            "content-type: text/html; charset=utf-8",
            "content-security-policy: default-src 'none'; script-src 'self'; ",
            "x-content-type-options: nosniff",
            "cache-control: no-cache",
            "cross-origin-opener-policy: same-origin",
        ] {
            assert!(head.contains(&format!("\r\n{line}")), "{line}: {head}");
        }
        assert!(!head.contains("unsafe-"), "{head}");
    }
    let (head, body) = send(&running, "GET", "/a.mjs").await;
    assert!(head.contains("content-type: text/javascript") && body == b"export {};", "{head}");
}

#[tokio::test]
async fn head_has_the_length_and_keeps_the_connection() {
    let running = library::start(with_pages).await;
    let mut stream = dial(&running).await;
    let request =
        "HEAD / HTTP/1.1\r\nhost: x\r\n\r\nGET /a.mjs HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, rest) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("content-length: {}", PAGE.len())), "{head}");
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n") && rest.ends_with("export {};"), "{rest}");
}

#[tokio::test]
async fn calls_and_other_paths_are_not_concerned() {
    let running = library::start(with_pages).await;
    let mut stream = dial(&running).await;
    let request = br#"{"jsonrpc":"2.0","method":"nothing","id":1}"#;
    stream.write_all(&post("/", "application/json", request)).await.unwrap();
    let (head, body) = answer(&mut stream).await;
    let body = String::from_utf8(body).unwrap();
    assert!(head.starts_with("http/1.1 200 ") && body.contains("-32601"), "{head}{body}");
    assert!(send(&running, "GET", "/v1/books").await.0.starts_with("http/1.1 200 "));
    for (method, path) in [("GET", "/a.mj"), ("GET", "//"), ("GET", "/A.mjs"), ("PUT", "/a.mjs")] {
        let (head, _) = send(&running, method, path).await;
        assert!(head.starts_with("http/1.1 4"), "{method} {path}: {head}");
    }
    let without = library::start(|server| server).await;
    assert!(send(&without, "GET", "/").await.0.starts_with("http/1.1 404 "));
}

#[tokio::test]
async fn mistakes_are_named_at_the_start() {
    for (path, kind, what) in [
        ("a", "text/html", "page: \"a\" is not a path"),
        ("/a b", "text/html", "is not a path"),
        ("/a?b", "text/html", "is not a path"),
        ("/", "text/\nhtml", "is not a content type for /"),
        ("/twice", "text/html", "page: two pages are at /twice"),
    ] {
        let server = Server::new().page("/twice", "text/html", "").page(path, kind, "");
        let error = server.listen("tcp://127.0.0.1:0").start().await.err().unwrap();
        assert!(error.to_string().contains(what), "{error}");
    }
}
