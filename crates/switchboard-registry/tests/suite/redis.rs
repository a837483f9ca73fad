//! Frames of the Redis protocol, as a server reads and writes them.

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufStream},
    net::TcpStream,
};

/// Reads the words of one command; none at the end of the connection.
pub(crate) async fn read(stream: &mut BufStream<TcpStream>) -> Option<Vec<String>> {
    stream.fill_buf().await.ok().filter(|bytes| !bytes.is_empty())?;
    let mut words = Vec::new();
    for _ in 0..length(stream, '*').await? {
        let mut word = vec![0; length(stream, '$').await? + 2];
        stream.read_exact(&mut word).await.ok()?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Some(words)
}

async fn length(stream: &mut BufStream<TcpStream>, sign: char) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.trim().strip_prefix(sign)?.parse().ok()
}

/// The answer of the script that lists a service with one instance, whose lease has 200 ms left.
pub(crate) fn list(id: &str, value: &str) -> String {
    format!("*3\r\n$3\r\n200\r\n${}\r\n{id}\r\n${}\r\n{value}\r\n", id.len(), value.len())
}

/// The answer to `SUBSCRIBE`.
pub(crate) fn subscribed(channel: &str) -> String {
    format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:1\r\n", channel.len())
}
