//! The journal of a run: the actual events, against which the results of callers are checked.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Mutex, MutexGuard},
    time::Duration,
};
use tokio::time::Instant;

/// Record of all events; all servers and callers write to it.
pub(super) struct Journal {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Effects by request number: the servers where they took place, each with the number of its start.
    effects: HashMap<u64, Vec<(usize, u64)>>,
    /// Requests that servers recognize by their key.
    keyed: Vec<u64>,
    /// Maximum number of effects, by request number.
    at_most: HashMap<u64, u32>,
    /// Number of attempts at servers that were not the first.
    retries: u64,
    /// Unary requests that have arrived, each with the number of attempts running now.
    arrived: HashMap<u64, u32>,
    /// Callers whose channels send a hedge, a second attempt beside a slow one.
    hedging: HashSet<u64>,
    /// Number of calls that began, and of calls that ended.
    begun: u64,
    ended: u64,
    /// Observed events with their number.
    seen: BTreeMap<&'static str, u64>,
    events: u64,
    /// Total time by which the clock has jumped.
    jumped: Duration,
    digest: u64,
}

impl Journal {
    pub(super) fn new() -> Journal {
        Journal { began: Instant::now(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Adds a line with the current time to the journal.
    pub(super) fn note(&self, what: std::fmt::Arguments<'_>) {
        let line = format!("{:>8} {what}", self.began.elapsed().as_millis());
        if std::env::var_os("SEED").is_some() {
            println!("{line}");
        }
        let mut state = self.state();
        state.digest = switchboard_core::clock::mix(
            state.digest ^ switchboard_discovery::balance::fnv1a(line.as_bytes()),
        );
    }

    pub(super) fn event(&self, what: std::fmt::Arguments<'_>) {
        self.note(what);
        self.state().events += 1;
    }

    /// Records that the effect of this request takes place.
    pub(super) fn effect(&self, request: u64, incarnation: (usize, u64)) {
        self.state().effects.entry(request).or_default().push(incarnation);
    }

    pub(super) fn effects(&self, request: u64) -> u32 {
        self.state().effects.get(&request).map_or(0, |incarnations| incarnations.len() as u32)
    }

    /// Records that this request must run on one server only, and once per start of it.
    pub(super) fn keyed(&self, request: u64) {
        self.state().keyed.push(request);
    }

    /// Limits the number of effects of this request, in the past and in the future.
    pub(super) fn at_most(&self, request: u64, effects: u32) {
        self.state().at_most.insert(request, effects);
    }

    /// Checks that no request took effect more often than allowed.
    pub(super) fn check_effects(&self) {
        let state = self.state();
        for (request, most) in &state.at_most {
            let effects = state.effects.get(request).map_or(0, |incarnations| incarnations.len() as u32);
            assert!(effects <= *most, "{request:x} took effect {effects} times, at most {most}");
        }
        for request in &state.keyed {
            let incarnations = state.effects.get(request).map_or(&[][..], Vec::as_slice);
            let starts: HashSet<_> = incarnations.iter().collect();
            let servers: HashSet<_> = incarnations.iter().map(|(server, _)| server).collect();
            assert!(
                starts.len() == incarnations.len() && servers.len() <= 1,
                "{request:x} took effect at {incarnations:?}"
            );
        }
    }

    /// Records an attempt that arrived with the mark of a retry.
    pub(super) fn retried(&self) {
        self.state().retries += 1;
    }

    /// Records an attempt of a unary call; it runs until the returned value is dropped. `counted` is true when
    /// [`retried`](Self::retried) has counted the attempt.
    pub(super) fn attempt_arrived(&self, request: u64, counted: bool) -> RunningAttempt<'_> {
        let mut state = self.state();
        let before = state.arrived.get(&request).copied();
        state.retries += u64::from(before.is_some() && !counted);
        if before.is_some_and(|running| running > 0) && state.hedging.contains(&(request >> 32)) {
            *state.seen.entry("a hedge").or_default() += 1;
        }
        *state.arrived.entry(request).or_default() += 1;
        RunningAttempt { journal: self, request }
    }

    /// Records that this caller's channel sends hedges.
    pub(super) fn hedges(&self, caller: u64) {
        self.state().hedging.insert(caller);
    }

    pub(super) fn begun(&self) {
        self.state().begun += 1;
    }

    pub(super) fn ended(&self) {
        self.state().ended += 1;
    }

    /// Counts an observed event.
    pub(super) fn observed(&self, what: &'static str) {
        *self.state().seen.entry(what).or_default() += 1;
    }

    /// Checks that every call has ended once.
    pub(super) fn check_ends(&self) {
        let state = self.state();
        assert_eq!(state.begun, state.ended, "calls that began, and ends");
        assert!(state.arrived.values().all(|running| *running == 0), "attempts still running at the end");
    }

    pub(super) fn jumps(&self, by: Duration) {
        self.state().jumped += by;
    }

    pub(super) fn jumped(&self) -> Duration {
        self.state().jumped
    }

    /// Returns the counts, the observed events and the digest.
    pub(super) fn summary(&self) -> super::Summary {
        let state = self.state();
        super::Summary {
            calls: state.ended,
            events: state.events,
            seen: state.seen.clone(),
            digest: state.digest,
        }
    }

    /// Checks that the retries are within the budgets of all channels together: a percentage of the calls, and a number
    /// per second.
    pub(super) fn check_budget(&self, percent: u64, floor: u64) {
        let state = self.state();
        let seconds = self.began.elapsed().as_secs() + 10;
        let retries = state.retries;
        // Attempts count as calls, too.
        let calls = state.ended + retries;
        let allowed = calls * percent / 100 + floor * seconds;
        assert!(retries <= allowed, "{retries} retries where {allowed} are allowed, for {calls} calls");
    }
}

/// A running attempt.
pub(super) struct RunningAttempt<'a> {
    journal: &'a Journal,
    request: u64,
}

impl Drop for RunningAttempt<'_> {
    fn drop(&mut self) {
        // Handlers of a failed run are dropped with a poisoned lock.
        let Ok(mut state) = self.journal.state.lock() else { return };
        if let Some(running) = state.arrived.get_mut(&self.request) {
            *running -= 1;
        }
    }
}
