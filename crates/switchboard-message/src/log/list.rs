//! Lists of topics, in pages.

use super::{Log, SHARDS, Source, Topic, TopicStats, shard::Shard, shard_of};

/// A topic in a list.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ListedTopic {
    /// The topic.
    pub topic: Topic,
    /// Its counters.
    pub stats: TopicStats,
}

impl ListedTopic {
    /// Creates an item of what another process has listed.
    pub fn new(topic: Topic, stats: TopicStats) -> ListedTopic {
        ListedTopic { topic, stats }
    }
}

/// Topics that one page visits: a page of a pattern that matches few topics does not visit all.
const VISITED_MAX: usize = 16_384;
/// Topics that are visited under one lock.
const LOCKED_MAX: usize = 1_024;

impl Log {
    /// Returns at most `limit` topics from a place in the logs on, and the place after them. A place is a shard and an
    /// index in it, which a topic keeps while it exists.
    pub(crate) fn list(
        &self,
        source: &Source,
        place: (u32, u32),
        limit: usize,
        now: u64,
    ) -> (Vec<ListedTopic>, Option<(u32, u32)>) {
        let mut listed = Vec::new();
        if let Source::Topic(topic) = source {
            let stats = self.with(shard_of(topic.hash()), now, |shard, _| shard.topic_stats(topic.into()));
            listed.extend(stats.map(|stats| ListedTopic { topic: topic.clone(), stats }));
            return (listed, None);
        }
        let (mut shard, mut index, mut visited) = (place.0, place.1, 0);
        while shard < SHARDS as u32 {
            if listed.len() >= limit || visited >= VISITED_MAX {
                return (listed, Some((shard, index)));
            }
            let next = self.with(shard, now, |shard, _| shard.list(source, index, limit, &mut listed));
            visited += LOCKED_MAX;
            match next {
                Some(next) => index = next,
                None => (shard, index) = (shard + 1, 0),
            }
        }
        (listed, None)
    }
}

impl Shard {
    /// Appends topics from an index on; returns the index after them, if there are more topics.
    fn list(&self, source: &Source, index: u32, limit: usize, listed: &mut Vec<ListedTopic>) -> Option<u32> {
        let end = self.topics.len().min(index as usize + LOCKED_MAX);
        for at in index as usize..end {
            if listed.len() >= limit {
                return Some(at as u32);
            }
            let Some(log) = &self.topics[at] else { continue };
            let name = log.topic.name();
            let is_listed = match source {
                Source::Pattern(pattern) => pattern.matches(name),
                Source::Topic(topic) => *topic == log.topic,
            };
            if is_listed {
                listed.push(ListedTopic { topic: log.topic.clone(), stats: log.stats() });
            }
        }
        (end < self.topics.len()).then_some(end as u32)
    }
}
