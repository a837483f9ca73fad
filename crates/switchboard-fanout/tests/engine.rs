//! Engines with real sockets: lines that are published reach all subscribers.
#![allow(clippy::unwrap_used)]

use bytes::{Bytes, BytesMut};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use switchboard_core::{flags::Flag, limits::Unit, memory::MemoryBudget};
use switchboard_fanout::{
    Adapter, BufferId, CloseReason, Connected, Engine, Handle, Handoff, Options, State, SubscriberId,
    Subscribers,
};
use switchboard_net::net::Pipe;
use switchboard_wire::Input;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// A protocol of lines: `+topic` and `-topic` subscribe and unsubscribe, `=text` is answered, `#` pauses, `*` makes
/// busy, `!` is refused.
struct Lines {
    topics: HashMap<String, BufferId>,
    gone: mpsc::UnboundedSender<(SubscriberId, CloseReason)>,
    drained: Arc<AtomicUsize>,
    /// Calls of `received` with an empty input, and peers that closed their sending side during a pause.
    continued: usize,
    read_closed: usize,
}

struct Publish {
    topic: String,
    line: Bytes,
}

impl Lines {
    fn line(
        &mut self,
        id: SubscriberId,
        line: &str,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        match line.split_at_checked(1) {
            Some(("+", topic)) => {
                let topics = &mut self.topics;
                let buffer = *topics.entry(topic.to_owned()).or_insert_with(|| subscribers.open_buffer());
                subscribers.attach(id, buffer);
                subscribers.send(id, |out| out.tail().extend_from_slice(b"subscribed\n"));
            }
            Some(("-", topic)) => {
                if let Some(buffer) = self.topics.get(topic) {
                    subscribers.detach(id, *buffer);
                }
                subscribers.send(id, |out| out.tail().extend_from_slice(b"unsubscribed\n"));
            }
            Some(("=", text)) => {
                subscribers.send(id, |out| out.tail().extend_from_slice(format!("={text}\n").as_bytes()));
            }
            Some(("*", _)) => {
                subscribers.set_busy(id, true);
                subscribers.send(id, |out| out.tail().extend_from_slice(b"busy\n"));
            }
            Some(("@", seconds)) => {
                subscribers.set_timer(id, Duration::from_secs(seconds.parse().unwrap_or(0)));
            }
            _ => {
                subscribers.send(id, |out| out.tail().extend_from_slice(b"refused\n"));
                return Err(CloseReason::Violation { name: "line", text: "an unknown line".into() });
            }
        }
        Ok(())
    }
}

impl Adapter for Lines {
    type Command = Publish;
    type Connection = ();

    fn connected(&mut self, connected: Connected<()>, subscribers: &mut Subscribers) {
        subscribers.send(connected.id, |out| out.tail().extend_from_slice(b"hello\n"));
    }

    fn received(
        &mut self,
        id: SubscriberId,
        input: &mut Input,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        self.continued += usize::from(input.is_empty());
        while let Some(end) = input.rest().iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&input.rest()[..end]).into_owned();
            input.skip(end + 1);
            if line == "#" {
                subscribers.pause(id);
                return Ok(());
            }
            self.line(id, &line, subscribers)?;
        }
        Ok(())
    }

    fn command(&mut self, command: Publish, subscribers: &mut Subscribers) {
        if let Some(buffer) = self.topics.get(&command.topic) {
            subscribers.append(*buffer, b"> ", &command.line);
        }
    }

    fn due(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        subscribers.send(id, |out| out.tail().extend_from_slice(b"due\n"));
    }

    fn lagged(&mut self, id: SubscriberId, _buffer: BufferId, lost: u64, subscribers: &mut Subscribers) {
        subscribers.send(id, |out| out.tail().extend_from_slice(format!("lost {lost}\n").as_bytes()));
    }

    fn read_closed(&mut self, _id: SubscriberId, _subscribers: &mut Subscribers) {
        self.read_closed += 1;
    }

    fn drained(&mut self, _id: SubscriberId, _subscribers: &mut Subscribers) {
        self.drained.fetch_add(1, Ordering::Relaxed);
    }

    fn disconnected(&mut self, id: SubscriberId, reason: &CloseReason, _state: State, _: &mut Subscribers) {
        // A test that does not look at it has dropped the receiver.
        let _ = self.gone.send((id, reason.clone()));
    }

    fn draining(&mut self, subscribers: &mut Subscribers) {
        let (all, _) = subscribers.list(0, usize::MAX);
        for id in all {
            subscribers.send(id, |out| out.tail().extend_from_slice(b"bye\n"));
        }
    }
}

