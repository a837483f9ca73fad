//! Explanation of the routing of a call: the endpoints that could take it, the reasons why others cannot, and the
//! result of each attempt.

use super::{
    super::{Channel, unary::Response},
    Fleet, clock,
    link::Member,
};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use switchboard_core::reserved::LIMITS_REPORT;
use switchboard_discovery::balance::{Demand, State};
use switchboard_wire::{Metadata, Status};

/// State of a channel for a call of a method, returned by [`Channel::explain`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// Full name of the method, `package.Service/Method`.
    pub method: String,
    /// Target of the channel.
    pub channel: String,
    /// Settings that affect the call, by name: the balancer, the fail mode, the remaining retry budget.
    pub rules: Vec<(&'static str, String)>,
    /// The known servers of the channel, by id; empty for a channel to one address without any option of fleets.
    pub candidates: Vec<Candidate>,
}

/// A server that could take a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// Id in the registry, or the address.
    pub id: String,
    /// Address of the server.
    pub address: String,
    /// Its share of the calls; 100 is usual.
    pub weight: u32,
    /// Its zone, or the empty string.
    pub zone: String,
    /// Calls in flight.
    pub in_flight: u32,
    /// Calls in all.
    pub calls: u64,
    /// Calls that ended with a failure of the server.
    pub failures: u64,
    /// Smoothed latency of its responses.
    pub latency: Duration,
    /// Reason why it gets no call of this method while others can; `None` when it may get one.
    pub exclusion_reason: Option<String>,
    /// True when the balancer selected it for this explanation.
    pub chosen: bool,
}

/// Outcome of a call and of its attempts, returned by [`UnaryCall::explained`](crate::UnaryCall::explained).
#[derive(Debug)]
#[non_exhaustive]
pub struct Explained<R> {
    /// State of the channel before the call.
    pub before: Explanation,
    /// The attempts, in the order in which they began.
    pub attempts: Vec<Attempt>,
    /// Total duration, pauses included.
    pub took: Duration,
    /// Outcome of the call.
    pub outcome: switchboard_core::Result<Response<R>>,
}

/// One attempt of a call. Times count from the beginning of the call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attempt {
    /// Address of the server.
    pub address: String,
    /// Start of the attempt. The time since the end of the previous attempt is a pause; an earlier start is a hedge.
    pub began: Duration,
    /// Time when it had a connection; `None` if it got none.
    pub sent: Option<Duration>,
    /// Time of its end; `None` if another attempt succeeded first.
    pub ended: Option<Duration>,
    /// Status of a failed attempt; `None` for a success.
    pub failure: Option<Status>,
    /// Report of the server's limits on this attempt, in the server's words; `None` from a server without limits or
    /// reports, and on wires without metadata.
    pub limits: Option<String>,
}

/// Log of the attempts of a call.
#[derive(Debug)]
pub(in super::super) struct AttemptLog {
    began: Instant,
    attempts: Mutex<Vec<Attempt>>,
}

impl AttemptLog {
    pub(in super::super) fn new() -> Arc<AttemptLog> {
        Arc::new(AttemptLog { began: switchboard_core::clock::now(), attempts: Mutex::default() })
    }

    /// Adds an attempt; returns its index.
    pub(in super::super) fn begin(&self, address: String) -> usize {
        let began = self.began.elapsed();
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.push(Attempt { address, began, sent: None, ended: None, failure: None, limits: None });
        attempts.len() - 1
    }

    /// Records that the attempt has a connection.
    pub(super) fn sent(&self, at: usize) {
        self.change(at, |attempt, now| attempt.sent = Some(now));
    }

    /// Records the end of an attempt, with the metadata before and after the message, or with its failure.
    pub(in super::super) fn end(&self, at: usize, outcome: Result<[&Metadata; 2], &Status>) {
        self.change(at, |attempt, now| {
            attempt.ended = Some(now);
            // A reply implies that the request was sent.
            if outcome.is_ok() {
                attempt.sent.get_or_insert(attempt.began);
            }
            // Some wires have one place for both.
            let metadata = outcome.unwrap_or_else(|status| [status.metadata(); 2]);
            attempt.limits = metadata.iter().find_map(|part| part.text(LIMITS_REPORT)).map(str::to_owned);
            attempt.failure = outcome.err().cloned();
        });
    }

    fn change(&self, at: usize, change: impl FnOnce(&mut Attempt, Duration)) {
        let now = self.began.elapsed();
        if let Some(attempt) = self.attempts.lock().unwrap_or_else(PoisonError::into_inner).get_mut(at) {
            change(attempt, now);
        }
    }

    /// Takes all attempts, with the total duration so far.
    pub(in super::super) fn take(&self) -> (Vec<Attempt>, Duration) {
        let attempts = std::mem::take(&mut *self.attempts.lock().unwrap_or_else(PoisonError::into_inner));
        (attempts, self.began.elapsed())
    }
}

impl Channel {
    /// Explains how a call of `method`, `package.Service/Method`, would be routed now: the servers that could take it,
    /// the reasons why others cannot, and the one that the balancer selects. `key` is the key that the call shares with
    /// related ones, if any ([`hash_key`](crate::UnaryCall::hash_key)). Nothing is sent; a round-robin balancer
    /// advances by one step.
    pub fn explain(&self, method: &str, key: Option<&[u8]>) -> Explanation {
        let mut explanation = Explanation {
            method: method.to_owned(),
            channel: format!("{self:?}").trim_start_matches("Channel(").trim_end_matches(')').to_owned(),
            rules: Vec::new(),
            candidates: Vec::new(),
        };
        self.0.explain(&mut explanation, key);
        explanation
    }
}

