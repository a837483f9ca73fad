//! The subscriptions of all engines, for the replies to `PUBLISH` and `PUBSUB`.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use switchboard_wire::resp::{Pattern, SubscriptionKind};

/// Channels whose subscribers by pattern are remembered.
const RESOLVED_MAX: usize = 4096;

/// Subscriptions by their names, with the number of connections that have each.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// Number of subscriptions: without any, a publication takes no lock.
    count: AtomicUsize,
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    /// Subscribers of channels, shard channels among them: both are topics.
    channels: HashMap<Arc<[u8]>, u64>,
    patterns: HashMap<Box<[u8]>, (Pattern, u64)>,
    /// Subscribers by pattern of the channels that were published to since the patterns have changed.
    resolved: HashMap<Box<[u8]>, u64>,
}

impl Directory {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a subscription of a connection.
    pub(super) fn add(&self, kind: SubscriptionKind, name: &[u8]) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let tables = &mut *self.lock();
        if kind == SubscriptionKind::Pattern {
            tables.resolved.clear();
            match tables.patterns.get_mut(name) {
                Some((_, count)) => *count += 1,
                None => {
                    tables.patterns.insert(name.into(), (Pattern::new(name), 1));
                }
            }
        } else {
            *tables.channels.entry(name.into()).or_default() += 1;
        }
    }

    /// Removes a subscription of a connection, which was added.
    pub(super) fn remove(&self, kind: SubscriptionKind, name: &[u8]) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        let tables = &mut *self.lock();
        if kind == SubscriptionKind::Pattern {
            tables.resolved.clear();
            if let Some((_, count)) = tables.patterns.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    tables.patterns.remove(name);
                }
            }
        } else if let Some(count) = tables.channels.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                tables.channels.remove(name);
            }
        }
    }

    /// Returns the number of subscribers that receive a message to a channel; one that is subscribed by several names
    /// counts for each.
    pub(super) fn receivers(&self, channel: &[u8]) -> u64 {
        if self.count.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let Tables { channels, patterns, resolved } = &mut *self.lock();
        let direct = channels.get(channel).copied().unwrap_or(0);
        if patterns.is_empty() {
            return direct;
        }
        let by_pattern = resolved.get(channel).copied().unwrap_or_else(|| {
            let matching = patterns.values().filter(|(pattern, _)| pattern.matches(channel));
            let count = matching.map(|(_, count)| count).sum();
            if resolved.len() >= RESOLVED_MAX {
                resolved.clear();
            }
            resolved.insert(channel.into(), count);
            count
        });
        direct + by_pattern
    }

    /// Returns the number of subscribers of a channel by its name.
    pub(super) fn subscribers(&self, channel: &[u8]) -> u64 {
        self.lock().channels.get(channel).copied().unwrap_or(0)
    }

    /// Returns the channels with subscribers that match. The names are shared, and compared without the lock: the
    /// publishers of all engines wait for it.
    ///
    /// # Errors
    /// The number of channels that match, if it is over `max`.
    pub(super) fn channels(&self, pattern: Option<&Pattern>, max: usize) -> Result<Vec<Arc<[u8]>>, usize> {
        let mut names: Vec<_> = {
            let tables = self.lock();
            let count = tables.channels.len();
            if pattern.is_none() && count > max {
                return Err(count);
            }
            tables.channels.keys().cloned().collect()
        };
        if let Some(pattern) = pattern {
            names.retain(|name| pattern.matches(name));
        }
        if names.len() > max { Err(names.len()) } else { Ok(names) }
    }

    /// Returns the number of different patterns.
    pub(super) fn patterns(&self) -> usize {
        self.lock().patterns.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SubscriptionKind::{Channel, Pattern as Glob, Shard};

    #[test]
    fn receivers_are_counted_by_name_and_by_pattern() {
        let directory = Directory::default();
        assert_eq!(directory.receivers(b"a"), 0);
        for (kind, name) in [(Channel, "a"), (Channel, "a"), (Shard, "a"), (Glob, "*"), (Glob, "b*")] {
            directory.add(kind, name.as_bytes());
        }
        assert_eq!((directory.receivers(b"a"), directory.receivers(b"b1")), (4, 2));
        assert_eq!((directory.subscribers(b"a"), directory.subscribers(b"b1")), (3, 0));
        assert_eq!(directory.patterns(), 2);
        let none = Pattern::new(b"x*");
        let listed = directory.channels(None, 1).unwrap();
        assert_eq!(listed, [Arc::from(&b"a"[..])]);
        assert_eq!(Arc::strong_count(&listed[0]), 2, "the name is not copied");
        assert_eq!(directory.channels(Some(&Pattern::new(b"*")), 0), Err(1));
        assert!(directory.channels(Some(&none), 0).unwrap().is_empty());
        assert_eq!(directory.channels(None, 0), Err(1));
        directory.remove(Glob, b"*");
        directory.remove(Channel, b"a");
        assert_eq!((directory.receivers(b"a"), directory.receivers(b"b1")), (2, 1));
        for (kind, name) in [(Channel, "a"), (Shard, "a"), (Glob, "b*")] {
            directory.remove(kind, name.as_bytes());
        }
        assert_eq!((directory.receivers(b"a"), directory.patterns()), (0, 0));
    }
}
