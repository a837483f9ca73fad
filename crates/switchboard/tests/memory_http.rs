//! The memory budget of a server: thousands of peers of HTTP that do not read or send without end, and the
//! calls of others.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

#[path = "http/frames.rs"]
#[allow(dead_code, reason = "shared with the tests of HTTP")]
mod frames;
#[path = "support/resources.rs"]
#[allow(unreachable_pub, reason = "shared with other tests")]
mod resources;

use frames::{
    ACK, DATA, END_HEADERS, END_STREAM, HEADERS, Http2, SETTINGS, WINDOW_UPDATE, call, frame, whole_call,
};
use socket2::{Domain, SockRef, Socket, Type};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use switchboard::{
    Call, Channel, ClientMethod, Codec, Kind, Limit, MethodInfo, Reply, Result, Running, Server, Service,
    ServiceInfo, Status,
    codegen::{Bytes, stream_reply},
};
use tokio::{
    io::AsyncReadExt,
    net::{TcpSocket, TcpStream},
};

const READERS: usize = 1_000;
/// A part of what they leave in the server; their sockets take some 100 KB of each.
const BUDGET: u64 = 16 << 20;
/// Size of a unary reply, and of three messages of a stream.
const REPLY: usize = 165_000;
const ITEM: usize = 55_000;

static POURS: ServiceInfo = ServiceInfo {
    name: "test.Pours",
    methods: &[
        MethodInfo::new("Blob", Kind::Unary),
        MethodInfo::new("Pour", Kind::ServerStream),
        MethodInfo::new("Ignore", Kind::ClientStream),
        MethodInfo::new("Note", Kind::Unary),
    ],
    descriptor: &[],
};
/// Whose replies are never large.
static NOTE: ClientMethod = ClientMethod { service: &POURS, index: 3, path: "test.Pours/Note" };

/// Answers with as many bytes as the text of the request says, in one message or three, or never.
struct Pours;

impl Service for Pours {
    fn info(&self) -> &'static ServiceInfo {
        &POURS
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let method = call.method();
        if method == 2 {
            let _unread = call.into_many();
            return std::future::pending().await;
        }
        let (bytes, cx) = call.into_one()?;
        let size = str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok());
        let size = size.ok_or_else(|| Status::invalid_argument("no number"))?;
        if method != 1 {
            return Ok(Reply::one(vec![7u8; size], cx));
        }
        let same = |message: &Bytes, _| Ok(message.clone());
        Ok(stream_reply(cx, Codec::Proto, same, move |_, out| async move {
            for _ in 0..3 {
                out.send(Bytes::from(vec![7u8; size])).await?;
            }
            Ok(())
        }))
    }
}

async fn server() -> Running {
    let server = Server::new().add(Pours).listen("tcp://127.0.0.1:0");
    server.limit(Limit::MemoryBytesMax, BUDGET).start().await.unwrap()
}

/// The requests of a peer, and their protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Load {
    Http2,
    Http2Stream,
    Http1,
}

/// A peer with a small receive buffer.
struct Peer {
    io: Http2,
    load: Load,
    /// The stream of the next call.
    stream: u32,
}

impl Peer {
    async fn open(address: SocketAddr, load: Load) -> Peer {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        // The system should not hold what the server should: with the large segments of loopback it takes megabytes.
        socket.set_recv_buffer_size(4 << 10).unwrap();
        socket.set_tcp_mss(536).unwrap();
        let io = TcpSocket::from_std_stream(socket.into()).connect(address).await.unwrap();
        let mut peer = Peer { io: Http2(io), load, stream: 1 };
        if load != Load::Http1 {
            // Its windows take everything: only its socket does not.
            let windows = [&4u16.to_be_bytes()[..], &(u32::MAX >> 1).to_be_bytes()].concat();
            let mut first = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            first.extend(frame(SETTINGS, 0, 0, &windows));
            first.extend(frame(WINDOW_UPDATE, 0, 0, &(1u32 << 30).to_be_bytes()));
            peer.io.send(&first).await.unwrap();
        }
        peer.ask("Blob", 1).await;
        assert_eq!(peer.answer().await, 1 + peer.envelopes(1));
        peer
    }

