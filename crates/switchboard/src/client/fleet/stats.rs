//! What is seen of a fleet, for people.

use super::{Fleet, clock};
use crate::balance::State;
use std::time::Duration;

/// What a channel sees of one of its endpoints.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Its id in the registry, or its address.
    pub id: String,
    /// Where it is.
    pub address: String,
    /// Its weight; 0 takes no traffic.
    pub weight: u32,
    /// `up`, `ejected` for its failures, `connecting`, or `down` when the last try to connect failed.
    pub state: &'static str,
    /// Why it is not connected, if it is not.
    pub trouble: Option<String>,
    /// Calls without an answer.
    pub in_flight: u32,
    /// Calls in all.
    pub calls: u64,
    /// Calls that ended in a way that speaks against it.
    pub failures: u64,
    /// How long its answers take, smoothed.
    pub latency: Duration,
    /// Methods whose breaker is open.
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
                trouble: last.map(|status| status.message().to_owned()),
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
