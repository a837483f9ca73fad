//! Where a subscription to a topic begins.

use bytes::Bytes;
use std::time::Duration;
use switchboard_message::{Bus, Position, Subscribe, Topic};

/// Where a device begins in a topic.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Start {
    /// With the next entry.
    #[default]
    Next,
    /// After a position that the device has: it gets the missing entries, or a gap.
    After(Position),
    /// With this number of kept entries.
    Last(usize),
    /// With the kept entries that are not older.
    Since(Duration),
}

impl Start {
    /// Returns the subscription that begins here.
    pub(crate) fn subscribe<'a>(self, bus: &'a Bus, topic: &Topic) -> Subscribe<'a, Bytes> {
        let subscribe = bus.subscribe_encoded(topic);
        match self {
            Start::Next => subscribe,
            Start::After(position) => subscribe.after(position),
            Start::Last(entries) => subscribe.last(entries),
            Start::Since(age) => subscribe.since(age),
        }
    }

    /// Returns whether the subscription reports first if entries are missing.
    pub(crate) fn has_outcome(self) -> bool {
        matches!(self, Start::After(_) | Start::Since(_))
    }
}