    /// Bytes of envelopes around so many messages.
    fn envelopes(&self, messages: usize) -> usize {
        if self.load == Load::Http1 { 0 } else { 5 * messages }
    }

    async fn ask(&mut self, method: &str, size: usize) {
        let (path, size) = (format!("/test.Pours/{method}"), size.to_string());
        let request = if self.load == Load::Http1 {
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/proto\r\ncontent-length: {}\r\n\r\n",
                size.len()
            );
            [head.as_bytes(), size.as_bytes()].concat()
        } else {
            let message = [&[0, 0, 0, 0, size.len() as u8], size.as_bytes()].concat();
            whole_call(self.stream, &path, "application/grpc", &message)
        };
        self.io.send(&request).await.unwrap();
        self.stream += 2;
    }

    async fn ask_much(&mut self) {
        match self.load {
            Load::Http2Stream => self.ask("Pour", ITEM).await,
            Load::Http2 | Load::Http1 => self.ask("Blob", REPLY).await,
        }
    }

    /// Bytes of the answer, to its end.
    async fn answer(&mut self) -> usize {
        if self.load == Load::Http1 {
            return self.answer_of_http1().await;
        }
        let mut bytes = 0;
        loop {
            let frame = self.io.next().await.unwrap();
            match frame.kind {
                DATA => bytes += frame.payload.len(),
                HEADERS if frame.flags & END_STREAM != 0 => return bytes,
                _ => {}
            }
        }
    }

    async fn answer_of_http1(&mut self) -> usize {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.io.0.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let length: usize = length.parse().unwrap();
        let mut body = vec![0; length];
        self.io.0.read_exact(&mut body).await.unwrap();
        if head.starts_with("HTTP/1.1 200 ") {
            return length;
        }
        assert!(head.starts_with("HTTP/1.1 429 "), "{head}");
        0
    }

    /// Reads to the end of the call, and calls again as long as the server refuses it; returns the number of
    /// retries.
    async fn read(&mut self) -> u64 {
        let mut again = 0;
        // From now on it is fast.
        SockRef::from(&self.io.0).set_recv_buffer_size(256 << 10).unwrap();
        let expected = REPLY + self.envelopes(if self.load == Load::Http2Stream { 3 } else { 1 });
        loop {
            match self.answer().await {
                // It was refused.
                0 => again += 1,
                bytes => {
                    assert_eq!(bytes, expected, "{:?}", self.load);
                    return again;
                }
            }
            // As the status said.
            tokio::time::sleep(Duration::from_millis(250)).await;
            self.ask_much().await;
        }
    }
}

/// A small call of another peer, which has to be served.
async fn serves(channel: &Channel) {
    let call = channel.unary(&NOTE, Codec::Proto, Ok(b"100".to_vec()), |_, reply| Ok(reply.len()));
    assert_eq!(call.await.expect("others are served").into_inner(), 100);
}

