//! Calls and streams of baidu_std with peers that behave as brpc does: both ends of the wire written by hand.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use bytes::Bytes;
use std::{collections::HashMap, sync::Arc};
use support::{Probe, raw::soon};
use switchboard::{
    Call, Channel, Code, Codec, Kind, Limit, MethodInfo, Reply, Result, Running, Server, Service,
    ServiceInfo, Status, codec::serde,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Notify, Semaphore},
};

const RESET: u64 = 1;
const CLOSE: u64 = 2;
const DATA: u64 = 3;
const FEEDBACK: u64 = 4;

fn varint(into: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

fn number(field: u64, value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint(&mut bytes, field << 3);
    varint(&mut bytes, value);
    bytes
}

fn message(field: u64, parts: &[Vec<u8>]) -> Vec<u8> {
    let whole = parts.concat();
    let mut bytes = Vec::new();
    varint(&mut bytes, field << 3 | 2);
    varint(&mut bytes, whole.len() as u64);
    [bytes, whole].concat()
}

fn text(field: u64, value: &str) -> Vec<u8> {
    message(field, &[value.as_bytes().to_vec()])
}

/// A frame that begins with `magic`.
fn frame(magic: &[u8; 4], meta: &[Vec<u8>], payload: &[u8]) -> Vec<u8> {
    let meta = meta.concat();
    let mut bytes = magic.to_vec();
    bytes.extend_from_slice(&((meta.len() + payload.len()) as u32).to_be_bytes());
    bytes.extend_from_slice(&(meta.len() as u32).to_be_bytes());
    [&bytes[..], &meta, payload].concat()
}

fn stream_frame(to: u64, kind: u64, rest: &[Vec<u8>], payload: &[u8]) -> Vec<u8> {
    let meta = [&[number(1, to), number(2, PEER), number(3, kind)], rest].concat();
    frame(b"STRM", &meta, payload)
}

fn feedback(to: u64, consumed: u64) -> Vec<u8> {
    stream_frame(to, FEEDBACK, &[message(5, &[number(1, consumed)])], b"")
}

/// Settings of a stream as brpc writes them.
fn settings() -> Vec<u8> {
    message(8, &[number(1, PEER), number(2, 1), number(3, 1)])
}

/// The number of the stream at the peer that is played here.
const PEER: u64 = 7;

#[derive(Debug)]
struct Field {
    number: u64,
    bytes: Vec<u8>,
}

/// The last value of each field.
fn fields(mut bytes: &[u8]) -> HashMap<u64, Field> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7F) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }
    let mut found = HashMap::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let number = varint(&mut bytes);
        let mut field = Field { number, bytes: Vec::new() };
        if tag & 7 == 2 {
            field.bytes = bytes[..number as usize].to_vec();
            bytes = &bytes[number as usize..];
        }
        found.insert(tag >> 3, field);
    }
    found
}

/// A frame as it came.
#[derive(Debug)]
struct Frame {
    is_stream: bool,
    meta: HashMap<u64, Field>,
    payload: Vec<u8>,
}

impl Frame {
    fn read(bytes: &[u8]) -> Frame {
        let size = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let meta = 12 + size(8);
        assert_eq!(bytes.len(), 12 + size(4));
        Frame {
            is_stream: &bytes[..4] == b"STRM",
            meta: fields(&bytes[12..meta]),
            payload: bytes[meta..].to_vec(),
        }
    }

    fn number(&self, field: u64) -> u64 {
        self.meta.get(&field).map_or(0, |field| field.number)
    }

    /// Its kind, if it belongs to a stream; 0 for a call or a response.
    fn kind(&self) -> u64 {
        if self.is_stream { self.number(3) } else { 0 }
    }

    fn consumed(&self) -> u64 {
        assert_eq!(self.kind(), FEEDBACK, "{self:?}");
        fields(&self.meta[&5].bytes)[&1].number
    }

    /// The settings of the stream that it opens.
    fn stream(&self) -> u64 {
        fields(&self.meta[&8].bytes)[&1].number
    }
}

/// One end of a connection.
struct Peer {
    read: OwnedReadHalf,
    write: OwnedWriteHalf,
}

impl Peer {
    fn new(io: TcpStream) -> Peer {
        let (read, write) = io.into_split();
        Peer { read, write }
    }

    async fn send(&mut self, bytes: &[u8]) {
        soon(self.write.write_all(bytes)).await.unwrap();
    }

