//! The server, in a process of its own that is driven by lines.

use std::{env, process::Stdio, time::Duration};
use switchboard::{Address, Codec, Running, StopOptions};
use switchboard_adapter::{Nats, Redis, Zmtp};
use switchboard_bus::BusServer;
use switchboard_fanout::Options;
use switchboard_message::{Bus, Publication};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// Set for the process of the server.
const PROCESS: &str = "SOAK_SERVER";
/// Begins the lines of the server, among those of the test harness.
const MARK: &str = "soak: ";
/// Topics, named `t0` and so on.
pub(crate) const TOPICS: usize = 50;
/// Bytes of an entry. The large ones of a cycle are more than the system holds for a connection and the engine for a
/// topic, so that stalled subscribers lag.
const ENTRY_BYTES: usize = 1 << 10;
const LARGE_BYTES: usize = 256 << 10;
/// Bytes of a broadcast buffer.
const BUFFER_BYTES: usize = 512 << 10;

/// The server process.
pub(crate) struct Server {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    /// Address of the shared port, and of the one for NATS.
    pub(crate) address: String,
    pub(crate) nats: String,
}

/// Objects of the server.
#[derive(Debug)]
#[allow(dead_code, reason = "printed")]
pub(crate) struct State {
    connections: u64,
    held_bytes: u64,
    engine_subscribers: u64,
    engine_buffers: u64,
    subscriptions: u64,
    cursors: u64,
    topics: u64,
    entries: u64,
    pub(crate) lagged: u64,
    /// Resident memory in bytes.
    pub(crate) resident: u64,
}

impl State {
    /// Returns whether nothing of the subscribers is left.
    pub(crate) fn is_empty(&self) -> bool {
        let State { connections, held_bytes, engine_subscribers, engine_buffers, .. } = *self;
        let State { subscriptions, cursors, topics, entries, .. } = *self;
        let of_server = [connections, held_bytes, engine_subscribers, engine_buffers];
        let of_bus = [subscriptions, cursors, topics, entries];
        of_server.into_iter().chain(of_bus).all(|left| left == 0)
    }
}

impl Server {
    pub(crate) async fn start() -> Server {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--ignored", "--nocapture", "--exact", "server::serves_until_its_input_ends"])
            .env(PROCESS, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let lines = BufReader::new(output).lines();
        let mut server = Server { child, input, lines, address: String::new(), nats: String::new() };
        let addresses = server.line().await;
        let (address, nats) = addresses.split_once(' ').unwrap();
        (server.address, server.nats) = (address.to_owned(), nats.to_owned());
        server
    }

    /// Returns the next line of the server.
    async fn line(&mut self) -> String {
        loop {
            let line = timeout(super::LOST, self.lines.next_line()).await.expect("the server responds");
            let line = line.unwrap().expect("the server runs");
            if let Some((_, line)) = line.split_once(MARK) {
                return line.to_owned();
            }
        }
    }

    async fn command(&mut self, command: &str) -> String {
        self.input.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        self.line().await
    }

    /// Publishes an entry that begins with a text to each topic.
    pub(crate) async fn publish(&mut self, text: &str) {
        assert_eq!(self.command(&format!("publish {text}")).await, "published");
    }

    /// Publishes a large entry to the first topic, whose subscribers are those of ZeroMQ.
    pub(crate) async fn publish_large(&mut self) {
        assert_eq!(self.command("large").await, "published");
    }

    pub(crate) async fn state(&mut self) -> State {
        let line = self.command("state").await;
        let mut numbers = line.split(' ').map(|number| number.parse::<u64>().unwrap());
        let mut next = || numbers.next().unwrap();
        State {
            connections: next(),
            held_bytes: next(),
            engine_subscribers: next(),
            engine_buffers: next(),
            lagged: next(),
            subscriptions: next(),
            cursors: next(),
            topics: next(),
            entries: next(),
            resident: next(),
        }
    }

    pub(crate) async fn stop(mut self) {
        drop(self.input);
        let status = timeout(super::LOST, self.child.wait()).await.expect("the server ends").unwrap();
        assert!(status.success(), "{status}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the server of the other test, in a process of its own"]
async fn serves_until_its_input_ends() {
    if env::var_os(PROCESS).is_none() {
        return;
    }
    let bus = Bus::new();
    let mut options = Options::default();
    options.broadcast_buffer_bytes_max = BUFFER_BYTES;
    let running = switchboard::Server::new()
        .plugin(Zmtp::new(bus.clone()).options(options))
        .plugin(Redis::new(bus.clone()).options(options))
        .plugin(Nats::new(bus.clone()))
        .plugin(BusServer::new(bus.clone()))
        .listen("tcp://127.0.0.1:0")
        .listen("nats://127.0.0.1:0")
        .start()
        .await
        .unwrap();
    let addresses: Vec<_> = running.addresses().iter().map(text).collect();
    println!("{MARK}{}", addresses.join(" "));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        match line.split_once(' ') {
            Some(("publish", begin)) => {
                publish(&bus, ENTRY_BYTES, TOPICS, begin).await;
                println!("{MARK}published");
            }
            None if line == "large" => {
                publish(&bus, LARGE_BYTES, 1, "large").await;
                println!("{MARK}published");
            }
            _ => println!("{MARK}{}", state(&running, &bus)),
        }
    }
    assert!(running.stop(StopOptions::new().drain(Duration::from_secs(30))).await.is_clean());
}

fn text(address: &Address) -> String {
    let Address::Tcp(host, port) = address else { panic!("a TCP listener") };
    format!("{host}:{port}")
}

async fn publish(bus: &Bus, bytes: usize, topics: usize, begin: &str) {
    let mut content = begin.to_owned().into_bytes();
    content.resize(bytes, b'x');
    let content = bytes::Bytes::from(content);
    for topic in 0..topics {
        let publication = Publication::new(Codec::Raw, content.clone());
        bus.publish_encoded(&format!("t{topic}"), publication).await.unwrap();
    }
}

fn state(running: &Running, bus: &Bus) -> String {
    bus.remove_unused();
    let (stats, topics) = (running.stats(), bus.stats());
    let sum = |name: &str| {
        let counters = stats.sources.iter().flat_map(|source| &source.counters);
        counters.filter(|counter| counter.name == name).map(|counter| counter.value).sum::<u64>()
    };
    let numbers = [
        stats.connections,
        stats.memory.held,
        sum("engine_subscribers"),
        sum("engine_buffers"),
        sum("engine_lagged"),
        topics.subscriptions as u64,
        topics.cursors as u64,
        topics.topics as u64,
        topics.entries as u64,
        resident(),
    ];
    numbers.map(|number| number.to_string()).join(" ")
}

/// Returns the memory of this process that is in use, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
