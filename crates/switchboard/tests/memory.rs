//! The memory budget of a server: ten thousand peers that do not read, and the calls of others.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use socket2::{Domain, SockRef, Socket, Type};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use support::{
    raw::{self, Raw},
    *,
};
use switchboard::{
    Call, Channel, Code, Kind, Limit, MethodInfo, Reply, Result, Running, Server, Service, ServiceInfo,
    codec::serde::decode,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

const READERS: usize = 10_000;
/// A tenth of what they leave in the server; their sockets take some 100 KB of each.
const BUDGET: u64 = 64 << 20;
/// Size of a unary reply, and of three messages of a stream.
const REPLY: usize = 165_000;
const ITEM: usize = 55_000;

static BLOBS: ServiceInfo = ServiceInfo {
    name: "test.Blobs",
    methods: &[MethodInfo::new("Blob", Kind::Unary), MethodInfo::new("Ignore", Kind::ClientStream)],
    descriptor: &[],
};

/// Replies with the requested number of bytes, or never.
struct Blobs;

impl Service for Blobs {
    fn info(&self) -> &'static ServiceInfo {
        &BLOBS
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let codec = call.codec();
        if call.method() == 1 {
            let _unread = call.into_many();
            return std::future::pending().await;
        }
        let (bytes, cx) = call.into_one()?;
        let size: usize = decode(codec, bytes)?;
        Ok(Reply::one(vec![7u8; size], cx))
    }
}

async fn server(budget: u64) -> Running {
    let server = Server::new().add(Probe::default()).add(Blobs).listen("tcp://127.0.0.1:0");
    server.limit(Limit::MemoryBytesMax, budget).start().await.unwrap()
}

/// Numbers of methods on connections of [`Reader`]s.
const COUNT_NUMBER: u16 = 100;
const BLOB_NUMBER: u16 = 101;

/// A peer with a small receive buffer that requests large replies.
struct Reader {
    io: TcpStream,
    ask: Vec<u8>,
}

impl Reader {
    async fn open(address: SocketAddr, number: usize) -> Reader {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        // The system should not hold what the server should: with the large segments of loopback it takes megabytes.
        socket.set_recv_buffer_size(4 << 10).unwrap();
        socket.set_tcp_mss(536).unwrap();
        let io = TcpSocket::from_std_stream(socket.into()).connect(address).await.unwrap();
        let ask = if number.is_multiple_of(2) {
            raw::open_call(raw::WHOLE, BLOB_NUMBER, 1, &raw::message(&REPLY))
        } else {
            let mut ask = raw::open_call(raw::WHOLE, COUNT_NUMBER, 1, &raw::message(&(3u32, ITEM)));
            ask.extend(raw::frame(raw::CREDIT, 0, 0, 1, &(1u32 << 20).to_le_bytes()));
            ask
        };
        let mut reader = Reader { io, ask };
        let mut hello = raw::PREFACE.to_vec();
        hello.extend(raw::method(0, "test.Probe/Echo"));
        hello.extend(raw::method(COUNT_NUMBER, "test.Probe/Count"));
        hello.extend(raw::method(BLOB_NUMBER, "test.Blobs/Blob"));
        hello.extend(raw::open_call(raw::WHOLE, 0, 9, &raw::message(&b"echo".to_vec())));
        reader.io.write_all(&hello).await.unwrap();
        let mut preface = [0; 8];
        reader.io.read_exact(&mut preface).await.unwrap();
        while reader.frame().await.0 != raw::REPLY {}
        reader
    }

    async fn ask(&mut self) {
        self.io.write_all(&self.ask).await.unwrap();
    }

    /// Kind, number and length of the next frame, whose body is thrown away.
    async fn frame(&mut self) -> (u8, u16, usize) {
        let mut header = [0; 12];
        self.io.read_exact(&mut header).await.unwrap();
        let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let (mut left, mut buffer) = (len, [0; 8 << 10]);
        while left > 0 {
            let part = left.min(buffer.len());
            left -= self.io.read(&mut buffer[..part]).await.unwrap();
        }
        (header[4], u16::from_le_bytes([header[6], header[7]]), len)
    }

    /// Reads to the end of the call, and calls again as long as the server refuses it; returns the number of
    /// retries.
    async fn read(&mut self) -> u64 {
        let (mut again, mut got) = (0, 0);
        // From now on it is fast.
        SockRef::from(&self.io).set_recv_buffer_size(256 << 10).unwrap();
        loop {
            match self.frame().await {
                (raw::REPLY, _, len) => {
                    assert_eq!(len, REPLY);
                    return again;
                }
                (raw::ITEM, _, len) => got += len,
                (raw::END, 0, _) => {
                    assert!(got >= 3 * ITEM, "{got}");
                    return again;
                }
                (raw::END, code, _) => {
                    assert_eq!(Code::from_number(code), Code::ResourceExhausted);
                    again += 1;
                    // As the status said.
                    tokio::time::sleep(std::time::Duration::from_millis(250)).await;
                    self.ask().await;
                }
                _ => {}
            }
        }
    }
}