struct Fixture {
    handle: Handle<Lines>,
    listener: TcpListener,
    gone: mpsc::UnboundedReceiver<(SubscriberId, CloseReason)>,
    engine: tokio::task::JoinHandle<()>,
}

type Client = BufReader<TcpStream>;

impl Fixture {
    async fn new(options: Options) -> Fixture {
        Fixture::with_memory(options, None).await
    }

    async fn with_memory(options: Options, memory: Option<Arc<MemoryBudget>>) -> Fixture {
        let (send, gone) = mpsc::unbounded_channel();
        let (continued, read_closed) = (0, 0);
        let topics = HashMap::new();
        let adapter = Lines { topics, gone: send, drained: Arc::default(), continued, read_closed };
        let (engine, handle) = Engine::new(adapter, options, memory).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Fixture { handle, listener, gone, engine: tokio::spawn(engine.run()) }
    }

    /// A connection whose socket the engine owns.
    async fn connect(&self) -> Client {
        let (client, accepted) =
            tokio::join!(TcpStream::connect(self.listener.local_addr().unwrap()), self.listener.accept());
        let handoff = Handoff::new(Box::new(accepted.unwrap().0), BytesMut::new(), ()).unwrap();
        self.handle.hand_over(handoff).unwrap();
        let mut client = BufReader::new(client.unwrap());
        assert_eq!(line(&mut client).await, "hello");
        client
    }

    async fn subscribed(&self, topic: &str) -> Client {
        let mut client = self.connect().await;
        subscribe(&mut client, topic).await;
        client
    }

    async fn publish(&self, topic: &str, text: impl Into<String>) {
        let line = Bytes::from(text.into() + "\n");
        self.handle.send(Publish { topic: topic.to_owned(), line }).await.ok().unwrap();
    }
}

async fn line(client: &mut Client) -> String {
    let mut line = String::new();
    client.read_line(&mut line).await.unwrap();
    line.trim_end().to_owned()
}

async fn subscribe(client: &mut Client, topic: &str) {
    client.write_all(format!("+{topic}\n").as_bytes()).await.unwrap();
    assert_eq!(line(client).await, "subscribed");
}

#[tokio::test]
async fn all_subscribers_of_a_topic_get_its_entries_in_order() {
    let fixture = Fixture::new(Options::default()).await;
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(fixture.subscribed("a").await);
    }
    let mut other = fixture.subscribed("b").await;
    for number in 0..100 {
        fixture.publish("a", format!("entry {number}")).await;
    }
    fixture.publish("b", "for b").await;
    for client in &mut clients {
        for number in 0..100 {
            assert_eq!(line(client).await, format!("> entry {number}"));
        }
    }
    assert_eq!(line(&mut other).await, "> for b");
}

#[tokio::test]
async fn one_subscriber_reads_several_topics_and_leaves_one() {
    let fixture = Fixture::new(Options::default()).await;
    let mut client = fixture.subscribed("a").await;
    for topic in ["b", "c", "d"] {
        subscribe(&mut client, topic).await;
    }
    for topic in ["a", "b", "c", "d"] {
        fixture.publish(topic, topic).await;
        assert_eq!(line(&mut client).await, format!("> {topic}"));
    }
    client.write_all(b"-b\n").await.unwrap();
    assert_eq!(line(&mut client).await, "unsubscribed");
    for topic in ["b", "d"] {
        fixture.publish(topic, topic).await;
    }
    assert_eq!(line(&mut client).await, "> d");
}

