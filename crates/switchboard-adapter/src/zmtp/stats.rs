//! Counters of the plugin.

use crate::responses::add;
use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use switchboard_fanout::CloseReason;
use switchboard_wire::Status;

/// Counters of a [`Zmtp`](super::Zmtp) plugin, of all servers that it was added to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ZmtpStats {
    /// Messages of peers that became entries of the bus.
    pub published: u64,
    /// Messages of peers that were refused: a rule of topics, an invalid name of a topic, a limit of the bus, a full
    /// topic.
    pub refused: u64,
    /// Subscriptions of SUB and PULL peers that a rule of topics refused.
    pub refused_subscriptions: u64,
    /// Entries that were read from the bus for subscribers.
    pub read: u64,
    /// Entries that went to broadcast buffers of subscribers, once for each set of prefixes.
    pub encoded: u64,
    /// Entries that went to PULL peers.
    pub jobs: u64,
    /// Messages of peers that went to a ROUTER of the application.
    pub routed: u64,
    /// Entries that the bus dropped before this plugin had read them, as far as their number is known.
    pub missed: u64,
    /// Bytes that subscribers lost, because they were too slow.
    pub lagged_bytes: u64,
    /// Connections that were closed because of an error of the peer.
    pub protocol_errors: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) published: AtomicU64,
    refused: AtomicU64,
    refused_subscriptions: AtomicU64,
    pub(super) read: AtomicU64,
    pub(super) encoded: AtomicU64,
    pub(super) jobs: AtomicU64,
    pub(super) routed: AtomicU64,
    pub(super) missed: AtomicU64,
    pub(super) lagged_bytes: AtomicU64,
    pub(super) protocol_errors: AtomicU64,
    /// Ended connections by reason. The names are of a fixed set.
    closed: Mutex<BTreeMap<&'static str, u64>>,
    /// Refused messages and subscriptions by the name of the status.
    refusals: Mutex<BTreeMap<&'static str, u64>>,
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

    pub(super) fn stats(&self) -> ZmtpStats {
        let count = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        ZmtpStats {
            published: count(&self.published),
            refused: count(&self.refused),
            refused_subscriptions: count(&self.refused_subscriptions),
            read: count(&self.read),
            encoded: count(&self.encoded),
            jobs: count(&self.jobs),
            routed: count(&self.routed),
            missed: count(&self.missed),
            lagged_bytes: count(&self.lagged_bytes),
            protocol_errors: count(&self.protocol_errors),
        }
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
