//! Counters of the plugin.

use crate::counters::{counters, engine_list};
use switchboard_core::counters::{Counter, CounterSource};
use switchboard_fanout::EngineCounters;

counters! {
    /// Counters of a [`Redis`](super::Redis) plugin, of all servers that it was added to.
    RedisStats, Counters {
        /// Counters of the fan-out engines.
        engines: EngineCounters,
    }
    /// Messages of clients that became entries of the bus.
    published,
    /// Messages and subscriptions of clients that were refused: a rule of topics, an invalid name of a topic, a limit,
    /// a full topic.
    refused,
    /// Entries that went to broadcast buffers of subscribers, once for each set of subscriptions and each subscription
    /// in it.
    encoded,
    /// Calls of methods.
    calls,
    /// Credentials that the server rejected.
    rejected_credentials,
    /// Entries that the bus dropped before this plugin had read them, as far as their number is known.
    missed,
    /// Connections that were closed because their client was too slow.
    lagged,
    /// Connections that were closed because of an error of the client.
    protocol_errors,
}

impl CounterSource for Counters {
    fn kind(&self) -> &'static str {
        "redis"
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
