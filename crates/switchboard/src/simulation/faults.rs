//! Faults of a run, one after the other, and the recovery from all of them.

use super::{
    clients::Client, journal::Journal, network::LinkState, node::Node, random::Random, registry::SimRegistry,
};
use crate::StopOptions;
use std::{sync::Arc, time::Duration};
use tokio::{
    task::JoinSet,
    time::{advance, sleep},
};

/// Injects faults into servers, links and the registry.
pub(super) struct Faults<'a> {
    pub(super) random: &'a Random,
    pub(super) journal: &'a Journal,
    pub(super) nodes: &'a [Arc<Node>],
    pub(super) registry: &'a SimRegistry,
    pub(super) clients: &'a [Client],
}

/// The servers that each client had from the registry when it went down.
type ListedServers<'a> = Vec<(&'a Client, Vec<String>)>;

impl Faults<'_> {
    pub(super) async fn run(&self) {
        let (mut tasks, mut listed) = (JoinSet::new(), Vec::new());
        for _ in 0..self.random.within(10..=60) {
            sleep(self.random.millis(0..=self.random.one_of(&[10, 100, 1000]))).await;
            self.nodes.iter().for_each(|node| node.check_limits());
            let node = self.random.one_of(&self.nodes.iter().collect::<Vec<_>>());
            match self.random.within(0..=109) {
                0..22 => self.end(node, &mut tasks),
                22..66 => self.disturb(node),
                66..74 => {
                    let by = self.random.millis(1..=self.random.one_of(&[50, 3000, 60_000]));
                    self.journal.event(format_args!("the clock jumps by {by:?}"));
                    self.journal.jumps(by);
                    advance(by).await;
                }
                74..94 => {
                    node.link.heal();
                    node.set_fail_percent(0);
                    self.journal.event(format_args!("server {} and its link recover", node.name));
                }
                94..100 => {
                    let percent = self.random.one_of(&[50, 100]);
                    node.set_fail_percent(percent);
                    self.journal.observed("a failing server");
                    self.journal.event(format_args!("server {} fails {percent} of 100", node.name));
                }
                _ => self.toggle_registry(&mut listed).await,
            }
            self.check_unchanged(&listed);
        }
        for node in self.nodes {
            node.link.heal();
            node.set_fail_percent(0);
        }
        self.registry.set_available(true);
        while let Some(started) = tasks.join_next().await {
            started.unwrap();
        }
        self.journal.event(format_args!("all faults have ended"));
    }

    /// Stops or kills a server, which restarts after a while.
    fn end(&self, node: &Arc<Node>, tasks: &mut JoinSet<()>) {
        let Some(running) = node.take() else { return };
        if self.random.percent(65) {
            self.journal.event(format_args!("server {} crashes", node.name));
            running.kill();
            tasks.spawn(node.clone().start_after(self.random.millis(0..=1500)));
            return;
        }
        if running.stats().calls_in_flight > 0 {
            self.journal.observed("a drain under load");
        }
        self.journal.event(format_args!("server {} stops", node.name));
        let (node, pause) = (node.clone(), self.random.millis(0..=500));
        let (drain, force) = (self.random.millis(0..=400), self.random.millis(400..=800));
        tasks.spawn(async move {
            running.stop(StopOptions::new().drain(drain).close(force)).await;
            node.start_after(pause).await;
        });
    }

    /// Disturbs the link to a server.
    fn disturb(&self, node: &Node) {
        let (link, name) = (&node.link, node.name);
        match self.random.within(0..=43) {
            0..14 => {
                let (all, random) = (self.random.percent(50), self.random.child());
                let aborted = link.abort_connections(all, &random);
                self.journal.event(format_args!("{aborted} connections to {name} are aborted"));
            }
            14..26 => {
                let flows = self.random.one_of(&[[false, false], [true, false], [false, true]]);
                link.set(|state| state.flows = flows);
                self.journal.event(format_args!("link {name} is partitioned: {flows:?}"));
            }
            26..34 => {
                link.set(|state| state.listens = false);
                self.journal.event(format_args!("link {name} refuses connections"));
            }
            _ => {
                let (latency, width) =
                    (self.random.one_of(&[(0, 30), (100, 300)]), self.random.one_of(&[10, 1000]));
                link.set(|state| *state = LinkState { latency, width, ..*state });
                self.journal.event(format_args!("link {name} is slow: {latency:?} ms, {width}"));
            }
        }
    }

    /// Stops the registry, or restarts it, with or without its entries.
    async fn toggle_registry<'a>(&'a self, listed: &mut ListedServers<'a>) {
        if self.registry.is_available() {
            self.registry.set_available(false);
            self.journal.observed("a failed registry");
            self.journal.event(format_args!("the registry goes down"));
            // Updates sent before are still processed.
            sleep(Duration::from_millis(5)).await;
            let certain = |client: &'a Client| Some((client, client.registry_servers()?));
            *listed = self.clients.iter().filter_map(certain).collect();
            return;
        }
        listed.clear();
        let forgets = self.random.percent(50);
        if forgets {
            self.registry.clear();
        }
        self.registry.set_available(true);
        self.journal
            .event(format_args!("the registry is back{}", if forgets { ", without entries" } else { "" }));
    }

    /// Checks that a registry that is down changes nothing.
    fn check_unchanged(&self, listed: &ListedServers<'_>) {
        for (client, before) in listed {
            if let Some(now) = client.registry_servers() {
                assert_eq!(&now, before, "the registry is down");
            }
        }
    }
}
