//! A run: the server, its network, and all that publish and receive.

use crate::{
    faults,
    journal::{Journal, LONG, SHORT},
    members::{self, Deliveries},
    network::Link,
    publishers,
    random::Random,
    readers::{Reader, Received},
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use switchboard::{Channel, Running, Server};
use switchboard_bus::{BusServer, Connect};
use switchboard_message::{Bus, Pattern, Position, TopicOptions};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{advance, sleep, timeout},
};

const TOPICS: [&str; 6] = ["long/0", "long/1", "short/0", "short/1", "plain/0", "plain/1"];
/// The topics of readers: one or all that match.
const READERS: [&str; 8] = ["long/0", "long/1", "short/0", "plain/0", "plain/1", "long/*", "short/*", "*/*"];
const PUBLISHERS: u64 = 3;
const MEMBERS: u64 = 3;
/// Entries that wait for a slow reader of a topic without a history.
const BACKLOG: usize = 10;
/// Age of the history: more than a run takes, with all jumps of the clock.
const HISTORY_AGE: Duration = Duration::from_secs(86_400);

/// Numbers of a run, or of several.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) published: u64,
    pub(crate) received: u64,
    pub(crate) gaps: u64,
    pub(crate) redelivered: u64,
    pub(crate) confirmed: u64,
    pub(crate) crashes: u64,
    pub(crate) new_logs: u64,
    pub(crate) cuts: u64,
    pub(crate) resumes: u64,
}

impl Summary {
    pub(crate) fn add(&mut self, other: &Summary) {
        let Summary { published, received, gaps, redelivered, confirmed, crashes, new_logs, cuts, resumes } =
            self;
        *published += other.published;
        *received += other.received;
        *gaps += other.gaps;
        *redelivered += other.redelivered;
        *confirmed += other.confirmed;
        *crashes += other.crashes;
        *new_logs += other.new_logs;
        *cuts += other.cuts;
        *resumes += other.resumes;
    }
}

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) journal: Journal,
    pub(crate) deliveries: Deliveries,
    pub(crate) topics: Vec<String>,
    /// Positions of the newest entries, once all publishers have ended.
    pub(crate) last: watch::Sender<Option<HashMap<String, Position>>>,
    pub(crate) link: Link,
    /// Crashes of the server, those with its topics, and aborted connections.
    pub(crate) crashes: AtomicU64,
    pub(crate) new_logs: AtomicU64,
    pub(crate) cuts: AtomicU64,
    front: String,
    back: String,
    bus: Mutex<Bus>,
    running: Mutex<Option<Running>>,
}

/// Creates the topics of a server process.
fn new_bus() -> Bus {
    let kept = |entries: usize| TopicOptions::new().history(entries, HISTORY_AGE).backlog(entries);
    let builder = Bus::builder().topics("long/>", kept(LONG)).unwrap();
    let builder = builder.topics("jobs/>", kept(LONG)).unwrap().topics("short/>", kept(SHORT)).unwrap();
    builder.topics("plain/>", TopicOptions::new().backlog(BACKLOG)).unwrap().build()
}

impl World {
    pub(crate) async fn start(seed: u64) -> World {
        let random = Random::new(seed);
        let (front, back) = (format!("sim-bus-{seed}"), format!("sim-bus-{seed}-back"));
        let link = Link::new(front.clone(), back.clone(), random.child());
        let mut topics: Vec<_> = TOPICS.map(str::to_owned).into();
        topics.push(members::TOPIC.to_owned());
        let world = World {
            random,
            journal: Journal::default(),
            deliveries: Deliveries::default(),
            topics,
            last: watch::Sender::new(None),
            link,
            crashes: AtomicU64::new(0),
            new_logs: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
            front: format!("memory://{front}"),
            back: format!("memory://{back}"),
            bus: Mutex::new(new_bus()),
            running: Mutex::default(),
        };
        world.start_server().await;
        world
    }

    pub(crate) fn bus(&self) -> Bus {
        self.bus.lock().unwrap().clone()
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap()
    }

    /// Returns the newest offset of a log, if it is the present one of its topic.
    pub(crate) fn head(&self, topic: &str, epoch: u64) -> Option<u64> {
        let stats = self.bus().topic_stats(topic)?;
        Some(stats.head).filter(|head| head.epoch == epoch).map(|head| head.offset)
    }

    pub(crate) fn matches(&self, topics: &str, topic: &str) -> bool {
        Pattern::new(topics).unwrap().matches(topic)
    }

