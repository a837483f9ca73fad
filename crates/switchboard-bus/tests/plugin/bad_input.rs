//! Requests that are refused, and heads that arrive slowly.

use crate::support::{Client, bus_with_history, entry, publish, serve, soon, start};
use switchboard::Server;
use switchboard_bus::BusServer;
use switchboard_message::Bus;
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn requests_are_refused_with_their_rule() {
    let bus = Bus::new();
    let server = serve(&bus).await;
    let many: Vec<_> = (0..33).map(|topic| format!("topic={topic}")).collect();
    let deep = format!("topic={}", ["l"; 17].join("/"));
    let long = format!("topic=t&x={}", "x".repeat(8 << 10));
    for (query, status, rule) in [
        ("", 400, "the query has no topic"),
        ("topic=", 400, "is empty"),
        ("topic=%zz", 400, "two hex digits"),
        ("topic=%ff", 400, "not UTF-8"),
        (&*deep, 400, "17 levels"),
        (&*many.join("&"), 400, "over 32 topics"),
        ("topic=$nodes", 403, "reserved"),
        ("topic=t&topic=a/*", 403, "\\\"a/*\\\" is a pattern"),
        ("topic=t&last=many", 400, "last=\\\"many\\\" is not a number"),
        ("topic=t&last=-1", 400, "is not a number"),
        (&*long, 414, "over the limit of 8192 bytes"),
    ] {
        let mut client = Client::get(&server, &format!("/events?{query}"), "").await;
        assert_eq!(client.status, status, "{query}");
        let text = client.rest().await;
        assert!(text.contains(rule), "{query}: {text}");
    }
    assert_eq!(bus.stats().subscriptions, 0);
    assert_eq!(bus.stats().topics, 0);
}

#[tokio::test]
async fn patterns_are_accepted_by_option() {
    let bus = bus_with_history();
    let topics = BusServer::new(bus.clone()).event_patterns();
    let server = start(Server::new().plugin(topics)).await;
    let (mut client, id) = Client::events(&server, "topic=live/*&topic=t", "").await;
    publish(&bus, "live/7", "1").await;
    assert_eq!(client.next().await, entry("live/7", 1, "1"));
    let (mut client, _) =
        Client::events(&server, "topic=live/*&topic=t", &format!("last-event-id: {id}\r\n")).await;
    let gap = client.event().await;
    assert_eq!((&*gap.kind, &*gap.data), ("gap", r#"{"topic":"live/*","reason":"unreadable"}"#));
    publish(&bus, "live/8", "2").await;
    assert_eq!(client.next().await, entry("live/8", 1, "2"));
}

#[tokio::test]
async fn other_methods_are_refused() {
    let server = serve(&Bus::new()).await;
    for (verb, headers) in [
        ("HEAD", ""),
        ("PUT", ""),
        ("DELETE", ""),
        ("OPTIONS", ""),
        ("POST", "content-type: application/json\r\ncontent-length: 0\r\n"),
    ] {
        let request = format!("{verb} /events?topic=t HTTP/1.0\r\nhost: localhost\r\n{headers}\r\n");
        let client = Client::send(&server, request.as_bytes()).await;
        assert_eq!(client.status, 405, "{verb}: {}", client.head);
        assert!(client.head.contains("\r\nallow: get\r\n"), "{verb}: {}", client.head);
    }
}

#[tokio::test]
async fn callers_that_accept_other_types_are_refused() {
    let server = serve(&Bus::new()).await;
    for (accept, status) in [
        ("", 200),
        ("accept: */*\r\n", 200),
        ("accept: text/html, Text/Event-Stream;q=0.5\r\n", 200),
        ("accept: text/*\r\n", 200),
        ("accept: application/json\r\naccept: */*;q=0.1\r\n", 200),
        ("accept: application/json\r\n", 406),
        ("accept: text/event-stream;q=0, */*\r\n", 406),
        ("accept: */*;q=0\r\n", 406),
    ] {
        let client = Client::get(&server, "/events?topic=t", accept).await;
        assert_eq!(client.status, status, "{accept:?}");
    }
}

#[tokio::test]
async fn a_head_has_a_limit() {
    let server = serve(&Bus::new()).await;
    let client = Client::get(&server, "/events?topic=t", &format!("x: {}\r\n", "x".repeat(40 << 10))).await;
    assert_eq!(client.status, 431);
}

#[tokio::test]
async fn a_head_may_arrive_one_byte_at_a_time() {
    let bus = Bus::new();
    let server = serve(&bus).await;
    let mut io = Client::dial(&server).await;
    io.set_nodelay(true).unwrap();
    for byte in b"GET /events?topic=t HTTP/1.0\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n" {
        io.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut client = soon(Client::receive(io)).await;
    assert_eq!(client.status, 200);
    publish(&bus, "t", "1").await;
    client.event().await;
}
