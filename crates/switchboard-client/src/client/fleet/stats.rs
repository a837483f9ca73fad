//! Statistics of a fleet, for humans.

use super::{Fleet, clock};
use std::time::Duration;
use switchboard_discovery::balance::State;

/// Statistics of one endpoint of a channel.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Id in the registry, or the address.
    pub id: String,
    /// Address of the endpoint.
    pub address: String,
    /// Its weight; 0 takes no calls.
    pub weight: u32,
    /// `up`, `ejected` for its failures, `connecting`, or `down` when the last attempt to connect failed.
    pub state: &'static str,
    /// The reason why it is not connected, if it is not.
    pub error: Option<String>,
    /// Calls in flight.
    pub in_flight: u32,
    /// Calls in all.
    pub calls: u64,
    /// Calls that ended with a failure of the endpoint.
    pub failures: u64,
    /// Smoothed latency of its responses.
    pub latency: Duration,
    /// Methods with an open breaker.
    pub open_breakers: Vec<String>,
}

impl Fleet {
    pub(in super::super) fn stats(&self) -> Vec<EndpointStats> {
        let (set, now_ns) = (self.shared.set().clone(), clock::now());
        let each = set.members.iter().map(|member| {
            let endpoint = &member.endpoint;
            let state = match member.state() {
                State::Connecting => "connecting",
                State::Down => "down",
                State::Up if member.link.stats.is_ejected(now_ns) => "ejected",
                State::Up => "up",
            };
            let last = member.link.last().filter(|_| member.state() != State::Up);
            EndpointStats {
                id: endpoint.id().to_owned(),
                address: endpoint.address().to_owned(),
                weight: endpoint.weight(),
                state,
                error: last.map(|status| status.message().to_owned()),
                in_flight: endpoint.in_flight(),
                calls: endpoint.calls(),
                failures: endpoint.failures(),
                latency: endpoint.latency(now_ns),
                open_breakers: member.link.stats.breakers().open(),
            }
        });
        each.collect()
    }
}
