//! One run: servers, the network, callers, and what goes wrong meanwhile.

use super::{
    Summary,
    callers::Caller,
    chance::Chance,
    journal::Journal,
    network::{Link, Weather},
    service::Work,
};
use crate::{
    Channel, Running, Server,
    guard::{Concurrency, Fair, Rate, ResultCache},
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    task::JoinSet,
    time::{Instant, advance, sleep},
};

/// Retries of each channel: so many for 100 calls, and a second.
const BUDGET: (u32, u32) = (20, 5);
/// After so long without trouble everything is as it was before.
const CALM: Duration = Duration::from_secs(120);

pub(super) struct World {
    chance: Chance,
    journal: Arc<Journal>,
    nodes: Vec<Arc<Node>>,
    /// Whether servers have guards.
    guarded: bool,
    /// Of 100 attempts so many fail at their servers.
    fails: u64,
}

/// A server that comes and goes, and the way to it.
struct Node {
    name: usize,
    link: Link,
    front: String,
    back: String,
    running: Mutex<Option<Running>>,
    lives: AtomicU64,
    journal: Arc<Journal>,
    guarded: bool,
}

impl World {
    /// What the seed makes of it. Nothing has begun yet.
    pub(super) fn new(seed: u64) -> World {
        let chance = Chance::new(seed);
        let journal = Arc::new(Journal::new());
        let guarded = chance.percent(40);
        let node = |name| {
            let (front, back) = (format!("sim-{seed}-{name}"), format!("sim-{seed}-{name}-back"));
            Arc::new(Node {
                name,
                link: Link::new(front.clone(), back.clone(), chance.child()),
                front,
                back,
                running: Mutex::default(),
                lives: AtomicU64::new(0),
                journal: journal.clone(),
                guarded,
            })
        };
        let nodes = (0..chance.within(1..=5) as usize).map(node).collect();
        let fails = chance.one_of(&[0, 0, 5, 30]);
        World { chance, journal, nodes, guarded, fails }
    }

    pub(super) async fn run(self) -> Summary {
        for node in &self.nodes {
            node.start().await;
        }
        let channels: Vec<_> = (0..self.chance.within(1..=3)).map(|_| self.channel()).collect();
        let mut callers = JoinSet::new();
        for name in 0..self.chance.within(3..=12) {
            let caller = Caller {
                name: name + 1,
                channel: self.chance.one_of(&channels.iter().collect::<Vec<_>>()).clone(),
                chance: self.chance.child(),
                journal: self.journal.clone(),
                calls: self.chance.within(20..=80),
                fails: self.fails,
            };
            callers.spawn(caller.run());
        }
        self.trouble().await;
        while let Some(ended) = callers.join_next().await {
            ended.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
        }
        sleep(CALM).await;
        self.journal.check_effects();
        let (percent, floor) = (u64::from(BUDGET.0), u64::from(BUDGET.1) * channels.len() as u64);
        self.journal.check_budget(percent, floor);
        self.check_idle(&channels);
        drop(channels);
        sleep(CALM).await;
        self.check_empty();
        for node in &self.nodes {
            let running = node.take().expect("all run in the end");
            let stopped = running.stop(Duration::ZERO, CALM).await;
            assert!(stopped.is_clean(), "{stopped}");
        }
        self.journal.summary()
    }

    /// A channel to all servers, with any options.
    fn channel(&self) -> Channel {
        let urls: Vec<_> = self.nodes.iter().map(|node| format!("memory://{}", node.front)).collect();
        let balance =
            ["p2c", "random", "round_robin", "weighted", "least_active", "ketama", "bounded", "jump", "ping"];
        let fail = ["failover", "failover", "failfast", "failtry", "failbackup"];
        let mut url = format!(
            "{}?balance={}&fail={}&retries={}",
            urls.join(","),
            self.chance.one_of(&balance),
            self.chance.one_of(&fail),
            self.chance.within(0..=4)
        );
        for (percent, option) in [
            (20, "sticky=true"),
            (20, "breaker=off"),
            (20, "eject=0"),
            (20, "slow_start=1s"),
            (20, "hedge=10ms"),
            (20, "compression=gzip"),
            (30, "hash=request"),
        ] {
            if self.chance.percent(percent) {
                url = format!("{url}&{option}");
            }
        }
        let builder = Channel::builder(&url)
            .retry_budget(BUDGET.0, BUDGET.1)
            .connections(self.chance.within(1..=2) as usize)
            .keepalive(self.chance.millis(200..=5000));
        self.journal.note(format_args!("channel {url}"));
        builder.lazy().unwrap()
    }

