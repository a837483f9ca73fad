//! The task that copies the entries of one topic, or of the topics of a pattern, in one direction.

use super::{
    Side,
    resume::{RECOVER_MAX, TOPICS_MIN},
    trail,
};
use crate::{
    Delivery, Message, Position, Publication, Selector, Subscription, Topic, bus::poll_ready, log::Source,
};
use bytes::Bytes;
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use switchboard_core::{Result, backoff, clock};
use switchboard_wire::{Code, Retry, Status};

/// Entries of one publication.
const BATCH_MAX: usize = 64;
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Time in which a publication without a response is repeated: half of that in which engines remember ids by default.
const REPEAT_MAX: Duration = Duration::from_secs(60);

/// Counters of a bridge.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) copied: AtomicU64,
    pub(super) returned: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) gaps: AtomicU64,
    pub(super) failure: Mutex<Option<Status>>,
}

/// One direction of a bridge.
pub(super) struct Copier {
    pub(super) from: Side,
    pub(super) to: Side,
    pub(super) source: Source,
    first_entries: usize,
    pub(super) counters: Arc<Counters>,
    /// Newest entry of each topic that was copied or passed over.
    pub(super) positions: HashMap<Topic, Position>,
    /// Newest entry of each topic of the pattern when the bridge began, until its first one is copied; `None` before
    /// they are noted.
    pub(super) heads: Option<HashMap<Topic, Position>>,
    /// Topics of the pattern that have delivered an entry since it was subscribed.
    pub(super) checked: HashSet<Topic>,
    /// Positions at which topics that are gone are forgotten.
    pub(super) topics_max: usize,
    /// Topic and epoch of the publication that has failed, and may have left copies.
    pub(super) unclear: Option<(Topic, u64)>,
    /// Interruptions since the last publication that succeeded.
    failures: u32,
    /// The destination takes one entry at a time.
    is_single: bool,
}

impl Copier {
    pub(super) fn new(
        from: Side,
        to: Side,
        selector: Selector,
        first_entries: usize,
        counters: Arc<Counters>,
    ) -> Result<Copier> {
        Ok(Copier {
            from,
            to,
            source: selector.into_source()?,
            first_entries,
            counters,
            positions: HashMap::new(),
            heads: None,
            checked: HashSet::new(),
            topics_max: TOPICS_MIN,
            unclear: None,
            failures: 0,
            is_single: false,
        })
    }

    /// Subscribes behind the newest copy that the destination keeps.
    pub(super) async fn subscribe(&mut self) -> Result<Subscription<Bytes>> {
        self.settle().await?;
        match self.source.clone() {
            Source::Topic(topic) => {
                let known = match self.positions.get(&topic) {
                    Some(position) => Some(*position),
                    None => self.recover(&topic).await?,
                };
                let subscribe = self.from.bus.subscribe_encoded(&topic);
                let subscription = match known {
                    Some(position) => subscribe.after(position).await,
                    None if self.first_entries > 0 => subscribe.last(self.first_entries).await,
                    None => subscribe.await,
                }?;
                // An entry that is not copied is the next one again after a failure.
                if let Some(position) = subscription.begins_after() {
                    self.positions.entry(topic).or_insert(position);
                }
                Ok(subscription)
            }
            Source::Pattern(pattern) => {
                if self.heads.is_none() {
                    self.heads = Some(self.listed().await?);
                }
                self.checked.clear();
                self.from.bus.subscribe_encoded(pattern).last(RECOVER_MAX).await
            }
        }
    }

    /// Copies until a failure that a retry does not help.
    pub(super) async fn run(mut self, mut subscription: Subscription<Bytes>) {
        loop {
            let Err(mut status) = self.copy(&mut subscription).await;
            subscription = loop {
                let is_permanent = is_permanent(&status);
                let (from, to) = (&self.from.name, &self.to.name);
                tracing::warn!(
                    target: "switchboard::bus", %from, %to, is_permanent, "a bridge is interrupted: {status}"
                );
                if is_permanent {
                    let mut failure = self.counters.failure.lock().unwrap_or_else(PoisonError::into_inner);
                    failure.get_or_insert(status);
                    return;
                }
                self.failures += 1;
                tokio::time::sleep(backoff::pause(self.failures, backoff::CONNECT_MIN, PAUSE_MAX)).await;
                match self.subscribe().await {
                    Ok(subscription) => break subscription,
                    Err(error) => status = error,
                }
            };
        }
    }

    async fn copy(&mut self, subscription: &mut Subscription<Bytes>) -> Result<std::convert::Infallible> {
        let ended = || Status::unavailable("the subscription has ended");
        loop {
            let mut next = Some(subscription.next().await?.ok_or_else(ended)?);
            // Those that are there make one publication, as long as they are of one topic.
            let mut batch: Vec<Message<Bytes>> = Vec::new();
            while let Some(delivery) = next.take() {
                match delivery {
                    Delivery::Entry(message) => {
                        // An entry that is passed over moves the position, also past those that wait.
                        let is_end = |first: &Message<Bytes>| {
                            first.topic() != message.topic() || self.is_returned(&message)
                        };
                        if batch.first().is_some_and(is_end) {
                            self.publish(std::mem::take(&mut batch)).await?;
                        }
                        if self.takes(&message).await? {
                            batch.push(message);
                        }
                    }
                    Delivery::Gap(_) => _ = self.counters.gaps.fetch_add(1, Ordering::Relaxed),
                    Delivery::Recovered => {}
                }
                if batch.len() < BATCH_MAX {
                    next = poll_ready(subscription).transpose()?;
                }
            }
            self.publish(batch).await?;
            self.forget_topics().await?;
        }
    }

