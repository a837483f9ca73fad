//! Store of responses by key, bounded in number, bytes and age.

use super::StoredResponse;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use switchboard_wire::{Retry, Status};
use tokio::sync::watch;

/// Approximate size of an entry without its key and response.
const ENTRY_BYTES: usize = 256;
/// Retry delay while all entries are running calls.
const BUSY: Duration = Duration::from_millis(100);

/// Responses by key.
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
    /// Ended calls, the oldest first, with the time of their end.
    ended: VecDeque<(Instant, Arc<[u8]>)>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    /// Hash that distinguishes requests.
    request: u64,
    state: Progress,
}

#[derive(Debug)]
enum Progress {
    /// Calls that wait for the end see this sender dropped.
    Runs(#[expect(dead_code, reason = "its end is what counts")] watch::Sender<()>, watch::Receiver<()>),
    Ended(Arc<StoredResponse>),
}

/// Result of looking up a key.
pub(super) enum KeyLookup {
    /// The key is new: the call must run.
    First(Running),
    /// The call with this key is running; the receiver closes when it ends.
    Runs(watch::Receiver<()>),
    Ended(Arc<StoredResponse>),
    /// The key belongs to another request.
    Another,
    /// The key is new and the store is full; retry after this time.
    Full(Duration),
}

impl Store {
    pub(super) fn new(entries_max: usize, bytes_max: usize, age: Duration, refuses: bool) -> Store {
        Store { entries_max, bytes_max, age, refuses, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up a key, and reserves it for a call if it is new.
    pub(super) fn begin(self: &Arc<Self>, key: &Arc<[u8]>, request: u64, now: Instant) -> KeyLookup {
        let mut state = self.state();
        let age = |ended: Instant| now.saturating_duration_since(ended);
        while state.ended.front().is_some_and(|(ended, _)| age(*ended) >= self.age) {
            state.forget_oldest();
        }
        if let Some(entry) = state.entries.get(key) {
            return match &entry.state {
                _ if entry.request != request => KeyLookup::Another,
                Progress::Runs(_, end) => KeyLookup::Runs(end.clone()),
                Progress::Ended(kept) => KeyLookup::Ended(kept.clone()),
            };
        }
        let oldest = state.ended.front().map(|(ended, _)| *ended);
        let full = state.entries.len() >= self.entries_max || self.refuses && state.bytes >= self.bytes_max;
        if full {
            match oldest {
                Some(ended) if self.refuses => {
                    return KeyLookup::Full(self.age.saturating_sub(age(ended)));
                }
                Some(_) => state.forget_oldest(),
                None => return KeyLookup::Full(BUSY),
            }
        }
        let (send, end) = watch::channel(());
        state.bytes += bytes_of(key);
        state.entries.insert(key.clone(), Entry { request, state: Progress::Runs(send, end) });
        let panicked = Status::internal("handler panicked").with_retry(Retry::No);
        let kept = Some(Arc::new(StoredResponse::Failure(panicked)));
        KeyLookup::First(Running { store: self.clone(), key: key.clone(), kept })
    }

    /// Records the end of the call with this key, with a response or without having started.
    fn end(&self, key: &Arc<[u8]>, kept: Option<Arc<StoredResponse>>, now: Instant) {
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
    // Both copies of the key share one allocation.
    key.len() + ENTRY_BYTES
}

/// A running call. If it panics, it is stored as failed.
pub(super) struct Running {
    store: Arc<Store>,
    key: Arc<[u8]>,
    /// Response to store; `None` if the call did not start.
    kept: Option<Arc<StoredResponse>>,
}

impl Running {
    /// Stores its response, unless it is too large.
    pub(super) fn end(mut self, kept: StoredResponse) -> Arc<StoredResponse> {
        let bytes = kept.len();
        let kept = Arc::new(kept);
        let large = bytes > self.store.bytes_max / 4;
        self.kept = Some(if large { Arc::new(StoredResponse::Bytes(bytes)) } else { kept.clone() });
        kept
    }

    /// Removes the entry, so that another call with the key may run.
    pub(super) fn not_begun(mut self) {
        self.kept = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.store.end(&self.key, self.kept.take(), switchboard_core::clock::now());
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
        let now = switchboard_core::clock::now();
        let KeyLookup::First(running) = store.begin(&key(number), 0, now) else {
            panic!("{number} is known")
        };
        let (head, trailers) = Default::default();
        running.end(StoredResponse::Reply { message: Bytes::from(vec![1; bytes]), head, trailers });
    }

    fn is_known(store: &Arc<Store>, number: u32) -> bool {
        matches!(store.begin(&key(number), 0, switchboard_core::clock::now()), KeyLookup::Ended(_))
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
        let KeyLookup::First(held) = store.begin(&key(0), 0, switchboard_core::clock::now()) else {
            panic!()
        };
        for number in 1..=4 {
            run(&store, number, 10);
            is_consistent(&store);
        }
        assert!(!is_known(&store, 1) && is_known(&store, 4));
        assert!(matches!(store.begin(&key(0), 0, switchboard_core::clock::now()), KeyLookup::Runs(_)));
        assert!(matches!(store.begin(&key(0), 1, switchboard_core::clock::now()), KeyLookup::Another));
        held.not_begun();
        is_consistent(&store);
        assert!(matches!(store.begin(&key(0), 0, switchboard_core::clock::now()), KeyLookup::First(_)));
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
        let KeyLookup::Ended(kept) = store.begin(&key(50), 0, switchboard_core::clock::now()) else {
            panic!()
        };
        assert!(matches!(&*kept, StoredResponse::Bytes(2501)));
        assert!(is_known(&store, 49), "for which nothing else had to go");
    }

    #[tokio::test(start_paused = true)]
    async fn answers_age_and_a_strict_store_refuses_until_then() {
        let store = store(2, 1 << 20, true);
        run(&store, 1, 10);
        tokio::time::advance(AGE / 2).await;
        run(&store, 2, 10);
        let KeyLookup::Full(pause) = store.begin(&key(3), 0, switchboard_core::clock::now()) else {
            panic!()
        };
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
        assert!(matches!(store.begin(&key(3), 0, switchboard_core::clock::now()), KeyLookup::Full(_)));
    }

    #[test]
    fn panic_counts_as_a_failure() {
        let store = store(2, 1 << 20, false);
        let KeyLookup::First(running) = store.begin(&key(1), 0, switchboard_core::clock::now()) else {
            panic!()
        };
        drop(running);
        let KeyLookup::Ended(kept) = store.begin(&key(1), 0, switchboard_core::clock::now()) else {
            panic!()
        };
        assert!(
            matches!(&*kept, StoredResponse::Failure(status) if status.code() == Status::internal("").code())
        );
    }
}
