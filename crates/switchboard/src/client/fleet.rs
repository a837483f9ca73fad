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
mod hedging;
mod link;
mod members;
mod policy;
mod streams;
mod tries;

pub(super) use calls::{First, unary};
pub(super) use link::Ticket;
pub use policy::FailMode;
pub(super) use policy::Policy;
pub(super) use streams::{oneway, stream};

use super::{Begin, Channel, ChannelBuilder, Way, connection::Connection};
use crate::{
    Code, Codec, Compression, Result, Status,
    balance::{Balance, Demand, Endpoint, Pick, State},
};
use budget::Budget;
use ejection::Ejection;
use hedging::Latencies;
use members::Set;
use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// The members of a channel and how calls go to them.
pub(super) struct Fleet(Arc<Shared>);

/// What calls hold on to.
pub(super) struct Shared {
    policy: Policy,
    balance: Arc<dyn Balance>,
    /// What the channels of members are made with.
    base: ChannelBuilder,
    set: RwLock<Arc<Set>>,
    /// A member came up or failed, or there is another set.
    changed: Notify,
    budget: Budget,
    ejection: Ejection,
    latencies: Latencies,
}

/// What was found for a call without waiting.
pub(super) enum Found {
    /// A place and a connection that is ready.
    Ready(Ticket, Arc<Connection>),
    /// A place; the rest takes a while.
    Chosen(Ticket),
    /// Nobody is connected.
    Nobody,
}

impl Fleet {
    /// A fleet of these endpoints.
    ///
    /// # Errors
    /// `InvalidArgument` for an address or option that cannot be used.
    pub(super) fn new(policy: Policy, base: ChannelBuilder, endpoints: Vec<Endpoint>) -> Result<Fleet> {
        let shared = Shared {
            balance: policy.balancer()?,
            budget: Budget::new(policy.budget_percent, policy.budget_floor),
            policy,
            base,
            set: RwLock::new(Arc::new(Set::default())),
            changed: Notify::new(),
            ejection: Ejection::default(),
            latencies: Latencies::default(),
        };
        let fleet = Fleet(Arc::new(shared));
        let set = fleet.0.next_set(endpoints, true)?;
        fleet.0.replace(set);
        Ok(fleet)
    }

    /// What every call brings.
    pub(super) fn metadata(&self) -> crate::Metadata {
        self.0.base.options().metadata.0.clone()
    }

    pub(super) fn timeout(&self) -> Option<Duration> {
        self.0.base.options().timeout
    }

    /// How calls of this method are compressed.
    #[inline]
    pub(super) fn compression(&self, method: &str) -> Compression {
        self.0.base.options().compression.of(method)
    }

    pub(super) fn codec(&self, preferred: Codec) -> Codec {
        #[cfg(feature = "http")]
        if self.0.base.options().http.dialect.is_some() {
            return self.0.base.options().http.codec(preferred);
        }
        preferred
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    /// Connects to all members and waits for the first.
    pub(super) async fn connect(&self) -> Result<()> {
        // Each try ends with the connect timeout, and the wait with the last of the first tries.
        self.0.somebody(None).await
    }

    /// Chooses an endpoint for a call that is sent now.
    #[inline]
    pub(super) fn find(&self, begin: &Begin, request: &[u8]) -> Found {
        let Some(ticket) = self.0.choose(begin, request, &[]) else { return Found::Nobody };
        if !self.0.policy.hedges()
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
        // Members know the fleet that they are of; calls in flight keep theirs to the end.
        self.0.replace(Set::default());
    }
}

impl Shared {
    #[inline]
    fn set(&self) -> std::sync::RwLockReadGuard<'_, Arc<Set>> {
        self.set.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace(&self, set: Set) {
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
        let mut demand = if self.policy.zone.is_empty() { Demand::Well } else { Demand::Near };
        loop {
            let pick = Pick::new(begin.method.path, now_ns, clock::chance())
                .with_key(key)
                .tried(tried)
                .slow_start(self.policy.slow_start_ns)
                .demanding(demand, &self.policy.zone);
            let at = self.balance.pick(&set.endpoints, &pick);
            // A balancer of the user may name whom it likes.
            if let Some(at) = at.filter(|at| *at < set.members.len() && pick.takes(&set.endpoints[*at])) {
                return Some(Ticket::new(set.members[at].clone(), begin.method.path, now_ns));
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
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on nothing is missed.
            changed.as_mut().enable();
            let set = self.set().clone();
            for member in &set.members {
                member.keep();
            }
            let state = |state| set.members.iter().any(|member| member.state() == state);
            if state(State::Up) {
                return Ok(());
            }
            if !state(State::Connecting) {
                return Err(set.why_nobody(&self.base));
            }
            if tokio::runtime::Handle::try_current().is_err() {
                return Err(Status::failed_precondition(
                    "no tokio runtime on this thread; call from switchboard::run, or use switchboard::blocking",
                ));
            }
            match deadline {
                None => changed.await,
                Some(deadline) => {
                    if tokio::time::timeout_at(deadline.into(), changed).await.is_err() {
                        let code = Code::DeadlineExceeded;
                        let why = set.why_nobody(&self.base);
                        return Err(Status::new(code, format!("no connection in time: {}", why.message())));
                    }
                }
            }
        }
    }
}

impl fmt::Display for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = self.0.set().clone();
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
            Way::Local(_) => Ok(()),
            Way::Remote(pool) => pool.connect().await,
        }
    }

    /// Whether a call could be sent now.
    fn is_ready(&self) -> bool {
        match &*self.0 {
            #[cfg(feature = "http")]
            Way::Http(http) => http.is_ready(),
            Way::Fleet(_) | Way::Local(_) => true,
            Way::Remote(pool) => pool.ready().is_some(),
        }
    }
}
