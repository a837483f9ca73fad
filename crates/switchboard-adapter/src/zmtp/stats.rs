//! Counters of the plugin.

use crate::{
    counters::{counters, engine_list},
    responses::add,
};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};
use switchboard_core::counters::{Counter, CounterSource};
use switchboard_fanout::{CloseReason, EngineCounters};
use switchboard_wire::Status;

counters! {
    /// Counters of a [`Zmtp`](super::Zmtp) plugin, of all servers that it was added to.
    ZmtpStats, Counters {
        /// Ended connections by reason. The names are of a fixed set.
        closed: Mutex<BTreeMap<&'static str, u64>>,
        /// Refused messages and subscriptions by the name of the status.
        refusals: Mutex<BTreeMap<&'static str, u64>>,
        /// Counters of the fan-out engines.
        engines: EngineCounters,
    }
    /// Messages of peers that became entries of the bus.
    published,
    /// Messages of peers that were refused: a rule of topics, an invalid name of a topic, a limit of the bus, a full
    /// topic.
    refused,
    /// Subscriptions of SUB and PULL peers that a rule of topics refused.
    refused_subscriptions,
    /// Entries that were read from the bus for subscribers.
    read,
    /// Entries that went to broadcast buffers of subscribers, once for each set of prefixes.
    encoded,
    /// Entries that went to PULL peers.
    jobs,
    /// Messages of peers that went to a ROUTER of the application.
    routed,
    /// Entries that the bus dropped before this plugin had read them, as far as their number is known.
    missed,
    /// Bytes that subscribers lost, because they were too slow.
    lagged_bytes,
    /// Connections that were closed because of an error of the peer.
    protocol_errors,
}

impl Counters {
    /// Counts the end of a connection.
    pub(super) fn closed(&self, reason: &CloseReason) {
        count_name(&self.closed, reason.name());
    }

    /// Counts a message of a peer that is dropped.
    pub(super) fn refused_message(&self, status: &Status) {
        add(&self.refused, 1);
        count_name(&self.refusals, status.code().name());
        tracing::debug!("zmtp: a message of a peer is dropped: {status}");
    }

    /// Counts a subscription of a peer that delivers nothing.
    pub(super) fn refused_subscription(&self, status: &Status) {
        add(&self.refused_subscriptions, 1);
        count_name(&self.refusals, status.code().name());
        tracing::debug!("zmtp: a subscription of a peer delivers nothing: {status}");
    }

    /// Returns the number of ended connections by reason.
    pub(super) fn reasons(&self) -> Vec<(&'static str, u64)> {
        counts(&self.closed)
    }

    /// Returns the number of refused messages and subscriptions by the name of the status.
    pub(super) fn refusals(&self) -> Vec<(&'static str, u64)> {
        counts(&self.refusals)
    }
}

impl CounterSource for Counters {
    fn kind(&self) -> &'static str {
        "zmtp"
    }

    fn counters(&self) -> Vec<Counter> {
        let mut counters = self.totals();
        counters.extend(self.engines.counters());
        counters.extend(self.reasons().into_iter().map(|(reason, count)| {
            Counter::total("closed", "connections that ended, by reason", count).label("reason", reason)
        }));
        counters.extend(self.refusals().into_iter().map(|(code, count)| {
            Counter::total("refusals", "refused messages and subscriptions, by the code of the status", count)
                .label("code", code)
        }));
        counters
    }

    engine_list!();

    fn identity(&self) -> Option<usize> {
        Some(std::ptr::from_ref(self) as usize)
    }
}

fn count_name(counts: &Mutex<BTreeMap<&'static str, u64>>, name: &'static str) {
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    let count = counts.entry(name).or_default();
    *count = count.saturating_add(1);
}

fn counts(counts: &Mutex<BTreeMap<&'static str, u64>>) -> Vec<(&'static str, u64)> {
    let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    counts.iter().map(|(name, count)| (*name, *count)).collect()
}
