//! Subscriptions to topics of this process.

use super::local::Local;
use crate::{
    clock,
    log::{
        Attach, Attached, Attachment, BatchSize, Checkpoint, Member, Outcome, Position, Removed, Start,
        Taken, shard_of,
    },
};
use smallvec::SmallVec;
use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use switchboard_core::Result;
use tokio::time::Sleep;

/// Entries that a subscription takes from its logs at a time: enough to spread the cost of the lock.
const BATCH: BatchSize = BatchSize { entries: 64, bytes: 64 << 10 };
/// A member of a group takes one entry at a time, so that the others receive theirs.
const ONE: BatchSize = BatchSize { entries: 1, bytes: usize::MAX };
/// Batches without a pause: then other tasks of the thread run, also when publishers are faster than this one.
const BATCHES_MAX: u32 = 32;
/// Takes nothing; entries whose period for the acknowledgement has passed become available.
const NONE: BatchSize = BatchSize { entries: 0, bytes: 0 };

/// Cursors of one subscription, and the entries that it has taken from their logs.
pub(super) struct LocalSubscription {
    local: Arc<Local>,
    member: Arc<Member>,
    attached: Attached,
    /// Index of the set that is read first: a busy shard does not delay the others.
    first: usize,
    /// Earliest redelivery, by set.
    deadlines: SmallVec<[Option<u64>; 1]>,
    is_group: bool,
    /// Period for acknowledgements.
    ack_wait: Option<Duration>,
    unacknowledged_max: usize,
    /// Outcome of the start.
    outcomes: VecDeque<LocalItem>,
    batch: VecDeque<Taken>,
    /// Empty between batches.
    removed: Removed,
    /// Batches since the last pause.
    batches: u32,
    /// Deadline and timer of the next redelivery.
    timer: Option<(u64, Pin<Box<Sleep>>)>,
    position: Option<Position>,
    checkpoint: Option<Box<Checkpoint>>,
    /// Checkpoint behind the outcome of the start: before it is delivered, a crash must not lose its gaps.
    next_checkpoint: Option<Box<Checkpoint>>,
    is_closed: bool,
}

/// Item of a subscription.
pub(super) enum LocalItem {
    Recovered,
    Taken(Taken),
}

impl LocalSubscription {
    pub(super) fn begin(
        local: &Arc<Local>,
        attach: &Attach,
        unacknowledged_max: usize,
    ) -> Result<LocalSubscription> {
        let member = Arc::<Member>::default();
        let attachment = local.log.attach(attach, &member, local.now())?;
        let Attachment { sets: attached, outcome, position, checkpoint } = attachment;
        attached.iter().for_each(|(shard, _)| member.keep_shards(1 << shard));
        let outcomes = match outcome {
            Outcome::Gaps(gaps) => gaps.into_iter().map(|gap| LocalItem::Taken(Taken::Gap(gap))).collect(),
            Outcome::None => VecDeque::new(),
            Outcome::Recovered => VecDeque::from([LocalItem::Recovered]),
        };
        let (checkpoint, next_checkpoint) = match checkpoint {
            Some(next) if !outcomes.is_empty() => (before_outcome(attach, &next), Some(next)),
            checkpoint => (checkpoint, None),
        };
        Ok(LocalSubscription {
            local: local.clone(),
            deadlines: attached.iter().map(|_| None).collect(),
            member,
            attached,
            first: 0,
            is_group: attach.group.is_some(),
            ack_wait: attach.ack.as_ref().map(|ack| ack.wait),
            unacknowledged_max,
            outcomes,
            batch: VecDeque::new(),
            removed: Removed::new(),
            batches: 0,
            timer: None,
            position,
            checkpoint,
            next_checkpoint,
            is_closed: false,
        })
    }

    pub(super) fn is_group(&self) -> bool {
        self.is_group
    }

    pub(super) fn unacknowledged(&self) -> usize {
        self.member.unacknowledged()
    }

    /// Returns the position before the first entry, of a subscription to one topic.
    pub(super) fn position(&self) -> Option<Position> {
        self.position
    }

    /// Returns the progress of a subscription to a pattern; `None` before the outcome of a start by time.
    pub(super) fn checkpoint(&self) -> Option<&Checkpoint> {
        self.checkpoint.as_deref()
    }

    /// Returns the progress behind the outcome of the start.
    pub(super) fn next_checkpoint(&self) -> Option<&Checkpoint> {
        self.next_checkpoint.as_deref().or_else(|| self.checkpoint())
    }

