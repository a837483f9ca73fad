//! Rules of topics for the commands of clients.

use super::adapter::RespAdapter;
use switchboard_core::{Caller, Result};
use switchboard_message::{Pattern, Publication, Selector, Topic, TopicRules};
use switchboard_wire::{Code, Status, resp::SubscriptionKind};

/// Class of the error for a command that the rules do not allow, as with the ACL of Redis.
const NOT_PERMITTED: &str = "NOPERM";

impl RespAdapter {
    /// Checks whether the rules allow a publication, and counts it in the rate of its rule.
    ///
    /// # Errors
    /// Returns the errors of [`TopicRules::admit`].
    pub(super) fn admit(&self, channel: &str, caller: Option<&Caller>, entry: &Publication) -> Result<()> {
        self.server.rules.admit(channel, caller, std::slice::from_ref(entry))
    }

    /// Returns whether a caller may know that a channel has subscribers: one that may read or write it.
    pub(super) fn may_see(&self, channel: &[u8], caller: Option<&Caller>) -> bool {
        let rules = &self.server.rules;
        // Only names of topics have subscribers.
        let Ok(topic) = Topic::from_bytes(channel) else { return true };
        rules.may_subscribe(&topic, caller).is_ok() || rules.may_publish(topic.name(), caller).is_ok()
    }
}

/// Checks whether a caller may have a subscription. A glob is checked as the prefix before its first wildcard: it is
/// refused if a topic with that prefix is one that the caller may not read.
///
/// # Errors
/// `InvalidArgument` for a channel that is no name of a topic, and those of [`TopicRules::may_subscribe`].
pub(super) fn may_subscribe(
    rules: &TopicRules,
    (kind, name): (SubscriptionKind, &[u8]),
    caller: Option<&Caller>,
) -> Result<()> {
    match kind {
        SubscriptionKind::Pattern => rules.may_subscribe(topics(name), caller),
        _ => rules.may_subscribe(Topic::from_bytes(name)?, caller),
    }
}

/// Returns the topics that a glob may match, and possibly more: those that begin as it does.
fn topics(glob: &[u8]) -> Selector {
    let mut prefix = Vec::new();
    let mut rest = glob;
    loop {
        match rest {
            [b'*' | b'?' | b'[', ..] => return Pattern::prefix(prefix).into(),
            [b'\\', escaped, after @ ..] => {
                prefix.push(*escaped);
                rest = after;
            }
            [byte, after @ ..] => {
                prefix.push(*byte);
                rest = after;
            }
            [] => break,
        }
    }
    match Topic::from_bytes(&prefix) {
        Ok(topic) => topic.into(),
        // It matches no topic.
        Err(_) => Pattern::prefix(prefix).into(),
    }
}

/// Returns the class of the error for a refused publication or subscription: `NOPERM` if a rule does not allow it to
/// the caller, else that of the status.
pub(super) fn class(status: &Status) -> String {
    match status.code() {
        Code::PermissionDenied | Code::Unauthenticated => NOT_PERMITTED.to_owned(),
        _ => super::commands::class(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard_message::TopicRule;

    #[test]
    fn a_glob_is_checked_as_the_prefix_before_its_first_wildcard() {
        let rules = TopicRules::new([
            TopicRule::topics("open/>").public(),
            TopicRule::topics("one").public(),
            TopicRule::topics(">").deny(),
        ]);
        let rules = rules.unwrap();
        let is_open =
            |glob: &str| may_subscribe(&rules, (SubscriptionKind::Pattern, glob.as_bytes()), None).is_ok();
        for glob in ["open/*", "open/a?c", "open/[ab]", "open/a*b", "one", "\\one", "open/x"] {
            assert!(is_open(glob), "{glob}");
        }
        for glob in ["*", "?", "[o]pen/x", "open*", "o*", "one*", "on?", "other", "\\*", "open", "x\\"] {
            assert!(!is_open(glob), "{glob}");
        }
    }
}