/// A subscriber that does not read loses entries, gets their number, and goes on between two frames. Another one
/// gets every entry meanwhile.
#[tokio::test]
async fn a_slow_subscriber_lags_and_another_does_not() {
    let fixture = Fixture::new(Options::default()).await;
    let mut slow = fixture.subscribed("a").await;
    let mut fast = fixture.subscribed("a").await;
    let text = "x".repeat(1000);
    const ENTRIES: usize = 20_000;
    const BATCH: usize = 200;
    let (batch_read, mut batches) = mpsc::unbounded_channel();
    let reader = tokio::spawn(async move {
        for number in 0..ENTRIES {
            let line = line(&mut fast).await;
            assert!(line.starts_with(&format!("> {number} ")), "{number}: {}", &line[..line.len().min(20)]);
            if (number + 1) % BATCH == 0 {
                batch_read.send(()).unwrap();
            }
        }
        fast
    });
    for number in 0..ENTRIES {
        fixture.publish("a", format!("{number} {text}")).await;
        if (number + 1) % BATCH == 0 {
            // The fast one keeps up.
            batches.recv().await.unwrap();
        }
    }
    let mut fast = reader.await.unwrap();
    // Now the slow one reads: everything is a whole line, numbers increase, and a gap is reported.
    let (mut last, mut gaps, mut got) = (None, 0, 0);
    loop {
        let line = line(&mut slow).await;
        if let Some(lost) = line.strip_prefix("lost ") {
            assert!(lost.parse::<u64>().unwrap() > 0);
            gaps += 1;
            continue;
        }
        let number: usize = line.strip_prefix("> ").unwrap().split(' ').next().unwrap().parse().unwrap();
        if let Some(last) = last {
            assert!(number > last);
            assert!(number == last + 1 || gaps > 0, "{number} after {last} without a gap");
        }
        (last, got) = (Some(number), got + 1);
        if number == ENTRIES - 1 {
            break;
        }
    }
    assert!(gaps > 0 && got < ENTRIES, "{gaps} gaps, {got} entries");
    fixture.publish("a", "after").await;
    assert_eq!(line(&mut slow).await, "> after");
    assert_eq!(line(&mut fast).await, "> after");
}

/// Replies wait for the end of a frame, however small the pieces that the socket takes.
/// Where lagged subscribers are closed, one that never reads is closed without an event of its socket.
#[tokio::test]
async fn a_subscriber_that_lags_is_closed_where_the_options_say_so() {
    let mut options = Options::default();
    (options.broadcast_buffer_bytes_max, options.closes_lagged) = (64 << 10, true);
    let mut fixture = Fixture::new(options).await;
    let _slow = fixture.subscribed("a").await;
    let mut fast = fixture.subscribed("a").await;
    let text = "x".repeat(32 << 10);
    let mut published = 0;
    while fixture.gone.is_empty() {
        fixture.publish("a", &*text).await;
        assert_eq!(line(&mut fast).await.len(), text.len() + 2);
        published += 1;
        assert!(published < 10_000, "it is still there");
    }
    assert_eq!(fixture.gone.recv().await.unwrap().1, CloseReason::Lagged);
    fixture.publish("a", "last").await;
    assert_eq!(line(&mut fast).await, "> last");
}

#[tokio::test]
async fn replies_and_large_frames_are_not_mixed() {
    let fixture = Fixture::new(Options::default()).await;
    let mut client = fixture.subscribed("a").await;
    subscribe(&mut client, "b").await;
    let large = "y".repeat(300_000);
    for round in 0..20 {
        fixture.publish("a", format!("a{round} {large}")).await;
        fixture.publish("b", format!("b{round} {large}")).await;
        client.write_all(format!("={round}\n").as_bytes()).await.unwrap();
        let (mut seen, mut length) = (Vec::new(), 0);
        for _ in 0..3 {
            let line = line(&mut client).await;
            length += line.len();
            seen.push(
                line.split(' ').take(2).collect::<Vec<_>>().join(" ").chars().take(5).collect::<String>(),
            );
        }
        seen.sort();
        let mut expected = vec![format!("={round}"), format!("> a{round}"), format!("> b{round}")];
        expected.iter_mut().for_each(|text| text.truncate(5));
        expected.sort();
        assert_eq!(seen, expected);
        assert!(length >= 2 * large.len());
    }
}

