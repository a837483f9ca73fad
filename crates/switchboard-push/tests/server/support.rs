//! Servers with a hub, tokens, and raw clients of HTTP.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::hmac;
use std::{future::Future, time::Duration};
use switchboard::{Running, Server};
use switchboard_push::{Hub, HubBuilder, Jwt, Rooms};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// Fails a test that would otherwise hang.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it ends")
}

const SECRET: [u8; 32] = [7; 32];

/// A hub that verifies tokens, with rooms that keep 100 entries.
pub(crate) fn builder() -> HubBuilder {
    let rooms = Rooms::new().history(100, Duration::MAX).presence();
    Hub::builder().auth(Jwt::hs256(SECRET)).rooms("live/*", rooms)
}

pub(crate) async fn start(hub: &Hub) -> Running {
    Server::new().plugin(hub.clone()).listen("tcp://127.0.0.1:0").start().await.unwrap()
}

/// Returns a token with these claims, which is valid for a century.
pub(crate) fn token(user: &str, claims: &str) -> String {
    let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    let claims = format!("{{\"sub\":\"{user}\",\"exp\":4000000000{claims}}}");
    let signed = format!("{}.{}", encode(r#"{"alg":"HS256"}"#), encode(&claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &SECRET), signed.as_bytes());
    format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag))
}

/// A response whose body is read line by line.
pub(crate) struct Client {
    io: BufReader<TcpStream>,
    pub(crate) status: u16,
    pub(crate) head: String,
}

impl Client {
    pub(crate) async fn get(server: &Running, path: &str, headers: &str) -> Client {
        let url = server.url();
        let mut io = TcpStream::connect(url.strip_prefix("tcp://").unwrap()).await.unwrap();
        let request = format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n{headers}\r\n");
        io.write_all(request.as_bytes()).await.unwrap();
        let (mut io, mut head) = (BufReader::new(io), String::new());
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(soon(io.read_line(&mut head)).await.unwrap(), 0, "no response: {head}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Client { io, status, head: head.to_lowercase() }
    }

    /// Opens the stream of a device; returns its first id.
    pub(crate) async fn events(server: &Running, query: &str, headers: &str) -> (Client, String) {
        let mut client = Client::get(server, &format!("/events?{query}"), headers).await;
        assert_eq!(client.status, 200, "{}", client.head);
        assert_eq!(client.line().await, "retry: 1000");
        let id = client.line().await.strip_prefix("id: ").unwrap().to_owned();
        assert_eq!(client.line().await, "");
        (client, id)
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(soon(self.io.read_line(&mut line)).await.unwrap(), 0, "the stream has ended");
        line.trim_end().to_owned()
    }

    /// Returns the kind, the id and the data of the next event.
    pub(crate) async fn event(&mut self) -> (String, String, String) {
        let (mut kind, mut id, mut data) = (String::new(), String::new(), Vec::new());
        loop {
            let line = self.line().await;
            match line.split_once(": ").unwrap_or((&line, "")) {
                ("event", text) => kind = text.to_owned(),
                ("id", text) => id = text.to_owned(),
                ("data", text) => data.push(text.to_owned()),
                ("", "") if !data.is_empty() => return (kind, id, data.join("\n")),
                _ => {}
            }
        }
    }

    /// Returns the kind and the data of the next event.
    pub(crate) async fn next(&mut self) -> (String, String) {
        let (kind, _, data) = self.event().await;
        (kind, data)
    }

    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = String::new();
        soon(self.io.read_to_string(&mut rest)).await.unwrap();
        rest
    }
}

pub(crate) fn entry(topic: &str, offset: u64, data: &str) -> (String, String) {
    (String::new(), format!(r#"{{"topic":"{topic}","offset":{offset},"data":{data}}}"#))
}

pub(crate) fn other(kind: &str, data: &str) -> (String, String) {
    (kind.to_owned(), data.to_owned())
}

/// Waits until a condition holds.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    soon(async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