    /// Lets things go wrong, one after the other, and mends them all.
    async fn trouble(&self) {
        let mut tasks = JoinSet::new();
        for _ in 0..self.chance.within(10..=60) {
            sleep(self.chance.millis(0..=self.chance.one_of(&[10, 100, 1000]))).await;
            let node = self.chance.one_of(&self.nodes.iter().collect::<Vec<_>>());
            let (link, name) = (&node.link, node.name);
            match self.chance.within(0..=99) {
                0..15 => {
                    if let Some(running) = node.take() {
                        self.journal.event(format_args!("server {name} crashes"));
                        running.kill();
                        tasks.spawn(node.clone().start_after(self.chance.millis(0..=1500)));
                    }
                }
                15..22 => {
                    if let Some(running) = node.take() {
                        self.journal.event(format_args!("server {name} stops"));
                        let (node, pause) = (node.clone(), self.chance.millis(0..=500));
                        let (drain, hard) = (self.chance.millis(0..=400), self.chance.millis(400..=800));
                        tasks.spawn(async move {
                            running.stop(drain, hard).await;
                            node.start_after(pause).await;
                        });
                    }
                }
                22..36 => {
                    let (all, chance) = (self.chance.percent(50), self.chance.child());
                    let cut = link.cut(all, &chance);
                    self.journal.event(format_args!("{cut} connections to {name} are cut"));
                }
                36..48 => {
                    let flows = self.chance.one_of(&[[false, false], [true, false], [false, true]]);
                    link.set(|weather| weather.flows = flows);
                    self.journal.event(format_args!("link {name} is partitioned: {flows:?}"));
                }
                48..56 => {
                    link.set(|weather| weather.listens = false);
                    self.journal.event(format_args!("link {name} refuses connections"));
                }
                56..66 => {
                    let (latency, width) =
                        (self.chance.one_of(&[(0, 30), (100, 300)]), self.chance.one_of(&[10, 1000]));
                    link.set(|weather| *weather = Weather { latency, width, ..*weather });
                    self.journal.event(format_args!("link {name} is slow: {latency:?} ms, {width}"));
                }
                66..74 => {
                    let by = self.chance.millis(1..=self.chance.one_of(&[50, 3000, 60_000]));
                    self.journal.event(format_args!("the clock jumps by {by:?}"));
                    self.journal.jumps(by);
                    advance(by).await;
                }
                _ => {
                    link.heal();
                    self.journal.event(format_args!("link {name} is well"));
                }
            }
        }
        for node in &self.nodes {
            node.link.heal();
        }
        while let Some(started) = tasks.join_next().await {
            started.unwrap();
        }
        self.journal.event(format_args!("all is well"));
    }

    /// Nobody calls: nothing may be held for a call.
    fn check_idle(&self, channels: &[Channel]) {
        for channel in channels {
            for endpoint in channel.endpoints() {
                assert_eq!(endpoint.in_flight, 0, "{}", endpoint.address);
            }
            for (what, left) in channel.left() {
                assert_eq!(left, 0, "{what} of {channel:?}");
            }
        }
        for node in &self.nodes {
            let running = node.running.lock().unwrap();
            let running = running.as_ref().expect("all run in the end");
            let stats = running.stats();
            assert_eq!(stats.calls_in_flight, 0, "calls of server {}", node.name);
            for method in &stats.methods {
                assert_eq!(method.in_flight, 0, "{} of server {}", method.name, node.name);
            }
            for limit in running.concurrency() {
                assert_eq!(limit.in_flight, 0, "{} of server {}", limit.what, node.name);
            }
            if self.guarded {
                assert!(!running.concurrency().is_empty());
            }
        }
    }

    /// Nobody has a channel: no connection may be left.
    fn check_empty(&self) {
        for node in &self.nodes {
            let running = node.running.lock().unwrap();
            let running = running.as_ref().expect("all run in the end");
            assert_eq!(running.stats().connections, 0, "connections of server {}", node.name);
            assert_eq!(node.link.connections(), 0, "connections of link {}", node.name);
        }
    }
}

impl Node {
    fn take(&self) -> Option<Running> {
        self.running.lock().unwrap().take()
    }

    async fn start_after(self: Arc<Self>, pause: Duration) {
        sleep(pause).await;
        self.start().await;
    }

    async fn start(&self) {
        let life = self.lives.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        loop {
            let work = Work { journal: self.journal.clone(), place: (self.name, life) };
            let mut server = Server::new().add(work).listen(format!("memory://{}", self.back));
            server = server.result_cache(ResultCache::of("sim.Work/Write"));
            if self.guarded {
                server = server
                    .concurrency(Concurrency::from(6))
                    .method_concurrency("sim.Work/Write", 3)
                    .fair(Fair::by_peer().waiting_max(5).wait_max(Duration::from_millis(100)))
                    .rate(Rate::per_second(200.0).burst(20));
            }
            match server.start().await {
                Ok(running) => {
                    self.journal.event(format_args!("server {} runs", self.name));
                    *self.running.lock().unwrap() = Some(running);
                    return;
                }
                // The one before it has the name for a moment.
                Err(error) => assert!(began.elapsed() < Duration::from_secs(5), "{error}"),
            }
            sleep(Duration::from_millis(1)).await;
        }
    }
}