impl Explanation {
    /// Explanation for a channel that was dropped.
    pub(in super::super) fn of_nothing(method: &str) -> Explanation {
        let channel = "a channel that was dropped".to_owned();
        Explanation { method: method.to_owned(), channel, rules: Vec::new(), candidates: Vec::new() }
    }
}

impl Fleet {
    pub(super) fn add_to(&self, explanation: &mut Explanation, key: Option<&[u8]>) {
        let (shared, now_ns) = (self.shared(), clock::now());
        explanation.channel = shared.base.name().to_owned();
        let set = shared.set().clone();
        let policy = &shared.policy;
        explanation.rules = policy.rules();
        let left = shared.budget.left(shared.calls(), now_ns);
        explanation.rules.push(("retry budget", format!("{left} retries left")));
        if policy.min_working > 0 {
            let working = shared.working(&explanation.method).unwrap_or(0);
            let text =
                format!("{working} servers are healthy, {} are needed for all calls", policy.min_working);
            explanation.rules.push(("min_working", text));
        }
        if let Some(timeout) = shared.base.options().timeout {
            explanation.rules.push(("timeout", format!("{timeout:?}")));
        }
        if let Some(source) = &shared.source {
            let known = source.watch.latest().instances.len();
            let mut text = format!("{known} instances, {} of them selected", set.members.len());
            let state = source.watch.state();
            if !state.held_back.is_empty() {
                text.push_str(&format!(", {} held back", state.held_back.len()));
            }
            if let Some(error) = state.error {
                text.push_str(&format!("; the registry does not respond: {}", error.message()));
            }
            explanation.rules.push(("registry", text));
        }
        let (chosen, demand) = shared.select_index(&explanation.method, key, &[], Demand::Untried).unzip();
        if demand.is_some_and(|demand| demand < Demand::Healthy) {
            let text = "no server is healthy: the least unhealthy one is selected".to_owned();
            explanation.rules.push(("choice", text));
        }
        let candidate = |(at, member): (usize, &Arc<Member>)| {
            let endpoint = &member.endpoint;
            Candidate {
                id: endpoint.id().to_owned(),
                address: endpoint.address().to_owned(),
                weight: endpoint.weight(),
                zone: endpoint.zone().to_owned(),
                in_flight: endpoint.in_flight(),
                calls: endpoint.calls(),
                failures: endpoint.failures(),
                latency: endpoint.latency(now_ns),
                exclusion_reason: self.exclusion_reason(member, &explanation.method, now_ns, demand),
                chosen: chosen == Some(at),
            }
        };
        explanation.candidates = set.members.iter().enumerate().map(candidate).collect();
    }

    /// Returns the reason why the member gets no call of the method while others can.
    fn exclusion_reason(
        &self,
        member: &Member,
        method: &str,
        now_ns: u64,
        demand: Option<Demand>,
    ) -> Option<String> {
        let (endpoint, stats) = (&member.endpoint, &member.link.stats);
        let instance = endpoint.instance();
        if endpoint.weight() == 0 {
            return Some(match instance.state {
                switchboard_discovery::discover::State::Up => "its weight is 0".to_owned(),
                state => format!("{state} in the registry"),
            });
        }
        match stats.state() {
            State::Up => {}
            State::Connecting => return Some("not connected yet".to_owned()),
            State::Down => {
                let why = member.link.last().map(|status| format!(": {}", status.message()));
                return Some(format!("not connected{}", why.unwrap_or_default()));
            }
        }
        if let Some(left) = stats.ejected_for(now_ns) {
            return Some(format!("ejected for its failures, for {left:?} more"));
        }
        if let Some(left) = stats.breakers().open_for(method, now_ns) {
            return Some(match left {
                Duration::ZERO => "its breaker is half open: it admits one call at a time".to_owned(),
                left => format!("the breaker of the method is open, for {left:?} more"),
            });
        }
        // The zone matters only while an endpoint in it is healthy.
        let zone = &self.shared().policy.zone;
        (demand == Some(Demand::SameZone) && endpoint.zone() != zone)
            .then(|| format!("in zone {:?}, while a server in {zone:?} is healthy", endpoint.zone()))
    }
}

impl fmt::Display for Explanation {
    /// Writes several lines for humans.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} of {}", self.method, self.channel)?;
        for (name, value) in &self.rules {
            writeln!(f, "  {name}: {value}")?;
        }
        for candidate in &self.candidates {
            let Candidate { address, weight, in_flight, calls, failures, latency, .. } = candidate;
            let mark = if candidate.chosen { '>' } else { ' ' };
            write!(
                f,
                "{mark} {address}  weight {weight}, {in_flight} in flight, {failures} of {calls} failed, {:.1} ms",
                latency.as_secs_f64() * 1e3
            )?;
            match &candidate.exclusion_reason {
                Some(why) => writeln!(f, "; {why}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(f, "{} at {:.1} ms", self.address, ms(self.began))?;
        match self.sent {
            Some(sent) if sent > self.began => write!(f, ", sent at {:.1} ms", ms(sent))?,
            Some(_) => {}
            None => f.write_str(", not sent")?,
        }
        match (self.ended, &self.failure) {
            (Some(ended), None) => write!(f, ", replied at {:.1} ms", ms(ended)),
            (Some(ended), Some(status)) => write!(f, ", failed at {:.1} ms: {status}", ms(ended)),
            (None, _) => f.write_str(", canceled: another attempt replied first"),
        }?;
        match &self.limits {
            Some(limits) => write!(f, "; limits: {limits}"),
            None => Ok(()),
        }
    }
}