#[tokio::test]
async fn a_violation_is_answered_and_the_connection_closed() {
    let mut fixture = Fixture::new(Options::default()).await;
    let mut client = fixture.connect().await;
    client.write_all(b"!\n+a\n").await.unwrap();
    assert_eq!(line(&mut client).await, "refused");
    assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
    let (_, reason) = fixture.gone.recv().await.unwrap();
    assert_eq!(reason.name(), "line");
}

#[tokio::test]
async fn the_adapter_is_notified_once_of_a_peer_that_closes() {
    let mut fixture = Fixture::new(Options::default()).await;
    let client = fixture.subscribed("a").await;
    drop(client);
    assert_eq!(fixture.gone.recv().await.unwrap().1, CloseReason::Peer);
    fixture.publish("a", "unread").await;
    let (count, members) = fixture
        .handle
        .query(|adapter, subscribers| (subscribers.count(), subscribers.members(adapter.topics["a"])))
        .await
        .unwrap();
    assert_eq!((count, members), (0, 0));
    assert!(fixture.gone.try_recv().is_err());
}

/// A peer that sends and never reads holds no more than the limit, and is closed there.
#[tokio::test]
async fn a_peer_that_never_reads_is_bounded() {
    let fixture = Fixture::new(Options::default()).await;
    let client = fixture.connect().await;
    let (read, mut write) = client.into_inner().into_split();
    let flood = format!("={}\n", "z".repeat(1000)).repeat(100);
    let flooding = tokio::spawn(async move {
        for _ in 0..1000 {
            if write.write_all(flood.as_bytes()).await.is_err() {
                break;
            }
        }
    });
    for _ in 0..1000 {
        let count = fixture.handle.query(|_, subscribers| subscribers.count()).await.unwrap();
        assert!(count <= 1);
        tokio::task::yield_now().await;
    }
    // It is either closed, or not read any more; a well-behaved one is served.
    let mut other = fixture.subscribed("a").await;
    fixture.publish("a", "served").await;
    assert_eq!(line(&mut other).await, "> served");
    flooding.abort();
    drop(read);
}

#[tokio::test]
async fn pipes_without_a_descriptor_are_driven() {
    let fixture = Fixture::new(Options::default()).await;
    let (near, far) = tokio::io::duplex(64);
    fixture.handle.hand_over(Handoff::from_pipe(Pipe::Memory(far), ()).unwrap()).unwrap();
    let mut near = BufReader::new(near);
    let mut text = String::new();
    near.read_line(&mut text).await.unwrap();
    near.write_all(b"+a\n").await.unwrap();
    near.read_line(&mut text).await.unwrap();
    assert_eq!(text, "hello\nsubscribed\n");
    let long = "w".repeat(10_000);
    for _ in 0..10 {
        fixture.publish("a", long.clone()).await;
    }
    for _ in 0..10 {
        text.clear();
        near.read_line(&mut text).await.unwrap();
        assert_eq!(text, format!("> {long}\n"));
    }
}

#[tokio::test]
async fn a_drain_notifies_closes_and_ends() {
    let fixture = Fixture::new(Options::default()).await;
    let mut first = fixture.subscribed("a").await;
    let mut second = fixture.subscribed("a").await;
    fixture.handle.drain(Duration::ZERO).await;
    for client in [&mut first, &mut second] {
        assert_eq!(line(client).await, "bye");
        assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
    }
    drop((first, second));
    fixture.engine.await.unwrap();
    assert!(fixture.handle.query(|_, _| ()).await.is_none());
}

#[tokio::test]
async fn timers_of_subscribers_fire() {
    let fixture = Fixture::new(Options::default()).await;
    let mut client = fixture.connect().await;
    client.write_all(b"@0\n").await.unwrap();
    assert_eq!(line(&mut client).await, "due");
}

