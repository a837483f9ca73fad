//! A server that comes and goes, and the way to it.

use super::{
    chance::Chance,
    journal::Journal,
    network::Link,
    registry::Book,
    service::Work,
    wires::{ALIASES, WIRES},
};
use crate::{
    Limit, Running, Server,
    discover::Instance,
    guard::{Concurrency, Fair, Rate, ResultCache},
};
use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// What servers of a run have in common.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) journal: Arc<Journal>,
    pub(super) book: Book,
    /// Whether they have guards.
    pub(super) guarded: bool,
    /// `memory_bytes_max`, if it is not the usual one.
    pub(super) memory: Option<u64>,
}

pub(super) struct Node {
    pub(super) name: usize,
    pub(super) link: Link,
    pub(super) front: String,
    back: String,
    running: Mutex<Option<Running>>,
    lives: AtomicU64,
    /// Of 100 attempts so many fail here, if that is more than those that fail anywhere.
    sick: Arc<AtomicU64>,
    terms: Terms,
}

impl Node {
    pub(super) fn new(seed: u64, name: usize, terms: Terms, chance: &Chance) -> Node {
        let (front, back) = (format!("sim-{seed}-{name}"), format!("sim-{seed}-{name}-back"));
        Node {
            name,
            link: Link::new(front.clone(), back.clone(), chance.child()),
            front: format!("memory://{front}"),
            back: format!("memory://{back}"),
            running: Mutex::default(),
            lives: AtomicU64::new(0),
            sick: Arc::default(),
            terms,
        }
    }

    pub(super) fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap()
    }

    pub(super) fn take(&self) -> Option<Running> {
        self.running().take()
    }

    /// Lets so many of 100 attempts fail from now on.
    pub(super) fn sicken(&self, percent: u64) {
        self.sick.store(percent, Ordering::Relaxed);
    }

    pub(super) async fn start_after(self: Arc<Self>, pause: Duration) {
        sleep(pause).await;
        self.start().await;
    }

    pub(super) async fn start(&self) {
        let life = self.lives.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        loop {
            match self.server(life).start().await {
                Ok(running) => {
                    self.terms.journal.event(format_args!("server {} runs", self.name));
                    *self.running() = Some(running);
                    return;
                }
                // The one before it has the name for a moment.
                Err(error) => assert!(began.elapsed() < Duration::from_secs(5), "{error}"),
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn server(&self, life: u64) -> Server {
        let Terms { journal, book, guarded, memory } = &self.terms;
        let work = Work { journal: journal.clone(), place: (self.name, life), sick: self.sick.clone() };
        let mut server = Server::new().add(work).listen(&self.back);
        for (alias, name) in ALIASES {
            server = server.alias(alias, name);
        }
        let instance = Instance::new("sim.Work", &self.front);
        server =
            server.announce(book.registry(&WIRES[0]), instance).announce_notice(Duration::from_millis(200));
        server = server.result_cache(ResultCache::of("sim.Work/Write"));
        if let Some(bytes) = memory {
            server = server.limit(Limit::MemoryBytesMax, *bytes);
        }
        if *guarded {
            server = server
                .concurrency(Concurrency::from(6))
                .method_concurrency("sim.Work/Write", 3)
                .fair(Fair::by_peer().waiting_max(5).wait_max(Duration::from_millis(100)))
                .rate(Rate::per_second(200.0).burst(20));
        }
        server
    }

    /// What the server may hold and run at any time, it does not exceed.
    pub(super) fn check_limits(&self) {
        let running = self.running();
        let Some(running) = running.as_ref() else { return };
        for limit in running.concurrency() {
            assert!(limit.in_flight <= limit.limit, "{} of server {}: {limit:?}", limit.what, self.name);
        }
        let memory = running.memory();
        let over = memory.held.saturating_sub(memory.max);
        assert!(over <= MEMORY_SLACK, "server {} holds {} of {} bytes", self.name, memory.held, memory.max);
    }

    /// Nobody calls: nothing may be held for a call.
    pub(super) fn check_idle(&self) {
        let running = self.running();
        let running = running.as_ref().expect("all run in the end");
        let stats = running.stats();
        assert_eq!(stats.calls_in_flight, 0, "calls of server {}", self.name);
        for method in &stats.methods {
            assert_eq!(method.in_flight, 0, "{} of server {}", method.name, self.name);
        }
        for limit in running.concurrency() {
            assert_eq!(limit.in_flight, 0, "{} of server {}", limit.what, self.name);
        }
        assert_eq!(stats.memory.held, 0, "bytes of server {}", self.name);
        assert_eq!(running.concurrency().is_empty(), !self.terms.guarded);
    }

    /// Nobody has a channel: no connection may be left.
    pub(super) fn check_empty(&self) {
        let running = self.running();
        let stats = running.as_ref().expect("all run in the end").stats();
        let open: Vec<_> = stats.carriers.iter().filter(|carrier| carrier.open > 0).collect();
        assert_eq!(stats.connections, 0, "connections of server {}: {open:?}", self.name);
        assert_eq!(self.link.connections(), 0, "connections of link {}", self.name);
        assert_eq!(stats.protocol_errors, 0, "mistakes that server {} saw", self.name);
    }
}

/// What is on its way into the account already when it is full.
const MEMORY_SLACK: u64 = 1 << 20;
