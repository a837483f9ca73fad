//! Options of fleets on the channel builder, and the channels of members.

use super::{
    super::{Channel, ChannelBuilder, options::Options},
    FailMode, Fleet, Policy,
};
use std::{sync::Arc, time::Duration};
use switchboard_core::Result;
use switchboard_discovery::{
    balance::Balance,
    discover::{Instance, Registry},
};
use switchboard_net::net::Address;
use switchboard_wire::Status;
use tokio::runtime::Handle;

/// Choice of a server. Each of these makes a channel with one address a fleet, too.
impl ChannelBuilder {
    /// Sets the balancer, by default [`P2c`](switchboard_discovery::balance::P2c); `balance=` in URLs.
    pub fn balance(mut self, balance: impl Balance) -> ChannelBuilder {
        self.policy().set_balancer(Arc::new(balance));
        self
    }

    /// Sets the function that returns the key of related calls, for balancers that hash, from the full name of the
    /// method and the encoded request. A key [set on the call](crate::UnaryCall::hash_key) takes precedence. In URLs
    /// `hash=metadata:NAME` uses the value of metadata, and `hash=request` the whole request.
    pub fn hash_by(
        mut self,
        key_of: impl Fn(&str, &[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> ChannelBuilder {
        self.policy().set_key_of(Arc::new(key_of));
        self
    }

    /// Prefers endpoints of this zone, while one of them is healthy; `zone=` in URLs.
    pub fn zone(mut self, zone: impl Into<String>) -> ChannelBuilder {
        self.policy().zone = zone.into();
        self
    }

    /// Uses only endpoints of this group; `group=` in URLs.
    pub fn group(mut self, group: impl Into<String>) -> ChannelBuilder {
        self.policy().set_group(group.into());
        self
    }

    /// Uses only endpoints with this tag; several calls require all of their tags; `tag=NAME:VALUE` in URLs.
    pub fn tag(mut self, name: impl Into<String>, value: impl Into<String>) -> ChannelBuilder {
        self.policy().add_tag(name.into(), value.into());
        self
    }

    /// Uses only `size` endpoints of a large fleet, selected by the number of this client: clients numbered from 0 load
    /// the servers evenly. `subset=SIZE:CLIENT` in URLs.
    pub fn subset(mut self, size: usize, client: u64) -> ChannelBuilder {
        self.policy().subset = (size > 0).then_some((size, client));
        self
    }

    /// Sets the time during which the share of an endpoint that has come up grows to its full weight; by default there
    /// is no slow start; `slow_start=` in URLs. For balancers that use weights.
    pub fn slow_start(mut self, ramp: Duration) -> ChannelBuilder {
        self.policy().slow_start_ns = ramp.as_nanos() as u64;
        self
    }
}

/// Failed and slow calls. Each of these makes a channel with one address a fleet, too.
impl ChannelBuilder {
    /// Sets how failed calls are handled, by default [`FailMode::Failover`]; `fail=` in URLs.
    pub fn fail_mode(mut self, mode: FailMode) -> ChannelBuilder {
        self.policy().set_fail(mode);
        self
    }

    /// Sets the maximum number of retries of a call; the default is 3; `retries=` in URLs. Attempts that failed before
    /// anything was sent do not count while there are endpoints that were not tried.
    pub fn retries(mut self, most: u32) -> ChannelBuilder {
        self.policy().retries = most;
        self
    }

    /// Sets the retry budget: retries per 100 calls of the last seconds, and retries per second that are always
    /// allowed; the default is 10 and 10. `budget=` sets the former in URLs. Hedges count as retries.
    pub fn retry_budget(mut self, percent: u32, floor: u32) -> ChannelBuilder {
        let policy = self.policy();
        (policy.budget_percent, policy.budget_floor) = (percent, floor);
        self
    }

    /// Sends idempotent calls to a second endpoint after this time ([`FailMode::Failbackup`]); `hedge=20ms` in URLs,
    /// where `hedge=p95` uses the observed 95th percentile.
    pub fn hedge(mut self, after: Duration) -> ChannelBuilder {
        self.policy().set_hedge(Some(after));
        self
    }

    /// Sets a random [key](crate::UnaryCall::idempotency_key) on each unary call of a method that is not declared
    /// idempotent, so that the call is retried on its server when its connection breaks; `idempotency_keys=true` in
    /// URLs. Only for servers that cache results of the called methods.
    pub fn idempotency_keys(mut self, on: bool) -> ChannelBuilder {
        self.policy().gives_keys = on;
        self
    }
}

/// Failing servers. Each of these makes a channel with one address a fleet, too.
impl ChannelBuilder {
    /// Sets the number of consecutive failures after which calls of a method no longer go to an endpoint; the default
    /// is 5, 0 turns breakers off; `breaker=` in URLs. A failure rate of 50 % of at least 20 calls within 10 s opens
    /// the breaker, too. After one second a single probe call decides whether it closes; with each failed probe the
    /// pause doubles, up to 30 s.
    pub fn breaker(mut self, consecutive: u32) -> ChannelBuilder {
        self.policy().set_breaker(consecutive);
        self
    }

    /// Sets the maximum percentage of endpoints that may be ejected because they fail more than the others; the default
    /// is 50, 0 turns ejection off; `eject=` in URLs.
    pub fn eject(mut self, percent_max: u32) -> ChannelBuilder {
        self.policy().ejecting.percent_max = percent_max.min(100);
        self
    }

    /// Sets the number of servers that can handle the load of all calls: while fewer are healthy, a proportional share
    /// of the calls is sent and the others fail at once with `Unavailable`; 0, the default, turns this off.
    /// `min_working=` in URLs. Servers that were never tried count as healthy, and while none is connected calls wait
    /// as usual.
    pub fn min_working(mut self, servers: u32) -> ChannelBuilder {
        self.policy().min_working = servers;
        self
    }
}

impl ChannelBuilder {
    fn policy(&mut self) -> &mut Policy {
        self.fleet.get_or_insert_default()
    }

    /// Builds a channel to a list of addresses.
    pub(in super::super) fn into_fleet(mut self, addresses: Vec<Address>) -> Result<Channel> {
        let policy = self.fleet.take().map(|policy| *policy).unwrap_or_default();
        let instance = |address: Address| Instance::new("", address.to_string());
        let fleet = Fleet::fixed(policy, self, addresses.into_iter().map(instance).collect())?;
        Ok(Channel(Arc::new(fleet)))
    }

    /// Builds a channel to the instances of a registry.
    pub(in super::super) fn into_followed(mut self, registry: &dyn Registry) -> Result<Channel> {
        if Handle::try_current().is_err() {
            let text = "watching a registry needs a tokio runtime on this thread";
            return Err(Status::failed_precondition(text));
        }
        let policy = self.fleet.take().map(|policy| *policy).unwrap_or_default();
        let watch = registry.watch(&self.url);
        self.url = format!("{} in {}", self.url, registry.name());
        Ok(Channel(Arc::new(Fleet::following(policy, self, watch)?)))
    }

    /// Builds the channel of one member.
    pub(super) fn member(&self, address: &str) -> Result<Channel> {
        let mut builder = self.clone();
        address.clone_into(&mut builder.url);
        // Shorter than the pauses of the task that dials; otherwise that task would find the pool in back-off and wait
        // once more.
        builder.options.backoff_max = self.redial_max() / 2;
        #[cfg(feature = "tls")]
        if !["tls://", "https://", "wss://"].iter().any(|scheme| address.starts_with(scheme)) {
            builder.tls = switchboard_net::net::tls::TlsOptions::default();
        }
        builder.lazy()
    }

    /// The longest pause between attempts to connect to a member; short, so that a recovered endpoint is soon used
    /// again.
    pub(super) fn redial_max(&self) -> Duration {
        self.options.backoff_max.min(Duration::from_secs(1))
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// The target of the channel, for messages.
    pub(super) fn name(&self) -> &str {
        &self.url
    }
}
