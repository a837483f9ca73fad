//! What goes wrong in a run, one thing after the other, and how all of it is mended.

use super::{chance::Chance, journal::Journal, network::Weather, node::Node, registry::Book, ways::Way};
use std::{sync::Arc, time::Duration};
use tokio::{
    task::JoinSet,
    time::{advance, sleep},
};

/// Where it happens.
pub(super) struct Trouble<'a> {
    pub(super) chance: &'a Chance,
    pub(super) journal: &'a Journal,
    pub(super) nodes: &'a [Arc<Node>],
    pub(super) book: &'a Book,
    pub(super) ways: &'a [Way],
}

/// What a way knew of the servers when the registry went.
type Known<'a> = Vec<(&'a Way, Vec<String>)>;

impl Trouble<'_> {
    pub(super) async fn run(&self) {
        let (mut tasks, mut known) = (JoinSet::new(), Vec::new());
        for _ in 0..self.chance.within(10..=60) {
            sleep(self.chance.millis(0..=self.chance.one_of(&[10, 100, 1000]))).await;
            self.nodes.iter().for_each(|node| node.check_limits());
            let node = self.chance.one_of(&self.nodes.iter().collect::<Vec<_>>());
            match self.chance.within(0..=109) {
                0..22 => self.end(node, &mut tasks),
                22..66 => self.disturb(node),
                66..74 => {
                    let by = self.chance.millis(1..=self.chance.one_of(&[50, 3000, 60_000]));
                    self.journal.event(format_args!("the clock jumps by {by:?}"));
                    self.journal.jumps(by);
                    advance(by).await;
                }
                74..94 => {
                    node.link.heal();
                    node.sicken(0);
                    self.journal.event(format_args!("server {} and its link are well", node.name));
                }
                94..100 => {
                    let percent = self.chance.one_of(&[50, 100]);
                    node.sicken(percent);
                    self.journal.saw("a sick server");
                    self.journal.event(format_args!("server {} fails {percent} of 100", node.name));
                }
                _ => self.turn_page(&mut known).await,
            }
            self.check_known(&known);
        }
        for node in self.nodes {
            node.link.heal();
            node.sicken(0);
        }
        self.book.answer(true);
        while let Some(started) = tasks.join_next().await {
            started.unwrap();
        }
        self.journal.event(format_args!("all is well"));
    }

    /// Ends a server that is back after a while, with or without a farewell.
    fn end(&self, node: &Arc<Node>, tasks: &mut JoinSet<()>) {
        let Some(running) = node.take() else { return };
        if self.chance.percent(65) {
            self.journal.event(format_args!("server {} crashes", node.name));
            running.kill();
            tasks.spawn(node.clone().start_after(self.chance.millis(0..=1500)));
            return;
        }
        if running.stats().calls_in_flight > 0 {
            self.journal.saw("a drain under load");
        }
        self.journal.event(format_args!("server {} stops", node.name));
        let (node, pause) = (node.clone(), self.chance.millis(0..=500));
        let (drain, hard) = (self.chance.millis(0..=400), self.chance.millis(400..=800));
        tasks.spawn(async move {
            running.stop(drain, hard).await;
            node.start_after(pause).await;
        });
    }

    /// Does something to the way to a server.
    fn disturb(&self, node: &Node) {
        let (link, name) = (&node.link, node.name);
        match self.chance.within(0..=43) {
            0..14 => {
                let (all, chance) = (self.chance.percent(50), self.chance.child());
                let cut = link.cut(all, &chance);
                self.journal.event(format_args!("{cut} connections to {name} are cut"));
            }
            14..26 => {
                let flows = self.chance.one_of(&[[false, false], [true, false], [false, true]]);
                link.set(|weather| weather.flows = flows);
                self.journal.event(format_args!("link {name} is partitioned: {flows:?}"));
            }
            26..34 => {
                link.set(|weather| weather.listens = false);
                self.journal.event(format_args!("link {name} refuses connections"));
            }
            _ => {
                let (latency, width) =
                    (self.chance.one_of(&[(0, 30), (100, 300)]), self.chance.one_of(&[10, 1000]));
                link.set(|weather| *weather = Weather { latency, width, ..*weather });
                self.journal.event(format_args!("link {name} is slow: {latency:?} ms, {width}"));
            }
        }
    }

    /// The registry goes away, or comes back, and may then have forgotten everybody.
    async fn turn_page<'a>(&'a self, known: &mut Known<'a>) {
        if self.book.answers() {
            self.book.answer(false);
            self.journal.saw("a registry that goes away");
            self.journal.event(format_args!("the registry goes away"));
            // What it said before is heard.
            sleep(Duration::from_millis(5)).await;
            let certain = |way: &'a Way| Some((way, way.known()?));
            *known = self.ways.iter().filter_map(certain).collect();
            return;
        }
        known.clear();
        let forgets = self.chance.percent(50);
        if forgets {
            self.book.forget();
        }
        self.book.answer(true);
        self.journal
            .event(format_args!("the registry is back{}", if forgets { ", and knows nobody" } else { "" }));
    }

    /// A registry that is down changes nothing.
    fn check_known(&self, known: &Known<'_>) {
        for (way, before) in known {
            if let Some(now) = way.known() {
                assert_eq!(&now, before, "the registry is away");
            }
        }
    }
}
