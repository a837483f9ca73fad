//! A member of a fleet: its channel, its connection state, and its calls.

use super::{super::Channel, Shared, clock};
use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use switchboard_core::{Result, backoff};
use switchboard_discovery::balance::{Endpoint, Outcome, Probe, State, Stats};
use switchboard_wire::{Code, Origin, Retry, Status};
use tokio::runtime::Handle;

/// An endpoint in a set, with its channel.
pub(in super::super) struct Member {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) link: Arc<Link>,
    pub(super) shared: Arc<Shared>,
}

/// The channel of an endpoint; outlives the sets that contain the endpoint.
pub(super) struct Link {
    pub(super) channel: Channel,
    pub(super) stats: Arc<Stats>,
    /// True while a task is connecting.
    connecting: AtomicBool,
    /// The error of the last attempt to connect.
    last: Mutex<Option<Status>>,
}

impl Link {
    pub(super) fn new(channel: Channel) -> Link {
        Link { channel, stats: Arc::default(), connecting: AtomicBool::new(false), last: Mutex::default() }
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

    /// Returns true when its server gets the idempotency keys of calls.
    pub(super) fn gets_keys(&self) -> bool {
        self.link.channel.0.pool().is_none_or(|pool| {
            pool.options().wire_config.as_ref().is_none_or(|wire| wire.setup.carries_metadata())
        })
    }

    /// Starts a task that connects the member, unless it is connected or a task is running.
    pub(super) fn keep_connected(self: &Arc<Self>) {
        if self.state() == State::Up || self.link.connecting.load(Ordering::Relaxed) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        if self.link.connecting.swap(true, Ordering::AcqRel) {
            return;
        }
        let connecting = ConnectGuard(Arc::downgrade(&self.link));
        let id = self.endpoint.id().to_owned();
        runtime.spawn(keep_connected(connecting, Arc::downgrade(&self.shared), id));
    }

    /// Handles a lost or failed connection: there are no calls until the member is connected again.
    fn lost(self: &Arc<Self>, status: &Status, state: State) {
        self.link.set_last(Some(status.clone()));
        self.link.stats.set_state(state, clock::now());
        self.keep_connected();
        self.shared.changed.notify_waiters();
    }
}

/// Resets the flag of a task that connects, however it ends.
struct ConnectGuard(Weak<Link>);

impl Drop for ConnectGuard {
    fn drop(&mut self) {
        if let Some(link) = self.0.upgrade() {
            link.connecting.store(false, Ordering::Release);
        }
    }
}

/// Tries to connect until it succeeds or no set contains the member.
async fn keep_connected(connecting: ConnectGuard, shared: Weak<Shared>, id: String) {
    let mut failures = 0;
    loop {
        let Some((link, shared)) = connecting.0.upgrade().zip(shared.upgrade()) else { return };
        match link.channel.0.connect().await {
            Ok(()) => {
                link.set_last(None);
                // The order matters: if the connection is lost after this line, the next task is started.
                drop(connecting);
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
        failures += 1;
        let pause = backoff::pause(failures, backoff::RETRY_MIN, shared.base.redial_max());
        drop((link, shared));
        tokio::time::sleep(pause).await;
    }
}

/// A call on an endpoint. Dropping it without a result means that the caller dropped the call.
pub(in super::super) struct EndpointPermit {
    /// Taken when the call has ended.
    member: Option<Arc<Member>>,
    method: &'static str,
    begun_ns: u64,
    probe: Probe,
}

impl EndpointPermit {
    #[inline]
    pub(super) fn new(member: Arc<Member>, method: &'static str, now_ns: u64) -> EndpointPermit {
        member.link.stats.begun();
        let probe = member.link.stats.breakers().begun(method, now_ns);
        EndpointPermit { member: Some(member), method, begun_ns: now_ns, probe }
    }

    #[inline]
    pub(super) fn member(&self) -> &Arc<Member> {
        self.member.as_ref().expect("present until the call has ended")
    }

    pub(super) fn begun_ns(&self) -> u64 {
        self.begun_ns
    }

    /// Starts the measurement now, when the call is sent: the time before does not depend on the endpoint.
    pub(super) fn sent(&mut self) {
        self.begun_ns = clock::now();
    }

    /// Records a reply.
    #[inline]
    pub(in super::super) fn succeeded(mut self) {
        self.end(Code::Ok);
    }

    /// Records a failure.
    #[cold]
    pub(in super::super) fn failed(mut self, status: &Status) -> Arc<Member> {
        let member = self.member().clone();
        // A proxy that returns an error keeps its connection. The check may come late, when another connection has
        // already replaced the lost one; the failure does not concern that one.
        let is_ready = member.link.channel.0.is_ready();
        let lost = status.code() == Code::Unavailable
            && status.origin() == Origin::Connection
            && (!is_ready
                || member.link.channel.0.pool().is_some()
                || member.link.stats.is_up_since(self.begun_ns));
        let now_ns = clock::now();
        let took = Duration::from_nanos(now_ns.saturating_sub(self.begun_ns));
        let mut outcome = Outcome::new(took, status.code());
        outcome.lost = lost;
        self.end_as(outcome, now_ns);
        if lost && !is_ready {
            let refused = status.retry() == Retry::Safe;
            member.lost(status, if refused { State::Down } else { State::Connecting });
        }
        member
    }

    /// Records the end of the call with this duration and code.
    pub(super) fn close(mut self, took: Duration, code: Code) {
        self.end_as(Outcome::new(took, code), clock::now());
    }

    /// Records the result of the call.
    pub(super) fn ended<T>(self, outcome: &Result<T>) -> Arc<Member> {
        match outcome {
            Ok(_) => {
                let member = self.member().clone();
                self.succeeded();
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
        let is_evidence = outcome.code != Code::Canceled && !outcome.lost;
        let failed = is_evidence.then(|| outcome.is_fault());
        if stats.breakers().ended(&shared.policy.breaking, self.method, self.probe, failed, now_ns) {
            tracing::warn!(
                endpoint = member.endpoint.address(),
                method = self.method,
                "circuit breaker opened for the method on this endpoint"
            );
        }
        if failed == Some(true) {
            shared.check_outliers(now_ns);
        }
        shared.balance.done(&member.endpoint, &outcome);
    }
}

impl Drop for EndpointPermit {
    #[inline]
    fn drop(&mut self) {
        if self.member.is_some() {
            self.end(Code::Canceled);
        }
    }
}

impl Shared {
    #[cold]
    fn check_outliers(&self, now_ns: u64) {
        let set = self.set().clone();
        if let Some(at) = self.ejection.check(&self.policy.ejecting, &set.endpoints, now_ns) {
            tracing::warn!(endpoint = set.endpoints[at].address(), "endpoint ejected for its failures");
        }
    }
}