    async fn start_server(&self) {
        loop {
            let server = Server::new().plugin(BusServer::new(self.bus())).listen(&self.back);
            if let Ok(running) = server.start().await {
                *self.running() = Some(running);
                return;
            }
            // The one before may still hold the name for a moment.
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Kills the server and starts it again after a pause, with its topics or without them.
    pub(crate) async fn crash(&self, loses_topics: bool, pause: Duration) {
        let running = self.running().take();
        if let Some(running) = running {
            running.kill();
        }
        self.crashes.fetch_add(1, Ordering::Relaxed);
        if loses_topics {
            self.new_logs.fetch_add(1, Ordering::Relaxed);
            *self.bus.lock().unwrap() = new_bus();
        }
        sleep(pause).await;
        self.start_server().await;
    }

    pub(crate) async fn connect(&self) -> Bus {
        Bus::over(self.channel().await)
    }

    pub(crate) async fn channel(&self) -> Channel {
        Channel::builder(&self.front).connections(1).connect().await.unwrap()
    }

    /// Checks the limits of the topics.
    pub(crate) fn check_budgets(&self) {
        for (topic, most) in TOPICS.iter().filter_map(|topic| match topic.split('/').next() {
            Some("short") => Some((topic, SHORT)),
            Some("plain") => Some((topic, BACKLOG)),
            _ => None,
        }) {
            let entries = self.bus().topic_stats(*topic).map_or(0, |stats| stats.entries);
            assert!(entries <= most, "{topic} holds {entries} entries");
        }
    }

    pub(crate) async fn run(self) -> Summary {
        let world = Arc::new(self);
        let mut readers = JoinSet::new();
        for topics in READERS {
            let bus = world.connect().await;
            let subscription = bus.subscribe(topics).await.unwrap();
            let reader = Reader::new(world.clone(), topics, world.random.child());
            readers.spawn(reader.run(bus, subscription));
        }
        let mut receiving = JoinSet::new();
        for _ in 0..MEMBERS {
            let channel = world.channel().await;
            receiving.spawn(members::run(world.clone(), channel, world.random.child()));
        }
        let mut publishing = JoinSet::new();
        for number in 1..=PUBLISHERS {
            let bus = world.connect().await;
            publishing.spawn(publishers::run(world.clone(), number, bus, world.random.child()));
        }
        faults::run(&world).await;
        publishing.join_all().await;
        let received = world.finish(readers).await;
        world.deliveries.quiet(&world).await;
        receiving.join_all().await;
        let world = Arc::into_inner(world).expect("all tasks have ended");
        world.until_empty().await;
        world.summary(&received)
    }

    /// Publishes last entries until every reader has those of its topics. Readers that connect again meanwhile learn
    /// from a later one what they have missed.
    async fn finish(self: &Arc<Self>, mut readers: JoinSet<Received>) -> Received {
        let (mut all, mut value) = (Received::default(), u64::MAX);
        let publisher = self.connect().await;
        while !readers.is_empty() {
            for topic in &self.topics {
                value -= 1;
                publishers::publish(self, &publisher, topic, value).await;
            }
            let bus = self.bus();
            let heads =
                self.topics.iter().filter_map(|topic| Some((topic.clone(), bus.topic_stats(topic)?.head)));
            self.last.send_replace(Some(heads.collect()));
            let _ = timeout(Duration::from_secs(2), async {
                while let Some(received) = readers.join_next().await {
                    let Received { entries, gaps, resumes } = received.unwrap();
                    all.entries += entries;
                    all.gaps += gaps;
                    all.resumes += resumes;
                }
            })
            .await;
        }
        all
    }

    /// Waits until nothing of the clients is left, and then lets the topics expire.
    async fn until_empty(&self) {
        let bus = self.bus();
        bus.remove_durable(members::TOPIC, members::GROUP).unwrap();
        let is_empty = || {
            let (stats, topics) = (self.running().as_ref().unwrap().stats(), bus.stats());
            let of_server = stats.connections == 0 && stats.memory.held == 0 && self.link.connections() == 0;
            of_server && topics.subscriptions == 0 && topics.cursors == 0 && topics.durable_cursors == 0
        };
        let emptied = async {
            while !is_empty() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        if timeout(Duration::from_secs(600), emptied).await.is_err() {
            let stats = self.running().as_ref().unwrap().stats();
            panic!("left: {} connections, {:?}, {:?}", stats.connections, stats.memory, bus.stats());
        }
        advance(2 * HISTORY_AGE).await;
        bus.remove_unused();
        let stats = bus.stats();
        assert_eq!((stats.topics, stats.entries, stats.bytes), (0, 0, 0), "{stats:?}");
        let running = self.running().take();
        running.unwrap().kill();
    }

    fn summary(&self, received: &Received) -> Summary {
        let (redelivered, confirmed) = self.deliveries.counts();
        Summary {
            published: self.journal.accepted_count(),
            received: received.entries,
            gaps: received.gaps,
            redelivered,
            confirmed,
            crashes: self.crashes.load(Ordering::Relaxed),
            new_logs: self.new_logs.load(Ordering::Relaxed),
            cuts: self.cuts.load(Ordering::Relaxed),
            resumes: received.resumes,
        }
    }
}
