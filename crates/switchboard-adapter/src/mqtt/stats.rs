//! Counters of the plugin.

use crate::counters::counters;
use switchboard_core::counters::{Counter, CounterSource};

counters! {
    /// Counters of an [`Mqtt`](super::Mqtt) plugin, of all servers that it was added to.
    MqttStats, Counters {}
    /// Messages of clients that became entries of the bus.
    published,
    /// Messages of clients that were refused: a rule, a limit, a topic name.
    refused,
    /// Messages of QoS 2 that a client repeated, and that were not published again.
    repeated,
    /// Messages that were written to clients, once for each subscription; those of QoS 0 in shared bytes count once.
    delivered,
    /// Messages of QoS 1 and 2 that were written again after a reconnect.
    redelivered,
    /// Messages that a client or its version cannot receive, for instance because they are too large for it.
    undeliverable,
    /// Entries that the bus dropped before a subscription had read them, as far as their number is known.
    missed,
    /// Messages of QoS 0 that were dropped because too much waited for the client.
    dropped,
    /// Sessions that were continued without a gap.
    resumed,
    /// Sessions that were continued with a gap, which the client receives as a new session.
    gaps,
    /// Sessions that ended because their time had passed.
    expired,
    /// Sessions of absent clients that were removed because there were too many.
    evicted,
    /// Connections that another one with the same client identifier has replaced.
    taken_over,
    /// Wills that were published.
    wills,
    /// Connections that were closed because nothing arrived within the keep alive.
    keep_alive_timeouts,
    /// Connections whose credentials were rejected.
    unauthorized,
    /// Connections that were closed because of an error of the client.
    protocol_errors,
}

impl CounterSource for Counters {
    fn kind(&self) -> &'static str {
        "mqtt"
    }

    fn counters(&self) -> Vec<Counter> {
        self.totals()
    }

    fn identity(&self) -> Option<usize> {
        Some(std::ptr::from_ref(self) as usize)
    }
}