    /// Returns the number of entries that were taken and not delivered.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.batch.len()
    }

    #[inline]
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<LocalItem>> {
        if let Some(outcome) = self.outcomes.pop_front() {
            if self.outcomes.is_empty() && self.next_checkpoint.is_some() {
                self.checkpoint = self.next_checkpoint.take();
            }
            return Poll::Ready(Some(outcome));
        }
        if self.batch.is_empty() {
            if self.is_closed {
                return Poll::Ready(None);
            }
            ready!(self.poll_batch(cx));
        }
        let taken = self.batch.pop_front();
        match &taken {
            Some(Taken::Entry(taken)) => {
                if let Some(checkpoint) = &mut self.checkpoint {
                    checkpoint.advance(shard_of(taken.topic.hash()), taken.sequence);
                }
            }
            Some(Taken::Closed(_)) => self.close(),
            _ => {}
        }
        Poll::Ready(taken.map(LocalItem::Taken))
    }

    /// Fills the batch, or pauses.
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.batches == BATCHES_MAX {
            self.batches = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let polled = self.poll_entries(cx);
        self.batches = if polled.is_ready() { self.batches + 1 } else { 0 };
        polled
    }

    fn poll_entries(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let mut shards = self.member.take_shards(cx.waker());
            let now = self.local.now();
            if self.is_full() {
                shards |= self.release_due(now);
            }
            if self.is_full() {
                // Kept for later; another member receives the entries now.
                self.member.keep_shards(shards);
                let pending = self.attached.iter().filter(|(shard, _)| shards & 1 << shard != 0);
                pending.for_each(|attached| self.local.log.pass(*attached, &self.member, now));
            } else {
                self.take(shards | self.due(now), now);
                if !self.batch.is_empty() {
                    return Poll::Ready(());
                }
            }
            ready!(self.poll_timer(now, cx));
        }
    }

    fn is_full(&self) -> bool {
        self.ack_wait.is_some() && self.member.unacknowledged() >= self.unacknowledged_max
    }

    /// Takes the next entries of these shards; those that may have more are kept.
    fn take(&mut self, mut shards: u32, now: u64) {
        let size = if self.is_group { ONE } else { BATCH };
        let mut left = size;
        let sets = self.attached.len();
        for index in (self.first..sets).chain(0..self.first) {
            let attached = self.attached[index];
            let bit = 1 << attached.0;
            if shards & bit == 0 {
                continue;
            }
            if left.entries == 0 || left.bytes == 0 {
                self.first = index;
                break;
            }
            let after =
                self.local.log.take(attached, &self.member, left, now, &mut self.batch, &mut self.removed);
            left.entries = size.entries.saturating_sub(self.batch.len());
            left.bytes = left.bytes.saturating_sub(after.bytes);
            self.deadlines[index] = after.deadline;
            if !after.has_more {
                shards &= !bit;
            }
        }
        if shards != 0 {
            self.member.keep_shards(shards);
        }
    }

    /// Returns the shards in which a redelivery is due.
    fn due(&self, now: u64) -> u32 {
        let sets = self.attached.iter().zip(&self.deadlines);
        let due = sets.filter(|(_, deadline)| deadline.is_some_and(|deadline| deadline <= now));
        due.fold(0, |shards, ((shard, _), _)| shards | 1 << shard)
    }

    /// Makes entries available whose period has passed; returns their shards.
    fn release_due(&mut self, now: u64) -> u32 {
        let due = self.due(now);
        for (attached, deadline) in self.attached.iter().zip(&mut self.deadlines) {
            if due & 1 << attached.0 != 0 {
                let log = &self.local.log;
                *deadline =
                    log.take(*attached, &self.member, NONE, now, &mut self.batch, &mut self.removed).deadline;
            }
        }
        due
    }

    /// Waits for the next redelivery; without one the stream waits for entries.
    fn poll_timer(&mut self, now: u64, cx: &mut Context<'_>) -> Poll<()> {
        let Some(wait) = self.ack_wait else { return Poll::Pending };
        // Entries that other members receive from now on are due after a whole period.
        let deadline = self.deadlines.iter().flatten().copied().chain([clock::after(now, wait)]).min();
        let Some(deadline) = deadline else { return Poll::Pending };
        let timer = match &mut self.timer {
            // One that fires earlier costs a turn, and a new one an allocation.
            Some((known, timer)) if *known <= deadline => timer,
            timer => {
                let Some(new) = self.local.clock.timer(deadline) else { return Poll::Pending };
                &mut timer.insert((deadline, new)).1
            }
        };
        ready!(timer.as_mut().poll(cx));
        self.timer = None;
        // Deadlines of other members may not be known yet.
        self.deadlines.fill(Some(0));
        Poll::Ready(())
    }

    /// Leaves the entries to the other members of the group until the next poll.
    pub(super) fn pass(&mut self) {
        let now = self.local.now();
        for attached in &self.attached {
            self.local.log.pass(*attached, &self.member, now);
            self.member.keep_shards(1 << attached.0);
        }
    }

    fn close(&mut self) {
        if !std::mem::replace(&mut self.is_closed, true) {
            self.batch.clear();
            self.local.log.detach(&self.attached, &self.member, self.local.now());
        }
    }
}

impl Drop for LocalSubscription {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns the checkpoint that a subscription continues after, as long as it has not delivered the outcome.
fn before_outcome(attach: &Attach, next: &Checkpoint) -> Option<Box<Checkpoint>> {
    let Start::Behind(sequences) = attach.start else { return None };
    Some(Box::new(Checkpoint::new(next.epoch, sequences.to_vec())))
}
