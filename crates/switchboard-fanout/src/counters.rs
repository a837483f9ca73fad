//! Counters of engines, for metrics and pages.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, Weak,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};
use switchboard_core::{
    Result,
    counters::{Cell, Counter, ListRequest, ListedRows},
};
use switchboard_wire::Status;

const COLUMNS: [&str; 6] = ["worker", "subscribers", "buffers", "held_bytes", "lagged", "turns"];

/// Counters of one engine.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct EngineStats {
    /// The worker that runs the engine.
    pub worker: usize,
    /// Connected subscribers.
    pub subscribers: usize,
    /// Open broadcast buffers.
    pub buffers: usize,
    /// Bytes that broadcast buffers hold, and those that are held for single subscribers: what the engine has charged
    /// to the memory budget.
    pub held_bytes: usize,
    /// Number of times that a subscriber lost bytes or was closed, because it was too slow.
    pub lagged: u64,
    /// Turns: polls of the engine's task in which it worked.
    pub turns: u64,
}

/// Counters of the engines of a plugin, on all of its servers. Cheap to clone; the clones are of the same engines.
#[derive(Clone, Debug, Default)]
pub struct EngineCounters {
    shared: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    engines: Vec<Weak<Cells>>,
    /// Sums of engines that have ended: totals never decrease.
    lagged: u64,
    turns: u64,
}

/// The cells that an engine writes.
#[derive(Debug, Default)]
struct Cells {
    worker: usize,
    subscribers: AtomicUsize,
    buffers: AtomicUsize,
    held_bytes: AtomicUsize,
    lagged: AtomicU64,
    turns: AtomicU64,
}

impl Cells {
    fn stats(&self) -> EngineStats {
        EngineStats {
            worker: self.worker,
            subscribers: self.subscribers.load(Relaxed),
            buffers: self.buffers.load(Relaxed),
            held_bytes: self.held_bytes.load(Relaxed),
            lagged: self.lagged.load(Relaxed),
            turns: self.turns.load(Relaxed),
        }
    }
}

/// The counters of a running engine; its totals are added to those of ended engines when it is dropped.
#[derive(Debug)]
pub(crate) struct CountedEngine {
    cells: Arc<Cells>,
    shared: Arc<Mutex<State>>,
}

impl CountedEngine {
    /// Stores the current values.
    pub(crate) fn set(&self, stats: EngineStats) {
        self.cells.subscribers.store(stats.subscribers, Relaxed);
        self.cells.buffers.store(stats.buffers, Relaxed);
        self.cells.held_bytes.store(stats.held_bytes, Relaxed);
        self.cells.lagged.store(stats.lagged, Relaxed);
        self.cells.turns.store(stats.turns, Relaxed);
    }
}

impl Drop for CountedEngine {
    fn drop(&mut self) {
        let mut state = lock(&self.shared);
        let EngineStats { lagged, turns, .. } = self.cells.stats();
        state.lagged = state.lagged.saturating_add(lagged);
        state.turns = state.turns.saturating_add(turns);
        let own = Arc::as_ptr(&self.cells);
        state.engines.retain(|cells| cells.as_ptr() != own);
    }
}

fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EngineCounters {
    /// Name of the list of engines, and of its admin page.
    pub const LIST: &'static str = "fanout";

    /// Adds an engine.
    pub(crate) fn add(&self, worker: usize) -> CountedEngine {
        let cells = Arc::new(Cells { worker, ..Cells::default() });
        lock(&self.shared).engines.push(Arc::downgrade(&cells));
        CountedEngine { cells, shared: self.shared.clone() }
    }

    /// Returns the counters of each running engine, by worker.
    pub fn engines(&self) -> Vec<EngineStats> {
        let state = lock(&self.shared);
        let engines = state.engines.iter().filter_map(Weak::upgrade);
        let mut engines: Vec<_> = engines.map(|cells| cells.stats()).collect();
        drop(state);
        engines.sort_by_key(|engine| engine.worker);
        engines
    }

    /// Returns the sums over all engines, for [`CounterSource::counters`](switchboard_core::counters::CounterSource).
    pub fn counters(&self) -> Vec<Counter> {
        let (ended_lagged, ended_turns) = {
            let state = lock(&self.shared);
            (state.lagged, state.turns)
        };
        let engines = self.engines();
        let sum = |value: fn(&EngineStats) -> usize| engines.iter().map(|engine| value(engine) as u64).sum();
        let total = |ended: u64, value: fn(&EngineStats) -> u64| {
            engines.iter().map(value).fold(ended, u64::saturating_add)
        };
        let lagged = "times that a subscriber lost bytes or was closed, because it was too slow";
        vec![
            Counter::gauge("engines", "fan-out engines that run", engines.len() as u64),
            Counter::gauge(
                "engine_subscribers",
                "subscribers of the engines",
                sum(|engine| engine.subscribers),
            ),
            Counter::gauge("engine_buffers", "open broadcast buffers", sum(|engine| engine.buffers)),
            Counter::gauge(
                "engine_held_bytes",
                "bytes of broadcast buffers and of single subscribers that the engines hold",
                sum(|engine| engine.held_bytes),
            ),
            Counter::total("engine_lagged", lagged, total(ended_lagged, |engine| engine.lagged)),
            Counter::total("engine_turns", "turns of the engines", total(ended_turns, |engine| engine.turns)),
        ]
    }

    /// Returns a page of the running engines, a row for each.
    ///
    /// # Errors
    /// `InvalidArgument` for a position that is not the number of a row.
    pub fn list(&self, request: &ListRequest) -> Result<ListedRows> {
        let from = request.from.as_deref().unwrap_or("0");
        let from: usize = from.parse().map_err(|_| {
            let text =
                format!("from \"{}\" is not a number; send that of the page before", from.escape_debug());
            Status::invalid_argument(text)
        })?;
        let engines = self.engines();
        let next = from.saturating_add(request.rows_max);
        let rows = engines.iter().skip(from).take(request.rows_max).map(row).collect();
        Ok(ListedRows::new(&COLUMNS, rows, (next < engines.len()).then(|| next.to_string())))
    }
}

fn row(engine: &EngineStats) -> Vec<Cell> {
    vec![
        (engine.worker as u64).into(),
        (engine.subscribers as u64).into(),
        (engine.buffers as u64).into(),
        (engine.held_bytes as u64).into(),
        engine.lagged.into(),
        engine.turns.into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_outlive_their_engine_and_gauges_do_not() {
        let counters = EngineCounters::default();
        let engines = [1, 0].map(|worker| counters.add(worker));
        for engine in &engines {
            let (subscribers, buffers, held_bytes) = (5, 2, 100);
            engine.set(EngineStats { worker: 0, subscribers, buffers, held_bytes, lagged: 3, turns: 7 });
        }
        let values = || counters.counters().iter().map(|counter| counter.value).collect::<Vec<_>>();
        assert_eq!(values(), [2, 10, 4, 200, 6, 14]);
        assert_eq!(counters.engines().iter().map(|engine| engine.worker).collect::<Vec<_>>(), [0, 1]);
        let first = counters.list(&ListRequest::new(1)).unwrap();
        assert_eq!((first.rows[0][0].clone(), first.next.as_deref()), (Cell::Number(0.0), Some("1")));
        let mut request = ListRequest::new(1);
        request.from = first.next;
        let second = counters.list(&request).unwrap();
        assert_eq!((second.rows[0][0].clone(), second.next), (Cell::Number(1.0), None));
        request.from = Some("x".to_owned());
        counters.list(&request).unwrap_err();
        drop(engines);
        assert_eq!(values(), [0, 0, 0, 0, 6, 14]);
        assert!(counters.engines().is_empty());
    }
}
