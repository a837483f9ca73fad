//! A server with the plugin, and a connection to it, of which a test sees every byte.

use std::time::Duration;
use switchboard::{Codec, Running, Server};
use switchboard_adapter::Redis;
use switchboard_message::Publication;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), work).await.expect("in time")
}

/// A connection, of which the test sees every byte.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) async fn connect(running: &Running) -> Client {
        let address = running.url().replace("tcp://", "").parse().unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        // What the kernel holds for it is part of what the server has written.
        socket.set_recv_buffer_size(64 << 10).unwrap();
        Client(socket.connect(address).await.unwrap())
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        soon(self.0.write_all(bytes)).await.unwrap();
    }

    /// Sends commands, each a list of words.
    pub(crate) async fn send(&mut self, commands: &[&str]) {
        let bytes: String = commands.iter().map(|command| array(&words(command))).collect();
        self.write(bytes.as_bytes()).await;
    }

    /// Reads exactly these bytes.
    pub(crate) async fn expect(&mut self, bytes: &str) {
        let mut read = vec![0; bytes.len()];
        let mut at = 0;
        while at < read.len() {
            let n = soon(self.0.read(&mut read[at..])).await.unwrap();
            at += n;
            let text = String::from_utf8_lossy(&read[..at]);
            assert!(n > 0 && bytes.starts_with(&*text), "expected {bytes:?}, not {text:?}");
        }
    }

    pub(crate) async fn ask(&mut self, command: &str, reply: &str) {
        self.send(&[command]).await;
        self.expect(reply).await;
    }

    /// Reads up to these bytes.
    pub(crate) async fn until(&mut self, end: &str) {
        let mut read = Vec::new();
        while !read.ends_with(end.as_bytes()) {
            read.push(soon(self.0.read_u8()).await.unwrap());
        }
    }

    /// Reads to the end of the connection.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // The server may have closed the connection with bytes of the client unread.
        let _ = soon(self.0.read_to_end(&mut rest)).await;
        String::from_utf8_lossy(&rest).into_owned()
    }
}

pub(crate) fn words(command: &str) -> Vec<&str> {
    command.split(' ').filter(|word| !word.is_empty()).collect()
}

pub(crate) fn array(words: &[&str]) -> String {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect::<Vec<_>>();
    format!("*{}\r\n{}", words.len(), words.concat())
}

/// A confirmation, or a push of RESP3.
pub(crate) fn confirmation(kind: char, word: &str, name: &str, count: u32) -> String {
    format!("{kind}3\r\n${}\r\n{word}\r\n${}\r\n{name}\r\n:{count}\r\n", word.len(), name.len())
}

pub(crate) fn push(words: &[&str]) -> String {
    array(words).replacen('*', ">", 1)
}

pub(crate) async fn start(redis: &Redis) -> Running {
    Server::new().plugin(redis.clone()).listen("tcp://127.0.0.1:0").start().await.unwrap()
}

pub(crate) fn raw(text: &'static str) -> Publication {
    Publication::new(Codec::Raw, text)
}
