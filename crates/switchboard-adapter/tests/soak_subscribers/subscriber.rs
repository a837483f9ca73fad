//! A subscriber on one of the wires: it connects, is disturbed at random, and ends.

use crate::server::{Server, TOPICS};
use std::{
    io::{Error, ErrorKind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use switchboard_bus::Connect;
use switchboard_message::{Bus, Delivery, Subscription};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
    task::JoinSet,
    time::sleep,
};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wire {
    Zmtp,
    Redis,
    Nats,
    /// Server-sent events.
    Events,
    /// A stream of the native wire; many share a connection.
    Native,
}

/// Half of the subscribers are those of ZeroMQ.
pub(crate) const WIRES: [Wire; 8] =
    [Wire::Zmtp, Wire::Redis, Wire::Zmtp, Wire::Nats, Wire::Zmtp, Wire::Events, Wire::Zmtp, Wire::Native];

/// Behaviour of the subscribers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// They disconnect and stall at random.
    Disturbed,
    /// They read until they have the last entry.
    Settled,
    Ended,
}

/// Reads after which a subscriber disconnects or stalls, at most.
const READS_MAX: u32 = 60;
/// Connections of the native wire that subscribers share.
const CONNECTIONS: usize = 8;

/// State that all subscribers share.
pub(crate) struct Shared {
    address: String,
    nats: String,
    cycle: AtomicUsize,
    buses: Mutex<Vec<Bus>>,
    /// Subscribers of the cycle that were subscribed once, and those that have the last entry.
    pub(crate) subscribed: AtomicUsize,
    pub(crate) complete: AtomicUsize,
    /// Counts over all cycles.
    pub(crate) stalls: AtomicUsize,
    pub(crate) returns: AtomicUsize,
    progress: Mutex<(usize, Option<Instant>)>,
}

impl Shared {
    pub(crate) fn new(server: &Server) -> Shared {
        Shared {
            address: server.address.clone(),
            nats: server.nats.clone(),
            cycle: AtomicUsize::new(0),
            buses: Mutex::default(),
            subscribed: AtomicUsize::new(0),
            complete: AtomicUsize::new(0),
            stalls: AtomicUsize::new(0),
            returns: AtomicUsize::new(0),
            progress: Mutex::default(),
        }
    }

    pub(crate) fn begin(&self, cycle: usize) {
        self.cycle.store(cycle, Ordering::Relaxed);
        self.subscribed.store(0, Ordering::Relaxed);
        self.complete.store(0, Ordering::Relaxed);
        *self.progress.lock().unwrap() = (0, None);
    }

    /// Closes the connections that subscribers share.
    pub(crate) fn end(&self) {
        self.buses.lock().unwrap().clear();
    }

    /// Returns the beginning of the last entry of the cycle.
    pub(crate) fn last(&self) -> String {
        format!("~last entry of cycle {};", self.cycle.load(Ordering::Relaxed))
    }