#[tokio::test]
async fn an_engine_has_at_most_so_many_subscribers() {
    let mut options = Options::default();
    options.subscribers_max = 1;
    let fixture = Fixture::new(options).await;
    let mut first = fixture.subscribed("a").await;
    let (client, accepted) =
        tokio::join!(TcpStream::connect(fixture.listener.local_addr().unwrap()), fixture.listener.accept());
    let handoff = Handoff::new(Box::new(accepted.unwrap().0), BytesMut::new(), ()).unwrap();
    fixture.handle.hand_over(handoff).unwrap();
    assert_eq!(client.unwrap().read(&mut [0; 8]).await.unwrap(), 0);
    fixture.publish("a", "still").await;
    assert_eq!(line(&mut first).await, "> still");
}

/// Memory of a mebibyte.
fn little_memory() -> Arc<MemoryBudget> {
    let max = Flag::new("memory_bytes_max", Unit::Bytes, 1 << 20, 0..=1 << 40, "test");
    Arc::new(MemoryBudget::new(max, 1))
}

#[tokio::test]
async fn without_memory_the_largest_subscriber_is_closed_and_others_stay() {
    let memory = little_memory();
    let mut fixture = Fixture::with_memory(Options::default(), Some(memory.clone())).await;
    let mut small = fixture.subscribed("a").await;
    let mut large = fixture.connect().await;
    // A line that does not end.
    let sent = large.write_all(&vec![b'x'; 3 << 20]).await;
    let (_, reason) = fixture.gone.recv().await.unwrap();
    assert_eq!(reason, CloseReason::Memory, "{sent:?}");
    fixture.publish("a", "still here").await;
    assert_eq!(line(&mut small).await, "> still here");
    // Everything of the one that is gone is released.
    let held = memory.stats().held;
    assert!(held < 256 << 10, "{held}");
}

#[tokio::test]
async fn memory_that_a_slow_subscriber_needs_is_bounded_by_the_budget() {
    let memory = little_memory();
    let fixture = Fixture::with_memory(Options::default(), Some(memory.clone())).await;
    // Each of a buffer of its own, and none is read.
    let mut slow = Vec::new();
    for topic in ["a", "b", "c", "d"] {
        slow.push(fixture.subscribed(topic).await);
    }
    let text = "x".repeat(50_000);
    for _ in 0..400 {
        for topic in ["a", "b", "c", "d"] {
            fixture.publish(topic, text.clone()).await;
        }
    }
    fixture.handle.query(|_, _| ()).await.unwrap();
    // Four buffers of a mebibyte each without the budget; with it, each has little after the first is full.
    let held = memory.stats().held;
    assert!(held <= 2 << 20, "{held}");
    // New ones are refused meanwhile, if it is still short.
    drop(slow);
    drop(fixture);
}

#[tokio::test]
async fn an_engine_gives_its_memory_back() {
    let memory = little_memory();
    let fixture = Fixture::with_memory(Options::default(), Some(memory.clone())).await;
    let slow = fixture.subscribed("a").await;
    for _ in 0..200 {
        fixture.publish("a", "x".repeat(5_000)).await;
    }
    drop(slow);
    fixture.handle.drain(Duration::ZERO).await;
    fixture.engine.await.unwrap();
    assert_eq!(memory.stats().held, 0);
}

#[tokio::test]
async fn new_subscribers_are_refused_while_memory_is_short() {
    let memory = little_memory();
    let fixture = Fixture::with_memory(Options::default(), Some(memory.clone())).await;
    let _first = fixture.connect().await;
    memory.change(0, 900 << 10);
    let address = fixture.listener.local_addr().unwrap();
    let (client, accepted) = tokio::join!(TcpStream::connect(address), fixture.listener.accept());
    let handoff = Handoff::new(Box::new(accepted.unwrap().0), BytesMut::new(), ()).unwrap();
    fixture.handle.hand_over(handoff).unwrap();
    assert_eq!(client.unwrap().read(&mut [0; 8]).await.unwrap(), 0, "closed without a greeting");
    memory.change(900 << 10, 0);
    let _second = fixture.connect().await;
}

