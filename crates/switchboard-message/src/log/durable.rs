//! Durable cursors without a member: positions that are kept while a client is disconnected.

use super::{
    Gap, GapReason, Position, Start, Topic,
    group::GroupEntry,
    set::{GroupKey, SetId},
    shard::{Shard, Shared},
};
use std::{collections::VecDeque, sync::atomic::Ordering};
use switchboard_core::Result;
use switchboard_wire::Status;

/// A durable cursor without a member.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) parked_at: u64,
    pub(crate) cursors: Vec<ParkedCursor>,
    /// Missing entries that no member has received.
    pub(crate) gaps: VecDeque<Gap>,
}

#[derive(Clone, Debug)]
pub(crate) struct ParkedCursor {
    pub(crate) topic: Topic,
    /// Position after the newest entry that was delivered.
    pub(crate) next: Position,
    /// Unacknowledged entries before it, with the number of their deliveries.
    pub(crate) unacknowledged: Vec<(u64, u32)>,
}

impl Shard {
    /// Counts a new durable cursor.
    pub(super) fn count_durable(&mut self, key: &GroupKey, now: u64, shared: &Shared) -> Result<()> {
        if self.parked.contains_key(key) {
            return Ok(());
        }
        let max = shared.limits.durable_cursors_max;
        if shared.durables.load(Ordering::Relaxed) >= max {
            self.remove_old_parked(now, shared);
        }
        if shared.durables.load(Ordering::Relaxed) >= max {
            shared.durable_sweep.request();
            let text = format!(
                "durable cursor \"{}\" cannot be created; the limit is durable_cursors_max={max}; remove unused ones",
                key.name
            );
            return Err(Status::resource_exhausted(text));
        }
        shared.durables.fetch_add(1, Ordering::Relaxed);
        self.cursors_changed = true;
        Ok(())
    }

    /// Removes the durable cursors that had no member for longer than `durable_age_max`.
    pub(super) fn remove_old_parked(&mut self, now: u64, shared: &Shared) {
        let age_max = u64::try_from(shared.limits.durable_age_max.as_nanos()).unwrap_or(u64::MAX);
        let parked = self.parked.iter();
        let old = parked.filter(|(_, parked)| now.saturating_sub(parked.parked_at) >= age_max);
        for key in old.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.remove_parked(&key, shared);
        }
    }

    /// Removes a durable cursor without a member; returns whether there was one.
    pub(super) fn remove_parked(&mut self, key: &GroupKey, shared: &Shared) -> bool {
        let Some(parked) = self.parked.remove(key) else { return false };
        shared.durables.fetch_sub(1, Ordering::Relaxed);
        self.cursors_changed = true;
        for cursor in parked.cursors {
            let Some(index) = self.find_topic((&cursor.topic).into()) else { continue };
            if let Some(Some(topic)) = self.topics.get_mut(index as usize) {
                topic.parked = topic.parked.saturating_sub(1);
            }
            self.remove_after_use(index, shared);
        }
        true
    }

    /// Continues a durable cursor; without a parked one, the topic was created in the meantime.
    pub(super) fn resume(
        &mut self,
        id: SetId,
        index: u32,
        parked: Option<ParkedCursor>,
        now: u64,
        gaps: &mut Vec<Gap>,
    ) {
        let epoch = self.topic(index).map_or(0, |topic| topic.epoch);
        let is_parked = parked.is_some();
        let (after, unacknowledged) = match parked {
            Some(parked) => {
                let before = parked.next.offset.saturating_sub(1);
                (Position { offset: before, ..parked.next }, parked.unacknowledged)
            }
            None => (Position { epoch, offset: 0 }, Vec::new()),
        };
        if after.epoch == epoch {
            self.resume_unacknowledged(id, index, unacknowledged, now, gaps);
        }
        if is_parked && let Some(Some(topic)) = self.topics.get_mut(index as usize) {
            topic.parked = topic.parked.saturating_sub(1);
        }
        if let Some((next, gap)) = self.start(index, Start::After(after)) {
            self.report(index, gap, gaps);
            self.attach_cursor(id.index, index, next);
        }
    }

    fn resume_unacknowledged(
        &mut self,
        id: SetId,
        index: u32,
        unacknowledged: Vec<(u64, u32)>,
        now: u64,
        gaps: &mut Vec<Gap>,
    ) {
        let mut lost = 0;
        let Some((set, topics, _)) = self.set_and_topics(id) else { return };
        let (Some(group), Some(Some(topic))) = (&mut set.group, topics.get_mut(index as usize)) else {
            return;
        };
        for (offset, attempts) in unacknowledged {
            let slot = topic.ring.first_from(offset).filter(|slot| slot.offset == offset);
            let found = slot.and_then(|slot| Some((slot.sequence, slot.entry.clone()?)));
            match found.filter(|(_, entry)| !entry.is_expired(now)) {
                Some((sequence, entry)) => {
                    let entry = GroupEntry { topic: index, offset, entry, attempts };
                    group.redeliveries.insert(sequence, entry);
                }
                None => {
                    lost += 1;
                    gaps.push(Gap {
                        topic: topic.topic.clone(),
                        epoch: topic.epoch,
                        range: offset..offset + 1,
                        missing: (!topic.ring.is_keyed()).then_some(1),
                        reason: GapReason::Expired,
                    });
                }
            }
        }
        self.count_missing(index, GapReason::Expired, lost);
    }

    /// Keeps the positions of a durable cursor.
    pub(super) fn park(&mut self, id: SetId, now: u64) {
        let Some((set, topics, _)) = self.set_and_topics(id) else { return };
        let Some(group) = set.group.as_ref().filter(|group| group.key.is_durable) else { return };
        let key = group.key.clone();
        let cursors = set.cursors().iter().filter_map(|cursor| {
            let topic = topics.get_mut(cursor.topic as usize)?.as_mut()?;
            topic.parked += 1;
            let unacknowledged = group.redeliveries.values().filter(|entry| entry.topic == cursor.topic);
            Some(ParkedCursor {
                topic: topic.topic.clone(),
                next: Position { epoch: topic.epoch, offset: cursor.next },
                unacknowledged: unacknowledged.map(|entry| (entry.offset, entry.attempts)).collect(),
            })
        });
        let parked = Parked { parked_at: now, cursors: cursors.collect(), gaps: group.gaps.clone() };
        self.cursors_changed = true;
        self.parked.insert(key, parked);
    }
}
