//! Subscriptions: streams of entries, gaps and outcomes.

use super::{Bus, Delivery, Message};
use crate::{
    clock,
    log::{Attach, Attached, BatchSize, Member, Outcome, Taken},
};
use bytes::Bytes;
use futures_core::Stream;
use smallvec::SmallVec;
use std::{
    collections::VecDeque,
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use switchboard_core::Result;
use switchboard_wire::Codec;
use tokio::time::Sleep;

/// Entries that a subscription takes from its logs at a time: enough to spread the cost of the lock.
const BATCH: BatchSize = BatchSize { entries: 64, bytes: 64 << 10 };
/// A member of a group takes one entry at a time, so that the others receive theirs.
const ONE: BatchSize = BatchSize { entries: 1, bytes: usize::MAX };
/// Batches without a pause: then other tasks of the thread run, also when publishers are faster than this one.
const BATCHES_MAX: u32 = 32;
/// Takes nothing; entries whose period for the acknowledgement has passed become available.
const NONE: BatchSize = BatchSize { entries: 0, bytes: 0 };

/// A stream of the entries of a topic or of all topics of a pattern; made by [`Bus::subscribe`].
///
/// Entries of a topic arrive in their order. Dropping it ends the subscription; unacknowledged entries then go to the
/// other members of the group.
///
/// ```
/// # use switchboard_message::{Bus, Delivery};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> switchboard_core::Result<()> {
/// let bus = Bus::new();
/// let mut lines = bus.subscribe::<String>("log/*").await?;
/// bus.publish("log/web", &"started".to_owned()).await?;
/// # bus.publish("log/web", &"stopped".to_owned()).await?;
/// while let Some(delivery) = lines.next().await? {
///     match delivery {
///         Delivery::Entry(line) if *line == "stopped" => break,
///         Delivery::Entry(line) => println!("{}: {}", line.topic(), *line),
///         Delivery::Gap(gap) => println!("{gap}"),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Subscription<T> {
    bus: Bus,
    member: Arc<Member>,
    attached: Attached,
    /// Index of the set that is read first: a busy shard does not delay the others.
    first: usize,
    /// Earliest redelivery, by set.
    deadlines: SmallVec<[Option<u64>; 1]>,
    decode: fn(Codec, Bytes) -> Result<T>,
    is_group: bool,
    /// Period for acknowledgements.
    ack_wait: Option<Duration>,
    unacknowledged_max: usize,
    /// Outcome of the start.
    outcomes: VecDeque<Delivery<T>>,
    batch: VecDeque<Taken>,
    /// Batches since the last pause.
    batches: u32,
    /// Deadline and timer of the next redelivery.
    timer: Option<(u64, Pin<Box<Sleep>>)>,
    is_closed: bool,
}

// No field is pinned in place.
impl<T> Unpin for Subscription<T> {}

impl<T> Subscription<T> {
    pub(super) fn begin(
        bus: &Bus,
        attach: &Attach,
        decode: fn(Codec, Bytes) -> Result<T>,
        unacknowledged_max: usize,
    ) -> Result<Subscription<T>> {
        let member = Arc::<Member>::default();
        let (attached, outcome) = bus.inner.log.attach(attach, &member, bus.now())?;
        attached.iter().for_each(|(shard, _)| member.keep_shards(1 << shard));
        let outcomes = match outcome {
            Outcome::Gaps(gaps) => gaps.into_iter().map(Delivery::Gap).collect(),
            Outcome::None => VecDeque::new(),
            Outcome::Recovered => VecDeque::from([Delivery::Recovered]),
        };
        Ok(Subscription {
            bus: bus.clone(),
            deadlines: attached.iter().map(|_| None).collect(),
            member,
            attached,
            first: 0,
            decode,
            is_group: attach.group.is_some(),
            ack_wait: attach.ack.as_ref().map(|ack| ack.wait),
            unacknowledged_max,
            outcomes,
            batch: VecDeque::new(),
            batches: 0,
            timer: None,
            is_closed: false,
        })
    }

