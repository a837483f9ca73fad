//! Fleets: channels to a set of servers, with a choice for each call, retries elsewhere, and breakers.
//!
//! A fleet has a *member* for each endpoint: a channel of its own, to any wire, and what was seen of it. Members come
//! in sets that never change; another set takes the place of the last one as a whole, and calls in flight end on what
//! they have. A member is connected before calls go to it: a connection that breaks puts it aside at once, and a task
//! dials again until there is one.
//!
//! # What a call costs
//!
//! A unary call whose endpoint has a ready connection of the native wire is chosen for and sent in one poll, without an
//! allocation: two looks at the clock, a read lock, and the counters of the endpoint. All else (HTTP, a first
//! connection, retries, hedges) goes through [`calls`] in a box.

mod budget;
mod builder;
mod calls;
mod clock;
mod ejection;
mod explain;
mod hedging;
mod link;
mod members;
mod policy;
mod spread;
mod stats;
mod streams;
mod tries;
mod working;

pub(super) use budget::Budget;
#[cfg(feature = "http")]
pub(super) use calls::ATTEMPT;
pub(super) use calls::{First, unary};
pub(super) use explain::Trail;
pub use explain::{Attempt, Candidate, Explained, Explanation};
pub(super) use link::Ticket;
pub use policy::FailMode;
pub(super) use policy::Policy;
pub use spread::Receipt;
pub use stats::EndpointStats;
pub(super) use streams::{oneway, stream};
pub(super) use tries::{may_repeat, reworded};

use super::{Begin, Channel, ChannelBuilder, Tells, Way, connection::Connection};
use crate::{
    Codec, Compression, Result, Status,
    balance::{Balance, Demand, Pick, State},
    discover::{Instance, Watch},
};
use ejection::Ejection;
use hedging::Latencies;
use members::Set;
use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{sync::Notify, task::AbortHandle};

/// The members of a channel and how calls go to them.
pub(super) struct Fleet {
    shared: Arc<Shared>,
    /// Keeps the set up to date.
    following: Option<AbortHandle>,
}

/// What calls hold on to.
pub(super) struct Shared {
    policy: Policy,
    balance: Arc<dyn Balance>,
    /// What the channels of members are made with.
    base: ChannelBuilder,
    set: RwLock<Arc<Set>>,
    /// Whether its set has [one](Set::foreign).
    has_foreign: AtomicBool,
    /// A member came up or failed, or there is another set.
    changed: Notify,
    budget: Budget,
    ejection: Ejection,
    latencies: Latencies,
    /// Where the members are found, if that is no list.
    source: Option<Source>,
}

/// Where members are found.
struct Source {
    watch: Watch,
    /// There was an answer.
    answered: AtomicBool,
}

/// What was found for a call without waiting.
pub(super) enum Found {
    /// A place and a connection that is ready.
    Ready(Ticket, Arc<Connection>),
    /// A place; the rest takes a while.
    Chosen(Ticket),
    /// Nobody is connected.
    Nobody,
    /// It is not to be sent.
    Refused(Status),
}

impl Fleet {
    /// A fleet of these.
    ///
    /// # Errors
    /// `InvalidArgument` for an address or option that cannot be used.
    pub(super) fn fixed(policy: Policy, base: ChannelBuilder, instances: Vec<Instance>) -> Result<Fleet> {
        let shared = Shared::new(policy, base, None)?;
        let set = shared.next_set(instances, true)?;
        shared.replace(set);
        Ok(Fleet { shared, following: None })
    }

    /// A fleet of those that are found.
    ///
    /// # Errors
    /// `InvalidArgument` for an option that cannot be used.
    pub(super) fn following(policy: Policy, base: ChannelBuilder, watch: Watch) -> Result<Fleet> {
        let source = Source { watch: watch.clone(), answered: AtomicBool::new(false) };
        let shared = Shared::new(policy, base, Some(source))?;
        let following = crate::runtime::spawn(follow(Arc::downgrade(&shared), watch));
        Ok(Fleet { shared, following: Some(following.abort_handle()) })
    }

    /// What every call brings.
    pub(super) fn metadata(&self) -> crate::Metadata {
        self.shared.base.options().metadata.0.clone()
    }

    pub(super) fn timeout(&self) -> Option<Duration> {
        self.shared.base.options().timeout
    }

