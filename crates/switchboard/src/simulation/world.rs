//! One run: servers, the network, a registry, callers, and what goes wrong meanwhile.

use super::{
    Summary,
    callers::Caller,
    chance::Chance,
    journal::Journal,
    node::{Node, Terms},
    registry::Book,
    trouble::Trouble,
    ways::{BUDGET, Way},
    wires::WIRES,
};
use std::{sync::Arc, time::Duration};
use tokio::{task::JoinSet, time::sleep};

/// After so long without trouble everything is as it was before.
const CALM: Duration = Duration::from_secs(120);

pub(super) struct World {
    seed: u64,
    chance: Chance,
    journal: Arc<Journal>,
    book: Book,
    nodes: Vec<Arc<Node>>,
    /// Of 100 attempts so many fail at their servers.
    fails: u64,
}

impl World {
    /// What the seed makes of it. Nothing has begun yet.
    pub(super) fn new(seed: u64) -> World {
        let chance = Chance::new(seed);
        let (journal, book) = (Arc::new(Journal::new()), Book::new());
        let terms = Terms {
            journal: journal.clone(),
            book: book.clone(),
            guarded: chance.percent(40),
            memory: chance.percent(20).then_some(1 << 20),
        };
        let nodes = (0..chance.within(1..=5) as usize)
            .map(|name| Arc::new(Node::new(seed, name, terms.clone(), &chance)))
            .collect();
        let fails = chance.one_of(&[0, 0, 5, 30]);
        World { seed, chance, journal, book, nodes, fails }
    }

    pub(super) async fn run(self) -> Summary {
        for node in &self.nodes {
            node.start().await;
        }
        // The first wire follows from the seed: seeds in a row have all of them.
        let first = &WIRES[self.seed as usize % WIRES.len()];
        let ways: Vec<_> = (0..self.chance.within(1..=3))
            .map(|at| if at == 0 { first } else { &WIRES[self.chance.next() as usize % WIRES.len()] })
            .map(|wire| Way::new(&self.nodes, &self.book, wire, &self.chance, &self.journal))
            .collect();
        let mut callers = JoinSet::new();
        for name in 0..self.chance.within(3..=12) {
            let way = if name == 0 { 0 } else { self.chance.next() as usize % ways.len() };
            callers.spawn(self.caller(name + 1, &ways[way], self.chance.within(20..=80)).run());
        }
        let (chance, journal, book) = (&self.chance, &*self.journal, &self.book);
        Trouble { chance, journal, nodes: &self.nodes, book, ways: &ways }.run().await;
        while let Some(ended) = callers.join_next().await {
            ended.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
        }
        sleep(CALM).await;
        for (at, way) in ways.iter().enumerate() {
            self.caller(100 + at as u64, way, 0).call_when_all_is_well().await;
        }
        sleep(CALM).await;
        self.journal.check_ends();
        self.journal.check_effects();
        let (percent, floor) = (u64::from(BUDGET.0), u64::from(BUDGET.1) * ways.len() as u64);
        self.journal.check_budget(percent, floor);
        ways.iter().for_each(|way| way.check_idle(self.nodes.len()));
        self.nodes.iter().for_each(|node| node.check_idle());
        drop(ways);
        sleep(CALM).await;
        for node in &self.nodes {
            node.check_empty();
            let running = node.take().expect("all run in the end");
            let stopped = running.stop(Duration::ZERO, CALM).await;
            assert!(stopped.is_clean(), "{stopped}");
        }
        self.journal.summary()
    }

    fn caller(&self, name: u64, way: &Way, calls: u64) -> Caller {
        if way.hedges {
            self.journal.hedges(name);
        }
        Caller {
            name,
            way: way.clone(),
            chance: self.chance.child(),
            journal: self.journal.clone(),
            calls,
            fails: self.fails,
        }
    }
}
