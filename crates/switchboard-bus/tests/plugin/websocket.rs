//! Event streams in WebSockets: one object for each message.

use crate::support::{Client, bus_with_history, publish, serve, soon, start};
use serde_json::{Value, json};
use switchboard::{Running, Server, StopOptions};
use switchboard_bus::BusServer;
use switchboard_message::{Bus, TopicOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A client, frame by frame.
struct Socket(Client);

impl Socket {
    async fn handshake(server: &Running, query: &str, headers: &str) -> Client {
        let request = format!(
            "GET /events?{query} HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
        );
        Client::send(server, request.as_bytes()).await
    }

    async fn open(server: &Running, query: &str) -> Socket {
        let client = Socket::handshake(server, query, "").await;
        assert_eq!(client.status, 101, "{}", client.head);
        assert!(
            client.head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="),
            "{}",
            client.head
        );
        Socket(client)
    }

    /// Returns the opcode and the payload of the next frame.
    async fn frame(&mut self) -> (u8, Vec<u8>) {
        let io = &mut self.0.io;
        soon(async {
            let (first, length) = (io.read_u8().await.unwrap(), io.read_u8().await.unwrap());
            assert_eq!(first & 0xf0, 0x80, "whole messages, uncompressed");
            let length = match length {
                126 => u64::from(io.read_u16().await.unwrap()),
                127 => io.read_u64().await.unwrap(),
                length => u64::from(length),
            };
            let mut payload = vec![0; length as usize];
            io.read_exact(&mut payload).await.unwrap();
            (first & 0x0f, payload)
        })
        .await
    }

    async fn object(&mut self) -> Value {
        let (opcode, payload) = self.frame().await;
        assert_eq!(opcode, 1, "{payload:?}");
        serde_json::from_slice(&payload).unwrap()
    }

    /// Sends a frame with a mask of zeros.
    async fn send(&mut self, opcode: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | opcode, 0x80 | payload.len() as u8, 0, 0, 0, 0];
        frame.extend(payload);
        self.0.io.write_all(&frame).await.unwrap();
    }

    /// Returns the code of the close frame, and responds to it.
    async fn close(&mut self) -> u16 {
        let (opcode, payload) = self.frame().await;
        assert_eq!(opcode, 8, "{payload:?}");
        self.send(8, &payload[..2]).await;
        u16::from_be_bytes([payload[0], payload[1]])
    }
}

#[tokio::test]
async fn messages_are_objects_and_resume_by_their_id() {
    let bus = bus_with_history();
    let server = serve(&bus).await;
    let mut socket = Socket::open(&server, "topic=live/7").await;
    let started = socket.object().await;
    assert_eq!(started["event"], "started");
    publish(&bus, "live/7", r#"{"n":1}"#).await;
    let entry = socket.object().await;
    let id = entry["id"].as_str().unwrap().to_owned();
    assert_eq!(entry, json!({"id": id, "topic": "live/7", "offset": 1, "data": {"n": 1}}));
    drop(socket);
    publish(&bus, "live/7", "2").await;
    let mut socket = Socket::open(&server, &format!("topic=live/7&id={id}")).await;
    assert_eq!(socket.object().await, json!({"event": "started", "id": id}));
    assert_eq!(socket.object().await, json!({"event": "resumed", "id": id}));
    assert_eq!(socket.object().await["data"], 2);
    let mut socket = Socket::open(&server, "topic=live/7&id=unreadable").await;
    let id = socket.object().await["id"].clone();
    let gap = json!({"event": "gap", "id": id, "topic": "live/7", "reason": "unreadable"});
    assert_eq!(socket.object().await, gap);
    let large = format!("\"{}\"", "x".repeat(300_000));
    publish(&bus, "live/7", &large).await;
    assert_eq!(socket.object().await["data"].as_str().unwrap().len(), 300_000);
}

#[tokio::test]
async fn the_client_sends_pings_and_the_end_only() {
    let bus = Bus::new();
    let server = serve(&bus).await;
    let mut socket = Socket::open(&server, "topic=t").await;
    socket.object().await;
    socket.send(9, b"alive").await;
    assert_eq!(socket.frame().await, (10, b"alive".to_vec()));
    socket.send(8, &1000_u16.to_be_bytes()).await;
    assert_eq!(socket.frame().await.0, 8);
    assert_eq!(socket.0.rest().await, "");

    let mut socket = Socket::open(&server, "topic=t").await;
    socket.object().await;
    socket.send(1, b"{}").await;
    assert_eq!(socket.close().await, 1003);
    assert_eq!(socket.0.rest().await, "");
    soon(async {
        while bus.stats().subscriptions > 0 || server.stats().connections > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_reader_that_stops_holds_little() {
    let bus = Bus::builder().topics("t", TopicOptions::new().backlog(16)).unwrap().build();
    let server = serve(&bus).await;
    let mut socket = Socket::open(&server, "topic=t").await;
    socket.object().await;
    let entry = format!("\"{}\"", "x".repeat(32 << 10));
    for _ in 0..2_000 {
        tokio::task::yield_now().await;
        publish(&bus, "t", &entry).await;
    }
    let (held, kept) = (server.stats().memory.held, bus.stats().bytes as u64);
    assert!(held + kept < 4 << 20, "{held} bytes for the reader, {kept} bytes in the log");
    assert!(held >= 32 << 10, "the message that is being written counts");
    let (mut next, mut missed) = (1, 0);
    while next <= 2_000 {
        let object = socket.object().await;
        if object["event"] == "gap" {
            assert_eq!((&object["reason"], &object["from"]), (&json!("lagged"), &json!(next)));
            let to = object["to"].as_u64().unwrap();
            (missed, next) = (missed + to + 1 - next, to + 1);
            continue;
        }
        assert_eq!(object["offset"], next);
        next += 1;
    }
    assert!(missed > 1_000, "{missed} entries were missed");
}

#[tokio::test]
async fn a_server_that_drains_goes_away() {
    let server = serve(&Bus::new()).await;
    let mut socket = Socket::open(&server, "topic=t").await;
    socket.object().await;
    let stopping = tokio::spawn(server.stop(StopOptions::new()));
    assert_eq!(socket.close().await, 1001);
    let stopped = soon(stopping).await.unwrap();
    assert!(stopped.is_clean(), "{stopped}");
}

#[tokio::test]
async fn handshakes_are_refused_before_they_are_accepted() {
    let topics = || BusServer::new(Bus::new());
    let server = start(Server::new().plugin(topics()).websocket_origins(["https://app.example"])).await;
    for (query, headers, status) in [
        ("topic=$nodes", "", 403),
        ("", "", 400),
        ("topic=t", "origin: https://other.example\r\n", 403),
        ("topic=t", "origin: https://app.example\r\n", 101),
        ("topic=t", "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n", 400),
    ] {
        let client = Socket::handshake(&server, query, headers).await;
        assert_eq!(client.status, status, "{query} {headers}: {}", client.head);
    }
}
