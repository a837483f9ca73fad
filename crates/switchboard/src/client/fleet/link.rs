//! A member of a fleet: its channel, whether that is connected, and the calls that it has.

use super::{
    super::{Channel, Way},
    Shared, clock,
};
use crate::{
    Code, Origin, Result, Retry, Status,
    balance::{Endpoint, Outcome, State, Stats},
};
use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::runtime::Handle;

/// An endpoint in a set, and the way to it.
pub(in super::super) struct Member {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) link: Arc<Link>,
    pub(super) shared: Arc<Shared>,
}

/// The way to an endpoint; outlives the sets that it is in.
pub(super) struct Link {
    pub(super) channel: Channel,
    pub(super) stats: Arc<Stats>,
    /// A task is connecting.
    keeping: AtomicBool,
    /// Why the last try to connect failed.
    last: Mutex<Option<Status>>,
}

impl Link {
    pub(super) fn new(channel: Channel) -> Link {
        Link { channel, stats: Arc::default(), keeping: AtomicBool::new(false), last: Mutex::default() }
    }

    pub(super) fn last(&self) -> Option<Status> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_last(&self, status: Option<Status>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

impl Member {
    pub(super) fn state(&self) -> State {
        self.link.stats.state()
    }

    /// Whether its server gets the keys of calls, by which it knows them again.
    pub(super) fn gets_keys(&self) -> bool {
        match &*self.link.channel.0 {
            Way::Remote(pool) => pool.options().foreign.as_ref().is_none_or(|wire| wire.carries_metadata()),
            _ => true,
        }
    }

    /// Sees to it that the member gets connected, unless it is or somebody does.
    pub(super) fn keep(self: &Arc<Self>) {
        if self.state() == State::Up || self.link.keeping.load(Ordering::Relaxed) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        if self.link.keeping.swap(true, Ordering::AcqRel) {
            return;
        }
        let keeping = Keeping(Arc::downgrade(&self.link));
        let id = self.endpoint.id().to_owned();
        runtime.spawn(keep(keeping, Arc::downgrade(&self.shared), id));
    }

    /// The connection is lost, or there was none: no calls until there is one again.
    fn lost(self: &Arc<Self>, status: &Status, state: State) {
        self.link.set_last(Some(status.clone()));
        self.link.stats.set_state(state, clock::now());
        self.keep();
        self.shared.changed.notify_waiters();
    }
}

/// A task that connects, however it ends.
struct Keeping(Weak<Link>);

impl Drop for Keeping {
    fn drop(&mut self) {
        if let Some(link) = self.0.upgrade() {
            link.keeping.store(false, Ordering::Release);
        }
    }
}

/// Tries to connect until it has succeeded or no set has the member any more.
async fn keep(keeping: Keeping, shared: Weak<Shared>, id: String) {
    let mut failures = 0;
    loop {
        let Some((link, shared)) = keeping.0.upgrade().zip(shared.upgrade()) else { return };
        match link.channel.open().await {
            Ok(()) => {
                link.set_last(None);
                // In this order: who loses the connection from here on starts the next task.
                drop(keeping);
                link.stats.set_state(State::Up, clock::now());
                if let Some(source) = &shared.source {
                    source.watch.confirm_back(&id);
                }
                shared.changed.notify_waiters();
                return;
            }
            Err(status) => {
                link.set_last(Some(status));
                link.stats.set_state(State::Down, clock::now());
                if let Some(source) = &shared.source {
                    source.watch.confirm_gone(&id);
                }
                shared.changed.notify_waiters();
            }
        }
        let pause = pause(failures, shared.base.redial_max());
        failures += 1;
        drop((link, shared));
        tokio::time::sleep(pause).await;
    }
}

/// Doubles from 25 ms up to `max`, less a random part, so that callers do not come in step.
pub(super) fn pause(failures: u32, max: Duration) -> Duration {
    let whole = Duration::from_millis(25).saturating_mul(1 << failures.min(16)).min(max);
    whole.mul_f64(0.5 + 0.5 * crate::clock::fraction())
}

/// A call that an endpoint has. When it is dropped without an end, its caller gave up.
pub(in super::super) struct Ticket {
    /// Taken when the call has ended.
    member: Option<Arc<Member>>,
    method: &'static str,
    begun_ns: u64,
}

impl Ticket {
    #[inline]
    pub(super) fn new(member: Arc<Member>, method: &'static str, now_ns: u64) -> Ticket {
        member.link.stats.begun();
        member.link.stats.breakers().begun(method, now_ns);
        Ticket { member: Some(member), method, begun_ns: now_ns }
    }

    #[inline]
    pub(super) fn member(&self) -> &Arc<Member> {
        self.member.as_ref().expect("it is only taken when the call has ended")
    }

    pub(super) fn begun_ns(&self) -> u64 {
        self.begun_ns
    }

    /// The call is sent only now: what came before says nothing of its endpoint.
    pub(super) fn sent(&mut self) {
        self.begun_ns = clock::now();
    }

    /// The call was answered.
    #[inline]
    pub(in super::super) fn answered(mut self) {
        self.end(Code::Ok);
    }

    /// The call has failed.
    #[cold]
    pub(in super::super) fn failed(mut self, status: &Status) -> Arc<Member> {
        let member = self.member().clone();
        // A proxy that answers with a failure keeps its connection. Who looks late may find that there is another
        // already in place of the one that was lost: of that one the failure says nothing.
        let is_ready = member.link.channel.is_ready();
        let lost = status.code() == Code::Unavailable
            && status.origin() == Origin::Path
            && (!is_ready
                || matches!(&*member.link.channel.0, Way::Remote(_))
                || member.link.stats.is_up_since(self.begun_ns));
        let now_ns = clock::now();
        let took = Duration::from_nanos(now_ns.saturating_sub(self.begun_ns));
        self.end_as(Outcome { lost, ..Outcome::new(took, status.code()) }, now_ns);
        if lost && !is_ready {
            let refused = status.retry() == Retry::Safe;
            member.lost(status, if refused { State::Down } else { State::Connecting });
        }
        member
    }

    /// The call has ended, and says this of its endpoint.
    pub(super) fn close(mut self, took: Duration, code: Code) {
        self.end_as(Outcome::new(took, code), clock::now());
    }

    /// Says how the call ended.
    pub(super) fn ended<T>(self, outcome: &Result<T>) -> Arc<Member> {
        match outcome {
            Ok(_) => {
                let member = self.member().clone();
                self.answered();
                member
            }
            Err(status) => self.failed(status),
        }
    }

    #[inline]
    fn end(&mut self, code: Code) {
        let now_ns = clock::now();
        let took = Duration::from_nanos(now_ns.saturating_sub(self.begun_ns));
        self.end_as(Outcome::new(took, code), now_ns);
    }

    #[inline]
    fn end_as(&mut self, outcome: Outcome, now_ns: u64) {
        let Some(member) = self.member.take() else { return };
        let (stats, shared) = (&member.link.stats, &member.shared);
        stats.ended(&outcome, now_ns);
        let says_something = outcome.code != Code::Canceled && !outcome.lost;
        let failed = says_something.then(|| outcome.is_fault());
        if stats.breakers().ended(&shared.policy.breaking, self.method, failed, now_ns) {
            tracing::warn!(
                endpoint = member.endpoint.address(),
                method = self.method,
                "calls of the method go elsewhere for a while"
            );
        }
        if failed == Some(true) {
            shared.look_for_outliers(now_ns);
        }
        shared.balance.done(&member.endpoint, &outcome);
    }
}

impl Drop for Ticket {
    #[inline]
    fn drop(&mut self) {
        if self.member.is_some() {
            self.end(Code::Canceled);
        }
    }
}

impl Shared {
    #[cold]
    fn look_for_outliers(&self, now_ns: u64) {
        let set = self.set().clone();
        if let Some(at) = self.ejection.look(&self.policy.ejecting, &set.endpoints, now_ns) {
            tracing::warn!(
                endpoint = set.endpoints[at].address(),
                "fails too often and gets no calls for a while"
            );
        }
    }
}