    async fn frame(&mut self) -> Frame {
        let mut bytes = vec![0; 12];
        soon(self.read.read_exact(&mut bytes)).await.unwrap();
        let size = u32::from_be_bytes(bytes[4..8].try_into().unwrap()) as usize;
        bytes.resize(12 + size, 0);
        soon(self.read.read_exact(&mut bytes[12..])).await.unwrap();
        Frame::read(&bytes)
    }

    /// Calls a method in JSON; with `rest`, more fields of the meta.
    async fn call(&mut self, id: u64, method: &str, rest: &[Vec<u8>], request: &str) {
        let named = message(1, &[text(1, "test.Probe"), text(2, method)]);
        let meta = [&[named, number(4, id), number(10, 2)], rest].concat();
        self.send(&frame(b"PRPC", &meta, request.as_bytes())).await;
    }

    /// Calls a method that opens a stream, and reads the response: the number of the stream at the server.
    async fn open(&mut self, id: u64, method: &str, request: &str) -> u64 {
        self.call(id, method, &[settings()], request).await;
        let response = self.frame().await;
        assert_eq!((response.kind(), response.number(1)), (DATA, PEER), "{response:?}");
        Frame::read(&response.payload).stream()
    }

    /// Makes a call whose reply shows what came before it: nothing.
    async fn nothing_comes(&mut self) {
        self.call(999, "Echo", &[], "[1]").await;
        let reply = self.frame().await;
        assert_eq!((reply.kind(), reply.number(4)), (0, 999), "{reply:?}");
    }
}

/// Reads its requests when it may, and replies with their number.
struct Gate(Arc<Semaphore>);

static GATE: ServiceInfo = ServiceInfo {
    name: "test.Gate",
    methods: &[MethodInfo::new("Pass", Kind::ClientStream)],
    descriptor: &[],
};

impl Service for Gate {
    fn info(&self) -> &'static ServiceInfo {
        &GATE
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let codec = call.codec();
        let (requests, cx) = call.into_many();
        let mut requests = switchboard::Receiver::<Bytes>::of_request(requests, codec, |_, bytes| Ok(bytes));
        let _permit = self.0.acquire().await.map_err(|_| Status::internal("closed"))?;
        let mut count = 0_u32;
        while requests.next().await?.is_some() {
            count += 1;
        }
        Ok(Reply::one(serde::encode(&count, codec)?, cx))
    }
}

/// A server, a client of brpc that is connected to it, and what lets its `Gate` read.
async fn serve(limits: &[(Limit, u64)]) -> (Running, Peer, Arc<Semaphore>) {
    let permits = Arc::new(Semaphore::new(0));
    let mut server = Server::new().add(Probe::default()).add(Gate(permits.clone()));
    for (limit, value) in limits {
        server = server.limit(*limit, *value);
    }
    let running = server.listen("tcp://127.0.0.1:0").start().await.unwrap();
    let io = TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap();
    (running, Peer::new(io), permits)
}

#[tokio::test]
async fn a_short_stream_ends_after_its_caller_has_read_the_response() {
    let (_running, mut peer, _) = serve(&[(Limit::StreamEndDelay, 10_000)]).await;
    let stream = peer.open(1, "Count", "[1, 3]").await;
    let reply = peer.frame().await;
    assert_eq!(reply.kind(), DATA);
    // A client of brpc fails the call when the stream ends while the response is in its queue.
    peer.nothing_comes().await;
    peer.send(&feedback(stream, reply.payload.len() as u64)).await;
    assert_eq!(peer.frame().await.kind(), CLOSE);
    peer.nothing_comes().await;
}

#[tokio::test]
async fn a_stream_without_messages_ends_after_a_short_time() {
    let (_running, mut peer, _) = serve(&[(Limit::StreamEndDelay, 1)]).await;
    peer.open(1, "Count", "[0, 0]").await;
    assert_eq!(peer.frame().await.kind(), CLOSE);
}

#[tokio::test]
async fn callers_with_small_windows_get_feedback_for_every_byte() {
    let (_running, mut peer, _) = serve(&[]).await;
    let stream = peer.open(1, "Sum", "").await;
    for consumed in 1..=3 {
        peer.send(&stream_frame(stream, DATA, &[], b"7")).await;
        assert_eq!(peer.frame().await.consumed(), consumed);
    }
    peer.send(&stream_frame(stream, CLOSE, &[], b"")).await;
    assert_eq!(peer.frame().await.payload, b"21");
}

/// Messages that are more than the window and what sockets hold.
const MANY: usize = 160;
const LARGE: usize = 100_000;
/// Messages that a receiver takes while its reader takes none.
const AHEAD: usize = 22;

