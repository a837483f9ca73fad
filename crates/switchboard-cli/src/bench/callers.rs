//! Callers: closed loops that call as fast as replies come, and open loops that call when arrivals are due.
//!
//! Latency in the open loop runs from the instant at which the arrival was due, not from when a caller was free to
//! send it, so that a slow server cannot hide its queue by slowing its callers down (coordinated omission).

use super::{
    alarm::Alarm,
    load::Caller,
    measure::Measured,
    memory::{self, Watch},
};
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use tokio::time;

/// Calls one after the other until the tally is complete.
///
/// The tally belongs to the [worker](set_tally): a future with a tally is not `Send`, which multi-thread runtimes
/// require.
pub async fn closed_loop(mut caller: impl Caller) {
    let mut patience = Patience::new();
    let mut from = Instant::now();
    while with_tally(|tally| tally.admit(from)) {
        let outcome = caller.call().await;
        // The clock is read once a call: the end of one is the start of the next.
        let now = Instant::now();
        let failed = outcome.is_err();
        with_tally(|tally| tally.note(from, now, outcome));
        from = now;
        if failed {
            if patience.lost().await {
                return;
            }
            from = Instant::now();
        } else {
            patience = Patience::new();
        }
    }
}

/// Makes a call for each arrival until the arrivals end.
pub async fn open_loop(mut caller: impl Caller, arrivals: Rc<Arrivals>, tally: Rc<Tally>) {
    let mut patience = Patience::new();
    while let Some(due) = poll_fn(|cx| arrivals.poll_take(cx)).await {
        let outcome = caller.call().await;
        let failed = outcome.is_err();
        tally.note_due(due, Instant::now(), outcome);
        if !failed {
            patience = Patience::new();
        } else if patience.lost().await {
            return;
        }
    }
}

// Of the thread: callers of all targets count without a lock, also those that other libraries' threads run.
thread_local! {
    static TALLY: RefCell<Option<Rc<Tally>>> = const { RefCell::new(None) };
}

/// Sets the tally in which callers of this worker count.
pub fn set_tally(tally: Rc<Tally>) {
    TALLY.set(Some(tally));
}

/// Begin and end of the only measurement of this process, for threads that steal tasks from each other.
static SHARED: OnceLock<(Instant, Instant)> = OnceLock::new();

/// Makes each thread create a tally at its first call. Only the first call of this function in a process has an effect.
pub fn share_tallies(begin: Instant, end: Instant) {
    SHARED.get_or_init(|| (begin, end));
}

/// Returns the tally of this thread, if a caller has run on it.
pub fn take_tally() -> Option<Rc<Tally>> {
    TALLY.take()
}

fn with_tally<T>(count: impl FnOnce(&Tally) -> T) -> T {
    TALLY.with_borrow_mut(|tally| {
        count(tally.get_or_insert_with(|| {
            let &(begin, end) = SHARED.get().expect("callers start after their worker's tally is set");
            Rc::new(Tally::new(begin, Some(end), u64::MAX, Arc::default(), None))
        }))
    })
}

/// The counts of the callers of one worker, and when they must stop.
pub struct Tally {
    measured: RefCell<Measured>,
    /// Calls before this are not counted.
    begin: Instant,
    /// When to stop, if the measurement ends by time.
    end: Option<Instant>,
    /// Calls left to make, if the measurement ends by their number.
    left: Cell<u64>,
    /// The end of the last counted call.
    last: Cell<Instant>,
    calls: Cell<u64>,
    done: Arc<AtomicU64>,
    memory: Option<Arc<Watch>>,
}

/// Calls between two updates of the count that other threads see.
const SHOWN_EVERY: u64 = 256;

impl Tally {
    pub fn new(
        begin: Instant,
        end: Option<Instant>,
        left: u64,
        done: Arc<AtomicU64>,
        memory: Option<Arc<Watch>>,
    ) -> Self {
        Self {
            measured: RefCell::new(Measured::new()),
            begin,
            end,
            left: Cell::new(left),
            last: Cell::new(begin),
            calls: Cell::new(0),
            done,
            memory,
        }
    }

    /// Returns whether one more call may start at `from`.
    pub fn admit(&self, from: Instant) -> bool {
        if let Some(end) = self.end {
            return from < end || self.lacks_any();
        }
        let Some(left) = self.left.get().checked_sub(1) else { return false };
        if from >= self.begin {
            self.left.set(left);
        }
        true
    }

    /// Counts a call of a closed loop.
    pub fn note(&self, from: Instant, now: Instant, outcome: Result<(), String>) {
        let counted = match self.end {
            // Replies within the time count regardless of when their calls began; otherwise slow calls would be
            // undercounted.
            Some(end) => now >= self.begin && (now < end || self.lacks_any()),
            None => from >= self.begin,
        };
        self.count(counted, from, now, outcome);
    }