#[tokio::test]
async fn a_paused_subscriber_continues_without_input_and_its_end_is_reported() {
    let mut fixture = Fixture::new(Options::default()).await;
    let mut client = fixture.connect().await;
    let id = fixture.handle.query(|_, subscribers| subscribers.list(0, 1).0).await.unwrap()[0];
    client.write_all(b"=1\n#\n").await.unwrap();
    assert_eq!(line(&mut client).await, "=1");
    fixture.handle.query(move |_, subscribers| subscribers.resume(id)).await.unwrap();
    // The lines of another subscriber come after that.
    let mut other = fixture.connect().await;
    other.write_all(b"=other\n").await.unwrap();
    assert_eq!(line(&mut other).await, "=other");
    assert_eq!(fixture.handle.query(|adapter, _| adapter.continued).await, Some(1));
    client.write_all(b"#\n=2\n").await.unwrap();
    client.shutdown().await.unwrap();
    while fixture.handle.query(|adapter, _| adapter.read_closed).await == Some(0) {}
    // What it sent before is not lost.
    fixture.handle.query(move |_, subscribers| subscribers.resume(id)).await.unwrap();
    assert_eq!(line(&mut client).await, "=2");
    assert_eq!(fixture.gone.recv().await.unwrap().1, CloseReason::Peer);
}

/// A peer may send its requests, close its sending side, and then read.
#[tokio::test]
async fn a_peer_that_closes_its_sending_side_gets_the_replies() {
    let mut fixture = Fixture::new(Options::default()).await;
    let mut client = fixture.connect().await;
    client.write_all(b"=1\n=2\n").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!((line(&mut client).await, line(&mut client).await), ("=1".to_owned(), "=2".to_owned()));
    assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
    assert_eq!(fixture.gone.recv().await.unwrap().1, CloseReason::Peer);
}

#[tokio::test]
async fn a_subscriber_that_is_paused_is_read_later() {
    let mut fixture = Fixture::new(Options::default()).await;
    let mut client = fixture.connect().await;
    let ids = fixture.handle.query(|_, subscribers| subscribers.list(0, 1).0).await.unwrap();
    let resume = async |fixture: &Fixture| {
        let id = ids[0];
        fixture.handle.query(move |_, subscribers| subscribers.resume(id)).await.unwrap();
    };
    // Bytes of the same read, and of a later one, wait.
    client.write_all(b"=1\n#\n=2\n#\n").await.unwrap();
    assert_eq!(line(&mut client).await, "=1");
    client.write_all(b"=3\n#\n=4\n").await.unwrap();
    resume(&fixture).await;
    assert_eq!(line(&mut client).await, "=2");
    resume(&fixture).await;
    assert_eq!(line(&mut client).await, "=3");
    // What the peer sends stays in the buffers of the connection: it cannot send without end.
    let flood = vec![b'x'; 1 << 20];
    let blocked = async {
        loop {
            client.get_mut().write_all(&flood).await.unwrap();
        }
    };
    assert!(tokio::time::timeout(Duration::from_millis(200), blocked).await.is_err());
    drop(client);
    // The end of the connection is found when it is read again.
    resume(&fixture).await;
    assert_eq!(fixture.gone.recv().await.unwrap().1, CloseReason::Peer);
}

#[tokio::test]
async fn a_drain_waits_for_busy_subscribers() {
    let fixture = Fixture::new(Options::default()).await;
    let (mut idle, mut busy) = (fixture.connect().await, fixture.connect().await);
    busy.write_all(b"*\n").await.unwrap();
    assert_eq!(line(&mut busy).await, "busy");
    fixture.handle.drain(Duration::ZERO).await;
    assert_eq!((line(&mut idle).await, line(&mut idle).await), ("bye".to_owned(), String::new()));
    assert_eq!(line(&mut busy).await, "bye");
    busy.write_all(b"=1\n").await.unwrap();
    assert_eq!(line(&mut busy).await, "=1");
    let done = |_: &mut Lines, subscribers: &mut Subscribers| {
        for id in subscribers.list(0, 9).0 {
            subscribers.send(id, |out| out.tail().extend_from_slice(b"done\n"));
            subscribers.set_busy(id, false);
        }
    };
    fixture.handle.query(done).await.unwrap();
    assert_eq!((line(&mut busy).await, line(&mut busy).await), ("done".to_owned(), String::new()));
    drop((idle, busy));
    fixture.engine.await.unwrap();
}