async fn open_gate(peer: &mut Peer) -> u64 {
    let named = message(1, &[text(1, "test.Gate"), text(2, "Pass")]);
    peer.send(&frame(b"PRPC", &[named, number(4, 1), number(10, 2), settings()], b"")).await;
    Frame::read(&peer.frame().await.payload).stream()
}

#[tokio::test]
async fn a_caller_that_is_ahead_of_the_reader_waits() {
    let (_running, mut peer, permits) = serve(&[]).await;
    let stream = open_gate(&mut peer).await;
    let Peer { read, mut write } = peer;
    let ahead = Arc::new(Notify::new());
    let is_ahead = ahead.clone();
    let sending = tokio::spawn(async move {
        let data = stream_frame(stream, DATA, &[], &[b'1'; LARGE]);
        for at in 0..MANY {
            write.write_all(&data).await.unwrap();
            if at == AHEAD {
                is_ahead.notify_one();
            }
        }
        write.write_all(&stream_frame(stream, CLOSE, &[], b"")).await.unwrap();
        write
    });
    soon(ahead.notified()).await;
    permits.add_permits(1);
    let write = soon(sending).await.unwrap();
    let mut peer = Peer { read, write };
    let reply = loop {
        let frame = peer.frame().await;
        if frame.kind() != FEEDBACK {
            break frame;
        }
    };
    assert_eq!((reply.kind(), reply.payload), (DATA, MANY.to_string().into_bytes()));
}

#[tokio::test]
async fn a_reader_that_takes_nothing_ends_its_call_and_not_the_connection() {
    let (_running, mut peer, _permits) = serve(&[(Limit::StreamStallTimeout, 100)]).await;
    let stream = open_gate(&mut peer).await;
    let Peer { read, mut write } = peer;
    let sending = tokio::spawn(async move {
        let data = stream_frame(stream, DATA, &[], &[b'1'; LARGE]);
        for _ in 0..MANY {
            write.write_all(&data).await.unwrap();
        }
        write
    });
    let write = soon(sending).await.unwrap();
    let mut peer = Peer { read, write };
    let end = peer.frame().await;
    assert_eq!(end.kind(), RESET, "{end:?}");
    let response = Frame::read(&end.payload);
    let why = String::from_utf8_lossy(&response.meta[&2].bytes).into_owned();
    assert!(why.contains("stream_stall_timeout"), "{why}");
    peer.call(2, "Echo", &[], "[1]").await;
    loop {
        let frame = peer.frame().await;
        if frame.kind() == 0 {
            return assert_eq!((frame.number(4), &frame.payload[..]), (2, &b"[1]"[..]));
        }
    }
}

/// A channel to a server that is played here.
async fn dial(options: &str) -> (Channel, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("tcp://{address}?wire=baidu_std&connections=1{options}");
    (Channel::connect(&url).await.unwrap(), listener)
}

async fn accept(listener: &TcpListener) -> Peer {
    Peer::new(soon(listener.accept()).await.unwrap().0)
}

impl Peer {
    /// Takes the call that opens a stream, and responds: the number of the stream at the client.
    async fn accept_stream(&mut self) -> u64 {
        let call = self.frame().await;
        let stream = call.stream();
        let response = frame(b"PRPC", &[text(2, ""), number(4, call.number(4)), settings()], b"");
        self.send(&stream_frame(stream, DATA, &[], &response)).await;
        stream
    }

    /// Takes a unary call, before which nothing else came, and answers it.
    async fn only_a_call(&mut self) {
        let call = self.frame().await;
        assert_eq!(call.kind(), 0, "{call:?}");
        let meta = [text(2, ""), number(4, call.number(4)), number(10, 2)];
        self.send(&frame(b"PRPC", &meta, b"[1]")).await;
    }
}

/// Two calls, after which everything that the client had to say before has been said.
async fn two_calls(channel: &Channel) {
    for _ in 0..2 {
        let call =
            channel
                .unary(&support::MIRROR, Codec::Json, Ok(Bytes::from_static(b"[1]")), |_, reply| Ok(reply));
        soon(call).await.unwrap();
    }
}