    /// Returns the next item; `None` after the subscription was closed.
    ///
    /// Cancel safe: a dropped `next` loses no item. The other members of a group receive the entries that arrive before
    /// the next call.
    ///
    /// # Errors
    /// `ResourceExhausted` when the topic closes slow readers and this one was too slow: the subscription has ended.
    /// The error of the codec for an entry that cannot be decoded; the next call continues with the entry after it.
    pub async fn next(&mut self) -> Result<Option<Delivery<T>>> {
        let mut next = Next { subscription: self, is_pending: false };
        poll_fn(|cx| next.poll(cx)).await.transpose()
    }

    /// Returns the number of entries that this member has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.member.unacknowledged()
    }

    fn poll_delivery(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Delivery<T>>>> {
        if let Some(outcome) = self.outcomes.pop_front() {
            return Poll::Ready(Some(Ok(outcome)));
        }
        if self.batch.is_empty() {
            if self.is_closed {
                return Poll::Ready(None);
            }
            ready!(self.poll_batch(cx));
        }
        Poll::Ready(self.batch.pop_front().map(|taken| match taken {
            Taken::Entry(taken) => Message::decode(taken, &self.bus, self.decode).map(Delivery::Entry),
            Taken::Gap(gap) => Ok(Delivery::Gap(gap)),
            Taken::Closed(status) => {
                self.close();
                Err(status)
            }
        }))
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
            let now = self.bus.now();
            if self.is_full() {
                shards |= self.release_due(now);
            }
            if self.is_full() {
                // Kept for later; another member receives the entries now.
                self.member.keep_shards(shards);
                let pending = self.attached.iter().filter(|(shard, _)| shards & 1 << shard != 0);
                pending.for_each(|attached| self.bus.inner.log.pass(*attached, &self.member, now));
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
            let after = self.bus.inner.log.take(attached, &self.member, left, now, &mut self.batch);
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
                let log = &self.bus.inner.log;
                *deadline = log.take(*attached, &self.member, NONE, now, &mut self.batch).deadline;
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
                let Some(new) = self.bus.inner.clock.timer(deadline) else { return Poll::Pending };
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
    fn pass(&mut self) {
        let now = self.bus.now();
        for attached in &self.attached {
            self.bus.inner.log.pass(*attached, &self.member, now);
            self.member.keep_shards(1 << attached.0);
        }
    }

    fn close(&mut self) {
        if !std::mem::replace(&mut self.is_closed, true) {
            self.batch.clear();
            self.bus.inner.log.detach(&self.attached, &self.member, self.bus.now());
        }
    }
}

/// A call of [`Subscription::next`].
struct Next<'a, T> {
    subscription: &'a mut Subscription<T>,
    is_pending: bool,
}

impl<T> Next<'_, T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Delivery<T>>>> {
        let polled = self.subscription.poll_delivery(cx);
        self.is_pending = polled.is_pending();
        polled
    }
}

impl<T> Drop for Next<'_, T> {
    fn drop(&mut self) {
        if self.is_pending && self.subscription.is_group {
            self.subscription.pass();
        }
    }
}

impl<T> Drop for Subscription<T> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<T> Stream for Subscription<T> {
    type Item = Result<Delivery<T>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_delivery(cx)
    }
}

impl<T> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("batch", &self.batch.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Publication;

    #[tokio::test]
    async fn a_pattern_takes_one_batch_from_all_shards() {
        let bus = Bus::new();
        let mut all = bus.subscribe_encoded(">").await.unwrap();
        for (bytes, max) in [(40 << 10, 2), (0, 64)] {
            for topic in 0..640 {
                let topic = format!("t/{}", topic % 64);
                bus.publish_encoded(&topic, Publication::new(Codec::Raw, vec![0; bytes])).await.unwrap();
            }
            for _ in 0..640 {
                assert!(matches!(all.next().await, Ok(Some(Delivery::Entry(_)))));
                assert!(all.batch.len() < max, "{bytes}: {}", all.batch.len());
            }
        }
    }
}