    /// Returns whether an entry has been on one of the sides before.
    fn is_returned(&self, message: &Message<Bytes>) -> bool {
        trail::has_been(message.headers(), &self.from.name, &self.to.name)
    }

    /// Returns whether an entry is to be copied.
    async fn takes(&mut self, message: &Message<Bytes>) -> Result<bool> {
        let (topic, position) = (message.topic(), message.position());
        if matches!(self.source, Source::Pattern(_)) && !self.checked.contains(topic) {
            self.check_first(topic, position).await?;
        }
        let known = self.positions.get(topic);
        if known.is_some_and(|known| known.epoch == position.epoch && known.offset >= position.offset) {
            return Ok(false);
        }
        if self.is_returned(message) {
            self.counters.returned.fetch_add(1, Ordering::Relaxed);
            self.positions.insert(topic.clone(), position);
            return Ok(false);
        }
        Ok(true)
    }

    /// Finds the position of a topic of the pattern, and counts the entries between it and its first one since the
    /// pattern was subscribed.
    async fn check_first(&mut self, topic: &Topic, first: Position) -> Result<()> {
        let known = match self.positions.get(topic) {
            Some(position) => Some(*position),
            None => match self.recover(topic).await? {
                Some(position) => Some(position),
                None => self.heads.as_ref().and_then(|heads| heads.get(topic)).map(|head| {
                    let entries = self.first_entries.min(RECOVER_MAX) as u64;
                    Position { offset: head.offset.saturating_sub(entries), ..*head }
                }),
            },
        };
        if let Some(known) = known {
            if known.epoch == first.epoch && known.offset.saturating_add(1) < first.offset {
                self.counters.gaps.fetch_add(1, Ordering::Relaxed);
            }
            self.positions.insert(topic.clone(), known);
        }
        if let Some(heads) = &mut self.heads {
            heads.remove(topic);
        }
        self.checked.insert(topic.clone());
        Ok(())
    }

    /// Publishes entries of one topic until the destination has accepted or refused them.
    async fn publish(&mut self, batch: Vec<Message<Bytes>>) -> Result<()> {
        let Some(last) = batch.last() else { return Ok(()) };
        let (topic, position) = (last.topic().clone(), last.position());
        let published = self.publish_batch(&topic, &batch).await;
        if published.is_err() {
            self.unclear = Some((topic, position.epoch));
        } else {
            self.positions.insert(topic, position);
            self.failures = 0;
        }
        published
    }

    async fn publish_batch(&mut self, topic: &Topic, batch: &[Message<Bytes>]) -> Result<()> {
        let mut copies = Vec::with_capacity(batch.len());
        for message in batch {
            match self.publication(message) {
                Ok(copy) => copies.push((message.position(), copy)),
                Err(status) => self.refuse(topic, &status),
            }
        }
        if copies.len() > 1 && !self.is_single {
            let publications = copies.iter().map(|(_, copy)| copy.clone()).collect();
            match self.attempt(topic, publications).await {
                Ok(()) => {
                    self.counters.copied.fetch_add(copies.len() as u64, Ordering::Relaxed);
                    return Ok(());
                }
                // Its response is missing for too long.
                Err(status) if status.code() == Code::Unavailable => return Err(status),
                // One entry is refused, or batches are.
                Err(status) => self.is_single |= status.code() == Code::Unimplemented,
            }
        }
        for (position, copy) in copies {
            match self.attempt(topic, vec![copy]).await {
                Ok(()) => _ = self.counters.copied.fetch_add(1, Ordering::Relaxed),
                Err(status) if matches!(status.code(), Code::InvalidArgument | Code::ResourceExhausted) => {
                    self.refuse(topic, &status);
                }
                Err(status) => return Err(status),
            }
            self.positions.insert(topic.clone(), position);
        }
        Ok(())
    }

    fn refuse(&self, topic: &Topic, status: &Status) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            target: "switchboard::bus", %topic, to = %self.to.name, "a copy was refused: {status}"
        );
    }

    /// Publishes copies, repeatedly while the destination is away or full. Their ids make this safe for a time.
    async fn attempt(&self, topic: &Topic, copies: Vec<Publication>) -> Result<()> {
        let (mut failures, mut unclear_since) = (0, None);
        loop {
            let published = match &copies[..] {
                [copy] => self.to.bus.publish_encoded(topic, copy.clone()).await,
                copies => self.to.bus.publish_batch_encoded(topic, copies.to_vec()).await,
            };
            let Err(status) = published else { return Ok(()) };
            if status.code() == Code::Unavailable {
                let since = *unclear_since.get_or_insert_with(clock::now);
                if clock::since(since) >= REPEAT_MAX {
                    return Err(status);
                }
            } else if status.code() != Code::ResourceExhausted || status.retry() == Retry::No {
                return Err(status);
            }
            failures += 1;
            tokio::time::sleep(backoff::pause(failures, backoff::CONNECT_MIN, PAUSE_MAX)).await;
        }
    }

    /// Returns the copy of an entry. Without an id of its own, its position is the id.
    fn publication(&self, message: &Message<Bytes>) -> Result<Publication> {
        let position = message.position();
        let time = self.from.bus.time();
        let mut copy = message.entry().publication(time.unwrap_or(0));
        // Expiries are times of the process that has the topics.
        copy.expires_in = copy.expires_in.filter(|_| time.is_some());
        copy.reply_to = None;
        if copy.id.is_empty() {
            let Position { epoch, offset } = position;
            copy.id = format!("{} {epoch:x}:{offset:x}", self.from.name).into();
        }
        trail::add(&mut copy.headers, &self.from.name, position)?;
        Ok(copy)
    }
}

/// Returns whether an error does not pass by itself.
fn is_permanent(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated | Code::Unimplemented
    )
}