/// Calls as long as `goes_on`, one after the other, each of which has to be served; how many.
async fn others(
    channel: Channel,
    running: Arc<Running>,
    goes_on: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
) -> u64 {
    let mut calls = 0;
    while goes_on.load(Ordering::Relaxed) {
        let text: Vec<u8> = ask(&channel, &ECHO, &vec![1u8; 100]).await.expect("others are served");
        assert_eq!(text.len(), 100);
        most.fetch_max(running.memory().held, Ordering::Relaxed);
        calls += 1;
        tokio::task::yield_now().await;
    }
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_slow_readers_stay_within_the_budget_and_others_are_served() {
    let running = Arc::new(server(BUDGET).await);
    let address: SocketAddr = running.url().replace("tcp://", "").parse().unwrap();
    let mut readers: Vec<Reader> = {
        let mut opened = Vec::new();
        let count = resources::peers(READERS);
        for number in 0..count {
            opened.push(Reader::open(address, number).await);
        }
        opened
    };
    let channel = Channel::connect(&running.url()).await.unwrap();
    let (goes_on, most) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let before = resources::resident();
    let others = tokio::spawn(others(channel.clone(), running.clone(), goes_on.clone(), most.clone()));

    // All peers send requests and none reads.
    for reader in &mut readers {
        reader.ask().await;
    }
    // The budget is used up, and yet calls of others are answered: a thousand more of them.
    let count = readers.len() as u64;
    loop {
        let memory = running.memory();
        assert!(memory.held <= BUDGET, "{memory:?}");
        if memory.held > BUDGET / 100 * 80 && memory.refused > count / 10 {
            break;
        }
        let _: Vec<u8> = ask(&channel, &ECHO, &vec![1u8; 100]).await.unwrap();
    }
    for _ in 0..1000 {
        let _: Vec<u8> = ask(&channel, &ECHO, &vec![1u8; 100]).await.unwrap();
    }
    let grown = resources::resident().saturating_sub(before);
    let memory = running.memory();
    eprintln!("{count} readers: {memory:?}, resident memory grew by {} MiB", grown >> 20);
    assert!(memory.paused > 0 && memory.aborted == 0, "{memory:?}");
    // The budget, and what callers, tasks and the allocator need.
    assert!(grown < BUDGET + BUDGET / 2, "{grown} bytes, {memory:?}");

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
    assert!(most <= BUDGET, "{most}");
    while running.memory().held > 0 || running.memory().paused > 0 {
        let _: Vec<u8> = ask(&channel, &ECHO, &vec![1u8; 100]).await.unwrap();
    }
    drop(readers);
}

/// Waits for what the server counts; every look is a call.
async fn until(running: &Running, holds: impl Fn(&switchboard::MemoryStats) -> bool) {
    let reached = async {
        while !holds(&running.memory()) {
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(std::time::Duration::from_secs(20), reached).await.is_err() {
        panic!("never reached: {:?}", running.memory());
    }
}

/// A call of [`Blobs`] on a [`Raw`] connection.
fn blob(id: u32, bytes: usize) -> Vec<u8> {
    raw::open_call(raw::WHOLE, BLOB_NUMBER, id, &raw::message(&bytes))
}

async fn open(running: &Running) -> Raw {
    let mut raw = Raw::open(running).await;
    raw.send(&raw::method(BLOB_NUMBER, "test.Blobs/Blob")).await;
    raw
}

#[tokio::test]
async fn greedy_connection_is_paused_and_goes_on_when_its_peer_reads() {
    let server = Server::new().add(Probe::default()).add(Blobs).listen("tcp://127.0.0.1:0");
    // More than 80 % for one alone.
    let server = server.limit(Limit::MemoryBytesMax, 1 << 20).limit(Limit::OutboxBytesMax, 900 << 10);
    let running = server.start().await.unwrap();
    let mut greedy = open(&running).await;
    let calls = 1000;
    let requests: Vec<u8> = (0..calls).flat_map(|id| blob(id, 15_000)).collect();
    greedy.send(&requests).await;
    until(&running, |memory| memory.paused == 1).await;
    let memory = running.memory();
    assert!(memory.held > 800 << 10 && memory.held <= 1 << 20, "{memory:?}");
    assert_eq!((memory.max, memory.pauses), (1 << 20, 1));
    // Its share of room is not that of others.
    let channel = Channel::connect(&running.url()).await.unwrap();
    for _ in 0..100 {
        let _: Vec<u8> = ask(&channel, &ECHO, &vec![1u8; 1000]).await.unwrap();
    }
    let text = running.stats().prometheus();
    for name in ["switchboard_memory_paused 1\n", "switchboard_memory_max_bytes 1048576\n"] {
        assert!(text.contains(name), "{text}");
    }
    for id in 0..calls {
        let reply = greedy.expect().await;
        assert_eq!((reply.kind, reply.id, reply.body.len()), (raw::REPLY, id, 15_000));
    }
    until(&running, |memory| memory.held == 0 && memory.paused == 0).await;
}

/// Connections with one request of 15 kB each, which waits in its handler, until so much is held.
async fn holders(running: &Running, target: u64) -> Vec<Raw> {
    let mut holders = Vec::new();
    while running.memory().held < target {
        let mut raw = Raw::open(running).await;
        raw.send(&raw::open_call(raw::WHOLE, HANG.index, 1, &[0; 15_000])).await;
        // Nothing is left of it but the call, or its refusal.
        raw.send(&raw::frame(raw::PING, 0, 0, 77, &[])).await;
        while raw.expect().await.kind != raw::PING {}
        holders.push(raw);
    }
    holders
}

#[tokio::test]
async fn large_requests_are_refused_before_small_ones_and_paused_connections_are_still_read() {
    const ALL: u64 = 4 << 20;
    let running = server(ALL).await;
    // Two in the middle of a message, and one that holds more than others, when room gets scarce.
    let mut half = Raw::open(&running).await;
    let large = raw::open_call(raw::WHOLE, MIRROR.index, 1, &vec![0; 1 << 20]);
    half.send(&large[..100_000]).await;
    let mut half_line = Raw::silent(&running).await;
    half_line.send(b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"").await;
    half_line.send(&[b'x'; 100_000]).await;
    let mut greedy = Raw::open(&running).await;
    greedy.send(&raw::open_call(raw::WHOLE, HANG.index, 1, &[0; 40_000])).await;
    until(&running, |memory| memory.held >= 240_000).await;
    assert_eq!(running.stats().calls_in_flight, 1);

    let mut others = holders(&running, ALL / 100 * 92).await;
    let mut other = Raw::open(&running).await;
    other.echo(1).await;
    for (id, bytes) in [(2, 60_000), (3, 1 << 20)] {
        other.send(&raw::open_call(raw::WHOLE, MIRROR.index, id, &vec![0; bytes])).await;
        let end = other.expect().await;
        let (code, text) = end.status();
        assert_eq!((code, end.id), (Code::ResourceExhausted, id));
        assert!(text.contains("memory_bytes_max"), "{text}");
        // After a pause of 250 ms.
        assert_eq!((end.body[0], &end.body[4..8]), (3, &[250, 0, 0, 0][..]), "{end:?}");
    }
    other.echo(4).await;
    half.send(&large[100_000..]).await;
    let (code, text) = half.expect().await.status();
    assert!(code == Code::ResourceExhausted && text.contains("no memory for a message"), "{text}");
    half.echo(2).await;
    // A reply that does not fit is dropped, also when its size was not known before.
    other.send(&raw::method(BLOB_NUMBER, "test.Blobs/Blob")).await;
    other.send(&blob(5, 2 << 20)).await;
    let (code, text) = other.expect().await.status();
    assert!(code == Code::ResourceExhausted && text.contains("no room for the reply"), "{text}");
    // Now it is known.
    others.append(&mut holders(&running, ALL / 100 * 92).await);
    other.send(&blob(6, 2 << 20)).await;
    let (_, text) = other.expect().await.status();
    assert!(text.contains("whose replies are large"), "{text}");

    // Until nothing fits any more.
    others.append(&mut holders(&running, ALL).await);
    other.send(&raw::open_call(raw::WHOLE, ECHO.index, 7, &raw::message(&b"echo".to_vec()))).await;
    assert_eq!(other.expect().await.status().0, Code::ResourceExhausted);
    half_line.send(&[b'x'; 1000]).await;
    until(&running, |memory| memory.aborted == 1).await;
    others.append(&mut holders(&running, ALL).await);

    // It is not read, and yet what ends its call is.
    greedy.send(&raw::frame(raw::CANCEL, 0, 0, 1, &[])).await;
    greedy.handled().await;
    assert!(running.memory().pauses > 0);
    drop(others);
    until(&running, |memory| memory.held == 0 && memory.paused == 0).await;
    other.send(&raw::open_call(raw::WHOLE, MIRROR.index, 8, &vec![0; 1 << 20])).await;
    assert_eq!(other.expect().await.body.len(), 1 << 20);
}

#[tokio::test]
async fn queues_of_streams_count_and_no_limit_is_none() {
    let running = server(1 << 20).await;
    let mut raw = Raw::open(&running).await;
    raw.send(&raw::method(BLOB_NUMBER, "test.Blobs/Ignore")).await;
    // The handler does not read this stream.
    raw.send(&raw::open_call(raw::MORE, BLOB_NUMBER, 1, &[])).await;
    for _ in 0..5 {
        raw.send(&raw::frame(raw::ITEM, 0, 0, 1, &[0; 20_000])).await;
    }
    until(&running, |memory| memory.held >= 100_000).await;
    drop(raw);
    until(&running, |memory| memory.held == 0).await;

    let running = server(0).await;
    let mut raw = open(&running).await;
    for id in 0..3 {
        raw.send(&blob(id, 1 << 20)).await;
    }
    for _ in 0..3 {
        assert_eq!(raw.expect().await.body.len(), 1 << 20);
    }
    assert_eq!((running.memory().max, running.memory().refused), (0, 0));
}
