//! Spinner: polls for a short time after traffic instead of sleeping at once.
//!
//! A task that yields makes a single-threaded runtime poll its sockets without blocking; the spinner is such
//! a task. It yields the core between polls, because spinning threads would otherwise starve each other. It
//! stops if another thread took the core, since further polling would take half of the core from work that
//! traffic may wait for, and pauses for longer if that thread computes, since the next yield would again lose the core
//! for a slice of the scheduler; and it stops if recent pauses between traffic were longer than the spin, because
//! such spins find nothing.

use crate::clock;
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    task::{Poll, Waker},
    time::{Duration, Instant},
};

/// Maximum score: a worker stops spinning after this many long pauses, and starts after one short one.
const SCORE_MAX: u8 = 16;

/// Time that sleeping may add to a pause: two workers that respond to each other wait for two wake-ups, so that both
/// would always see long pauses and sleep. A worker that slept spins once after a pause of at most the span plus
/// this time.
const WAKE_UPS: Duration = Duration::from_micros(100);

/// Yielding the core takes longer than this only if another thread took it.
const TAKEN: Duration = Duration::from_micros(10);

/// Yielding the core takes longer than this only if the other thread computes: a thread that responds to this one is
/// done earlier.
const OCCUPIED: Duration = Duration::from_micros(500);

/// Pause in spinning on an occupied core, as a multiple of the time that the yield took: at most a twentieth of the
/// time is lost to yields.
const PAUSE_FACTOR: u32 = 20;

/// Longest pause: a process that was stopped for a minute did not lose its core to others.
const PAUSE_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
struct Spin {
    span: Duration,
    last_traffic: Option<Instant>,
    score: u8,
    /// The core is occupied by another thread: no spinning before this time.
    paused_until: Option<Instant>,
}

impl Spin {
    const fn new(span: Duration) -> Spin {
        Spin { span, last_traffic: None, score: SCORE_MAX, paused_until: None }
    }
}

// Of the thread: connections report traffic to the spinner of their worker without a reference to it.
thread_local! {
    static SPIN: Cell<Spin> = const { Cell::new(Spin::new(Duration::ZERO)) };
    static ASLEEP: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

/// Records that bytes arrived on this worker at `now`; does nothing on threads without a spinner.
#[inline]
pub fn traffic(now: Instant) {
    let mut spin = SPIN.get();
    if spin.span.is_zero() {
        return;
    }
    if let Some(last) = spin.last_traffic.replace(now) {
        let pause = now.saturating_duration_since(last);
        spin.score = if pause <= spin.span {
            (spin.score + 4).min(SCORE_MAX)
        } else if spin.score == 0 && pause <= spin.span.saturating_add(WAKE_UPS) {
            1
        } else {
            spin.score.saturating_sub(1)
        };
    }
    if spin.paused_until.is_some_and(|end| end <= now) {
        spin.paused_until = None;
    }
    SPIN.set(spin);
    if spin.score > 0
        && spin.paused_until.is_none()
        && let Some(waker) = ASLEEP.take()
    {
        waker.wake();
    }
}

/// Keeps the single-threaded runtime that polls it from sleeping until `span` has passed without traffic on
/// this thread, or another thread took its core. [`run`](crate::run) starts it automatically; spawn it on
/// your own runtimes. Never returns unless `span` is zero.
pub async fn keep_awake(span: Duration) {
    SPIN.set(Spin::new(span));
    if span.is_zero() {
        return;
    }
    loop {
        let Spin { last_traffic, score, paused_until, .. } = SPIN.get();
        let now = clock::now();
        let looks = score > 0
            && paused_until.is_none()
            && last_traffic.is_some_and(|at| now.saturating_duration_since(at) < span);
        if looks && !gives_away(now) {
            tokio::task::yield_now().await;
        } else {
            let mut slept = false;
            poll_fn(|cx| {
                if std::mem::replace(&mut slept, true) {
                    return Poll::Ready(());
                }
                ASLEEP.set(Some(cx.waker().clone()));
                Poll::Pending
            })
            .await;
        }
    }
}

/// Yields the core at `now`; returns whether another thread took it.
fn gives_away(now: Instant) -> bool {
    std::thread::yield_now();
    let taken = clock::now().saturating_duration_since(now);
    if taken > OCCUPIED {
        let pause = taken.saturating_mul(PAUSE_FACTOR).min(PAUSE_MAX);
        let end = now.checked_add(pause);
        SPIN.set(Spin { paused_until: end, ..SPIN.get() });
    }
    taken > TAKEN
}
