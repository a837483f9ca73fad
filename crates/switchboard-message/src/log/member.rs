//! Receiving side of a subscription, as the shards see it.

use super::{
    Entry, Gap, Position, Topic,
    set::{CursorSet, SetId},
    shard_of,
};
use smallvec::SmallVec;
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    task::Waker,
};
use switchboard_wire::Status;
use tokio::sync::Notify;

/// A subscription that may wait in several shards.
#[derive(Debug, Default)]
pub(crate) struct Member {
    /// A bit per shard that may have entries for the subscription.
    shards: AtomicU32,
    waker: Mutex<Option<Waker>>,
    /// Entries that were delivered and not acknowledged.
    unacknowledged: AtomicUsize,
}

impl Member {
    /// Stores the waker, then returns the shards that may have entries, and clears their bits.
    pub(crate) fn take_shards(&self, waker: &Waker) -> u32 {
        let lock = || self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = lock().as_ref().is_some_and(|known| known.will_wake(waker));
        if !is_known {
            // Cloned and dropped without the lock: the last waker of a task drops the task and its subscriptions, which
            // may wake this member.
            let new = waker.clone();
            let replaced = lock().replace(new);
            drop(replaced);
        }
        self.shards.swap(0, Ordering::AcqRel)
    }

    /// Marks shards as not yet read.
    pub(crate) fn keep_shards(&self, shards: u32) {
        self.shards.fetch_or(shards, Ordering::AcqRel);
    }

    pub(super) fn wake(&self, shard: u32) {
        self.keep_shards(1 << shard);
        self.wake_task();
    }

    fn wake_task(&self) {
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn unacknowledged(&self) -> usize {
        self.unacknowledged.load(Ordering::Acquire)
    }

    pub(super) fn delivered(&self) {
        self.unacknowledged.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that an entry was acknowledged or went to another member.
    pub(super) fn released(&self) {
        self.unacknowledged.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An item for a subscription.
#[derive(Debug)]
pub(crate) enum Taken {
    Entry(TakenEntry),
    Gap(Gap),
    /// The subscription was too slow for its topic and has ended.
    Closed(Status),
}

#[derive(Debug)]
pub(crate) struct TakenEntry {
    pub(crate) topic: Topic,
    pub(crate) position: Position,
    pub(crate) entry: Entry,
    /// Sequence number in the shard of the topic.
    pub(crate) sequence: u64,
    /// Number of the delivery, from 1.
    pub(crate) attempt: u32,
    /// The group that it is to be acknowledged to.
    pub(crate) group: Option<SetId>,
}

impl TakenEntry {
    /// Identifies the delivery for its acknowledgement, in groups that acknowledge.
    pub(crate) fn token(&self) -> Option<Token> {
        let (shard, sequence, attempt) = (shard_of(self.topic.hash()), self.sequence, self.attempt);
        self.group.map(|set| Token { shard, set, sequence, attempt })
    }
}

/// Identifies an unacknowledged entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) shard: u32,
    pub(super) set: SetId,
    pub(super) sequence: u64,
    /// Number of the delivery: a late rejection does not end a later one.
    pub(super) attempt: u32,
}

/// An entry that was delivered as often as its group allows.
#[derive(Debug)]
pub(super) struct DeadLetter {
    pub(super) to: Topic,
    pub(super) entry: Entry,
}

/// Work after the lock of a shard is released: notifications, and drops of what applications own, which may use the
/// bus.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    pub(super) members: SmallVec<[Arc<Member>; 2]>,
    /// Members that may receive again, after an acknowledgement.
    pub(super) relieved: SmallVec<[Arc<Member>; 2]>,
    /// Topics that accept entries again.
    pub(super) rooms: SmallVec<[Arc<Notify>; 1]>,
    pub(super) dead_letters: Vec<DeadLetter>,
    /// Entries that the logs and the groups do not hold any more.
    pub(super) removed: Removed,
    /// Cursor sets that have ended.
    pub(super) ended: Vec<CursorSet>,
}

/// Entries to be dropped without a lock. Publications remove one or two; a subscription has a buffer for a batch.
pub(crate) type Removed = SmallVec<[Entry; 2]>;

impl Deferred {
    /// Wakes all; returns the dead letters.
    pub(super) fn send(&mut self, shard: u32) -> Vec<DeadLetter> {
        self.members.iter().for_each(|member| member.wake(shard));
        self.relieved.iter().for_each(|member| member.wake_task());
        self.rooms.iter().for_each(|room| room.notify_waiters());
        std::mem::take(&mut self.dead_letters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::atomic::AtomicBool, task::Wake};

    /// A waker that notes at its end whether the member can be locked.
    struct Probe(Arc<Member>, Arc<AtomicBool>);

    impl Wake for Probe {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Probe {
        fn drop(&mut self) {
            self.1.store(self.0.waker.try_lock().is_ok(), Ordering::Release);
        }
    }

    #[test]
    fn a_replaced_waker_is_dropped_without_a_lock() {
        let (member, is_free) = (Arc::<Member>::default(), Arc::new(AtomicBool::new(false)));
        member.take_shards(&Waker::from(Arc::new(Probe(member.clone(), is_free.clone()))));
        member.take_shards(Waker::noop());
        assert!(is_free.load(Ordering::Acquire));
    }
}
