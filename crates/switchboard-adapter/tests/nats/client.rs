//! A client that is driven line by line.

use std::time::Duration;
use switchboard::{Address, Running};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), work).await.expect("in time")
}

/// A connection of a client.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    /// The JSON of the first line.
    pub(crate) info: String,
}

/// Options of the client of most tests.
pub(crate) const QUIET: &str =
    r#"{"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}"#;

/// Returns the last address of a server, which is that of its NATS listener.
pub(crate) fn address(running: &Running) -> String {
    let Some(Address::Tcp(host, port)) = running.addresses().last() else { panic!("a TCP listener") };
    format!("{host}:{port}")
}

impl Client {
    /// Connects and reads INFO.
    pub(crate) async fn new(running: &Running) -> Client {
        let socket = TcpSocket::new_v4().unwrap();
        // What the kernel holds for it is part of what the server has written.
        socket.set_recv_buffer_size(64 << 10).unwrap();
        let stream = socket.connect(address(running).parse().unwrap()).await.unwrap();
        let mut client = Client { stream: BufReader::new(stream), info: String::new() };
        let line = client.line().await;
        line.strip_prefix("INFO ").expect("INFO first").clone_into(&mut client.info);
        client
    }

    /// Connects with these options, and waits until the server has accepted them.
    pub(crate) async fn with(running: &Running, options: &str) -> Client {
        let mut client = Client::new(running).await;
        client.send(&format!("CONNECT {options}\r\n")).await;
        client.settled().await;
        client
    }

    /// Connects with the options of most tests.
    pub(crate) async fn connect(running: &Running) -> Client {
        Client::with(running, QUIET).await
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.bytes(text.as_bytes()).await;
    }

    pub(crate) async fn bytes(&mut self, bytes: &[u8]) {
        // The server may have closed the connection.
        let _ = soon(self.stream.write_all(bytes)).await;
    }

    /// The next line; empty at the end of the connection.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = soon(self.stream.read_line(&mut line)).await.unwrap_or(0);
        assert!(read == 0 || line.ends_with("\r\n"), "{line:?}");
        line.trim_end().to_owned()
    }

    /// The next message: its line, and headers and payload as text.
    pub(crate) async fn message(&mut self) -> (String, String) {
        let line = self.line().await;
        let size = line.rsplit(' ').next().and_then(|size| size.parse().ok());
        let size: usize = size.unwrap_or_else(|| panic!("{line:?} is no message"));
        let mut payload = vec![0; size + 2];
        soon(self.stream.read_exact(&mut payload)).await.unwrap();
        assert_eq!(payload.split_off(size), b"\r\n");
        (line, String::from_utf8(payload).unwrap())
    }

    /// Expects a message.
    pub(crate) async fn expect(&mut self, line: &str, payload: &str) {
        assert_eq!(self.message().await, (line.to_owned(), payload.to_owned()));
    }

    /// Waits until the server has processed what was sent before, and expects no message until then.
    pub(crate) async fn settled(&mut self) {
        self.send("PING\r\n").await;
        assert_eq!(self.line().await, "PONG");
    }

    /// Publishes a text.
    pub(crate) async fn publish(&mut self, subject: &str, text: &str) {
        self.send(&format!("PUB {subject} {}\r\n{text}\r\n", text.len())).await;
    }
}
