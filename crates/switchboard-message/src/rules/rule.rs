//! One rule of topics.

use crate::log::Pattern;
use std::fmt;
use switchboard_core::{Caller, Result};
use switchboard_wire::Status;

/// Access rule for a set of topics, in the words of the rules for methods.
#[derive(Clone, Debug)]
#[must_use = "a rule holds once it is in `TopicRules`"]
pub struct TopicRule {
    topics: String,
    operations: Option<Operation>,
    public: bool,
    denied: bool,
    callers: Vec<String>,
    roles: Vec<String>,
    rate: Option<f64>,
    burst: Option<u32>,
    entry_bytes_max: Option<usize>,
}

/// Use of a topic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Operation {
    Publish,
    Subscribe,
}

impl TopicRule {
    /// Creates a rule for publications and subscriptions to the topics of a pattern. Their callers must be
    /// authenticated and meet the further conditions of the rule.
    pub fn topics(pattern: impl Into<String>) -> TopicRule {
        TopicRule {
            topics: pattern.into(),
            operations: None,
            public: false,
            denied: false,
            callers: Vec::new(),
            roles: Vec::new(),
            rate: None,
            burst: None,
            entry_bytes_max: None,
        }
    }

    /// Applies to publications only, and to requests.
    pub fn to_publish(mut self) -> TopicRule {
        self.operations = Some(Operation::Publish);
        self
    }

    /// Applies to subscriptions only, and to histories and lists of topics.
    pub fn to_subscribe(mut self) -> TopicRule {
        self.operations = Some(Operation::Subscribe);
        self
    }

    /// Admits callers without credentials.
    pub fn public(mut self) -> TopicRule {
        self.public = true;
        self
    }

    /// Denies all callers.
    pub fn deny(mut self) -> TopicRule {
        self.denied = true;
        self
    }

    /// Admits only callers with these names.
    pub fn callers(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> TopicRule {
        self.callers.extend(names.into_iter().map(Into::into));
        self
    }

    /// Admits only callers with one of these roles.
    pub fn roles(mut self, roles: impl IntoIterator<Item = impl Into<String>>) -> TopicRule {
        self.roles.extend(roles.into_iter().map(Into::into));
        self
    }

    /// Allows each caller this many publications per second to the topics of the rule, together; callers without
    /// credentials are one. Batches count as their entries.
    pub fn rate(mut self, per_second: f64) -> TopicRule {
        self.rate = Some(per_second);
        self
    }

    /// Sets the number of publications that the rate allows at once after a pause; default is one second's worth, at
    /// least one.
    pub fn burst(mut self, entries: u32) -> TopicRule {
        self.burst = Some(entries.max(1));
        self
    }

    /// Limits the bytes of one entry with its key, id and headers.
    pub fn entry_bytes_max(mut self, bytes: usize) -> TopicRule {
        self.entry_bytes_max = Some(bytes);
        self
    }

    /// Checks the rule; returns it with its rate and burst.
    pub(super) fn check(self) -> Result<(Check, Option<(f64, u32)>)> {
        let pattern = Pattern::new(&self.topics)?;
        if let Some(rate) = self.rate.filter(|rate| !rate.is_finite() || *rate <= 0.0) {
            let text = format!(
                "rule for topics \"{pattern}\": {rate} entries per second is not a valid rate; omit it for no limit"
            );
            return Err(Status::invalid_argument(text));
        }
        if self.public && !(self.callers.is_empty() && self.roles.is_empty()) {
            let text = format!(
                "rule for topics \"{pattern}\" is public and names callers or roles: callers without credentials would \
                 have rights that others lack; omit one of them"
            );
            return Err(Status::invalid_argument(text));
        }
        let burst = |rate: f64| self.burst.unwrap_or(rate.clamp(1.0, f64::from(u32::MAX)) as u32);
        let rate = self.rate.map(|rate| (rate, burst(rate)));
        let check = Check {
            pattern,
            operations: self.operations,
            known: !self.public,
            denied: self.denied,
            callers: self.callers,
            roles: self.roles,
            entry_bytes_max: self.entry_bytes_max,
        };
        Ok((check, rate))
    }
}

/// Conditions of a rule.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) pattern: Pattern,
    /// `None`: both.
    operations: Option<Operation>,
    /// Callers must be authenticated.
    known: bool,
    denied: bool,
    callers: Vec<String>,
    roles: Vec<String>,
    pub(super) entry_bytes_max: Option<usize>,
}

impl Check {
    pub(super) fn is_for(&self, operation: Operation) -> bool {
        self.operations.is_none_or(|known| known == operation)
    }

    /// Checks a caller of `topics`: a name, or a pattern.
    pub(super) fn admit(&self, topics: impl fmt::Display, caller: Option<&Caller>) -> Result<()> {
        let pattern = &self.pattern;
        if self.denied {
            let text = format!("topics \"{topics}\" are denied by the rule for \"{pattern}\"");
            return Err(Status::permission_denied(text));
        }
        let Some(caller) = caller else {
            return match self.known {
                true => Err(Status::unauthenticated(format!(
                    "topics \"{topics}\" need credentials, by the rule for \"{pattern}\""
                ))),
                false => Ok(()),
            };
        };
        let is_named = self.callers.is_empty() || self.callers.contains(&caller.name);
        let has_role = self.roles.is_empty() || self.roles.iter().any(|role| caller.roles.contains(role));
        if is_named && has_role {
            return Ok(());
        }
        let text = format!("this caller may not use topics \"{topics}\", by the rule for \"{pattern}\"");
        Err(Status::permission_denied(text))
    }
}
