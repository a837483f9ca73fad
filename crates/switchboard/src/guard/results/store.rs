//! Where answers are kept: by key, for a time, within bounds.

use super::Kept;
use crate::{Retry, Status};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// What an entry takes beside its key and answer, about.
const ENTRY_BYTES: usize = 256;
/// When to come back while all entries run.
const BUSY: Duration = Duration::from_millis(100);

/// Answers by key.
#[derive(Debug)]
pub(in super::super) struct Store {
    entries_max: usize,
    bytes_max: usize,
    age: Duration,
    refuses: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Arc<[u8]>, Entry>,
    /// Those that have ended, the oldest first, and when.
    ended: VecDeque<(Instant, Arc<[u8]>)>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    /// Tells requests apart.
    request: u64,
    state: Progress,
}

#[derive(Debug)]
enum Progress {
    /// Who waits for the end sees this dropped.
    Runs(#[expect(dead_code, reason = "its end is what counts")] watch::Sender<()>, watch::Receiver<()>),
    Ended(Arc<Kept>),
}

/// What is known of a key.
pub(super) enum Begun {
    /// Nothing: the call is to run.
    First(Running),
    /// The call runs; this ends with it.
    Runs(watch::Receiver<()>),
    Ended(Arc<Kept>),
    /// It is that of another request.
    Another,
    /// Nothing, and there is no room; perhaps there is after this time.
    Full(Duration),
}

impl Store {
    pub(super) fn new(entries_max: usize, bytes_max: usize, age: Duration, refuses: bool) -> Store {
        Store { entries_max, bytes_max, age, refuses, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks a key up, and takes it for a call that is to run if nothing is known of it.
    pub(super) fn begin(self: &Arc<Self>, key: &Arc<[u8]>, request: u64, now: Instant) -> Begun {
        let mut state = self.state();
        let age = |ended: Instant| now.saturating_duration_since(ended);
        while state.ended.front().is_some_and(|(ended, _)| age(*ended) >= self.age) {
            state.forget_oldest();
        }
        if let Some(entry) = state.entries.get(key) {
            return match &entry.state {
                _ if entry.request != request => Begun::Another,
                Progress::Runs(_, end) => Begun::Runs(end.clone()),
                Progress::Ended(kept) => Begun::Ended(kept.clone()),
            };
        }
        let oldest = state.ended.front().map(|(ended, _)| *ended);
        let full = state.entries.len() >= self.entries_max || self.refuses && state.bytes >= self.bytes_max;
        if full {
            match oldest {
                Some(ended) if self.refuses => {
                    return Begun::Full(self.age.saturating_sub(age(ended)));
                }
                Some(_) => state.forget_oldest(),
                None => return Begun::Full(BUSY),
            }
        }
        let (send, end) = watch::channel(());
        state.bytes += bytes_of(key);
        state.entries.insert(key.clone(), Entry { request, state: Progress::Runs(send, end) });
        let panicked = Status::internal("handler panicked").with_retry(Retry::No);
        let kept = Some(Arc::new(Kept::Failure(panicked)));
        Begun::First(Running { store: self.clone(), key: key.clone(), kept })
    }

    /// The call of this key has ended, with an answer or without having begun.
    fn end(&self, key: &Arc<[u8]>, kept: Option<Arc<Kept>>, now: Instant) {
        let mut state = self.state();
        match kept {
            Some(kept) => {
                state.bytes += kept.len();
                state.ended.push_back((now, key.clone()));
                if let Some(entry) = state.entries.get_mut(key) {
                    entry.state = Progress::Ended(kept);
                }
                while !self.refuses && state.bytes > self.bytes_max && state.ended.len() > 1 {
                    state.forget_oldest();
                }
            }
            None => {
                state.bytes -= bytes_of(key);
                state.entries.remove(key);
            }
        }
    }
}

impl State {
    fn forget_oldest(&mut self) {
        let Some((_, key)) = self.ended.pop_front() else { return };
        let kept = match self.entries.remove(&key).map(|entry| entry.state) {
            Some(Progress::Ended(kept)) => kept.len(),
            _ => 0,
        };
        self.bytes -= bytes_of(&key) + kept;
    }
}

fn bytes_of(key: &[u8]) -> usize {
    // The key is there twice, as one piece of memory.
    key.len() + ENTRY_BYTES
}

/// A call that runs. One that panics has failed, as far as anybody can tell later.
pub(super) struct Running {
    store: Arc<Store>,
    key: Arc<[u8]>,
    /// What is kept of it; nothing if it did not begin.
    kept: Option<Arc<Kept>>,
}

impl Running {
    /// Keeps its answer, if that is not too large.
    pub(super) fn end(mut self, kept: Kept) -> Arc<Kept> {
        let bytes = kept.len();
        let kept = Arc::new(kept);
        let large = bytes > self.store.bytes_max / 4;
        self.kept = Some(if large { Arc::new(Kept::Bytes(bytes)) } else { kept.clone() });
        kept
    }

    /// Another one may run in its place.
    pub(super) fn not_begun(mut self) {
        self.kept = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.store.end(&self.key, self.kept.take(), crate::clock::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const AGE: Duration = Duration::from_secs(10);

    fn store(entries: usize, bytes: usize, refuses: bool) -> Arc<Store> {
        Arc::new(Store::new(entries, bytes, AGE, refuses))
    }

    fn key(number: u32) -> Arc<[u8]> {
        number.to_le_bytes()[..].into()
    }

    fn run(store: &Arc<Store>, number: u32, bytes: usize) {
        let now = crate::clock::now();
        let Begun::First(running) = store.begin(&key(number), 0, now) else { panic!("{number} is known") };
        let (head, trailers) = Default::default();
        running.end(Kept::Answer { message: Bytes::from(vec![1; bytes]), head, trailers });
    }

    fn is_known(store: &Arc<Store>, number: u32) -> bool {
        matches!(store.begin(&key(number), 0, crate::clock::now()), Begun::Ended(_))
    }

    fn is_consistent(store: &Store) {
        let state = store.state();
        let kept = |entry: &Entry| if let Progress::Ended(kept) = &entry.state { kept.len() } else { 0 };
        let bytes: usize = state.entries.iter().map(|(key, entry)| bytes_of(key) + kept(entry)).sum();
        assert_eq!(state.bytes, bytes);
        let ended = state.entries.values().filter(|entry| matches!(entry.state, Progress::Ended(_))).count();
        assert_eq!(state.ended.len(), ended);
        assert!(state.entries.len() <= store.entries_max);
    }

    #[test]
    fn oldest_go_first_and_those_that_run_never() {
        let store = store(3, 1 << 20, false);
        let Begun::First(held) = store.begin(&key(0), 0, crate::clock::now()) else { panic!() };
        for number in 1..=4 {
            run(&store, number, 10);
            is_consistent(&store);
        }
        assert!(!is_known(&store, 1) && is_known(&store, 4));
        assert!(matches!(store.begin(&key(0), 0, crate::clock::now()), Begun::Runs(_)));
        assert!(matches!(store.begin(&key(0), 1, crate::clock::now()), Begun::Another));
        held.not_begun();
        is_consistent(&store);
        assert!(matches!(store.begin(&key(0), 0, crate::clock::now()), Begun::First(_)));
        is_consistent(&store);
    }

    #[test]
    fn bytes_have_a_bound_and_large_answers_leave_a_note() {
        let store = store(100, 10_000, false);
        for number in 0..50 {
            run(&store, number, 2000);
            is_consistent(&store);
            assert!(store.state().bytes <= 10_000);
        }
        run(&store, 50, 2501);
        let Begun::Ended(kept) = store.begin(&key(50), 0, crate::clock::now()) else { panic!() };
        assert!(matches!(&*kept, Kept::Bytes(2501)));
        assert!(is_known(&store, 49), "for which nothing else had to go");
    }

    #[tokio::test(start_paused = true)]
    async fn answers_age_and_a_strict_store_refuses_until_then() {
        let store = store(2, 1 << 20, true);
        run(&store, 1, 10);
        tokio::time::advance(AGE / 2).await;
        run(&store, 2, 10);
        let Begun::Full(pause) = store.begin(&key(3), 0, crate::clock::now()) else { panic!() };
        assert_eq!(pause, AGE / 2);
        tokio::time::advance(pause).await;
        run(&store, 3, 10);
        assert!(!is_known(&store, 1) && is_known(&store, 2) && is_known(&store, 3));
        is_consistent(&store);
    }

    #[test]
    fn answers_may_be_kept_for_ever() {
        let store = Arc::new(Store::new(2, 1 << 20, Duration::MAX, true));
        run(&store, 1, 10);
        run(&store, 2, 10);
        assert!(is_known(&store, 1));
        assert!(matches!(store.begin(&key(3), 0, crate::clock::now()), Begun::Full(_)));
    }

    #[test]
    fn panic_counts_as_a_failure() {
        let store = store(2, 1 << 20, false);
        let Begun::First(running) = store.begin(&key(1), 0, crate::clock::now()) else { panic!() };
        drop(running);
        let Begun::Ended(kept) = store.begin(&key(1), 0, crate::clock::now()) else { panic!() };
        assert!(matches!(&*kept, Kept::Failure(status) if status.code() == Status::internal("").code()));
    }
}
