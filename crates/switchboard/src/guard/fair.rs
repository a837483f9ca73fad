//! Waiting in turn: when as many calls run as may, further ones wait for a moment, and each tenant gets its share of
//! the places that become free, however many calls the others send. Who holds more than that leaves a few places free
//! for the others, see [`places`].

mod line;
mod places;
#[cfg(test)]
mod simulation;
mod turns;

use super::{concurrency::Limiter, key::Key};
use crate::{Cx, Result, Retry, Status};
use foldhash::quality::RandomState;
use line::Line;
pub(super) use places::Load;
use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Poll, Waker},
    time::Duration,
};
use turns::{LEVELS, Pushed};

/// Fair waiting before the server's concurrency limit, see [`Server::fair`](crate::Server::fair).
///
/// ```
/// use std::time::Duration;
/// use switchboard::guard::{Concurrency, Fair};
///
/// let server = switchboard::Server::new()
///     .concurrency(Concurrency::auto())
///     .fair(Fair::by_caller().share("reports", 1).share("shop", 3).wait_max(Duration::from_millis(200)));
/// ```
#[derive(Clone, Debug)]
#[must_use = "it holds once a server has it"]
pub struct Fair {
    key: Key,
    shares: Vec<(String, u32)>,
    waiting_max: u32,
    waiting_total: u32,
    wait_max: Duration,
}

/// In this metadata a caller says how urgent a call is among its own: `critical`, `high`, `normal` or `low`.
const PRIORITY: &str = "switchboard-priority";
const NAMES: [&str; LEVELS] = ["critical", "high", "normal", "low"];
const NORMAL: usize = 2;

impl Fair {
    fn new(key: Key) -> Fair {
        let wait_max = Duration::from_secs(1);
        Fair { key, shares: Vec::new(), waiting_max: 100, waiting_total: 10_000, wait_max }
    }

    /// Each authenticated [caller](crate::Cx::caller) is a tenant, and nobody is one.
    pub fn by_caller() -> Fair {
        Fair::new(Key::Caller)
    }

    /// Each value of this metadata is a tenant. Callers choose their metadata: for those that can be trusted in this.
    pub fn by_metadata(name: impl Into<String>) -> Fair {
        Fair::new(Key::Metadata(name.into().to_ascii_lowercase()))
    }

    /// Each address is a tenant.
    pub fn by_peer() -> Fair {
        Fair::new(Key::Peer)
    }

    /// Gives the tenant of this name, or value, so many places where others get one.
    pub fn share(mut self, tenant: impl Into<String>, share: u32) -> Fair {
        self.shares.push((tenant.into(), share.clamp(1, 1000)));
        self
    }

    /// Calls of one tenant that wait; more are refused, but an urgent one takes the place of one that is less so. 100
    /// unless set.
    pub fn waiting_max(mut self, calls: u32) -> Fair {
        self.waiting_max = calls.max(1);
        self
    }

    /// Calls of all tenants that wait; 10,000 unless set.
    pub fn waiting_total(mut self, calls: u32) -> Fair {
        self.waiting_total = calls.max(1);
        self
    }

    /// A call that has waited for so long is refused; 1 s unless set.
    pub fn wait_max(mut self, time: Duration) -> Fair {
        self.wait_max = time;
        self
    }
}

/// The queue in force, before one limit.
pub(super) struct Queue {
    fair: Fair,
    limiter: Arc<Limiter>,
    secret: RandomState,
    shares: HashMap<u64, u32, RandomState>,
    /// What a tenant is told that has too many calls waiting.
    full: String,
    /// Calls that wait: looked at by those that come and go.
    waiting: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    line: Line,
    waiters: Vec<Waiter>,
    free: Vec<u32>,
}

/// A place in the limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Whether the call is to be timed.
    pub(super) timed: bool,
    /// Whose it is; nobody has to know while half of the places are free.
    pub(super) tenant: Option<u64>,
}

/// What a call got that came.
pub(super) enum Entered<'a> {
    Placed(Place),
    Waits(Waiting<'a>),
}

#[derive(Default)]
enum Waiter {
    /// It has a place, and whether it is to be timed.
    Admitted(bool),
    #[default]
    Free,
    /// Another has its place in the queue.
    Replaced,
    Waits(Option<Waker>),
}

impl Queue {
    pub(super) fn new(fair: Fair, limiter: Arc<Limiter>) -> Queue {
        let secret = RandomState::default();
        let shares = fair.shares.iter().map(|(name, share)| (Key::of_name(name, &secret), *share)).collect();
        let full = format!("{} calls of {} are waiting (waiting_max)", fair.waiting_max, fair.key.whom());
        Queue { fair, limiter, secret, shares, full, waiting: AtomicUsize::new(0), state: Mutex::default() }
    }

