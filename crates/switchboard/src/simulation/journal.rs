//! What really happened, as nobody in the run can see it: the measure of what callers are told.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Mutex, MutexGuard},
    time::Duration,
};
use tokio::time::Instant;

/// All servers and callers write here.
pub(super) struct Journal {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the number of the request: where its effect took place, a server and its life each.
    effects: HashMap<u64, Vec<(usize, u64)>>,
    /// Requests that servers know again.
    keyed: Vec<u64>,
    /// How often it may take place at most.
    at_most: HashMap<u64, u32>,
    /// Attempts that servers got and that were not the first.
    retries: u64,
    /// Unary requests that have arrived, each with the attempts that are at work now.
    arrived: HashMap<u64, u32>,
    /// Callers whose channels send a second attempt beside a late one.
    hedging: HashSet<u64>,
    /// Calls that began, and those that ended.
    begun: u64,
    ended: u64,
    /// What came about, and how often.
    seen: BTreeMap<&'static str, u64>,
    events: u64,
    /// By how much the clock has jumped.
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

    /// Writes down that something happened now.
    pub(super) fn note(&self, what: std::fmt::Arguments<'_>) {
        let line = format!("{:>8} {what}", self.began.elapsed().as_millis());
        if std::env::var_os("SEED").is_some() {
            println!("{line}");
        }
        let mut state = self.state();
        state.digest = crate::balance::mix(state.digest ^ crate::balance::fnv1a(line.as_bytes()));
    }

    pub(super) fn event(&self, what: std::fmt::Arguments<'_>) {
        self.note(what);
        self.state().events += 1;
    }

    /// The effect of this request takes place.
    pub(super) fn effect(&self, request: u64, place: (usize, u64)) {
        self.state().effects.entry(request).or_default().push(place);
    }

    pub(super) fn effects(&self, request: u64) -> u32 {
        self.state().effects.get(&request).map_or(0, |places| places.len() as u32)
    }

    /// This request is to run once in the life of a server, and on one server alone.
    pub(super) fn keyed(&self, request: u64) {
        self.state().keyed.push(request);
    }

    /// Nothing more than so many effects may have come of this request, nor may ever.
    pub(super) fn at_most(&self, request: u64, effects: u32) {
        self.state().at_most.insert(request, effects);
    }

    /// What must not happen twice, or not at all, did not.
    pub(super) fn check_effects(&self) {
        let state = self.state();
        for (request, most) in &state.at_most {
            let effects = state.effects.get(request).map_or(0, |places| places.len() as u32);
            assert!(effects <= *most, "{request:x} took effect {effects} times, at most {most}");
        }
        for request in &state.keyed {
            let places = state.effects.get(request).map_or(&[][..], Vec::as_slice);
            let lives: HashSet<_> = places.iter().collect();
            let servers: HashSet<_> = places.iter().map(|(server, _)| server).collect();
            assert!(
                lives.len() == places.len() && servers.len() <= 1,
                "{request:x} took effect at {places:?}"
            );
        }
    }

    /// An attempt has arrived that says that it is not the first.
    pub(super) fn retried(&self) {
        self.state().retries += 1;
    }

    /// An attempt of a unary call has arrived, and is at work until what is returned is dropped; `said` of one that has
    /// been counted as a further one.
    pub(super) fn arrives(&self, request: u64, said: bool) -> AtWork<'_> {
        let mut state = self.state();
        let before = state.arrived.get(&request).copied();
        state.retries += u64::from(before.is_some() && !said);
        if before.is_some_and(|at_work| at_work > 0) && state.hedging.contains(&(request >> 32)) {
            *state.seen.entry("a hedge").or_default() += 1;
        }
        *state.arrived.entry(request).or_default() += 1;
        AtWork { journal: self, request }
    }

    /// This caller's channel sends second attempts beside late ones.
    pub(super) fn hedges(&self, caller: u64) {
        self.state().hedging.insert(caller);
    }

    pub(super) fn begun(&self) {
        self.state().begun += 1;
    }

    pub(super) fn ended(&self) {
        self.state().ended += 1;
    }

    /// This has come about.
    pub(super) fn saw(&self, what: &'static str) {
        *self.state().seen.entry(what).or_default() += 1;
    }

    /// Every call has ended once.
    pub(super) fn check_ends(&self) {
        let state = self.state();
        assert_eq!(state.begun, state.ended, "calls that began, and ends");
        assert!(state.arrived.values().all(|at_work| *at_work == 0), "attempts at work when all is over");
    }

    pub(super) fn jumps(&self, by: Duration) {
        self.state().jumped += by;
    }

    pub(super) fn jumped(&self) -> Duration {
        self.state().jumped
    }

    /// Calls, events and the digest of all.
    pub(super) fn summary(&self) -> super::Summary {
        let state = self.state();
        super::Summary {
            calls: state.ended,
            events: state.events,
            seen: state.seen.clone(),
            digest: state.digest,
        }
    }

    /// No more retries than the budgets of all channels together allow: a part of the calls, and so many a second.
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

/// An attempt that is at work.
pub(super) struct AtWork<'a> {
    journal: &'a Journal,
    request: u64,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        // Handlers of a run that failed are dropped with it.
        let Ok(mut state) = self.journal.state.lock() else { return };
        if let Some(at_work) = state.arrived.get_mut(&self.request) {
            *at_work -= 1;
        }
    }
}
