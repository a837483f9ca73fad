//! The options of fleets on the builder of channels, and how it makes the channels of members.

use super::{
    super::{Channel, ChannelBuilder, Way, options::Options},
    FailMode, Fleet, Policy,
};
use crate::{
    Result, Status,
    balance::Balance,
    discover::{Instance, Registry},
    net::Address,
};
use std::{sync::Arc, time::Duration};
use tokio::runtime::Handle;

/// Options of channels to several servers. Each makes a fleet of a channel with one address, too.
impl ChannelBuilder {
    fn policy(&mut self) -> &mut Policy {
        self.fleet.get_or_insert_default()
    }

    /// Who takes a call, by default [`P2c`](crate::balance::P2c); `balance=` in URLs.
    pub fn balance(mut self, balance: impl Balance) -> ChannelBuilder {
        self.policy().set_balancer(Arc::new(balance));
        self
    }

    /// What calls that belong together have in common, for balancers that hash: made of the full name of the method and
    /// the encoded request. A key that [the call brings](crate::UnaryCall::hash_key) comes first. In URLs
    /// `hash=metadata:NAME` takes the value of metadata, and `hash=request` the whole request.
    pub fn hash_by(
        mut self,
        key_of: impl Fn(&str, &[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> ChannelBuilder {
        self.policy().set_key_of(Arc::new(key_of));
        self
    }

    /// What happens to calls that fail, by default [`FailMode::Failover`]; `fail=` in URLs.
    pub fn fail_mode(mut self, mode: FailMode) -> ChannelBuilder {
        self.policy().set_fail(mode);
        self
    }

    /// How often a call is sent again, 3 unless set; `retries=` in URLs. Attempts that never left this process do not
    /// count while there are endpoints that were not tried.
    pub fn retries(mut self, most: u32) -> ChannelBuilder {
        self.policy().retries = most;
        self
    }

    /// Retries for 100 calls of the last seconds, and a second however few calls there were, 10 and 10 unless set;
    /// `budget=` sets the former in URLs. Hedges count as retries.
    pub fn retry_budget(mut self, percent: u32, floor: u32) -> ChannelBuilder {
        let policy = self.policy();
        (policy.budget_percent, policy.budget_floor) = (percent, floor);
        self
    }

    /// Sends idempotent calls to a second endpoint after so long ([`FailMode::Failbackup`]); `hedge=20ms` in URLs,
    /// where `hedge=p95` takes what was observed.
    pub fn hedge(mut self, after: Duration) -> ChannelBuilder {
        self.policy().set_hedge(Some(after));
        self
    }

    /// Gives each unary call of a method that does not say that it is idempotent a random
    /// [key](crate::UnaryCall::idempotency_key), so that it is sent again to its server when its connection breaks;
    /// `idempotency_keys=true` in URLs. Only for servers that [keep answers](crate::Server::result_cache) of the
    /// methods that are called.
    pub fn idempotency_keys(mut self, on: bool) -> ChannelBuilder {
        self.policy().gives_keys = on;
        self
    }

    /// Failures in a row after which calls of a method no longer go to an endpoint, 5 unless set, 0 for never;
    /// `breaker=` in URLs. Half of 20 or more calls within 10 s is enough, too. After a second one call finds out
    /// whether it goes again; while it does not the pause doubles, up to 30 s.
    pub fn breaker(mut self, consecutive: u32) -> ChannelBuilder {
        self.policy().set_breaker(consecutive);
        self
    }

    /// How many endpoints of 100 may be put aside because they fail more than the others, 50 unless set, 0 for none;
    /// `eject=` in URLs.
    pub fn eject(mut self, percent_max: u32) -> ChannelBuilder {
        self.policy().ejecting.percent_max = percent_max.min(100);
        self
    }

    /// How many servers it takes to do the work of all: while fewer are well, in proportion fewer calls are sent, and the
    /// others fail at once with `Unavailable`; 0, which is usual, for never. `min_working=` in URLs. Servers that were
    /// never tried count as well, and while none is connected calls wait as ever.
    pub fn min_working(mut self, servers: u32) -> ChannelBuilder {
        self.policy().min_working = servers;
        self
    }

    /// For how long the share of an endpoint that has come up grows to what it should be, by default not at all;
    /// `slow_start=` in URLs. For balancers that go by weight.
    pub fn slow_start(mut self, ramp: Duration) -> ChannelBuilder {
        self.policy().slow_start_ns = ramp.as_nanos() as u64;
        self
    }

    /// Prefers endpoints of this zone, as long as one of them is well; `zone=` in URLs.
    pub fn zone(mut self, zone: impl Into<String>) -> ChannelBuilder {
        self.policy().zone = zone.into();
        self
    }

    /// Uses only endpoints of this group; `group=` in URLs.
    pub fn group(mut self, group: impl Into<String>) -> ChannelBuilder {
        self.policy().set_group(group.into());
        self
    }

    /// Uses only endpoints with this tag, and with those of other calls of this function; `tag=NAME:VALUE` in URLs.
    pub fn tag(mut self, name: impl Into<String>, value: impl Into<String>) -> ChannelBuilder {
        self.policy().add_tag(name.into(), value.into());
        self
    }

    /// Uses only so many endpoints of a large fleet, chosen by the number of this client: clients that count on from 0
    /// load the servers evenly. `subset=SIZE:CLIENT` in URLs.
    pub fn subset(mut self, size: usize, client: u64) -> ChannelBuilder {
        self.policy().subset = (size > 0).then_some((size, client));
        self
    }

    /// A channel to a list of addresses.
    pub(in super::super) fn into_fleet(mut self, addresses: Vec<Address>) -> Result<Channel> {
        let policy = self.fleet.take().map(|policy| *policy).unwrap_or_default();
        let instance = |address: Address| Instance::new("", address.to_string());
        let fleet = Fleet::fixed(policy, self, addresses.into_iter().map(instance).collect())?;
        Ok(Channel(Arc::new(Way::Fleet(fleet))))
    }

    /// A channel to those that a registry knows.
    pub(in super::super) fn into_followed(mut self, registry: &dyn Registry) -> Result<Channel> {
        if Handle::try_current().is_err() {
            let text = "a registry is watched from a tokio runtime, and this thread has none";
            return Err(Status::failed_precondition(text));
        }
        let policy = self.fleet.take().map(|policy| *policy).unwrap_or_default();
        let watch = registry.watch(&self.url);
        self.url = format!("{} in {}", self.url, registry.name());
        Ok(Channel(Arc::new(Way::Fleet(Fleet::following(policy, self, watch)?))))
    }

    /// A channel to one member.
    pub(super) fn member(&self, address: &str) -> Result<Channel> {
        let mut builder = self.clone();
        address.clone_into(&mut builder.url);
        // Less than the pauses of the task that dials: it would come in vain, and a second one later.
        builder.options.backoff_max = self.redial_max() / 2;
        #[cfg(feature = "tls")]
        if !["tls://", "https://", "wss://"].iter().any(|scheme| address.starts_with(scheme)) {
            builder.tls = crate::net::tls::TlsOptions::default();
        }
        builder.lazy()
    }

    /// The longest pause between tries to connect to a member: callers expect one that is back to be used again.
    pub(super) fn redial_max(&self) -> Duration {
        self.options.backoff_max.min(Duration::from_secs(1))
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// What the channel is to, for people.
    pub(super) fn name(&self) -> &str {
        &self.url
    }
}
