//! One run: servers, the network, a registry, callers, and faults.

use super::{
    Summary,
    callers::Caller,
    clients::{BUDGET, Client},
    faults::Faults,
    journal::Journal,
    node::{Node, NodeConfig},
    random::Random,
    registry::SimRegistry,
    wires::wire,
};
use crate::StopOptions;
use std::{sync::Arc, time::Duration};
use tokio::{task::JoinSet, time::sleep};

/// After this time without faults everything has recovered.
const RECOVERY_TIME: Duration = Duration::from_secs(120);

pub(super) struct World {
    seed: u64,
    random: Random,
    journal: Arc<Journal>,
    registry: SimRegistry,
    nodes: Vec<Arc<Node>>,
    /// Percentage of attempts that fail at their servers.
    fails: u64,
}

impl World {
    /// Creates the world of a seed. Nothing runs yet.
    pub(super) fn new(seed: u64) -> World {
        let random = Random::new(seed);
        let (journal, registry) = (Arc::new(Journal::new()), SimRegistry::new());
        let config = NodeConfig {
            journal: journal.clone(),
            registry: registry.clone(),
            guarded: random.percent(40),
            memory: random.percent(20).then_some(1 << 20),
        };
        let nodes = (0..random.within(1..=5) as usize)
            .map(|name| Arc::new(Node::new(seed, name, config.clone(), &random)))
            .collect();
        let fails = random.one_of(&[0, 0, 5, 30]);
        World { seed, random, journal, registry, nodes, fails }
    }

    pub(super) async fn run(self) -> Summary {
        for node in &self.nodes {
            node.start().await;
        }
        // The first wire follows from the seed: consecutive seeds cover all of them.
        let first = wire(self.seed as usize);
        let clients: Vec<_> = (0..self.random.within(1..=3))
            .map(|at| if at == 0 { first } else { wire(self.random.next() as usize) })
            .map(|wire| Client::new(&self.nodes, &self.registry, wire, &self.random, &self.journal))
            .collect();
        let mut callers = JoinSet::new();
        for name in 0..self.random.within(3..=12) {
            let index = if name == 0 { 0 } else { self.random.next() as usize % clients.len() };
            callers.spawn(self.caller(name + 1, &clients[index], self.random.within(20..=80)).run());
        }
        let (random, journal, registry) = (&self.random, &*self.journal, &self.registry);
        Faults { random, journal, nodes: &self.nodes, registry, clients: &clients }.run().await;
        while let Some(ended) = callers.join_next().await {
            ended.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
        }
        sleep(RECOVERY_TIME).await;
        for (at, client) in clients.iter().enumerate() {
            self.caller(100 + at as u64, client, 0).call_without_faults().await;
        }
        sleep(RECOVERY_TIME).await;
        self.journal.check_ends();
        self.journal.check_effects();
        let (percent, floor) = (u64::from(BUDGET.0), u64::from(BUDGET.1) * clients.len() as u64);
        self.journal.check_budget(percent, floor);
        clients.iter().for_each(|client| client.check_idle(self.nodes.len()));
        self.nodes.iter().for_each(|node| node.check_idle());
        drop(clients);
        sleep(RECOVERY_TIME).await;
        for node in &self.nodes {
            node.check_empty();
            let running = node.take().expect("all servers run at the end");
            let stopped = running.stop(StopOptions::new().drain(Duration::ZERO).close(RECOVERY_TIME)).await;
            assert!(stopped.is_clean(), "{stopped}");
        }
        self.journal.summary()
    }

    fn caller(&self, name: u64, client: &Client, calls: u64) -> Caller {
        if client.hedges {
            self.journal.hedges(name);
        }
        Caller {
            name,
            client: client.clone(),
            random: self.random.child(),
            journal: self.journal.clone(),
            calls,
            fails: self.fails,
        }
    }
}
