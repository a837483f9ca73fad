//! The subscriptions of an engine by their names, and those that a topic has.

use std::collections::{BTreeSet, HashMap};
use switchboard_wire::resp::{Pattern, SubscriptionKind};

/// Topics whose patterns are remembered.
const RESOLVED_MAX: usize = 4096;

/// A channel, shard channel or pattern that connections of the engine subscribe to.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) kind: SubscriptionKind,
    pub(super) name: Box<[u8]>,
    /// The sets of subscriptions that it is in.
    pub(super) sets: BTreeSet<u32>,
    pattern: Option<Pattern>,
    /// Connections that subscribe to it.
    peers: usize,
}

/// The sources of an engine.
#[derive(Debug, Default)]
pub(super) struct Sources {
    channels: HashMap<Box<[u8]>, u32>,
    shards: HashMap<Box<[u8]>, u32>,
    patterns: HashMap<Box<[u8]>, u32>,
    all: Vec<Option<Source>>,
    free: Vec<u32>,
    /// The patterns that topics match, of those that had entries since the patterns have changed: a pattern is compared
    /// with each name once.
    resolved: HashMap<Box<str>, Box<[u32]>>,
}

/// Memory of a subscription beside its name: its entries in the tables of the engine and of the server.
const ENTRY_BYTES: usize = 256;

/// Returns the memory that a subscription takes, at most, if no other connection has it: its name is in the tables of
/// the engine twice and in that of the server, and a pattern is compiled for both.
pub(super) fn subscription_bytes(kind: SubscriptionKind, name: &[u8]) -> usize {
    let names = name.len().saturating_mul(3).saturating_add(ENTRY_BYTES);
    if kind != SubscriptionKind::Pattern {
        return names;
    }
    // A pattern distinguishes at most one class of bytes for each of its own, and one for all others.
    let classes = name.len().saturating_add(1).min(256);
    let states = (name.len() / 64 + 1) * size_of::<u64>();
    let compiled = states.saturating_mul(classes + 1).saturating_add(256).saturating_add(name.len());
    names.saturating_add(compiled.saturating_mul(2))
}

impl Sources {
    fn names(&mut self, kind: SubscriptionKind) -> &mut HashMap<Box<[u8]>, u32> {
        match kind {
            SubscriptionKind::Channel => &mut self.channels,
            SubscriptionKind::Pattern => &mut self.patterns,
            SubscriptionKind::Shard => &mut self.shards,
        }
    }

    /// Adds a connection to the source of this name, and returns the number of the source.
    pub(super) fn add(&mut self, kind: SubscriptionKind, name: &[u8]) -> u32 {
        if let Some(known) = self.find(kind, name) {
            if let Some(source) = self.get_mut(known) {
                source.peers += 1;
            }
            return known;
        }
        let pattern = (kind == SubscriptionKind::Pattern).then(|| Pattern::new(name));
        if pattern.is_some() {
            self.resolved.clear();
        }
        let source = Source { kind, name: name.into(), sets: BTreeSet::new(), pattern, peers: 1 };
        let number = match self.free.pop() {
            Some(number) => {
                self.all[number as usize] = Some(source);
                number
            }
            None => {
                self.all.push(Some(source));
                (self.all.len() - 1) as u32
            }
        };
        self.names(kind).insert(name.into(), number);
        number
    }

    /// Returns the source of this name, if a connection subscribes to it.
    pub(super) fn find(&mut self, kind: SubscriptionKind, name: &[u8]) -> Option<u32> {
        self.names(kind).get(name).copied()
    }

    pub(super) fn get(&self, number: u32) -> Option<&Source> {
        self.all.get(number as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Source> {
        self.all.get_mut(number as usize)?.as_mut()
    }

    /// Removes a connection from a source that is in none of its sets. The last one removes the source.
    pub(super) fn release(&mut self, number: u32) {
        let Some(source) = self.get_mut(number) else { return };
        source.peers -= 1;
        if source.peers > 0 {
            return;
        }
        let Some(Source { kind, name, .. }) = self.all[number as usize].take() else { return };
        self.names(kind).remove(&name);
        if kind == SubscriptionKind::Pattern {
            self.resolved.clear();
        }
        self.free.push(number);
    }

    /// Appends the sources of a topic, in the order in which a connection with several of them receives its entries:
    /// its channel, its shard channel, and the patterns that it matches.
    pub(super) fn matching(&mut self, topic: &str, found: &mut Vec<u32>) {
        found.extend(self.channels.get(topic.as_bytes()));
        found.extend(self.shards.get(topic.as_bytes()));
        if self.patterns.is_empty() {
            return;
        }
        if let Some(resolved) = self.resolved.get(topic) {
            found.extend(resolved);
            return;
        }
        let first = found.len();
        let matches = |number: &u32| {
            let source = self.get(*number).and_then(|source| source.pattern.as_ref());
            source.is_some_and(|pattern| pattern.matches(topic.as_bytes()))
        };
        found.extend(self.patterns.values().copied().filter(matches));
        found[first..].sort_unstable();
        if self.resolved.len() >= RESOLVED_MAX {
            self.resolved.clear();
        }
        self.resolved.insert(topic.into(), found[first..].into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_subscription_grows_with_its_name_and_pattern() {
        let of = |kind, bytes: usize| subscription_bytes(kind, &vec![b'a'; bytes]);
        assert_eq!(of(SubscriptionKind::Channel, 200), 3 * 200 + ENTRY_BYTES);
        assert!(of(SubscriptionKind::Pattern, 256) > 16 << 10);
        assert!(of(SubscriptionKind::Pattern, 1) < 2 << 10);
    }

    #[test]
    fn a_topic_has_its_channel_and_the_patterns_that_it_matches() {
        let mut sources = Sources::default();
        let channel = sources.add(SubscriptionKind::Channel, b"news.art");
        let shard = sources.add(SubscriptionKind::Shard, b"news.art");
        let glob = sources.add(SubscriptionKind::Pattern, b"news.*");
        let matching = |sources: &mut Sources, topic: &str| {
            let mut found = Vec::new();
            sources.matching(topic, &mut found);
            found
        };
        // The second time from memory.
        for _ in 0..2 {
            assert_eq!(matching(&mut sources, "news.art"), [channel, shard, glob]);
            assert_eq!(matching(&mut sources, "news.x"), [glob]);
            assert!(matching(&mut sources, "other").is_empty());
        }
        assert_eq!(sources.add(SubscriptionKind::Pattern, b"news.*"), glob);
        let other = sources.add(SubscriptionKind::Pattern, b"*t");
        assert_eq!(matching(&mut sources, "news.art"), [channel, shard, glob, other]);
        sources.release(glob);
        assert_eq!(matching(&mut sources, "news.x"), [glob]);
        sources.release(glob);
        assert!(matching(&mut sources, "news.x").is_empty());
        assert_eq!(sources.find(SubscriptionKind::Pattern, b"news.*"), None);
    }
}
