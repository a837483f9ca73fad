//! Counters of the plugin.

use crate::counters::{counters, engine_list};
use switchboard_core::counters::{Counter, CounterSource};
use switchboard_fanout::EngineCounters;

counters! {
    /// Counters of a [`Nats`](super::Nats) plugin, of all servers that it was added to.
    NatsStats, Counters {
        /// Counters of the fan-out engines.
        engines: EngineCounters,
    }
    /// Messages of clients that became entries of the bus.
    published,
    /// Messages of clients that the bus refused: a limit of the bus, a full topic.
    refused,
    /// Publications and subscriptions with an invalid or reserved subject.
    invalid_subjects,
    /// Messages that were written to clients, once for each subscription.
    delivered,
    /// Entries that no subject can name, or that do not fit into a message.
    undeliverable,
    /// Requests that were calls of services.
    calls,
    /// Requests without a subscriber.
    no_responders,
    /// Clients that were slow consumers.
    slow_consumers,
    /// Messages that slow consumers missed, with `SlowConsumer::Drop`.
    dropped,
    /// Entries that the bus dropped before this plugin had read them, as far as their number is known.
    missed,
    /// Connections whose credentials were rejected.
    unauthorized,
    /// Connections that were closed because of an error of the client.
    protocol_errors,
}

impl CounterSource for Counters {
    fn kind(&self) -> &'static str {
        "nats"
    }

    fn counters(&self) -> Vec<Counter> {
        let mut counters = self.totals();
        counters.extend(self.engines.counters());
        counters
    }

    engine_list!();

    fn identity(&self) -> Option<usize> {
        Some(std::ptr::from_ref(self) as usize)
    }
}