#[tokio::test]
async fn a_client_stream_is_closed_after_its_reply() {
    let (channel, listener) = dial("").await;
    let sum = channel.client_stream(&support::SUM, Codec::Json, serde::encode::<u64>, serde::decode::<u64>);
    let sum = tokio::spawn(async move { sum.await.unwrap() });
    let mut peer = accept(&listener).await;
    let stream = peer.accept_stream().await;
    let sum = soon(sum).await.unwrap();
    soon(sum.send(20)).await.unwrap();
    assert_eq!(peer.frame().await.payload, b"20");
    let finishing = tokio::spawn(sum.finish());
    tokio::task::yield_now().await;
    // To brpc the end of the requests would be that of the stream, into which it could not write any more.
    let calls = tokio::spawn(async move { two_calls(&channel).await });
    peer.only_a_call().await;
    peer.only_a_call().await;
    soon(calls).await.unwrap();
    peer.send(&[feedback(stream, 2), stream_frame(stream, DATA, &[], b"20")].concat()).await;
    let frames = [peer.frame().await.kind(), peer.frame().await.kind()];
    assert_eq!(frames, [CLOSE, FEEDBACK]);
    peer.send(&stream_frame(stream, CLOSE, &[], b"")).await;
    assert_eq!(*soon(finishing).await.unwrap().unwrap(), 20);
}

fn count(channel: &Channel) -> switchboard::ServerStreamCall<Vec<u8>> {
    channel.server_stream(&support::COUNT, Codec::Json, Ok(Bytes::from_static(b"[0,0]")), serde::decode)
}

/// A server stream that a channel has opened at a peer, whose number it has.
async fn open_stream(options: &str) -> (Channel, Peer, u64, switchboard::Receiver<Vec<u8>>) {
    let (channel, listener) = dial(options).await;
    let opening = {
        let channel = channel.clone();
        tokio::spawn(async move { count(&channel).await.unwrap() })
    };
    let mut peer = accept(&listener).await;
    let stream = peer.accept_stream().await;
    (channel, peer, stream, soon(opening).await.unwrap())
}

