//! Why a call goes where it goes: who could take it and why the others cannot, and what became of each attempt.

use super::{
    super::{Channel, Way, unary::Response},
    Fleet, clock,
    link::Member,
};
use crate::{
    Metadata, Status,
    balance::{Demand, State},
    guard::TOLD,
};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// What a channel would do with a call of a method now, by [`Channel::explain`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The full name, `package.Service/Method`.
    pub method: String,
    /// What the channel is to.
    pub channel: String,
    /// Settings that decide about the call, by name: the balancer, the fail mode, what is left of the retry budget.
    pub rules: Vec<(&'static str, String)>,
    /// The servers that the channel knows, by id; none for a channel to one address without any option of fleets.
    pub candidates: Vec<Candidate>,
}

/// A server that could take a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// Its id in the registry, or its address.
    pub id: String,
    /// Where it is.
    pub address: String,
    /// Its share of the calls; 100 is usual.
    pub weight: u32,
    /// The zone that it is in, or nothing.
    pub zone: String,
    /// Calls without an answer.
    pub in_flight: u32,
    /// Calls in all.
    pub calls: u64,
    /// Calls that ended in a way that speaks against it.
    pub failures: u64,
    /// How long its answers take, smoothed.
    pub latency: Duration,
    /// Why it gets no call of this method while others can; nothing when it may get one.
    pub hindrance: Option<String>,
    /// The balancer chose it, this time.
    pub chosen: bool,
}

/// A call and how it went, by [`UnaryCall::explained`](crate::UnaryCall::explained).
#[derive(Debug)]
#[non_exhaustive]
pub struct Explained<R> {
    /// What the channel knew before.
    pub before: Explanation,
    /// What was tried, in the order in which it began.
    pub attempts: Vec<Attempt>,
    /// From the beginning to the end, pauses included.
    pub took: Duration,
    /// What came of it.
    pub outcome: crate::Result<Response<R>>,
}

/// One attempt of a call. Times count from the beginning of the call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attempt {
    /// Where it was sent.
    pub address: String,
    /// When it began: what lies between it and the end of the one before it is a pause, or a second request beside the
    /// first.
    pub began: Duration,
    /// When it had a connection; nothing if it got none.
    pub sent: Option<Duration>,
    /// When it ended; nothing if another attempt was answered first.
    pub ended: Option<Duration>,
    /// How it failed; nothing for an answer.
    pub failure: Option<Status>,
    /// What the limits of the server did with it, in the server's words; nothing from one that has none or does not
    /// tell, and on wires without metadata.
    pub limits: Option<String>,
}

/// The attempts of a call as they happen.
#[derive(Debug)]
pub(in super::super) struct Trail {
    began: Instant,
    attempts: Mutex<Vec<Attempt>>,
}

impl Trail {
    pub(in super::super) fn new() -> Arc<Trail> {
        Arc::new(Trail { began: Instant::now(), attempts: Mutex::default() })
    }

    /// An attempt begins; returns its place.
    pub(in super::super) fn begin(&self, address: String) -> usize {
        let began = self.began.elapsed();
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.push(Attempt { address, began, sent: None, ended: None, failure: None, limits: None });
        attempts.len() - 1
    }

    /// It has a connection.
    pub(super) fn sent(&self, at: usize) {
        self.change(at, |attempt, now| attempt.sent = Some(now));
    }

    /// It ended with this metadata, before and behind the message, or in failure.
    pub(in super::super) fn end(&self, at: usize, outcome: Result<[&Metadata; 2], &Status>) {
        self.change(at, |attempt, now| {
            attempt.ended = Some(now);
            // An answer was sent for, however the way there looked.
            if outcome.is_ok() {
                attempt.sent.get_or_insert(attempt.began);
            }
            // Some wires have one place for both.
            let told = outcome.unwrap_or_else(|status| [status.metadata(); 2]);
            attempt.limits = told.iter().find_map(|part| part.text(TOLD)).map(str::to_owned);
            attempt.failure = outcome.err().cloned();
        });
    }

    fn change(&self, at: usize, change: impl FnOnce(&mut Attempt, Duration)) {
        let now = self.began.elapsed();
        if let Some(attempt) = self.attempts.lock().unwrap_or_else(PoisonError::into_inner).get_mut(at) {
            change(attempt, now);
        }
    }

