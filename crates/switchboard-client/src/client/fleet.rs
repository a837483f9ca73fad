//! Fleets: channels to a set of servers, with load balancing, retries on other servers, and circuit breakers.
//!
//! A fleet has a *member* for each endpoint: a channel of its own, to any wire, with its statistics. Members come in
//! immutable sets; a new set replaces the old one as a whole, and calls in flight end on the set that they started
//! with. A member is connected before calls go to it: a broken connection takes it out of the selection at once, and a
//! task dials again until it is connected.
//!
//! # Cost of a call
//!
//! A unary call whose endpoint has a ready connection of the native wire is selected and sent in one poll, without an
//! allocation: two readings of the clock, a read lock, and the counters of the endpoint. All other calls (HTTP, a first
//! connection, retries, hedges) go through [`calls`] in a box.

mod budget;
mod builder;
mod calls;
mod channel;
mod clock;
mod ejection;
mod explain;
mod hedging;
mod link;
mod members;
mod policy;
mod retry_state;
mod spread;
mod stats;
mod streams;
mod working;

pub(super) use budget::Budget;
pub(super) use calls::resume;
pub(super) use explain::AttemptLog;
pub use explain::{Attempt, Candidate, Explained, Explanation};
pub(super) use link::EndpointPermit;
pub use policy::FailMode;
pub(super) use policy::Policy;
pub(super) use retry_state::{may_repeat, with_text};
pub use spread::Receipt;
pub use stats::EndpointStats;