/// Calls as long as `goes_on`, one after the other; how many.
async fn others(
    channel: Channel,
    running: Arc<Running>,
    goes_on: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
) -> u64 {
    let mut calls = 0;
    while goes_on.load(Ordering::Relaxed) {
        serves(&channel).await;
        most.fetch_max(running.memory().held, Ordering::Relaxed);
        calls += 1;
        tokio::task::yield_now().await;
    }
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_slow_readers_of_http_stay_within_the_budget_and_others_are_served() {
    // One reply of each worker may come on top.
    const MOST: u64 = BUDGET + 2 * REPLY as u64;
    let running = Arc::new(server().await);
    let address: SocketAddr = running.url().replace("tcp://", "").parse().unwrap();
    let count = resources::peers(READERS);
    let mut readers = Vec::new();
    for number in 0..count {
        let load = [Load::Http2, Load::Http2Stream, Load::Http1][number % 3];
        readers.push(Peer::open(address, load).await);
    }
    let channel = Channel::connect(&format!("{}?wire=grpc", running.url())).await.unwrap();
    let (goes_on, most) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let before = resources::resident();
    let others = tokio::spawn(others(channel.clone(), running.clone(), goes_on.clone(), most.clone()));

    // All peers send requests and none reads.
    for reader in &mut readers {
        reader.ask_much().await;
    }
    // The budget is used up, and yet calls of others are answered: a thousand more of them.
    loop {
        let memory = running.memory();
        if memory.held > BUDGET / 100 * 80 && memory.refused > count as u64 / 10 {
            break;
        }
        serves(&channel).await;
    }
    for _ in 0..1000 {
        serves(&channel).await;
    }
    let grown = resources::resident().saturating_sub(before);
    let memory = running.memory();
    eprintln!("{count} readers: {memory:?}, resident memory grew by {} MiB", grown >> 20);
    assert!(memory.paused > 0 && memory.aborted == 0, "{memory:?}");
    // The budget, and what callers, tasks and the allocator need.
    assert!(grown < BUDGET * 2, "{grown} bytes, {memory:?}");

    // They read again, and all get their replies.
    let reading: Vec<_> = readers
        .into_iter()
        .map(|mut reader| tokio::spawn(async move { (reader.read().await, reader) }))
        .collect();
    let (mut again, mut readers) = (0, Vec::new());
    for reader in reading {
        let (retries, reader) = reader.await.unwrap();
        again += retries;
        readers.push(reader);
    }
    goes_on.store(false, Ordering::Relaxed);
    let calls = others.await.unwrap();
    let most = most.load(Ordering::Relaxed);
    eprintln!("{again} retries, {calls} calls of others, at most {} MiB were held", most >> 20);
    assert!(most <= MOST, "{most}");
    until_all_is_free(&running, &channel).await;
}

async fn until_all_is_free(running: &Running, channel: &Channel) {
    while running.memory().held > 0 || running.memory().paused > 0 {
        serves(channel).await;
    }
}

/// Sends messages of a stream that the handler does not read, as many as its window allows.
async fn pour(address: SocketAddr) {
    let mut peer = Http2(TcpStream::connect(address).await.unwrap());
    let head = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &[]),
        frame(HEADERS, END_HEADERS, 1, &call("/test.Pours/Ignore", "application/grpc")),
    ];
    peer.send(&head.concat()).await.unwrap();
    // The windows of the server are as large as it says from here on.
    peer.next_of(SETTINGS).await.unwrap();
    peer.send(&frame(SETTINGS, ACK, 0, &[])).await.unwrap();
    let message = frame(DATA, 0, 1, &[&[0, 0, 0, 0x1F, 0x40][..], &[7; 8000]].concat());
    for _ in 0..(1 << 20) / message.len() {
        // It is aborted once there is no room at all.
        if peer.send(&message).await.is_err() {
            return;
        }
    }
    while peer.next().await.is_some() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_uploads_stay_within_the_budget() {
    let running = server().await;
    let address: SocketAddr = running.url().replace("tcp://", "").parse().unwrap();
    // Many times what there is room for: 200 MiB.
    let peers: Vec<_> = (0..200).map(|_| tokio::spawn(pour(address))).collect();
    let mut most = 0;
    let aborted = async {
        while running.memory().aborted == 0 {
            most = most.max(running.memory().held);
            tokio::task::yield_now().await;
        }
    };
    let is_aborted = tokio::time::timeout(Duration::from_secs(60), aborted).await.is_ok();
    let memory = running.memory();
    assert!(is_aborted, "the largest are aborted in the end: {memory:?}");
    assert!(memory.pauses > 0, "{memory:?}");
    // Of 200 MiB; what a read of each brings at once may come on top.
    assert!(most <= BUDGET + BUDGET / 2, "{most}: {memory:?}");
    for peer in &peers {
        peer.abort();
    }
    for peer in peers {
        let _ = peer.await;
    }
    // With more room those that were stopped are read again, to their end.
    running.set_flag("memory_bytes_max", "1GiB", "the test").unwrap();
    let channel = Channel::connect(&format!("{}?wire=grpc", running.url())).await.unwrap();
    let freed = async {
        while running.memory().held > 0 || running.memory().paused > 0 {
            tokio::task::yield_now().await;
        }
    };
    let is_free = tokio::time::timeout(Duration::from_secs(20), freed).await.is_ok();
    assert!(is_free, "memory of closed connections is held: {:?}", running.memory());
    serves(&channel).await;
}
