//! Settings of a fleet, from URLs and from code.

use super::{super::Begin, ejection::Ejecting};
use bytes::Bytes;
use std::{fmt, sync::Arc, time::Duration};
use switchboard_core::{Limits, Result, near::nearest};
use switchboard_discovery::balance::{
    self, BALANCERS, Balance, BalancerOptions, BalancerSpec, Breaking, Endpoint, Sticky,
};
use switchboard_wire::Status;

/// Handling of calls that fail or are slow. Only calls that may be repeated are retried: the server reports that it did
/// not begin, or the method (or [call](crate::UnaryCall::idempotent)) is idempotent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum FailMode {
    /// Sends a hedge, a second request to another endpoint, when the first takes longer than 95 of 100 calls, or than
    /// [`hedge`](crate::ChannelBuilder::hedge); the first reply is used. Also fails over.
    Failbackup,
    /// Makes one attempt.
    Failfast,
    /// Retries on another endpoint, if one is left.
    #[default]
    Failover,
    /// Retries on the same endpoint.
    Failtry,
}

/// Function that returns the key that related calls share.
pub(super) type KeyOf = dyn Fn(&str, &[u8]) -> Option<Vec<u8>> + Send + Sync;

#[derive(Clone)]
enum Key {
    /// The result of the function for the method and the request.
    Function(Arc<KeyOf>),
    /// The value of this metadata.
    Metadata(String),
    /// The key set on the call, if any.
    OfCall,
    /// The whole request.
    Request,
}

#[derive(Clone)]
enum Balancer {
    Named(&'static BalancerSpec),
    User(Arc<dyn Balance>),
}

const FAIL_MODES: [(&str, FailMode); 4] = [
    ("failbackup", FailMode::Failbackup),
    ("failfast", FailMode::Failfast),
    ("failover", FailMode::Failover),
    ("failtry", FailMode::Failtry),
];

/// Settings of a fleet.
#[derive(Clone)]
pub(in super::super) struct Policy {
    balancer: Balancer,
    sticky: bool,
    balancer_options: BalancerOptions,
    key: Key,
    pub(super) fail: FailMode,
    pub(super) retries: u32,
    /// `None` for the observed percentile.
    hedge: Option<Duration>,
    pub(super) budget_percent: u32,
    pub(super) budget_floor: u32,
    pub(super) breaking: Breaking,
    pub(super) ejecting: Ejecting,
    pub(super) slow_start_ns: u64,
    /// True when calls get idempotency keys.
    pub(super) gives_keys: bool,
    pub(super) zone: String,
    group: Option<String>,
    tags: Vec<(String, String)>,
    /// Number of healthy servers below which a share of the calls fails at once; 0 turns this off.
    pub(super) min_working: u32,
    /// Number of endpoints, and the number of this client.
    pub(super) subset: Option<(usize, u64)>,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            balancer: Balancer::Named(balance::DEFAULT),
            sticky: false,
            balancer_options: BalancerOptions::default(),
            key: Key::OfCall,
            fail: FailMode::Failover,
            // The default of rpcx.
            retries: 3,
            hedge: None,
            budget_percent: 10,
            budget_floor: 10,
            breaking: Breaking::default(),
            ejecting: Ejecting::default(),
            slow_start_ns: 0,
            gives_keys: false,
            zone: String::new(),
            group: None,
            tags: Vec::new(),
            min_working: 0,
            subset: None,
        }
    }
}