    /// Whether calls get keys that have none.
    #[inline]
    pub(super) fn gives_keys(&self) -> bool {
        self.shared.policy.gives_keys
    }

    /// How calls of this method are compressed.
    #[inline]
    pub(super) fn compression(&self, method: &str) -> Compression {
        self.shared.base.options().compression.of(method)
    }

    pub(super) fn tells(&self) -> Tells {
        self.shared.base.options().tells()
    }

    pub(super) fn codec(&self, preferred: Codec) -> Codec {
        let shared = &self.shared;
        let codec = shared.base.options().codec(preferred);
        if !shared.has_foreign.load(Ordering::Relaxed) {
            return codec;
        }
        shared.set().foreign.as_ref().map_or(codec, |member| member.link.channel.codec(codec))
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    #[cfg(test)]
    pub(super) fn left(&self) -> Vec<(&'static str, usize)> {
        self.shared.set().members.iter().flat_map(|member| member.link.channel.left()).collect()
    }

    /// Connects to all members and waits for the first.
    pub(super) async fn connect(&self) -> Result<()> {
        // Each try ends with the connect timeout, and the wait with the last of the first tries.
        self.shared.somebody(None).await
    }

    /// Chooses an endpoint for a call that is sent now.
    #[inline]
    pub(super) fn find(&self, begin: &Begin, request: &[u8]) -> Found {
        if let Err(status) = self.shared.spare(begin.method.path) {
            return Found::Refused(status);
        }
        let Some(ticket) = self.shared.choose(begin, request, &[]) else { return Found::Nobody };
        if !self.shared.policy.hedges()
            && let Way::Remote(pool) = &*ticket.member().link.channel.0
            && let Some(connection) = pool.ready()
        {
            return Found::Ready(ticket, connection);
        }
        Found::Chosen(ticket)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if let Some(following) = &self.following {
            following.abort();
        }
        // Members know the fleet that they are of; calls in flight keep theirs to the end.
        self.shared.replace(Set::default());
    }
}

/// Makes a set of every snapshot.
async fn follow(shared: Weak<Shared>, mut watch: Watch) {
    loop {
        let snapshot = watch.changed().await;
        let Some(shared) = shared.upgrade() else { return };
        match shared.next_set(snapshot.instances.clone(), false) {
            Ok(set) => {
                if let Some(source) = &shared.source {
                    source.answered.store(true, Ordering::Release);
                }
                // Connected before the first call that could use them.
                for member in &set.members {
                    member.keep();
                }
                shared.replace(set);
            }
            Err(status) => tracing::warn!(fleet = shared.base.name(), %status, "snapshot not used"),
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

    fn replace(&self, set: Set) {
        self.has_foreign.store(set.foreign.is_some(), Ordering::Relaxed);
        let before =
            std::mem::replace(&mut *self.set.write().unwrap_or_else(PoisonError::into_inner), Arc::new(set));
        // Channels may close here, which must not hold anybody up.
        drop(before);
        self.changed.notify_waiters();
    }

    /// Chooses an endpoint that is connected, and counts the call there.
    #[inline]
    fn choose(&self, begin: &Begin, request: &[u8], tried: &[u64]) -> Option<Ticket> {
        match self.policy.key_of(begin, request) {
            None => self.choose_by(begin, None, tried, Demand::Connected),
            Some(key) => self.choose_by(begin, Some(&key), tried, Demand::Connected),
        }
    }

    /// The best that there is, and at `least` this.
    #[inline]
    fn choose_by(&self, begin: &Begin, key: Option<&[u8]>, tried: &[u64], least: Demand) -> Option<Ticket> {
        let now_ns = clock::now();
        let set = self.set();
        let (at, _) = self.place_in(&set, begin.method.path, key, tried, least, now_ns)?;
        Some(Ticket::new(set.members[at].clone(), begin.method.path, now_ns))
    }

    /// The place of the endpoint that a call would go to now, and what it fulfils.
    fn place(
        &self,
        method: &str,
        key: Option<&[u8]>,
        tried: &[u64],
        least: Demand,
    ) -> Option<(usize, Demand)> {
        let set = self.set().clone();
        self.place_in(&set, method, key, tried, least, clock::now())
    }

    #[inline]
    fn place_in(
        &self,
        set: &Set,
        method: &str,
        key: Option<&[u8]>,
        tried: &[u64],
        least: Demand,
        now_ns: u64,
    ) -> Option<(usize, Demand)> {
        let mut demand = if self.policy.zone.is_empty() { Demand::Well } else { Demand::Near };
        loop {
            let pick = Pick::new(method, now_ns, clock::chance())
                .with_key(key)
                .tried(tried)
                .slow_start(self.policy.slow_start_ns)
                .demanding(demand, &self.policy.zone);
            let at = self.balance.pick(&set.endpoints, &pick);
            // A balancer of the user may name whom it likes.
            if let Some(at) = at.filter(|at| *at < set.members.len() && pick.takes(&set.endpoints[*at])) {
                return Some((at, demand));
            }
            if demand <= least {
                return None;
            }
            demand = match demand {
                Demand::Near => Demand::Well,
                Demand::Well => Demand::Connected,
                Demand::Connected | Demand::Untried => Demand::Untried,
            };
        }
    }

    /// Ends once an endpoint is connected.
    ///
    /// # Errors
    /// Why none is, once all have been tried; at the deadline, that there is none yet.
    async fn somebody(self: &Arc<Self>, deadline: Option<Instant>) -> Result<()> {
        let asked_at = crate::clock::now();
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on nothing is missed.
            changed.as_mut().enable();
            let set = self.set().clone();
            for member in &set.members {
                member.keep();
            }
            // Those that take no new calls are nobody, unless there are no others: callers are told that.
            let takes = |member: &link::Member| member.endpoint.weight() > 0;
            let any_takes = set.members.iter().any(|member| takes(member));
            let counts = |member: &&Arc<link::Member>| takes(member) || !any_takes;
            let state = |state| set.members.iter().filter(counts).any(|member| member.state() == state);
            if state(State::Up) {
                return Ok(());
            }
            let asking = self.source.as_ref().filter(|source| !source.answered.load(Ordering::Acquire));
            if !state(State::Connecting) && asking.is_none() {
                return Err(set.why_nobody(&self.base));
            }
            if tokio::runtime::Handle::try_current().is_err() {
                return Err(Status::failed_precondition(
                    "no tokio runtime on this thread; call from switchboard::run, or use switchboard::blocking",
                ));
            }
            let patient = asking.map(|_| asked_at + self.base.options().connect_timeout);
            let until = match (deadline, patient) {
                (Some(deadline), Some(patient)) => Some(deadline.min(patient)),
                (deadline, patient) => deadline.or(patient),
            };
            let Some(until) = until else {
                changed.await;
                continue;
            };
            if tokio::time::timeout_at(until.into(), changed).await.is_ok() {
                continue;
            }
            let trouble = asking.and_then(|source| source.watch.state().trouble);
            let why = trouble.unwrap_or_else(|| set.why_nobody(&self.base));
            if deadline.is_none_or(|deadline| until < deadline) {
                let text = format!("{} is not known yet: {}", self.base.name(), why.message());
                return Err(Status::unavailable(text).with_retry(crate::Retry::Safe));
            }
            let text = format!("no connection within the call's deadline: {}", why.message());
            return Err(Status::deadline_exceeded(text));
        }
    }
}

impl fmt::Display for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = self.shared.set().clone();
        for (at, endpoint) in set.endpoints.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { "," }, endpoint.address())?;
        }
        Ok(())
    }
}

impl Channel {
    /// Opens a connection, if there is none.
    async fn open(&self) -> Result<()> {
        match &*self.0 {
            #[cfg(feature = "http")]
            Way::Http(http) => http.connect().await,
            Way::Fleet(fleet) => Box::pin(fleet.connect()).await,
            // Made of channels that look after themselves.
            Way::Combined(_) | Way::Local(_) => Ok(()),
            Way::Remote(pool) => pool.connect().await,
        }
    }

    /// Whether a call could be sent now.
    fn is_ready(&self) -> bool {
        match &*self.0 {
            #[cfg(feature = "http")]
            Way::Http(http) => http.is_ready(),
            Way::Combined(_) | Way::Fleet(_) | Way::Local(_) => true,
            Way::Remote(pool) => pool.ready().is_some(),
        }
    }
}