    /// Returns whether no call has been counted and none has failed. Then the measurement continues until the first
    /// reply, so that it has a rate even if calls take longer than the measured time.
    #[cold]
    fn lacks_any(&self) -> bool {
        let measured = self.measured.borrow();
        measured.requests == 0 && measured.errors == 0
    }

    /// Counts a call of an open loop that was due at `due`.
    ///
    /// A reply after the end adds its latency, but does not count for the throughput.
    fn note_due(&self, due: Instant, now: Instant, outcome: Result<(), String>) {
        if outcome.is_ok() && self.end.is_some_and(|end| now >= end) {
            self.calls.set(self.calls.get() + 1);
            return self.measured.borrow_mut().miss(now - due);
        }
        self.count(now >= self.begin, due, now, outcome);
    }

    fn count(&self, counted: bool, from: Instant, now: Instant, outcome: Result<(), String>) {
        self.calls.set(self.calls.get() + 1);
        if self.calls.get() == memory::FIRST
            && let Some(memory) = &self.memory
        {
            memory.first();
        }
        match outcome {
            Err(error) => self.fail(error),
            Ok(()) if counted => {
                self.measured.borrow_mut().record(now - from);
                self.last.set(now);
                if self.calls.get().is_multiple_of(SHOWN_EVERY) {
                    self.done.fetch_add(SHOWN_EVERY, Ordering::Relaxed);
                }
            }
            Ok(()) => {}
        }
    }

    /// Counts a failed call.
    pub fn fail(&self, error: String) {
        self.measured.borrow_mut().fail(error);
    }

    /// Calls made so far, the warm-up included.
    pub fn calls(&self) -> u64 {
        self.calls.get()
    }

    /// Returns the counts.
    pub fn finish(&self) -> Measured {
        let mut measured = self.measured.replace(Measured::new());
        measured.calls = self.calls.get();
        let last = self.last.get();
        measured.elapsed = self.end.map_or(last, |end| end.max(last)) - self.begin;
        measured
    }
}

/// Arrivals at constant intervals, whether or not a caller is free.
pub struct Arrivals {
    start: Instant,
    interval: Duration,
    /// Arrivals that were due so far.
    issued: Cell<u64>,
    /// Arrivals that a caller took so far.
    taken: Cell<u64>,
    over: Cell<bool>,
    /// Callers without an arrival.
    idle: RefCell<Vec<Waker>>,
}

impl Arrivals {
    pub fn new(start: Instant, interval: Duration) -> Self {
        Self {
            start,
            interval,
            issued: Cell::new(0),
            taken: Cell::new(0),
            over: Cell::new(false),
            idle: RefCell::new(Vec::new()),
        }
    }

    /// Returns when arrival `number`, counted from 0, is due.
    fn due(&self, number: u64) -> Instant {
        self.start + Duration::from_secs_f64(self.interval.as_secs_f64() * number as f64)
    }

    /// Takes the oldest arrival that is due; `None` after the last one.
    fn poll_take(&self, cx: &Context<'_>) -> Poll<Option<Instant>> {
        let next = self.taken.get();
        if self.over.get() {
            Poll::Ready(None)
        } else if next < self.issued.get() {
            self.taken.set(next + 1);
            Poll::Ready(Some(self.due(next)))
        } else {
            self.idle.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        }
    }

    /// Issues the arrivals that are due at `now` and wakes as many callers; returns when the next arrival is due.
    fn issue(&self, now: Instant) -> Instant {
        loop {
            let due = self.due(self.issued.get());
            if due > now {
                return due;
            }
            self.issued.set(self.issued.get() + 1);
            if let Some(caller) = self.idle.borrow_mut().pop() {
                caller.wake();
            }
        }
    }

    /// Counts arrivals that were never taken, with the time that they had waited at the `end`.
    pub fn drain(&self, tally: &Tally, end: Instant) {
        let mut measured = tally.measured.borrow_mut();
        for number in self.taken.get()..self.issued.get() {
            measured.miss(end.saturating_duration_since(self.due(number)));
        }
    }
}

/// Issues `arrivals` when they are due, until `end`, and sleeps in between.
///
/// Arrivals that became due while the worker slept or worked are issued at once; their latency counts from the due
/// time.
pub async fn pace(arrivals: Rc<Arrivals>, end: Instant) {
    let alarm = Alarm::new();
    loop {
        let now = Instant::now();
        if now >= end {
            // Arrivals that were due while this worker did not run are issued late.
            arrivals.issue(end);
            break;
        }
        alarm.until(arrivals.issue(now).min(end)).await;
    }
    arrivals.over.set(true);
    for caller in arrivals.idle.take() {
        caller.wake();
    }
}

