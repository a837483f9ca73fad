//! Fair queueing: when the concurrency limit is reached, further calls wait for a short time, and each tenant
//! gets its share of the released permits, regardless of the number of calls of other tenants. A tenant above
//! its share leaves some permits free for the others, see [`permits`].

mod line;
mod permits;
#[cfg(test)]
mod simulation;
mod turns;

use super::{concurrency::Limiter, key::Key};
use foldhash::quality::RandomState;
use line::Line;
pub(super) use permits::Load;
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
use switchboard_core::{Cx, Result};
use switchboard_wire::{Retry, Status};
use turns::{LEVELS, Pushed};

/// Fair queue before the server's concurrency limit, see `Server::fair`.
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

/// Metadata in which a caller sets the priority of a call among its own calls: `critical`, `high`, `normal`
/// or `low`.
const PRIORITY: &str = "switchboard-priority";
const NAMES: [&str; LEVELS] = ["critical", "high", "normal", "low"];
const NORMAL: usize = 2;

impl Fair {
    fn new(key: Key) -> Fair {
        let wait_max = Duration::from_secs(1);
        Fair { key, shares: Vec::new(), waiting_max: 100, waiting_total: 10_000, wait_max }
    }

    /// Uses each authenticated [caller](switchboard_core::Cx::caller) as a tenant; calls without a caller form one more
    /// tenant.
    pub fn by_caller() -> Fair {
        Fair::new(Key::Caller)
    }

    /// Uses each value of this metadata as a tenant. Callers choose their metadata: use it only for trusted
    /// callers.
    pub fn by_metadata(name: impl Into<String>) -> Fair {
        Fair::new(Key::Metadata(name.into().to_ascii_lowercase()))
    }

    /// Uses each peer address as a tenant.
    pub fn by_peer() -> Fair {
        Fair::new(Key::Peer)
    }

    /// Sets the share of the tenant with this name or value; the default share is one.
    pub fn share(mut self, tenant: impl Into<String>, share: u32) -> Fair {
        self.shares.push((tenant.into(), share.clamp(1, 1000)));
        self
    }

    /// Sets the maximum number of waiting calls of one tenant; default 100. Further calls are rejected,
    /// except that an urgent call replaces a less urgent one.
    pub fn waiting_max(mut self, calls: u32) -> Fair {
        self.waiting_max = calls.max(1);
        self
    }

    /// Sets the maximum number of waiting calls of all tenants; default 10,000.
    pub fn waiting_total(mut self, calls: u32) -> Fair {
        self.waiting_total = calls.max(1);
        self
    }

    /// Sets the maximum waiting time, after which a call is rejected; default 1 s.
    pub fn wait_max(mut self, time: Duration) -> Fair {
        self.wait_max = time;
        self
    }
}

/// The active queue before a limit.
pub(super) struct Queue {
    fair: Fair,
    limiter: Arc<Limiter>,
    secret: RandomState,
    shares: HashMap<u64, u32, RandomState>,
    /// Error text for a tenant with too many waiting calls.
    full: String,
    /// Number of waiting calls, readable without the lock.
    waiting: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    line: Line,
    waiters: Vec<Waiter>,
    free: Vec<u32>,
}

/// A permit of the limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct FairPermit {
    /// Set if the call must be timed.
    pub(super) timed: bool,
    /// Its tenant; `None` if it was taken while half of the permits were free, when tenants are not tracked.
    pub(super) tenant: Option<u64>,
}

/// Result of entering the queue.
pub(super) enum FairAdmission<'a> {
    Admitted(FairPermit),
    Queued(Waiting<'a>),
}

#[derive(Default)]
enum Waiter {
    /// The call has a permit; the flag states whether the call must be timed.
    Admitted(bool),
    #[default]
    Free,
    /// A more urgent call took its position in the queue.
    Replaced,
    Waits(Option<Waker>),
}

