//! The announcements that a browser has received, and how long each is valid.

use super::records::Announcement;
use std::{collections::BTreeMap, time::Duration};
use switchboard::discover::Instance;
use tokio::time::Instant;

/// A response that arrives so soon after a goodbye may have been sent before it: responders of other implementations
/// respond and end at the same time.
const DOUBT: Duration = Duration::from_secs(1);

/// Goodbyes within a second that are remembered; limited, because any host on the network can send them.
const GONE_MAX: usize = 1024;
/// Labels that are stored; limited, because any host on the network can choose them. Further ones are ignored until
/// others expire.
const LABELS_MAX: usize = 4096;

/// Maps each label to its instances and the time at which they expire.
#[derive(Default)]
pub(super) struct InstanceCache {
    labels: BTreeMap<String, (Vec<Instance>, Instant)>,
    /// Labels whose goodbye was received, and until when responses are in doubt.
    gone: BTreeMap<String, Instant>,
}

/// The effect of an announcement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum News {
    None,
    Changed,
    /// Changed, and expires soon unless the response to a new query confirms it.
    Doubted(Instant),
}

impl InstanceCache {
    /// Applies an announcement.
    pub(super) fn take(&mut self, announcement: Announcement, now: Instant) -> News {
        let (label, instances, ttl) = match announcement {
            Announcement::Gone(label) => {
                let Some(_) = self.labels.remove(&label) else { return News::None };
                if self.gone.len() < GONE_MAX {
                    self.gone.insert(label, now + DOUBT);
                }
                return News::Changed;
            }
            Announcement::Present(label, instances, ttl) => (label, instances, ttl),
        };
        if self.labels.len() >= LABELS_MAX && !self.labels.contains_key(&label) {
            return News::None;
        }
        let doubted = self.gone.get(&label).copied().filter(|until| *until > now);
        let until = doubted.map_or(now + ttl, |until| (now + ttl).min(until + DOUBT));
        match self.labels.get_mut(&label) {
            Some((before, ends)) if *before == instances => {
                *ends = until;
                return News::None;
            }
            _ => self.labels.insert(label, (instances, until)),
        };
        doubted.map_or(News::Changed, News::Doubted)
    }

    /// Returns when the next label or doubt expires.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.labels.values().map(|(_, until)| *until).chain(self.gone.values().copied()).min()
    }

    /// Removes expired labels; returns whether there were any.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let before = self.labels.len();
        self.labels.retain(|_, (_, until)| *until > now);
        self.gone.retain(|_, until| *until > now);
        self.labels.len() < before
    }

    pub(super) fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.labels.values().flat_map(|(instances, _)| instances)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are(id: u16) -> Announcement {
        let instance = Instance::new("s", format!("tcp://h:{id}"));
        Announcement::Present("label".to_owned(), vec![instance], Duration::from_secs(45))
    }

    fn gone() -> Announcement {
        Announcement::Gone("label".to_owned())
    }

    #[test]
    fn stored_labels_are_limited() {
        let (mut cache, now) = (InstanceCache::default(), Instant::now());
        let are = |label: usize| {
            let instance = Instance::new("s", format!("tcp://h:{}", label % 60_000));
            Announcement::Present(label.to_string(), vec![instance], Duration::from_secs(45))
        };
        for label in 0..3 * LABELS_MAX {
            cache.take(are(label), now);
        }
        assert_eq!(cache.instances().count(), LABELS_MAX);
        assert_eq!(cache.take(are(0), now), News::None, "stored labels stay");
        assert!(cache.expire(now + Duration::from_secs(60)));
        assert_eq!(cache.take(are(LABELS_MAX + 1), now), News::Changed);
    }

    #[test]
    fn response_that_arrives_after_a_goodbye_expires_soon() {
        let (mut cache, now) = (InstanceCache::default(), Instant::now());
        assert_eq!(cache.take(are(1), now), News::Changed);
        assert_eq!(cache.take(gone(), now), News::Changed);
        assert_eq!(cache.take(gone(), now), News::None);
        // The response was sent before the goodbye.
        assert_eq!(cache.take(are(1), now), News::Doubted(now + DOUBT));
        assert!(!cache.expire(now + DOUBT), "a response to the query may still arrive");
        assert!(cache.expire(now + 2 * DOUBT) && cache.instances().next().is_none());
        assert_eq!(cache.ends(), None);
    }

    #[test]
    fn confirmed_instance_stays_after_a_goodbye() {
        let (mut cache, now) = (InstanceCache::default(), Instant::now());
        cache.take(are(1), now);
        cache.take(gone(), now);
        assert_eq!(cache.take(are(2), now), News::Doubted(now + DOUBT));
        cache.expire(now + DOUBT);
        // The response to the query that was sent when the doubt began.
        assert_eq!(cache.take(are(2), now + DOUBT), News::None);
        assert!(!cache.expire(now + Duration::from_secs(30)) && cache.instances().count() == 1);
        assert_eq!(cache.ends(), Some(now + DOUBT + Duration::from_secs(45)));
    }
}
