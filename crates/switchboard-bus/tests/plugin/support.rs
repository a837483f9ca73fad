//! Servers with the plugin, and raw clients of HTTP.

use std::{future::Future, time::Duration};
use switchboard::{Codec, Running, Server};
use switchboard_bus::BusServer;
use switchboard_message::{Bus, Publication, TopicOptions};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// Fails a test that would otherwise hang.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it ends")
}

/// A bus whose topics keep 100 entries.
pub(crate) fn bus_with_history() -> Bus {
    Bus::builder().topics(">", TopicOptions::new().history(100, Duration::MAX)).unwrap().build()
}

pub(crate) async fn serve(bus: &Bus) -> Running {
    start(Server::new().plugin(BusServer::new(bus.clone()))).await
}

pub(crate) async fn start(server: Server) -> Running {
    server.listen("tcp://127.0.0.1:0").start().await.unwrap()
}

pub(crate) async fn publish(bus: &Bus, topic: &str, json: &str) {
    bus.publish_encoded(topic, Publication::new(Codec::Json, json.to_owned())).await.unwrap();
}

/// A response whose body is read line by line. The requests are of HTTP/1.0: its bodies end with the connection.
pub(crate) struct Client {
    pub(crate) io: BufReader<TcpStream>,
    pub(crate) status: u16,
    /// Status line and headers, in lower case.
    pub(crate) head: String,
}

/// A server-sent event.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Event {
    pub(crate) kind: String,
    pub(crate) id: String,
    pub(crate) data: String,
}

impl Client {
    /// Sends bytes and reads the head of the response.
    pub(crate) async fn send(server: &Running, request: &[u8]) -> Client {
        let mut io = Client::dial(server).await;
        io.write_all(request).await.unwrap();
        Client::receive(io).await
    }

    pub(crate) async fn dial(server: &Running) -> TcpStream {
        let url = server.url();
        TcpStream::connect(url.strip_prefix("tcp://").unwrap()).await.unwrap()
    }

    pub(crate) async fn receive(io: TcpStream) -> Client {
        let (mut io, mut head) = (BufReader::new(io), String::new());
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(soon(io.read_line(&mut head)).await.unwrap(), 0, "no response: {head}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Client { io, status, head: head.to_lowercase() }
    }

    /// Sends a GET with further headers, each with its line break.
    pub(crate) async fn get(server: &Running, path: &str, headers: &str) -> Client {
        let request = format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n{headers}\r\n");
        Client::send(server, request.as_bytes()).await
    }

    /// Opens an event stream and reads its first id.
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
        assert!(line.ends_with('\n') && !line.contains('\r'), "{line:?}");
        line.pop();
        line
    }

    /// Returns the next event that has data, as a browser reads it.
    pub(crate) async fn event(&mut self) -> Event {
        let (mut event, mut lines) = (Event::default(), Vec::new());
        loop {
            let line = self.line().await;
            match line.split_once(": ").unwrap_or((&line, "")) {
                ("", "") if lines.is_empty() => {}
                ("", "") => break,
                (":", "") | ("retry", "1000") => {}
                ("data", data) => lines.push(data.to_owned()),
                ("event", kind) => event.kind = kind.to_owned(),
                ("id", id) => event.id = id.to_owned(),
                _ => panic!("unexpected line {line:?}"),
            }
        }
        event.data = lines.join("\n");
        event
    }

    /// Returns the kind and the data of the next event.
    pub(crate) async fn next(&mut self) -> (String, String) {
        let Event { kind, data, .. } = self.event().await;
        (kind, data)
    }

    /// Reads to the end.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = String::new();
        soon(self.io.read_to_string(&mut rest)).await.unwrap();
        rest
    }
}

/// An expected entry.
pub(crate) fn entry(topic: &str, offset: u64, data: &str) -> (String, String) {
    (String::new(), format!(r#"{{"topic":"{topic}","offset":{offset},"data":{data}}}"#))
}

/// An expected event of another kind.
pub(crate) fn other(kind: &str, data: &str) -> (String, String) {
    (kind.to_owned(), data.to_owned())
}