    /// Waits for a state of the subscribers.
    pub(crate) async fn reach(&self, what: &str, tasks: &mut JoinSet<()>, is: impl Fn() -> bool) {
        let started = Instant::now();
        while !is() {
            if let Some(ended) = tasks.try_join_next() {
                ended.unwrap();
                panic!("a subscriber ended before all {what}");
            }
            assert!(
                started.elapsed() < crate::LOST,
                "not all {what}: {}",
                self.subscribed.load(Ordering::Relaxed)
            );
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Fails when no further subscriber has had the last entry for a long time.
    pub(crate) fn fail_if_lost(&self, tasks: &mut JoinSet<()>, subscribers: usize) {
        if let Some(ended) = tasks.try_join_next() {
            ended.unwrap();
        }
        let complete = self.complete.load(Ordering::Relaxed);
        let mut progress = self.progress.lock().unwrap();
        let since = *progress.1.get_or_insert_with(Instant::now);
        if progress.0 != complete {
            *progress = (complete, Some(Instant::now()));
            return;
        }
        assert!(since.elapsed() < crate::LOST, "{complete} of {subscribers} have the last entry");
    }

    /// Returns a connection of the native wire.
    async fn bus(&self, index: usize) -> Bus {
        if let Some(bus) = self.buses.lock().unwrap().get(index % CONNECTIONS) {
            return bus.clone();
        }
        loop {
            // On a busy machine a connection may take too long.
            match Bus::connect(&format!("tcp://{}", self.address)).await {
                Ok(bus) => {
                    self.buses.lock().unwrap().push(bus.clone());
                    return bus;
                }
                Err(_) => sleep(Duration::from_millis(200)).await,
            }
        }
    }
}

/// A subscription that is read piece by piece.
enum Source {
    Socket(TcpStream, Wire),
    Native(Subscription<bytes::Bytes>),
}

/// Runs a subscriber until the end of the cycle.
pub(crate) async fn run(shared: Arc<Shared>, wire: Wire, index: usize, mut phase: watch::Receiver<Phase>) {
    let mut random = fastrand::Rng::new();
    let last = shared.last().into_bytes();
    let (mut is_first, mut is_complete) = (true, false);
    loop {
        let mut source = Source::open(&shared, wire, index).await;
        match std::mem::take(&mut is_first) {
            true => shared.subscribed.fetch_add(1, Ordering::Relaxed),
            false => shared.returns.fetch_add(1, Ordering::Relaxed),
        };
        // Reads until the next disturbance.
        let mut reads = random.u32(1..READS_MAX);
        let mut tail = Vec::new();
        loop {
            let now = *phase.borrow_and_update();
            if now == Phase::Ended {
                return;
            }
            if now == Phase::Disturbed && reads == 0 {
                if random.bool() {
                    break;
                }
                shared.stalls.fetch_add(1, Ordering::Relaxed);
                phase.changed().await.unwrap();
                continue;
            }
            let piece = tokio::select! {
                piece = source.read() => piece,
                _ = phase.changed() => continue,
            };
            // A subscriber that was too slow may be closed; it returns.
            let Ok(piece) = piece else { break };
            reads = reads.saturating_sub(1);
            // The other entries do not have the byte: few pieces are searched.
            if !tail.is_empty() || piece.contains(&last[0]) {
                tail.extend_from_slice(&piece);
                if !is_complete && tail.windows(last.len()).any(|part| part == last) {
                    is_complete = true;
                    shared.complete.fetch_add(1, Ordering::Relaxed);
                }
                // The entry may be cut into two pieces.
                tail.drain(..tail.len().saturating_sub(last.len()));
            }
        }
    }
}

impl Source {
    /// Connects, subscribes, and waits for the confirmation of the server.
    async fn open(shared: &Shared, wire: Wire, index: usize) -> Source {
        let topic = format!("t{}", index % TOPICS);
        if wire == Wire::Native {
            let bus = shared.bus(index).await;
            loop {
                match bus.subscribe_encoded(&topic).await {
                    Ok(subscription) => return Source::Native(subscription),
                    Err(_) => sleep(Duration::from_millis(200)).await,
                }
            }
        }
        let address = if wire == Wire::Nats { &shared.nats } else { &shared.address };
        loop {
            // The queue of the listener may be full for a moment.
            let Ok(mut stream) = TcpStream::connect(address).await else {
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            let (request, confirmation) = handshake(wire, &topic);
            if stream.write_all(&request).await.is_ok() && until(&mut stream, &confirmation).await.is_ok() {
                return Source::Socket(stream, wire);
            }
        }
    }

    /// Returns the next bytes.
    async fn read(&mut self) -> Result<Vec<u8>, Error> {
        match self {
            Source::Socket(stream, wire) => {
                let mut piece = vec![0; 64 << 10];
                let count = stream.read(&mut piece).await?;
                if count == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                piece.truncate(count);
                if *wire == Wire::Nats
                    && piece.contains(&b'P')
                    && piece.windows(6).any(|part| part == b"PING\r\n")
                {
                    stream.write_all(b"PONG\r\n").await?;
                }
                Ok(piece)
            }
            Source::Native(subscription) => match subscription.next().await {
                Ok(Some(Delivery::Entry(entry))) => Ok(entry.to_vec()),
                Ok(Some(_)) => Ok(Vec::new()),
                Ok(None) => Err(ErrorKind::UnexpectedEof.into()),
                Err(status) => Err(Error::other(status.to_string())),
            },
        }
    }
}

/// Returns what a client sends, and the end of what the server confirms with.
fn handshake(wire: Wire, topic: &str) -> (Vec<u8>, Vec<u8>) {
    match wire {
        Wire::Zmtp => {
            let mut bytes = b"\xFF\0\0\0\0\0\0\0\x01\x7F\x03\x01NULL".to_vec();
            bytes.resize(64, 0);
            bytes.extend_from_slice(b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB");
            bytes.extend([4, 10 + topic.len() as u8]);
            bytes.extend_from_slice(b"\x09SUBSCRIBE");
            bytes.extend_from_slice(topic.as_bytes());
            bytes.extend_from_slice(b"\x04\x0e\x04PING\0\0settled");
            (bytes, b"\x04PONGsettled".to_vec())
        }
        Wire::Redis => {
            let subscribe = format!("*2\r\n$9\r\nSUBSCRIBE\r\n${}\r\n{topic}\r\n", topic.len());
            (subscribe.into_bytes(), format!("{topic}\r\n:1\r\n").into_bytes())
        }
        Wire::Nats => {
            let options = r#"{"verbose":false,"pedantic":false,"protocol":1}"#;
            let subscribe = format!("CONNECT {options}\r\nSUB {topic} 1\r\nPING\r\n");
            (subscribe.into_bytes(), b"PONG\r\n".to_vec())
        }
        Wire::Events | Wire::Native => {
            let get = format!("GET /events?topic={topic} HTTP/1.0\r\nhost: localhost\r\n\r\n");
            (get.into_bytes(), b"\r\n\r\n".to_vec())
        }
    }
}

/// Reads up to these bytes.
async fn until(stream: &mut TcpStream, end: &[u8]) -> Result<(), Error> {
    let mut read = Vec::new();
    while !read.ends_with(end) {
        read.push(stream.read_u8().await?);
    }
    Ok(())
}