impl Queue {
    pub(super) fn new(fair: Fair, limiter: Arc<Limiter>) -> Queue {
        let secret = RandomState::default();
        let shares = fair.shares.iter().map(|(name, share)| (Key::of_name(name, &secret), *share)).collect();
        let full =
            format!("{} calls of {} are waiting (waiting_max)", fair.waiting_max, fair.key.description());
        Queue { fair, limiter, secret, shares, full, waiting: AtomicUsize::new(0), state: Mutex::default() }
    }

    /// Takes a permit or a position in the queue. A rejected call costs no future and no timer.
    ///
    /// # Errors
    /// `ResourceExhausted` if too many calls wait.
    #[inline]
    pub(super) fn enter(&self, cx: &Cx) -> Result<FairAdmission<'_>> {
        if self.is_calm()
            && let Some(timed) = self.limiter.try_enter()
        {
            return Ok(FairAdmission::Admitted(FairPermit { timed, tenant: None }));
        }
        let tenant = self.fair.key.of(cx, &self.secret);
        let share = self.shares.get(&tenant).copied().unwrap_or(1);
        let level = cx.metadata().text(PRIORITY).and_then(|text| NAMES.iter().position(|name| *name == text));
        self.line_up(tenant, share, level.unwrap_or(NORMAL))
    }

    /// Returns whether no calls wait and half of the permits are free. Then the tenants of permits are not
    /// tracked.
    #[inline]
    pub(super) fn is_calm(&self) -> bool {
        let Load { limit, in_flight } = self.limiter.load();
        in_flight < limit / 2 && self.waiting.load(Ordering::SeqCst) == 0
    }

    /// Returns the number of waiting calls.
    pub(super) fn len(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    fn line_up(&self, tenant: u64, share: u32, level: usize) -> Result<FairAdmission<'_>> {
        let mut state = self.lock();
        let load = self.limiter.load();
        if state.line.passes(tenant, share, switchboard_core::clock::now(), load)
            && let Some(timed) = self.limiter.try_enter()
        {
            state.line.take(tenant, share, load.limit);
            return Ok(FairAdmission::Admitted(FairPermit { timed, tenant: Some(tenant) }));
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
        // A permit that was released before this call was visible in `waiting` did not wake the queue.
        self.admit(&mut state);
        Ok(FairAdmission::Queued(Waiting { queue: self, tenant, number, owns_permit: true }))
    }

    /// Assigns permits after a release; `tenant` is the tenant of the released permit, if it was tracked.
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
        let text = format!("{why}: the server is at its concurrency limit");
        Status::resource_exhausted(text).with_retry(Retry::After(self.limiter.pause()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Sets the outcome of a waiting call and wakes it.
    fn settle(&mut self, number: u32, outcome: Waiter) {
        if let Waiter::Waits(Some(waker)) = std::mem::replace(&mut self.waiters[number as usize], outcome) {
            waker.wake();
        }
    }
}

/// A waiting call. Dropping it releases its permit or leaves the queue.
pub(super) struct Waiting<'a> {
    queue: &'a Queue,
    tenant: u64,
    number: u32,
    /// On drop, release a permit that was assigned.
    owns_permit: bool,
}

impl Waiting<'_> {
    /// Waits for a permit; dropping the future leaves the queue.
    ///
    /// # Errors
    /// `ResourceExhausted` after the maximum waiting time.
    pub(super) async fn admitted(self) -> Result<FairPermit> {
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
                let text = format!("not admitted within {:?} (wait_max)", queue.fair.wait_max);
                return Err(queue.refuse(&text));
            }
        };
        let permit = FairPermit { timed, tenant: Some(self.tenant) };
        self.end();
        Ok(permit)
    }

    /// Passes the permit to the call, so that the drop does not release it.
    fn end(mut self) {
        self.owns_permit = false;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let queue = self.queue;
        let mut state = queue.lock();
        match std::mem::take(&mut state.waiters[self.number as usize]) {
            Waiter::Admitted(_) if self.owns_permit => {
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
