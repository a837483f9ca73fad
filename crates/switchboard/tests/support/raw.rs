//! A peer that writes the bytes of the native wire by hand, right or wrong.

use std::time::Duration;
use switchboard::{Code, Running};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

pub const MAGIC: &[u8] = b"\xF5SWB";
pub const PREFACE: &[u8] = b"\xF5SWB\x01\0\0\0";

pub const SETTINGS: u8 = 0;
pub const METHOD: u8 = 1;
pub const CALL: u8 = 2;
pub const HEAD: u8 = 3;
pub const ITEM: u8 = 4;
pub const REPLY: u8 = 5;
pub const END: u8 = 6;
pub const CANCEL: u8 = 7;
pub const CREDIT: u8 = 8;
pub const PING: u8 = 9;
pub const GO_AWAY: u8 = 10;

/// Flags of a CALL: its message is the first and last, is the first, or follows.
pub const WHOLE: u8 = 1 | 2;
pub const MORE: u8 = 0;

pub const POSTCARD: u8 = 3;

/// Nothing in these tests takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Fails the test when `work` hangs.
pub async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("this hangs")
}

/// The head of a request or an answer of HTTP/1.1, its empty line included.
pub async fn head_of(io: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon(io.read_u8()).await.expect("the head goes on"));
    }
    String::from_utf8(head).expect("a head is text")
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub aux: u16,
    pub id: u32,
    pub body: Vec<u8>,
}

impl Frame {
    /// Code and text of an END.
    pub fn status(&self) -> (Code, String) {
        assert_eq!(self.kind, END, "{self:?}");
        let code = Code::from_number(self.aux);
        let Some(fixed) = self.body.first_chunk::<12>() else { return (code, String::new()) };
        let text = 12 + usize::from(u16::from_le_bytes([fixed[2], fixed[3]]));
        let end = text + u32::from_le_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]) as usize;
        (code, String::from_utf8(self.body[text..end].to_vec()).expect("text"))
    }

    /// Returns whether an END says that the call surely did not begin.
    pub fn retry_is_safe(&self) -> bool {
        self.status();
        self.body.first() == Some(&1)
    }
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, aux: u16, id: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = header(body.len() as u32, kind, flags, aux, id);
    bytes.extend_from_slice(body);
    bytes
}

pub fn header(len: u32, kind: u8, flags: u8, aux: u16, id: u32) -> Vec<u8> {
    let mut bytes = len.to_le_bytes().to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&aux.to_le_bytes());
    bytes.extend_from_slice(&id.to_le_bytes());
    bytes
}

/// The body of a CALL.
pub fn call_body(timeout_ms: u32, codec: u8, metadata: &[u8], message: &[u8]) -> Vec<u8> {
    let mut body = timeout_ms.to_le_bytes().to_vec();
    body.extend_from_slice(&[codec, 0]);
    body.extend_from_slice(&(metadata.len() as u16).to_le_bytes());
    body.extend_from_slice(metadata);
    body.extend_from_slice(message);
    body
}

/// A CALL on postcard without metadata or deadline.
pub fn open_call(flags: u8, method: u16, id: u32, message: &[u8]) -> Vec<u8> {
    frame(CALL, flags, method, id, &call_body(0, POSTCARD, &[], message))
}

/// METHOD: `number` means `name` from now on.
pub fn method(number: u16, name: &str) -> Vec<u8> {
    frame(METHOD, 0, number, 0, name.as_bytes())
}

/// A message in postcard.
pub fn message(value: &impl serde::Serialize) -> Vec<u8> {
    let bytes = switchboard::codec::serde::encode(value, switchboard::Codec::Postcard);
    bytes.expect("encode").to_vec()
}

pub struct Raw {
    pub io: TcpStream,
    input: Vec<u8>,
    greeted: bool,
}

impl Raw {
    /// Opens a connection and sends nothing.
    pub async fn silent(running: &Running) -> Raw {
        let address = running.url().replace("tcp://", "");
        let io = TcpStream::connect(address).await.expect("connect");
        io.set_nodelay(true).expect("nodelay");
        Raw { io, input: Vec::new(), greeted: false }
    }

    /// Takes a connection of a client and answers its preface.
    pub async fn accept(listener: &TcpListener) -> Raw {
        let (io, _) = soon(listener.accept()).await.expect("accept");
        io.set_nodelay(true).expect("nodelay");
        let mut raw = Raw { io, input: Vec::new(), greeted: false };
        raw.send(PREFACE).await;
        raw
    }

    /// Opens a connection and names the methods of the probe by their index.
    pub async fn open(running: &Running) -> Raw {
        let mut raw = Raw::silent(running).await;
        let mut bytes = PREFACE.to_vec();
        for (number, info) in super::PROBE.methods.iter().enumerate() {
            bytes.extend(method(number as u16, &format!("test.Probe/{}", info.name)));
        }
        raw.send(&bytes).await;
        raw
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        soon(self.io.write_all(bytes)).await.expect("send");
    }

    /// The next frame but SETTINGS; none when the server has closed the connection.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if !self.greeted && self.input.len() >= 8 {
                assert_eq!(&self.input[..8], PREFACE);
                self.input.drain(..8);
                self.greeted = true;
            }
            if self.greeted && self.input.len() >= 12 {
                let len = u32::from_le_bytes([self.input[0], self.input[1], self.input[2], self.input[3]]);
                if self.input.len() >= 12 + len as usize {
                    let bytes: Vec<u8> = self.input.drain(..12 + len as usize).collect();
                    let frame = Frame {
                        kind: bytes[4],
                        flags: bytes[5],
                        aux: u16::from_le_bytes([bytes[6], bytes[7]]),
                        id: u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
                        body: bytes[12..].to_vec(),
                    };
                    if frame.kind != 0 {
                        return Some(frame);
                    }
                    continue;
                }
            }
            // A reset is an end as well.
            match soon(self.io.read_buf(&mut self.input)).await {
                Ok(n) if n > 0 => {}
                _ => return None,
            }
        }
    }

    /// The next frame, which has to come.
    pub async fn expect(&mut self) -> Frame {
        self.next().await.expect("the server closed the connection")
    }

    /// A unary echo works.
    pub async fn echo(&mut self, id: u32) {
        let text = message(&b"echo".to_vec());
        self.send(&open_call(WHOLE, 0, id, &text)).await;
        let reply = self.expect().await;
        assert_eq!((reply.kind, reply.id, reply.body), (REPLY, id, text));
    }

    /// Everything sent so far was handled: the answer to a PING is the next frame.
    pub async fn handled(&mut self) {
        self.send(&frame(PING, 0, 0, 77, &[])).await;
        let pong = self.expect().await;
        assert_eq!((pong.kind, pong.flags), (PING, 1), "{pong:?}");
    }
}
