//! Rules of topics: who may publish to them and subscribe to them, at which rate, and how large entries are.
//!
//! They are for callers from outside: the service `switchboard.bus.v1.Bus` and adapters of other protocols ask them. A
//! [`Bus`](crate::Bus) itself does not know who calls.

mod rule;

pub use rule::TopicRule;

use crate::{
    Publication,
    bus::Selector,
    log::{Pattern, Source},
};
use foldhash::quality::RandomState;
use rule::{Check, Operation};
use std::{
    hash::BuildHasher,
    sync::Arc,
    time::{Duration, Instant},
};
use switchboard_core::{
    Caller, Result,
    buckets::{Buckets, Want},
    clock,
};
use switchboard_wire::{Retry, Status};

/// Rules of topics. The first rule that is for a topic and for the operation applies; a topic without a rule is open to
/// all callers that may use the protocol. Cheap to clone; clones share the rates.
///
/// ```
/// use switchboard_core::Caller;
/// use switchboard_message::{TopicRule, TopicRules};
///
/// let rules = TopicRules::new([
///     TopicRule::topics("quotes/>").to_subscribe().public(),
///     TopicRule::topics("quotes/>").roles(["market"]).rate(1_000.0).entry_bytes_max(4096),
///     TopicRule::topics(">").deny(),
/// ])?;
/// let market = Caller::new("nyse").role("market");
/// assert!(rules.may_publish("quotes/acme", Some(&market)).is_ok());
/// assert!(rules.may_publish("quotes/acme", Some(&Caller::new("bob"))).is_err());
/// assert!(rules.may_subscribe("quotes/*", None).is_ok());
/// assert!(rules.may_subscribe(">", Some(&market)).is_err());
/// # Ok::<_, switchboard_wire::Status>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct TopicRules {
    rules: Arc<[ActiveRule]>,
}

/// A rule with its token buckets.
#[derive(Debug)]
struct ActiveRule {
    check: Check,
    limit: Option<Limit>,
}

impl TopicRules {
    /// Creates rules. Without any, all topics are open.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid pattern, or a rate that is not a positive number.
    pub fn new(rules: impl IntoIterator<Item = TopicRule>) -> Result<TopicRules> {
        let active = rules.into_iter().map(|rule| {
            let (check, rate) = rule.check()?;
            Ok(ActiveRule { check, limit: rate.map(Limit::new) })
        });
        Ok(TopicRules { rules: active.collect::<Result<_>>()? })
    }

    /// Checks whether a caller may publish to a topic.
    ///
    /// # Errors
    /// `Unauthenticated` if the rule requires a caller and there is none, `PermissionDenied` for another caller than
    /// those of the rule.
    pub fn may_publish(&self, topic: &str, caller: Option<&Caller>) -> Result<()> {
        self.rule_of(topic, Operation::Publish).map_or(Ok(()), |rule| rule.check.admit(topic, caller))
    }

    /// Checks whether a caller may publish these entries to a topic, and counts them in the rate of the topic's rule.
    ///
    /// # Errors
    /// Returns the errors of [`may_publish`](Self::may_publish); `ResourceExhausted` for an entry that is too large,
    /// and for more entries than the rate allows, with the time until it does.
    pub fn admit(&self, topic: &str, caller: Option<&Caller>, entries: &[Publication]) -> Result<()> {
        let Some(rule) = self.rule_of(topic, Operation::Publish) else { return Ok(()) };
        rule.check.admit(topic, caller)?;
        if let Some(max) = rule.check.entry_bytes_max
            && let Some(bytes) = entries.iter().map(Publication::encoded_len).find(|bytes| *bytes > max)
        {
            let pattern = &rule.check.pattern;
            let text = format!(
                "the entry for topic \"{topic}\" has {bytes} bytes; the limit of the rule for \"{pattern}\" is \
                 entry_bytes_max={max}"
            );
            return Err(Status::resource_exhausted(text));
        }
        match &rule.limit {
            Some(limit) => limit.take(&rule.check.pattern, caller, entries.len()),
            None => Ok(()),
        }
    }

    /// Checks whether a caller may subscribe to a topic, or to all topics of a pattern: a pattern that includes a topic
    /// which the caller may not read is refused as a whole.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid pattern, `Unauthenticated` and `PermissionDenied` as for
    /// [`may_publish`](Self::may_publish).
    pub fn may_subscribe(&self, topics: impl Into<Selector>, caller: Option<&Caller>) -> Result<()> {
        match topics.into().source? {
            Source::Topic(topic) => {
                let rule = self.rule_of(topic.name(), Operation::Subscribe);
                rule.map_or(Ok(()), |rule| rule.check.admit(topic.name(), caller))
            }
            Source::Pattern(pattern) => self.may_read_all(&pattern, caller),
        }
    }

    /// Checks each rule that applies to a topic of the pattern, up to the one that is for all of the rest.
    fn may_read_all(&self, pattern: &Pattern, caller: Option<&Caller>) -> Result<()> {
        let rules =
            self.rules.iter().map(|rule| &rule.check).filter(|check| check.is_for(Operation::Subscribe));
        for check in rules.filter(|check| check.pattern.intersects(pattern)) {
            check.admit(pattern, caller)?;
            if check.pattern.contains(pattern) {
                break;
            }
        }
        Ok(())
    }

    fn rule_of(&self, topic: &str, operation: Operation) -> Option<&ActiveRule> {
        self.rules.iter().find(|rule| rule.check.is_for(operation) && rule.check.pattern.matches(topic))
    }
}

/// Entries per second of each caller.
#[derive(Debug)]
struct Limit {
    per_second: f64,
    burst: u32,
    /// Nanoseconds between two entries.
    interval: u64,
    buckets: Buckets,
    secret: RandomState,
    began: Instant,
}

/// Callers that are counted separately.
const CALLERS_MAX: u32 = 8_192;

impl Limit {
    fn new((per_second, burst): (f64, u32)) -> Limit {
        let interval = ((1e9 / per_second) as u64).max(1);
        let (buckets, secret) = (Buckets::new(CALLERS_MAX), RandomState::default());
        Limit { per_second, burst, interval, buckets, secret, began: clock::now() }
    }

    fn take(&self, pattern: &Pattern, caller: Option<&Caller>, entries: usize) -> Result<()> {
        let refused = |text: String| Err(Status::resource_exhausted(text));
        let Some(more) = entries.checked_sub(1) else { return Ok(()) };
        let (more, burst) = (more as u64, u64::from(self.burst));
        if more >= burst {
            return refused(format!(
                "a batch of {entries} entries is larger than the burst of {burst} of the rule for \"{pattern}\""
            ));
        }
        let now =
            u64::try_from(clock::now().saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX);
        let want = Want {
            key: self.secret.hash_one(caller.map(|caller| &*caller.name)),
            now,
            // A batch takes the tokens of all of its entries at once.
            interval: self.interval.saturating_mul(more.saturating_add(1)),
            ahead: self.interval.saturating_mul(burst - 1 - more),
            more: 0,
        };
        self.buckets.take(want).map(drop).map_err(|pause| {
            let text =
                format!("more than {} entries a second of one caller to \"{pattern}\"", self.per_second);
            Status::resource_exhausted(text).with_retry(Retry::After(Duration::from_nanos(pause)))
        })
    }
}

#[cfg(test)]
mod tests;
