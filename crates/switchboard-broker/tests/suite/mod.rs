//! Cases that every engine passes, as far as it declares them.
//!
//! `broker_suite!` makes a test of each case. Each test has a server of its own.

#![allow(clippy::unwrap_used, reason = "code of tests, in functions that several of them call")]
#![allow(dead_code, reason = "not every engine has a server")]

mod bridges;
mod failures;
pub(crate) mod forwarder;
pub(crate) mod kafka_node;
mod positions;
pub(crate) mod process;
mod topics;

pub(crate) use bridges::*;
pub(crate) use failures::*;
pub(crate) use forwarder::Path;
pub(crate) use positions::*;
pub(crate) use topics::*;

use std::{future::Future, ops::Range, sync::Arc, time::Duration};
use switchboard_message::{Bus, Delivery, GapReason, Limits, Position, Subscription, broker::Broker};
use tokio::time::timeout;

/// Entries that the engines of the suite keep per topic, if they keep any.
pub(crate) const HISTORY: u64 = 100;

/// An engine that runs for one test.
pub(crate) trait Engine: Send + Sync + Sized + 'static {
    /// Starts its server; `None`, with a line that says why, if it is not installed.
    fn start() -> impl Future<Output = Option<Self>> + Send;

    /// Creates a client of the engine, over the path that [`set`](Self::set) controls.
    fn broker(&self) -> Arc<dyn Broker>;

    /// Creates a client that no path disturbs.
    fn undisturbed(&self) -> Arc<dyn Broker> {
        self.broker()
    }

    /// Returns whether the engine is another process.
    fn is_remote(&self) -> bool;

    /// Changes the path between the clients and the engine.
    fn set(&self, _path: Path) {}

    /// Kills the server.
    fn kill(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Starts the server again, with its files.
    fn restart(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Removes all entries, as an operator does: the logs begin again.
    fn erase(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Removes the entries of a topic before this position, in an engine whose topics share a log.
    fn trim(&self, _before: Position) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Creates a bus on the engine.
    fn bus(&self) -> Bus {
        Bus::builder().engine(self.broker()).build()
    }
}

/// A bus of an undisturbed client.
pub(crate) fn other_bus(engine: &impl Engine) -> Bus {
    Bus::builder().limits(Limits::default()).engine(engine.undisturbed()).build()
}

/// Waits for the next item; a minute means that it does not come.
pub(crate) async fn next(subscription: &mut Subscription<u64>) -> Delivery<u64> {
    let next = timeout(Duration::from_secs(60), subscription.next());
    next.await.expect("an item within a minute").expect("no error").expect("the subscription is open")
}

pub(crate) async fn next_entry(subscription: &mut Subscription<u64>) -> u64 {
    match next(subscription).await {
        Delivery::Entry(entry) => *entry,
        other => panic!("not an entry: {other:?}"),
    }
}

/// Expects these entries, each once and in order, and nothing else.
pub(crate) async fn expect(subscription: &mut Subscription<u64>, entries: Range<u64>) {
    for entry in entries {
        assert_eq!(next_entry(subscription).await, entry);
    }
}

pub(crate) async fn next_gap(subscription: &mut Subscription<u64>) -> (Range<u64>, GapReason) {
    match next(subscription).await {
        Delivery::Gap(gap) => (gap.range, gap.reason),
        other => panic!("not a gap: {other:?}"),
    }
}

pub(crate) async fn publish(bus: &Bus, topic: &str, entries: Range<u64>) {
    for entry in entries {
        bus.publish(topic, &entry).await.expect("the engine is there");
    }
}

/// Makes a test of each case for an engine.
macro_rules! broker_suite {
    ($engine:ty) => {
        broker_suite!($engine:
            order_with_many_publishers, every_start_position, holes_are_filled, duplicates_are_dropped,
            history_is_trimmed_below_a_reader, a_slow_reader_catches_up, many_topics, drain,
            unsupported_operations_name_the_engine, killed_and_restarted, partitions, another_epoch,
            a_cut_during_publications, a_bridge_copies_both_ways);
    };
    ($engine:ty: $($case:ident),*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let Some(engine) = <$engine as suite::Engine>::start().await else { return };
                suite::$case(engine).await;
            }
        )*
    };
}
pub(crate) use broker_suite;