/// Number of calls that may fail in a row before a caller stops.
const FAILURES: u32 = 100;

/// Remaining failures of a caller whose server keeps failing.
struct Patience {
    failures: u32,
}

impl Patience {
    fn new() -> Self {
        Self { failures: 0 }
    }

    /// Waits a moment after a failure; returns true when there were too many.
    async fn lost(&mut self) -> bool {
        // Calls on a closed connection fail at once, and a loop of them would block all other tasks.
        time::sleep(Duration::from_millis(1)).await;
        self.failures += 1;
        self.failures >= FAILURES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(begin: Instant, end: Option<Instant>, left: u64) -> Tally {
        Tally::new(begin, end, left, Arc::default(), None)
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn replies_in_the_time_count() {
        let start = Instant::now();
        let tally = tally(start + 10 * MS, Some(start + 20 * MS), u64::MAX);
        for (from, now) in [(1, 2), (9, 11), (12, 13), (19, 21)] {
            tally.note(start + from * MS, start + now * MS, Ok(()));
        }
        assert!(tally.admit(start + 19 * MS));
        assert!(!tally.admit(start + 20 * MS));
        let measured = tally.finish();
        assert_eq!((measured.requests, measured.elapsed), (2, 10 * MS));
    }

    #[test]
    fn the_time_goes_on_until_the_first_reply() {
        let start = Instant::now();
        let slow = tally(start + 10 * MS, Some(start + 20 * MS), u64::MAX);
        slow.note(start, start + 9 * MS, Ok(()));
        assert!(slow.admit(start + 25 * MS));
        for (from, now) in [(9, 30), (9, 31), (25, 40)] {
            slow.note(start + from * MS, start + now * MS, Ok(()));
        }
        assert!(!slow.admit(start + 30 * MS));
        let measured = slow.finish();
        assert_eq!((measured.requests, measured.calls, measured.elapsed), (1, 4, 20 * MS));

        // A failing server sends no reply to wait for.
        let failing = tally(start + 10 * MS, Some(start + 20 * MS), u64::MAX);
        failing.note(start, start + 25 * MS, Err("refused".to_owned()));
        assert!(!failing.admit(start + 25 * MS));
        failing.note(start, start + 26 * MS, Ok(()));
        let measured = failing.finish();
        assert_eq!((measured.requests, measured.errors, measured.elapsed), (0, 1, 10 * MS));
    }

    #[test]
    fn a_number_of_calls_is_made_after_the_warm_up() {
        let start = Instant::now();
        let tally = tally(start + 10 * MS, None, 2);
        for at in [1, 5, 10, 12] {
            assert!(tally.admit(start + at * MS), "{at}");
            tally.note(start + at * MS, start + (at + 1) * MS, Ok(()));
        }
        assert!(!tally.admit(start + 13 * MS));
        let measured = tally.finish();
        assert_eq!((measured.requests, measured.elapsed), (2, 3 * MS));
    }

    #[test]
    fn arrivals_wait_for_callers_and_are_missed_at_the_end() {
        let start = Instant::now();
        let arrivals = Arrivals::new(start, 2 * MS);
        assert_eq!(arrivals.issue(start + 5 * MS), start + 6 * MS);
        let cx = Context::from_waker(Waker::noop());
        assert_eq!(arrivals.poll_take(&cx), Poll::Ready(Some(start)));
        let tally = tally(start, Some(start + 6 * MS), u64::MAX);
        tally.note_due(start, start + 5 * MS, Ok(()));
        arrivals.drain(&tally, start + 6 * MS);
        let measured = tally.finish();
        assert_eq!((measured.requests, measured.missed), (1, 2));
        assert!(measured.max_us() >= 5000.0, "latency runs from when the arrival was due");
    }

    #[tokio::test]
    async fn all_that_is_due_by_the_end_is_issued_and_nothing_after_it() {
        let start = Instant::now();
        let arrivals = Rc::new(Arrivals::new(start, MS / 4));
        pace(arrivals.clone(), start + 10 * MS).await;
        assert!(Instant::now() >= start + 10 * MS);
        assert_eq!((arrivals.issued.get(), arrivals.over.get()), (41, true));
    }

    #[test]
    fn callers_without_an_arrival_wait_until_it_is_over() {
        let start = Instant::now();
        let arrivals = Arrivals::new(start + MS, MS);
        let cx = Context::from_waker(Waker::noop());
        assert!(arrivals.poll_take(&cx).is_pending());
        arrivals.issue(start + MS);
        assert_eq!(arrivals.poll_take(&cx), Poll::Ready(Some(start + MS)));
        arrivals.over.set(true);
        assert_eq!(arrivals.poll_take(&cx), Poll::Ready(None));
    }
}