impl Policy {
    /// Applies an option of a URL; returns false for an unknown name.
    ///
    /// # Errors
    /// The expected values.
    pub(in super::super) fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let number = |most: u32| match value.parse() {
            Ok(number) if number <= most => Ok(number),
            _ => Err(format!("a number up to {most}")),
        };
        let span = || Limits::parse_time(value).map_err(|_| "a number with ms, s, min or h".to_owned());
        match name {
            "balance" => {
                self.balancer = Balancer::Named(one_of(value, BALANCERS.map(|spec| (spec.name, spec)))?);
            }
            "breaker" => self.set_breaker(if value == "off" { 0 } else { number(1_000_000)? }),
            "budget" => self.budget_percent = number(1000)?,
            "eject" => self.ejecting.percent_max = number(100)?,
            "fail" => self.fail = one_of(value, FAIL_MODES)?,
            "group" => self.group = Some(value.to_owned()),
            "hash" => {
                self.key = match value.split_once(':') {
                    Some(("metadata", name)) if !name.is_empty() => Key::Metadata(name.to_owned()),
                    None if value == "request" => Key::Request,
                    _ => return Err("request or metadata:NAME".into()),
                }
            }
            "hedge" if value == "p95" => self.set_hedge(None),
            "hedge" => self.set_hedge(Some(span().map_err(|expected| format!("p95 or {expected}"))?)),
            "idempotency_keys" => self.gives_keys = one_of(value, [("false", false), ("true", true)])?,
            "latitude" | "longitude" => {
                let most = if name == "latitude" { 90.0 } else { 180.0 };
                let degrees: f64 = value
                    .parse()
                    .ok()
                    .filter(|degrees: &f64| degrees.abs() <= most)
                    .ok_or_else(|| format!("degrees from -{most} to {most}"))?;
                let of = if name == "latitude" {
                    &mut self.balancer_options.latitude
                } else {
                    &mut self.balancer_options.longitude
                };
                *of = Some(degrees);
            }
            "min_working" => self.min_working = number(1_000_000)?,
            "points" => self.balancer_options.points = number(4000)?,
            "retries" => self.retries = number(100)?,
            "slow_start" => self.slow_start_ns = span()?.as_nanos() as u64,
            "sticky" => self.sticky = one_of(value, [("false", false), ("true", true)])?,
            "subset" => {
                let (size, client) = value.split_once(':').unwrap_or((value, "0"));
                let both = size.parse().ok().filter(|size| *size > 0).zip(client.parse().ok());
                self.subset = Some(both.ok_or("SIZE:CLIENT, two numbers")?);
            }
            "tag" => {
                let (name, value) = value.split_once(':').ok_or("NAME:VALUE")?;
                self.tags.push((name.to_owned(), value.to_owned()));
            }
            "zone" => self.zone = value.to_owned(),
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn set_balancer(&mut self, balance: Arc<dyn Balance>) {
        self.balancer = Balancer::User(balance);
    }

    pub(super) fn set_fail(&mut self, fail: FailMode) {
        self.fail = fail;
    }

    pub(super) fn set_hedge(&mut self, after: Option<Duration>) {
        self.hedge = after;
        self.fail = FailMode::Failbackup;
    }

    pub(super) fn set_breaker(&mut self, consecutive: u32) {
        self.breaking.consecutive = consecutive;
    }

    pub(super) fn set_key_of(&mut self, key_of: Arc<KeyOf>) {
        self.key = Key::Function(key_of);
    }

    pub(super) fn add_tag(&mut self, name: String, value: String) {
        self.tags.push((name, value));
    }

    pub(super) fn set_group(&mut self, group: String) {
        self.group = Some(group);
    }

    /// # Errors
    /// `InvalidArgument` when a required option is missing.
    pub(super) fn balancer(&self) -> Result<Arc<dyn Balance>> {
        let balancer = match &self.balancer {
            Balancer::User(balancer) => balancer.clone(),
            Balancer::Named(spec) => (spec.make)(&self.balancer_options)
                .map_err(|missing| Status::invalid_argument(format!("balance={}: {missing}", spec.name)))?,
        };
        Ok(if self.sticky { Arc::new(Sticky::new(balancer)) } else { balancer })
    }

    /// Settings that affect calls, for humans.
    pub(super) fn rules(&self) -> Vec<(&'static str, String)> {
        let balancer = match &self.balancer {
            Balancer::Named(spec) => spec.name,
            Balancer::User(_) => "set by the program",
        };
        let fail = FAIL_MODES.iter().find(|(_, mode)| *mode == self.fail).map_or("", |(name, _)| name);
        let sticky = if self.sticky { ", sticky" } else { "" };
        let mut rules = vec![
            ("balance", format!("{balancer}{sticky}")),
            ("fail", format!("{fail}, at most {} retries when safe", self.retries)),
        ];
        if self.hedges() {
            let after = self.hedge.map_or("the 95th percentile".to_owned(), |after| format!("{after:?}"));
            rules.push(("hedge", format!("idempotent calls, after {after}")));
        }
        let consecutive = self.breaking.consecutive;
        let breaker =
            if consecutive == 0 { "off".to_owned() } else { format!("{consecutive} consecutive failures") };
        rules.push(("breaker", breaker));
        rules.push(("eject", format!("at most {} % of the servers", self.ejecting.percent_max)));
        if !self.zone.is_empty() {
            rules.push(("zone", self.zone.clone()));
        }
        rules.extend(self.group.as_ref().map(|group| ("group", group.clone())));
        rules.extend(self.tags.iter().map(|(name, value)| ("tag", format!("{name}:{value}"))));
        rules.extend(
            self.subset.map(|(size, client)| ("subset", format!("{size} servers for client {client}"))),
        );
        rules
    }

    /// Returns true when the endpoint belongs to the fleet.
    pub(super) fn wants(&self, endpoint: &Endpoint) -> bool {
        self.group.as_ref().is_none_or(|group| endpoint.group() == group)
            && self.tags.iter().all(|(name, value)| endpoint.tag(name) == Some(value.as_str()))
    }

    /// Returns the key that the call shares with related ones.
    #[inline]
    pub(super) fn key_of(&self, begin: &Begin, request: &[u8]) -> Option<Bytes> {
        if let Some(key) = begin.options.as_ref().and_then(|options| options.hash_key.as_ref()) {
            return Some(key.clone());
        }
        match &self.key {
            Key::OfCall => None,
            Key::Function(key_of) => key_of(begin.method.path, request).map(Bytes::from),
            Key::Metadata(name) => begin.metadata.value(name).cloned(),
            Key::Request => Some(Bytes::copy_from_slice(request)),
        }
    }

    #[inline]
    pub(super) fn hedges(&self) -> bool {
        self.fail == FailMode::Failbackup
    }

    pub(super) fn hedges_by_percentile(&self) -> bool {
        self.hedges() && self.hedge.is_none()
    }

    /// Returns the time after which a hedge is sent; `observed` returns the percentile.
    pub(super) fn hedge_after(&self, observed: impl FnOnce() -> Option<Duration>) -> Option<Duration> {
        self.hedge.or_else(observed)
    }
}

/// Returns the value of the name `value`.
///
/// # Errors
/// The valid names, with the most similar one.
fn one_of<T, const N: usize>(value: &str, known: [(&'static str, T); N]) -> Result<T, String> {
    let names = known.each_ref().map(|(name, _)| *name);
    match known.into_iter().find(|(name, _)| *name == value) {
        Some((_, meaning)) => Ok(meaning),
        None => {
            let meant = nearest(value, names);
            let meant = meant.map_or(String::new(), |name| format!(" (did you mean {name}?)"));
            Err(format!("{}{meant}", names.join(", ")))
        }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("fail", &self.fail)
            .field("retries", &self.retries)
            .field("hedge", &self.hedge)
            .field("zone", &self.zone)
            .field("group", &self.group)
            .field("tags", &self.tags)
            .field("subset", &self.subset)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_get_a_suggestion() {
        let mut policy = Policy::default();
        let error = policy.set("balance", "roundrobin").unwrap_err();
        assert!(error.ends_with("(did you mean round_robin?)"), "{error}");
        assert!(policy.set("fail", "fallover").unwrap_err().ends_with("(did you mean failover?)"));
        assert!(!policy.set("fail", "none of these").unwrap_err().contains("mean"));
        assert_eq!(policy.set("unknown", "x"), Ok(false));
        assert!(BALANCERS.is_sorted_by_key(|spec| spec.name));
        for spec in BALANCERS {
            assert_eq!(policy.set("balance", spec.name), Ok(true));
            assert_eq!(policy.balancer().is_ok(), spec.name != "closest");
        }
    }

    #[test]
    fn values_are_checked() {
        let mut policy = Policy::default();
        for (name, wrong, right) in [
            ("breaker", "many", "off"),
            ("budget", "1001", "20"),
            ("eject", "101", "0"),
            ("min_working", "-1", "6"),
            ("hash", "metadata:", "metadata:x-user"),
            ("hedge", "soon", "20ms"),
            ("hedge", "95p", "p95"),
            ("idempotency_keys", "yes", "true"),
            ("latitude", "91", "-90"),
            ("longitude", "181", "180"),
            ("points", "-1", "100"),
            ("retries", "101", "0"),
            ("slow_start", "10", "10s"),
            ("slow_start", "5M", "1.5min"),
            ("sticky", "yes", "true"),
            ("subset", "0", "20:7"),
            ("tag", "blue", "color:blue"),
        ] {
            assert!(policy.set(name, wrong).is_err(), "{name}={wrong}");
            assert_eq!(policy.set(name, right), Ok(true), "{name}={right}");
        }
        assert_eq!((policy.fail, policy.subset), (FailMode::Failbackup, Some((20, 7))));
        let instance = switchboard_discovery::discover::Instance::new("a.B", "tcp://a:1");
        assert!(!policy.wants(&Endpoint::new(instance.clone())));
        assert!(policy.wants(&Endpoint::new(instance.tag("color", "blue"))));
    }
}
