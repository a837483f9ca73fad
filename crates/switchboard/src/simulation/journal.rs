//! What really happened, as nobody in the run can see it: the measure of what callers are told.

use std::{
    collections::{HashMap, HashSet},
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
    /// When servers got attempts that were not the first.
    retries: Vec<Duration>,
    /// Calls that ended.
    ended: u64,
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

    pub(super) fn retried(&self) {
        let at = self.began.elapsed();
        self.state().retries.push(at);
    }

    pub(super) fn ended(&self) {
        self.state().ended += 1;
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
        super::Summary { calls: state.ended, events: state.events, digest: state.digest }
    }

    /// No more retries than the budgets of all channels together allow: a part of the calls, and so many a second.
    pub(super) fn check_budget(&self, percent: u64, floor: u64) {
        let state = self.state();
        let seconds = self.began.elapsed().as_secs() + 10;
        // Attempts count as calls, too.
        let calls = state.ended + state.retries.len() as u64;
        let allowed = calls * percent / 100 + floor * seconds;
        let retries = state.retries.len() as u64;
        assert!(retries <= allowed, "{retries} retries where {allowed} are allowed, for {calls} calls");
    }
}
