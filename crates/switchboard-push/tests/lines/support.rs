//! A server with the adapter, and its clients.

use crate::adapter::Lines;
use switchboard::{Running, Server};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

pub(crate) async fn start(lines: Lines) -> Running {
    Server::new().plugin(lines).listen("tcp://127.0.0.1:0").start().await.unwrap()
}

pub(crate) struct Line(BufReader<TcpStream>);

impl Line {
    pub(crate) async fn connect(server: &Running) -> Line {
        let address = server.url().trim_start_matches("tcp://").to_owned();
        Line(BufReader::new(TcpStream::connect(address).await.unwrap()))
    }

    pub(crate) async fn login(server: &Running, user: &str) -> Line {
        let mut line = Line::connect(server).await;
        line.send(&format!("CONNECT {user} {user}-key")).await;
        assert_eq!(line.next().await, "OK");
        line
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(format!("{text}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn next(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) async fn end(&mut self) -> String {
        let mut rest = String::new();
        self.0.read_to_string(&mut rest).await.unwrap();
        rest
    }
}

/// Fails a test that would otherwise hang.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(std::time::Duration::from_secs(60), future).await.expect("it ends")
}

/// Waits until a condition holds.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}
