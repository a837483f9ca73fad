//! Filter of a SUB or DISH: a publisher may send what was cancelled a moment ago.

use bytes::Bytes;
use std::collections::HashSet;
use switchboard_wire::zmtp::{SocketType, patterns::Subscriptions};

/// Topics or groups of this socket.
#[derive(Debug)]
pub(crate) struct Filter {
    prefixes: Subscriptions<()>,
    groups: HashSet<Bytes>,
    is_inverted: bool,
}

impl Filter {
    pub(crate) fn new(is_inverted: bool) -> Filter {
        Filter { prefixes: Subscriptions::new(u32::MAX), groups: HashSet::new(), is_inverted }
    }

    /// Adds a topic; returns false if there are too many.
    pub(crate) fn add(&mut self, kind: SocketType, topic: &Bytes) -> bool {
        if kind == SocketType::Dish {
            return self.groups.insert(topic.clone());
        }
        self.prefixes.subscribe(topic, ()).is_ok()
    }

    pub(crate) fn remove(&mut self, kind: SocketType, topic: &Bytes) {
        if kind == SocketType::Dish {
            self.groups.remove(topic);
        } else {
            self.prefixes.cancel(topic, ());
        }
    }

    /// Returns true if a message with this first frame is delivered.
    pub(crate) fn matches(&self, kind: SocketType, first: &[u8]) -> bool {
        if kind == SocketType::Dish {
            return self.groups.contains(first);
        }
        self.prefixes.matches(first) != self.is_inverted
    }
}
