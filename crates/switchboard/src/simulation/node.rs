//! A server that stops and restarts, and the link to it.

use super::{
    journal::Journal,
    network::Link,
    random::Random,
    registry::SimRegistry,
    service::Work,
    wires::{ALIASES, WIRES},
};
use crate::{Running, Server};
use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use switchboard_core::Limit;
use switchboard_discovery::discover::Instance;
use switchboard_guard::guard::{Concurrency, Fair, Rate, ResultCache};
use tokio::time::{Instant, sleep};

/// Configuration that all servers of a run share.
#[derive(Clone)]
pub(super) struct NodeConfig {
    pub(super) journal: Arc<Journal>,
    pub(super) registry: SimRegistry,
    /// True when they have guards.
    pub(super) guarded: bool,
    /// `memory_bytes_max`, when it differs from the default.
    pub(super) memory: Option<u64>,
}

pub(super) struct Node {
    pub(super) name: usize,
    pub(super) link: Link,
    pub(super) front: String,
    back: String,
    running: Mutex<Option<Running>>,
    starts: AtomicU64,
    /// Percentage of attempts that fail on this server, when it is higher than that of the requests.
    fail_percent: Arc<AtomicU64>,
    config: NodeConfig,
}

impl Node {
    pub(super) fn new(seed: u64, name: usize, config: NodeConfig, random: &Random) -> Node {
        let (front, back) = (format!("sim-{seed}-{name}"), format!("sim-{seed}-{name}-back"));
        Node {
            name,
            link: Link::new(front.clone(), back.clone(), random.child()),
            front: format!("memory://{front}"),
            back: format!("memory://{back}"),
            running: Mutex::default(),
            starts: AtomicU64::new(0),
            fail_percent: Arc::default(),
            config,
        }
    }

    pub(super) fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap()
    }

    pub(super) fn take(&self) -> Option<Running> {
        self.running().take()
    }

    /// Sets the percentage of attempts that fail from now on.
    pub(super) fn set_fail_percent(&self, percent: u64) {
        self.fail_percent.store(percent, Ordering::Relaxed);
    }

    pub(super) async fn start_after(self: Arc<Self>, pause: Duration) {
        sleep(pause).await;
        self.start().await;
    }

    pub(super) async fn start(&self) {
        let start_number = self.starts.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        loop {
            match self.server(start_number).start().await {
                Ok(running) => {
                    self.config.journal.event(format_args!("server {} runs", self.name));
                    *self.running() = Some(running);
                    return;
                }
                // The previous process may still hold the name for a moment.
                Err(error) => assert!(began.elapsed() < Duration::from_secs(5), "{error}"),
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn server(&self, start_number: u64) -> Server {
        let NodeConfig { journal, registry, guarded, memory } = &self.config;
        let work = Work {
            journal: journal.clone(),
            incarnation: (self.name, start_number),
            fail_percent: self.fail_percent.clone(),
        };
        let mut server = Server::new().add(work).listen(&self.back);
        for (alias, name) in ALIASES {
            server = server.alias(alias, name);
        }
        let instance = Instance::new("sim.Work", &self.front);
        server = server
            .register(registry.registry(&WIRES[0]), instance)
            .registration_notice(Duration::from_millis(200));
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

    /// Checks that the server does not exceed its limits.
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

    /// Checks, while there are no calls, that the server holds nothing for a call.
    pub(super) fn check_idle(&self) {
        let running = self.running();
        let running = running.as_ref().expect("all servers run at the end");
        let stats = running.stats();
        assert_eq!(stats.calls_in_flight, 0, "calls of server {}", self.name);
        for method in &stats.methods {
            assert_eq!(method.in_flight, 0, "{} of server {}", method.name, self.name);
        }
        for limit in running.concurrency() {
            assert_eq!(limit.in_flight, 0, "{} of server {}", limit.what, self.name);
        }
        assert_eq!(stats.memory.held, 0, "bytes of server {}", self.name);
        assert_eq!(running.concurrency().is_empty(), !self.config.guarded);
    }

    /// Checks, after all channels were dropped, that no connection is left.
    pub(super) fn check_empty(&self) {
        let running = self.running();
        let stats = running.as_ref().expect("all servers run at the end").stats();
        let open: Vec<_> = stats.protocols.iter().filter(|protocol| protocol.open > 0).collect();
        assert_eq!(stats.connections, 0, "connections of server {}: {open:?}", self.name);
        assert_eq!(self.link.connections(), 0, "connections of link {}", self.name);
        assert_eq!(stats.protocol_errors, 0, "protocol errors of server {}", self.name);
    }
}

/// Bytes that connections may still charge when the budget is used up.
const MEMORY_SLACK: u64 = 1 << 20;