use super::{Begin, ChannelBuilder};
use ejection::Ejection;
use hedging::Latencies;
use members::Set;
use std::{
    sync::{
        Arc, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};
use switchboard_core::Result;
use switchboard_discovery::{
    balance::{Balance, Demand, Pick, State},
    discover::{Instance, Watch},
};
use switchboard_wire::Status;
use tokio::{sync::Notify, task::AbortHandle};

/// The members of a channel, and the dispatch of calls to them.
pub(super) struct Fleet {
    shared: Arc<Shared>,
    /// Task that keeps the set up to date.
    following: Option<AbortHandle>,
}

/// State that calls share with the fleet.
pub(super) struct Shared {
    policy: Policy,
    balance: Arc<dyn Balance>,
    /// Builder of the channels of members.
    base: ChannelBuilder,
    set: RwLock<Arc<Set>>,
    /// True when the fleet was dropped and accepts no further set. Written under the lock of `set`.
    closed: AtomicBool,
    /// True when its set has a [member](Set::foreign) on the wire of another framework.
    has_foreign: AtomicBool,
    /// Notified when a member connects or fails, or the set is replaced.
    changed: Notify,
    budget: Budget,
    ejection: Ejection,
    latencies: Latencies,
    /// Discovery of the members; `None` for a fixed list.
    source: Option<Source>,
}

/// Discovery of members.
struct Source {
    watch: Watch,
    /// True after the first response.
    responded: AtomicBool,
}

impl Fleet {
    /// Creates a fleet of these instances.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid address or option.
    pub(super) fn fixed(policy: Policy, base: ChannelBuilder, instances: Vec<Instance>) -> Result<Fleet> {
        let shared = Shared::new(policy, base, None)?;
        let set = shared.next_set(instances, true)?;
        shared.replace(set);
        Ok(Fleet { shared, following: None })
    }

    /// Creates a fleet of the instances that `watch` reports.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid option.
    pub(super) fn following(policy: Policy, base: ChannelBuilder, watch: Watch) -> Result<Fleet> {
        let source = Source { watch: watch.clone(), responded: AtomicBool::new(false) };
        let shared = Shared::new(policy, base, Some(source))?;
        let following = switchboard_core::runtime::spawn(follow(Arc::downgrade(&shared), watch));
        Ok(Fleet { shared, following: Some(following.abort_handle()) })
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if let Some(following) = &self.following {
            following.abort();
        }
        // Members hold a reference to their fleet, so the set must be removed; calls in flight keep theirs to the end.
        self.shared.close();
    }
}

/// Creates a set from every snapshot.
async fn follow(shared: Weak<Shared>, mut watch: Watch) {
    loop {
        let snapshot = watch.changed().await;
        let Some(shared) = shared.upgrade() else { return };
        match shared.next_set(snapshot.instances.clone(), false) {
            Ok(set) => {
                // Connects members before the first call that could use them.
                for member in &set.members {
                    member.keep_connected();
                }
                shared.replace(set);
            }
            Err(status) => {
                tracing::warn!(fleet = shared.base.name(), %status, "cannot use a snapshot of the registry");
            }
        }
    }
}

impl Shared {
    fn new(policy: Policy, base: ChannelBuilder, source: Option<Source>) -> Result<Arc<Shared>> {
        Ok(Arc::new(Shared {
            balance: policy.balancer()?,
            budget: Budget::new(policy.budget_percent, policy.budget_floor, clock::now()),
            policy,
            base,
            set: RwLock::new(Arc::new(Set::default())),
            closed: AtomicBool::new(false),
            has_foreign: AtomicBool::new(false),
            changed: Notify::new(),
            ejection: Ejection::default(),
            latencies: Latencies::default(),
            source,
        }))
    }

    #[inline]
    fn set(&self) -> std::sync::RwLockReadGuard<'_, Arc<Set>> {
        self.set.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the set. A dropped fleet accepts none: the members would refer to it, and it to them.
    fn replace(&self, set: Set) {
        let mut current = self.set.write().unwrap_or_else(PoisonError::into_inner);
        if self.closed.load(Ordering::Relaxed) {
            drop(current);
            return;
        }
        self.has_foreign.store(set.foreign.is_some(), Ordering::Relaxed);
        let before = std::mem::replace(&mut *current, Arc::new(set));
        // Not before: a caller that waits would take the set before for the response, and fail.
        if let Some(source) = &self.source {
            source.responded.store(true, Ordering::Release);
        }
        drop(current);
        // Channels may close here, while no lock is held.
        drop(before);
        self.changed.notify_waiters();
    }

    /// Removes all members permanently.
    fn close(&self) {
        let mut current = self.set.write().unwrap_or_else(PoisonError::into_inner);
        self.closed.store(true, Ordering::Relaxed);
        self.has_foreign.store(false, Ordering::Relaxed);
        let before = std::mem::take(&mut *current);
        drop(current);
        drop(before);
        self.changed.notify_waiters();
    }

    /// Selects an endpoint that is connected, and counts the call there.
    #[inline]
    fn choose(&self, begin: &Begin, request: &[u8], tried: &[u64]) -> Option<EndpointPermit> {
        match self.policy.key_of(begin, request) {
            None => self.choose_by(begin, None, tried, Demand::Connected),
            Some(key) => self.choose_by(begin, Some(&key), tried, Demand::Connected),
        }
    }

    /// Selects the best endpoint that meets at least the demand `least`.
    #[inline]
    fn choose_by(
        &self,
        begin: &Begin,
        key: Option<&[u8]>,
        tried: &[u64],
        least: Demand,
    ) -> Option<EndpointPermit> {
        let now_ns = clock::now();
        let set = self.set();
        let (at, _) = self.select_index_in(&set, begin.method.path, key, tried, least, now_ns)?;
        Some(EndpointPermit::new(set.members[at].clone(), begin.method.path, now_ns))
    }

    /// Returns the index of the endpoint that a call would go to now, and the demand that it meets.
    fn select_index(
        &self,
        method: &str,
        key: Option<&[u8]>,
        tried: &[u64],
        least: Demand,
    ) -> Option<(usize, Demand)> {
        let set = self.set().clone();
        self.select_index_in(&set, method, key, tried, least, clock::now())
    }

    #[inline]
    fn select_index_in(
        &self,
        set: &Set,
        method: &str,
        key: Option<&[u8]>,
        tried: &[u64],
        least: Demand,
        now_ns: u64,
    ) -> Option<(usize, Demand)> {
        let mut demand = if self.policy.zone.is_empty() { Demand::Healthy } else { Demand::SameZone };
        loop {
            let pick = Pick::new(method, now_ns, clock::random())
                .with_key(key)
                .tried(tried)
                .slow_start(self.policy.slow_start_ns)
                .demanding(demand, &self.policy.zone);
            let at = self.balance.pick(&set.endpoints, &pick);
            // A custom balancer may return any index.
            if let Some(at) = at.filter(|at| *at < set.members.len() && pick.accepts(&set.endpoints[*at])) {
                return Some((at, demand));
            }
            if demand <= least {
                return None;
            }
            demand = match demand {
                Demand::SameZone => Demand::Healthy,
                Demand::Healthy => Demand::Connected,
                Demand::Connected | Demand::Untried => Demand::Untried,
            };
        }
    }

    /// Completes when an endpoint is connected.
    ///
    /// # Errors
    /// The reason why no endpoint is connected, once all have been tried; `DeadlineExceeded` at the deadline.
    async fn wait_connected(self: &Arc<Self>, deadline: Option<Instant>) -> Result<()> {
        let started = switchboard_core::clock::now();
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registers the waiter, so that no later notification is lost.
            changed.as_mut().enable();
            // Before the endpoints are read: they are installed before the source counts as responded, so that an empty
            // set is never one that was read too early.
            let awaited = self.source.as_ref().filter(|source| !source.responded.load(Ordering::Acquire));
            let set = self.set().clone();
            for member in &set.members {
                member.keep_connected();
            }
            // Members that take no new calls count only when there are no others: the error then says so.
            let accepts = |member: &link::Member| member.endpoint.weight() > 0;
            let any_accepts = set.members.iter().any(|member| accepts(member));
            let counts = |member: &&Arc<link::Member>| accepts(member) || !any_accepts;
            let state = |state| set.members.iter().filter(counts).any(|member| member.state() == state);
            if state(State::Up) {
                return Ok(());
            }
            if !state(State::Connecting) && awaited.is_none() {
                return Err(set.connect_error(&self.base));
            }
            if tokio::runtime::Handle::try_current().is_err() {
                return Err(Status::failed_precondition(
                    "no tokio runtime on this thread; call from switchboard::run, or use switchboard::blocking",
                ));
            }
            let latest =
                awaited.map(|_| switchboard_core::clock::after(started, self.base.options().connect_timeout));
            let until = match (deadline, latest) {
                (Some(deadline), Some(latest)) => Some(deadline.min(latest)),
                (deadline, latest) => deadline.or(latest),
            };
            let Some(until) = until else {
                changed.await;
                continue;
            };
            if tokio::time::timeout_at(until.into(), changed).await.is_ok() {
                continue;
            }
            let error = awaited.and_then(|source| source.watch.state().error);
            let why = error.unwrap_or_else(|| set.connect_error(&self.base));
            if deadline.is_none_or(|deadline| until < deadline) {
                let text = format!("no instance of {} is known yet: {}", self.base.name(), why.message());
                return Err(Status::unavailable(text).with_retry(switchboard_wire::Retry::Safe));
            }
            let text = format!("no connection within the call's deadline: {}", why.message());
            return Err(Status::deadline_exceeded(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Channel;
    use std::time::Duration;
    use switchboard_discovery::discover::{Fixed, Registry};

    const NO_LISTENER: &str = "memory://no-listener-here";

    /// A fleet before the first response of its registry, and the set of that response.
    fn before_the_first_response() -> (Arc<Shared>, Set) {
        let watch = Fixed::addresses("a", [NO_LISTENER]).watch("a");
        let source = Source { watch, responded: AtomicBool::new(false) };
        let shared = Shared::new(Policy::default(), Channel::builder(NO_LISTENER), Some(source)).unwrap();
        let set = shared.next_set(vec![Instance::new("a", NO_LISTENER)], false).unwrap();
        (shared, set)
    }

    #[tokio::test]
    async fn the_registry_has_responded_when_its_endpoints_are_installed_and_not_before() {
        let (shared, set) = before_the_first_response();
        let responded = |shared: &Shared| shared.source.as_ref().unwrap().responded.load(Ordering::Acquire);
        let reading = shared.set();
        let other = shared.clone();
        let installing = std::thread::spawn(move || other.replace(set));
        // It waits for the lock that this thread holds.
        let started = Instant::now();
        while shared.set.try_read().is_ok() && started.elapsed() < Duration::from_secs(5) {
            std::thread::yield_now();
        }
        assert!(!responded(&shared), "the response is announced before its endpoints are there");
        drop(reading);
        installing.join().unwrap();
        assert!(responded(&shared) && shared.set().members.len() == 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_caller_that_connects_during_the_first_response_sees_its_endpoints() {
        for round in 0..500 {
            let (shared, set) = before_the_first_response();
            let other = shared.clone();
            let installing = tokio::task::spawn_blocking(move || other.replace(set));
            let connected = shared.wait_connected(None).await;
            let error = connected.expect_err("there is no listener");
            assert!(!error.message().contains("there is no endpoint"), "round {round}: {error}");
            installing.await.unwrap();
            shared.close();
        }
    }

    /// Simulates `follow` on another thread while the fleet is dropped: it has created a set and not yet installed it.
    #[tokio::test]
    async fn a_set_installed_while_the_fleet_is_dropped_leaks_nothing() {
        let instances = || vec![Instance::new("a", "memory://no-listener-here")];
        let base = Channel::builder("memory://no-listener-here");
        let fleet = Fleet::fixed(Policy::default(), base, instances()).unwrap();
        let (shared, weak) = (fleet.shared().clone(), Arc::downgrade(fleet.shared()));
        let set = shared.next_set(instances(), true).unwrap();
        drop(fleet);
        shared.replace(set);
        drop(shared);
        assert!(weak.upgrade().is_none(), "members and their fleet reference each other");
    }
}