    /// All of them, and how long it took until now.
    pub(in super::super) fn take(&self) -> (Vec<Attempt>, Duration) {
        let attempts = std::mem::take(&mut *self.attempts.lock().unwrap_or_else(PoisonError::into_inner));
        (attempts, self.began.elapsed())
    }
}

impl Channel {
    /// What would become of a call of `method`, `package.Service/Method`, now: which servers could take it, what keeps
    /// the others from it, and whom the balancer chooses. `key` is what the call has in common with others, if anything
    /// ([`hash_key`](crate::UnaryCall::hash_key)). Nothing is sent; a balancer that goes from one to the next takes a
    /// step.
    pub fn explain(&self, method: &str, key: Option<&[u8]>) -> Explanation {
        let mut explanation = Explanation {
            method: method.to_owned(),
            channel: format!("{self:?}").trim_start_matches("Channel(").trim_end_matches(')').to_owned(),
            rules: Vec::new(),
            candidates: Vec::new(),
        };
        if let Way::Fleet(fleet) = &*self.0 {
            explanation.channel = fleet.shared().base.name().to_owned();
            fleet.explain(&mut explanation, key);
        }
        explanation
    }
}

impl Explanation {
    /// For a channel that is gone.
    pub(in super::super) fn of_nothing(method: &str) -> Explanation {
        let channel = "a channel that was dropped".to_owned();
        Explanation { method: method.to_owned(), channel, rules: Vec::new(), candidates: Vec::new() }
    }
}

impl Fleet {
    fn explain(&self, explanation: &mut Explanation, key: Option<&[u8]>) {
        let (shared, now_ns) = (self.shared(), clock::now());
        let set = shared.set().clone();
        let policy = &shared.policy;
        explanation.rules = policy.rules();
        let left = shared.budget.left(shared.calls(), now_ns);
        explanation.rules.push(("retry budget", format!("{left} retries left")));
        if policy.min_working > 0 {
            let working = shared.working(&explanation.method).unwrap_or(0);
            let text =
                format!("{working} servers are well, of the {} that take all calls", policy.min_working);
            explanation.rules.push(("min_working", text));
        }
        if let Some(timeout) = self.timeout() {
            explanation.rules.push(("timeout", format!("{timeout:?}")));
        }
        if let Some(source) = &shared.source {
            let known = source.watch.latest().instances.len();
            let mut text = format!("{known} instances, {} of them wanted", set.members.len());
            let state = source.watch.state();
            if !state.held_back.is_empty() {
                text.push_str(&format!(", {} in doubt", state.held_back.len()));
            }
            if let Some(trouble) = state.trouble {
                text.push_str(&format!("; the registry does not answer: {}", trouble.message()));
            }
            explanation.rules.push(("registry", text));
        }
        let (chosen, demand) = shared.place(&explanation.method, key, &[], Demand::Untried).unzip();
        if demand.is_some_and(|demand| demand < Demand::Well) {
            let text = "nobody is well: the least bad server is asked".to_owned();
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
                hindrance: self.hindrance(member, &explanation.method, now_ns, demand),
                chosen: chosen == Some(at),
            }
        };
        explanation.candidates = set.members.iter().enumerate().map(candidate).collect();
    }

    /// Why the member gets no call of the method as long as others can.
    fn hindrance(
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
                crate::discover::State::Up => "its weight is 0".to_owned(),
                state => format!("{state}, says the registry"),
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
            return Some(format!("put aside for its failures, for {left:?} more"));
        }
        if let Some(left) = stats.breakers().open_for(method, now_ns) {
            return Some(match left {
                Duration::ZERO => "its breaker lets one call through to find out".to_owned(),
                left => format!("the breaker of the method is open, for {left:?} more"),
            });
        }
        // The zone matters only while somebody in it is well.
        let zone = &self.shared().policy.zone;
        (demand == Some(Demand::Near) && endpoint.zone() != zone)
            .then(|| format!("in zone {:?}, and one in {zone:?} is well", endpoint.zone()))
    }
}

impl fmt::Display for Explanation {
    /// Several lines, for people.
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
            match &candidate.hindrance {
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
            (Some(ended), None) => write!(f, ", answered at {:.1} ms", ms(ended)),
            (Some(ended), Some(status)) => write!(f, ", failed at {:.1} ms: {status}", ms(ended)),
            (None, _) => f.write_str(", given up: another was answered first"),
        }?;
        match &self.limits {
            Some(limits) => write!(f, "; limits: {limits}"),
            None => Ok(()),
        }
    }
}
