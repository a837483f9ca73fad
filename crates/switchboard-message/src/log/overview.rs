//! Counters of all topics together, and lists of groups, in pages.

use super::{
    GapReason, GroupKey, Log, NameRef, SHARDS, Source, set::CursorSet, shard::Shard, shard_of,
    topic_log::TopicLog,
};

/// Slots of cursor sets that are visited under one lock.
const LOCKED_MAX: usize = 1_024;
/// Slots that one page visits: a bus with many subscriptions and few groups is not visited at once.
const VISITED_MAX: usize = 16_384;

/// Numbers of events on topics, also on those that were removed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Totals {
    pub(crate) published: u64,
    pub(crate) duplicates: u64,
    pub(crate) conflated: u64,
    /// Entries that subscriptions missed, by reason.
    pub(crate) missing: [u64; GapReason::ALL.len()],
}

impl Totals {
    /// Adds the counters of a topic.
    pub(super) fn add(&mut self, topic: &TopicLog) {
        self.published += topic.published;
        self.duplicates += topic.duplicates;
        self.conflated += topic.ring.conflated;
        for (sum, (_, count)) in self.missing.iter_mut().zip(topic.missing()) {
            // A position from outside may be any number.
            *sum = sum.saturating_add(count);
        }
    }

    fn merge(&mut self, other: &Totals) {
        self.published += other.published;
        self.duplicates += other.duplicates;
        self.conflated += other.conflated;
        for (sum, count) in self.missing.iter_mut().zip(other.missing) {
            *sum = sum.saturating_add(count);
        }
    }
}

/// Counters of a topic for pages, which take a lock and a search.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Unread {
    /// Cursors with unread entries.
    pub(crate) cursors_behind: usize,
    /// Unread entries of the slowest cursor.
    pub(crate) lag: u64,
    /// Entries that subscriptions missed, by reason.
    pub(crate) missing: [u64; GapReason::ALL.len()],
}

/// A group in a list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ListedGroup {
    pub(crate) key: GroupKey,
    /// Subscriptions of the group.
    pub(crate) members: u32,
    /// Topics of the group with unread entries.
    pub(crate) topics_behind: usize,
    /// Entries in the logs that no member has read.
    pub(crate) unread: u64,
    /// Delivered entries that are not acknowledged.
    pub(crate) unacknowledged: usize,
    /// Entries that wait to be delivered again.
    pub(crate) redeliveries: usize,
}

impl Log {
    /// Returns the sums over all topics. Visits all of them.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        (0..SHARDS as u32).for_each(|index| self.shard(index).add_totals(&mut totals));
        totals
    }

    /// Returns the counters of a topic that pages show.
    pub(crate) fn unread(&self, name: NameRef<'_>) -> Option<Unread> {
        self.shard(shard_of(name.hash)).unread(name)
    }

    /// Returns at most `limit` groups with members, from a place on, and the place after them. A place is a shard and
    /// an index in it.
    pub(crate) fn list_groups(
        &self,
        place: (u32, u32),
        limit: usize,
    ) -> (Vec<ListedGroup>, Option<(u32, u32)>) {
        let (mut shard, mut index, mut visited) = (place.0, place.1, 0);
        let mut groups = Vec::new();
        let mut next = None;
        while shard < SHARDS as u32 {
            if groups.len() >= limit || visited >= VISITED_MAX {
                next = Some((shard, index));
                break;
            }
            visited += LOCKED_MAX;
            match self.shard(shard).list_groups(index, limit, &mut groups) {
                Some(next) => index = next,
                None => (shard, index) = (shard + 1, 0),
            }
        }
        // The group of a pattern has a set in each shard, and is listed with that of the first one.
        for group in groups.iter_mut().filter(|group| matches!(group.key.source, Source::Pattern(_))) {
            (1..SHARDS as u32).for_each(|index| self.shard(index).add_to_group(group));
        }
        (groups, next)
    }
}

impl Shard {
    fn add_totals(&self, totals: &mut Totals) {
        totals.merge(&self.removed);
        self.topics.iter().flatten().for_each(|topic| totals.add(topic));
    }

    fn unread(&self, name: NameRef<'_>) -> Option<Unread> {
        let topic = self.topic(self.find_topic(name)?)?;
        let mut missing = [0; GapReason::ALL.len()];
        missing.iter_mut().zip(topic.missing()).for_each(|(to, (_, count))| *to = count);
        Some(Unread {
            cursors_behind: (topic.cursors as usize).saturating_sub(topic.idle.len()),
            lag: topic.ring.unread(),
            missing,
        })
    }

    /// Appends groups from an index on; returns the index after them, if there are more sets.
    fn list_groups(&self, index: u32, limit: usize, groups: &mut Vec<ListedGroup>) -> Option<u32> {
        let end = self.sets.len().min((index as usize).saturating_add(LOCKED_MAX));
        for at in index as usize..end {
            if groups.len() >= limit {
                return Some(at as u32);
            }
            let Some(set) = &self.sets[at].set else { continue };
            let Some(group) = &set.group else { continue };
            if self.index > 0 && matches!(set.source, Source::Pattern(_)) {
                continue;
            }
            let mut listed = ListedGroup {
                key: group.key.clone(),
                members: set.members,
                topics_behind: 0,
                unread: 0,
                unacknowledged: 0,
                redeliveries: 0,
            };
            self.add_set(set, &mut listed);
            groups.push(listed);
        }
        (end < self.sets.len()).then_some(end as u32)
    }

    fn add_to_group(&self, listed: &mut ListedGroup) {
        let slot = self.groups.get(&listed.key).and_then(|index| self.sets.get(*index as usize));
        if let Some(set) = slot.and_then(|slot| slot.set.as_ref()) {
            self.add_set(set, listed);
        }
    }

    fn add_set(&self, set: &CursorSet, listed: &mut ListedGroup) {
        listed.topics_behind += set.ready.len();
        for cursor in set.cursors() {
            let head = self.topic(cursor.topic).map_or(cursor.next, |topic| topic.ring.next_offset());
            listed.unread = listed.unread.saturating_add(head.saturating_sub(cursor.next));
        }
        if let Some(group) = &set.group {
            listed.unacknowledged += group.unacknowledged.len();
            listed.redeliveries += group.redeliveries.len();
        }
    }
}
