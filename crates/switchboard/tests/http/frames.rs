//! A peer that writes HTTP/2 frames by hand, right or wrong.

use std::{io, time::Duration};
use switchboard::Running;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GO_AWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

/// Time limit that only a hang reaches.
const PATIENCE: Duration = Duration::from_secs(30);

/// Fails the test when `work` hangs.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("this hangs")
}

/// A frame as it came.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The error of a GOAWAY.
    pub(crate) fn reason(&self) -> u32 {
        assert_eq!(self.kind, GO_AWAY, "{self:?}");
        u32::from_be_bytes(*self.payload[4..].first_chunk().unwrap())
    }
}

/// One connection.
pub(crate) struct Http2(pub(crate) TcpStream);

impl Http2 {
    /// Connects and sends the preface with these settings.
    pub(crate) async fn open(running: &Running, settings: &[(u16, u32)]) -> Http2 {
        let io = TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap();
        io.set_nodelay(true).unwrap();
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend(name.to_be_bytes());
            payload.extend(value.to_be_bytes());
        }
        let mut peer = Http2(io);
        let mut first = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        first.extend(frame(SETTINGS, 0, 0, &payload));
        peer.send(&first).await.unwrap();
        peer
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }

    /// The next frame; none when the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// The next frame of this kind, whatever comes before it; none when the connection has ended.
    pub(crate) async fn next_of(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    /// Reads until the connection ends; returns the code of the server's GOAWAY, if there was one.
    pub(crate) async fn end(&mut self) -> Option<u32> {
        let mut reason = None;
        while let Some(frame) = self.next().await {
            if frame.kind == GO_AWAY {
                reason = Some(frame.reason());
            }
        }
        reason
    }
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A header that is not to be put into the table of the receiver.
pub(crate) fn header(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        length(text.len(), &mut bytes);
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// An integer of HPACK with a prefix of 7 bits.
pub(crate) fn length(length: usize, bytes: &mut Vec<u8>) {
    if length < 127 {
        bytes.push(length as u8);
        return;
    }
    bytes.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        bytes.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    bytes.push(rest as u8);
}

/// The headers of a call.
pub(crate) fn call(path: &str, kind: &str) -> Vec<u8> {
    [
        header(":method", "POST"),
        header(":scheme", "http"),
        header(":path", path),
        header(":authority", "x"),
        header("content-type", kind),
    ]
    .concat()
}

/// A whole call: its headers, and a body if there is one.
pub(crate) fn whole_call(stream: u32, path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = frame(HEADERS, END_HEADERS, stream, &call(path, kind));
    [head, frame(DATA, END_STREAM, stream, body)].concat()
}