#[tokio::test]
async fn a_slow_reader_gets_all_from_a_server_with_a_small_window() {
    const MESSAGES: usize = 200;
    let (_channel, mut peer, stream, mut replies) = open_stream("").await;
    let text = format!("[{}]", vec!["0"; 5000].join(","));
    let data = stream_frame(stream, DATA, &[], text.as_bytes());
    let serving = tokio::spawn(async move {
        let (mut sent, mut consumed) = (0, 0);
        for _ in 0..MESSAGES {
            // As brpc with `max_buf_size` of 64 KiB: nothing more is written until the reader has taken enough.
            while sent >= consumed + 65_536 {
                consumed = peer.frame().await.consumed();
            }
            peer.send(&data).await;
            sent += text.len() as u64;
        }
        peer.send(&stream_frame(stream, CLOSE, &[], b"")).await;
        peer
    });
    for at in 0..MESSAGES {
        assert_eq!(soon(replies.next()).await.unwrap().map(|bytes| bytes.len()), Some(5000), "{at}");
        tokio::task::yield_now().await;
    }
    assert_eq!(soon(replies.next()).await.unwrap(), None);
    soon(serving).await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_ahead_of_the_reader_waits() {
    let (_channel, mut peer, stream, mut replies) = open_stream("").await;
    let text = format!("[{}]", vec!["0"; LARGE / 2].join(","));
    let ahead = Arc::new(Notify::new());
    let is_ahead = ahead.clone();
    let serving = tokio::spawn(async move {
        let data = stream_frame(stream, DATA, &[], text.as_bytes());
        for at in 0..MANY {
            peer.write.write_all(&data).await.unwrap();
            if at == AHEAD {
                is_ahead.notify_one();
            }
        }
        peer.write.write_all(&stream_frame(stream, CLOSE, &[], b"")).await.unwrap();
        peer
    });
    soon(ahead.notified()).await;
    for at in 0..MANY {
        let next = soon(replies.next()).await;
        assert_eq!(next.unwrap().map(|bytes| bytes.len()), Some(LARGE / 2), "{at}");
    }
    assert_eq!(soon(replies.next()).await.unwrap(), None);
    soon(serving).await.unwrap();
}

#[tokio::test]
async fn a_reader_that_takes_nothing_ends_its_stream_and_not_the_connection() {
    let (channel, mut peer, stream, mut replies) = open_stream("&stream_stall_timeout=100ms").await;
    let serving = tokio::spawn(async move {
        let data = stream_frame(stream, DATA, &[], format!("[{}]", " ".repeat(LARGE)).as_bytes());
        for _ in 0..MANY {
            peer.write.write_all(&data).await.unwrap();
        }
        peer
    });
    let mut peer = soon(serving).await.unwrap();
    assert_eq!(peer.frame().await.kind(), RESET);
    let calls = tokio::spawn(async move { two_calls(&channel).await });
    for _ in 0..2 {
        loop {
            let call = peer.frame().await;
            if call.kind() == 0 {
                let meta = [text(2, ""), number(4, call.number(4)), number(10, 2)];
                peer.send(&frame(b"PRPC", &meta, b"[1]")).await;
                break;
            }
        }
    }
    soon(calls).await.unwrap();
    // What came before is given out, and then the reason of the end.
    let status = loop {
        match soon(replies.next()).await {
            Ok(reply) => assert_eq!(reply, Some(Vec::new())),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("stream_stall_timeout"), "{status}");
}

#[tokio::test]
async fn replies_are_read_as_the_server_says_that_they_are_written() {
    let (channel, listener) = dial("&codec=json").await;
    let served = tokio::spawn(async move {
        let mut peer = accept(&listener).await;
        for content_type in [2, 0, 0] {
            let call = peer.frame().await;
            assert_eq!(call.number(10), 2, "it is in JSON");
            let meta = [text(2, ""), number(4, call.number(4)), number(10, content_type)];
            peer.send(&frame(b"PRPC", &meta, b"[1]")).await;
        }
        peer
    });
    let request = || Ok(Bytes::from_static(b"[1]"));
    for expected in [Codec::Json, Codec::Proto] {
        let call = channel.unary(&support::mirror::SHOW, Codec::Json, request(), |codec, _| Ok(codec));
        assert_eq!(*soon(call).await.unwrap(), expected);
    }
    // Of a type that cannot be read from it.
    let call = channel.unary(&support::mirror::SHOW, Codec::Json, request(), serde::decode::<Vec<u8>>);
    let status = soon(call).await.unwrap_err();
    assert!(status.message().contains("replied in proto to a call in json"), "{status}");
    soon(served).await.unwrap();
}

/// A server that stops or breaks while the reader is behind: the reader gets all messages, or an error after some.
#[tokio::test]
async fn an_early_end_is_never_silent() {
    const MESSAGES: usize = 200;
    let text = format!("[{}]", vec!["0"; 5000].join(","));
    for last in ["close", "reset", "half a frame", "nothing"] {
        let (_channel, mut peer, stream, mut replies) = open_stream("").await;
        let data = stream_frame(stream, DATA, &[], text.as_bytes());
        let rest = match last {
            "close" => stream_frame(stream, CLOSE, &[], b""),
            "reset" => stream_frame(stream, RESET, &[], b""),
            "half a frame" => data[..data.len() / 2].to_vec(),
            _ => Vec::new(),
        };
        let serving = tokio::spawn(async move {
            for _ in 0..MESSAGES {
                peer.write.write_all(&data).await.unwrap();
            }
            peer.write.write_all(&rest).await.unwrap();
            // The connection ends with what the reader has confirmed unread.
        });
        let mut got = 0;
        let end = loop {
            match soon(replies.next()).await {
                Ok(Some(message)) => assert_eq!(message.len(), 5000),
                end => break end,
            }
            got += 1;
            tokio::task::yield_now().await;
        };
        soon(serving).await.unwrap();
        match end {
            Ok(_) => assert_eq!((last, got), ("close", MESSAGES), "an end without an error"),
            Err(status) => {
                let expected = if last == "reset" {
                    [Code::Canceled, Code::Unavailable]
                } else {
                    [Code::Unavailable; 2]
                };
                assert!(expected.contains(&status.code()), "{last}, {got} messages: {status}");
            }
        }
    }
}

/// A handler of brpc that gives up on a slow reader. `StreamWrite` returns EAGAIN once 2 MiB are ahead of the reader,
/// and `StreamClose` drops what was accepted and is not written yet. The frames are those of a complete stream, so the
/// reader gets every message that was sent, and an end: docs/wires/brpc.md says how servers mark theirs.
#[tokio::test]
async fn a_server_that_gives_up_at_a_full_window_sends_the_end_of_a_complete_stream() {
    const WINDOW: usize = 2 << 20;
    const WANTED: usize = 200;
    let text = format!("[{}]", vec!["0"; 20_480].join(","));
    let (_channel, mut peer, stream, mut replies) = open_stream("").await;
    let data = stream_frame(stream, DATA, &[], text.as_bytes());
    let accepted = WINDOW.div_ceil(text.len());
    let written = accepted - 3;
    for _ in 0..written {
        peer.send(&data).await;
    }
    peer.send(&stream_frame(stream, CLOSE, &[], b"")).await;
    let mut got = 0;
    while let Some(message) = soon(replies.next()).await.unwrap() {
        assert_eq!(message.len(), 20_480);
        got += 1;
    }
    assert_eq!((got, got < WANTED), (written, true));
}