    /// Takes a place, or one among those that wait: what is refused here costs no future and no timer.
    ///
    /// # Errors
    /// `ResourceExhausted` when too many wait.
    #[inline]
    pub(super) fn enter(&self, cx: &Cx) -> Result<Entered<'_>> {
        if self.is_calm()
            && let Some(timed) = self.limiter.try_enter()
        {
            return Ok(Entered::Placed(Place { timed, tenant: None }));
        }
        let tenant = self.fair.key.of(cx, &self.secret);
        let share = self.shares.get(&tenant).copied().unwrap_or(1);
        let level = cx.metadata().text(PRIORITY).and_then(|text| NAMES.iter().position(|name| *name == text));
        self.line_up(tenant, share, level.unwrap_or(NORMAL))
    }

    /// Whether nobody waits, and half of the places are free: then nobody has to know whose the others are.
    #[inline]
    pub(super) fn is_calm(&self) -> bool {
        let Load { limit, in_flight } = self.limiter.load();
        in_flight < limit / 2 && self.waiting.load(Ordering::SeqCst) == 0
    }

    /// Calls that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    fn line_up(&self, tenant: u64, share: u32, level: usize) -> Result<Entered<'_>> {
        let mut state = self.lock();
        let load = self.limiter.load();
        if state.line.passes(tenant, share, crate::clock::now(), load)
            && let Some(timed) = self.limiter.try_enter()
        {
            state.line.take(tenant, share, load.limit);
            return Ok(Entered::Placed(Place { timed, tenant: Some(tenant) }));
        }
        if state.line.len() >= self.fair.waiting_total as usize {
            return Err(self.refuse(&format!("{} calls are waiting (waiting_total)", state.line.len())));
        }
        let number = state.free.pop().unwrap_or_else(|| {
            state.waiters.push(Waiter::Free);
            state.waiters.len() as u32 - 1
        });
        match state.line.push(tenant, share, level, number, self.fair.waiting_max as usize) {
            Pushed::Full => {
                state.free.push(number);
                return Err(self.refuse(&self.full));
            }
            Pushed::InsteadOf(other) => state.settle(other, Waiter::Replaced),
            Pushed::Waits => {}
        }
        state.waiters[number as usize] = Waiter::Waits(None);
        self.waiting.store(state.line.len(), Ordering::SeqCst);
        // A place that became free before this call was seen to wait is for nobody else to notice.
        self.admit(&mut state);
        Ok(Entered::Waits(Waiting { queue: self, tenant, number, has_place: true }))
    }

    /// A place may have become free: that of this tenant, if it is known.
    #[inline]
    pub(super) fn released(&self, tenant: Option<u64>) {
        if tenant.is_some() || self.waiting.load(Ordering::SeqCst) > 0 {
            let mut state = self.lock();
            if let Some(tenant) = tenant {
                state.line.leave(tenant, self.limiter.load().limit);
            }
            self.admit(&mut state);
        }
    }

    fn admit(&self, state: &mut State) {
        loop {
            let load = self.limiter.load();
            let Some(at) = state.line.next(load) else { break };
            let Some(timed) = self.limiter.try_enter() else { break };
            match state.line.admit(at, load.limit) {
                Some(number) => state.settle(number, Waiter::Admitted(timed)),
                None => self.limiter.leave(),
            }
        }
        self.waiting.store(state.line.len(), Ordering::SeqCst);
    }

    #[cold]
    fn refuse(&self, why: &str) -> Status {
        self.limiter.count_refused();
        let text = format!("{why}: the server does as much as it can");
        Status::resource_exhausted(text).with_retry(Retry::After(self.limiter.pause()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Tells one that waits what became of it.
    fn settle(&mut self, number: u32, outcome: Waiter) {
        if let Waiter::Waits(Some(waker)) = std::mem::replace(&mut self.waiters[number as usize], outcome) {
            waker.wake();
        }
    }
}

/// A call that waits; dropped, it gives back what it has.
pub(super) struct Waiting<'a> {
    queue: &'a Queue,
    tenant: u64,
    number: u32,
    /// A place that it was given goes with it.
    has_place: bool,
}

impl Waiting<'_> {
    /// Waits for a place; dropped, it waits no more.
    ///
    /// # Errors
    /// `ResourceExhausted` when this has waited for too long.
    pub(super) async fn admitted(self) -> Result<Place> {
        let queue = self.queue;
        let admitted = poll_fn(|cx| {
            let mut state = queue.lock();
            match &mut state.waiters[self.number as usize] {
                Waiter::Admitted(timed) => Poll::Ready(Ok(*timed)),
                Waiter::Waits(waker) => {
                    *waker = Some(cx.waker().clone());
                    Poll::Pending
                }
                Waiter::Free | Waiter::Replaced => {
                    Poll::Ready(Err(queue.refuse("a more urgent call of the same tenant took its place")))
                }
            }
        });
        let timed = match tokio::time::timeout(queue.fair.wait_max, admitted).await {
            Ok(admitted) => admitted?,
            Err(_) => {
                let text = format!("no place within {:?} (wait_max)", queue.fair.wait_max);
                return Err(queue.refuse(&text));
            }
        };
        let place = Place { timed, tenant: Some(self.tenant) };
        self.end();
        Ok(place)
    }

    /// The place is the call's from now on.
    fn end(mut self) {
        self.has_place = false;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let queue = self.queue;
        let mut state = queue.lock();
        match std::mem::take(&mut state.waiters[self.number as usize]) {
            Waiter::Admitted(_) if self.has_place => {
                queue.limiter.leave();
                state.line.leave(self.tenant, queue.limiter.load().limit);
                queue.admit(&mut state);
            }
            Waiter::Waits(_) => {
                state.line.remove(self.tenant, self.number);
                queue.waiting.store(state.line.len(), Ordering::SeqCst);
            }
            _ => {}
        }
        state.free.push(self.number);
    }
}
