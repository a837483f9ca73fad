//! The task that copies the entries of one topic, or of the topics of a pattern, in one direction.

use super::{Side, trail};
use crate::{
    Delivery, Message, Position, Publication, Selector, Subscription, Topic, bus::poll_ready, log::Source,
};
use bytes::Bytes;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use switchboard_core::{Result, backoff};
use switchboard_wire::{Code, Retry, Status};

/// Entries of one publication.
const BATCH_MAX: usize = 64;
/// Newest entries of a destination among which the newest copy is searched, and those of each topic of a pattern from
/// which a bridge continues.
const RECOVER_MAX: usize = 1_000;
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(5);

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
    from: Side,
    to: Side,
    source: Source,
    first_entries: usize,
    counters: Arc<Counters>,
    /// Newest entry of each topic that was copied or passed over.
    positions: HashMap<Topic, Position>,
    /// Newest entry of each topic of the pattern when the bridge began.
    heads: HashMap<Topic, Position>,
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
        let source = selector.into_source()?;
        let (positions, heads) = (HashMap::new(), HashMap::new());
        Ok(Copier { from, to, source, first_entries, counters, positions, heads, is_single: false })
    }

    /// Subscribes behind the newest copy that the destination keeps.
    pub(super) async fn subscribe(&mut self) -> Result<Subscription<Bytes>> {
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
                if self.heads.is_empty() {
                    self.note_heads().await?;
                }
                self.from.bus.subscribe_encoded(pattern).last(RECOVER_MAX).await
            }
        }
    }

    /// Notes the newest entries of the topics that are there.
    async fn note_heads(&mut self) -> Result<()> {
        let Source::Pattern(pattern) = &self.source else { return Ok(()) };
        let mut token = None;
        loop {
            let list = self.from.bus.topics(pattern.clone());
            let page = match token.take() {
                Some(token) => list.page(token).await?,
                None => list.await?,
            };
            self.heads.extend(page.topics.into_iter().map(|listed| (listed.topic, listed.stats.head)));
            token = page.next;
            if token.is_none() {
                return Ok(());
            }
        }
    }

    /// Returns the position of the newest copy that the destination keeps of a topic.
    async fn recover(&self, topic: &Topic) -> Result<Option<Position>> {
        let history = self.to.bus.history_with(topic, |_, bytes| Ok(bytes)).limit(RECOVER_MAX);
        let page = match history.await {
            Ok(page) => page,
            // The topic is not there yet, or the destination keeps nothing.
            Err(status) if matches!(status.code(), Code::NotFound | Code::Unimplemented) => return Ok(None),
            Err(status) => return Err(status),
        };
        let position = |delivery: &Delivery<Bytes>| match delivery {
            Delivery::Entry(message) => trail::position(message.headers(), &self.from.name),
            _ => None,
        };
        Ok(page.deliveries.iter().rev().find_map(position))
    }

    /// Copies until a failure that a retry does not help.
    pub(super) async fn run(mut self, mut subscription: Subscription<Bytes>) {
        let mut failures = 0;
        loop {
            let Err(status) = self.copy(&mut subscription).await;
            let is_permanent = matches!(
                status.code(),
                Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated | Code::Unimplemented
            );
            let (from, to) = (&self.from.name, &self.to.name);
            tracing::warn!(
                target: "switchboard::bus", %from, %to, is_permanent, "a bridge is interrupted: {status}"
            );
            if is_permanent {
                let mut failure = self.counters.failure.lock().unwrap_or_else(PoisonError::into_inner);
                failure.get_or_insert(status);
                return;
            }
            subscription = loop {
                failures += 1;
                tokio::time::sleep(backoff::pause(failures, backoff::CONNECT_MIN, PAUSE_MAX)).await;
                if let Ok(subscription) = self.subscribe().await {
                    break subscription;
                }
            };
            failures = 0;
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
                        if batch.first().is_some_and(|first| first.topic() != message.topic()) {
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
        }
    }

    /// Returns whether an entry is to be copied.
    async fn takes(&mut self, message: &Message<Bytes>) -> Result<bool> {
        let (topic, position) = (message.topic(), message.position());
        if matches!(self.source, Source::Pattern(_)) && !self.positions.contains_key(topic) {
            let known = match self.recover(topic).await? {
                Some(position) => Some(position),
                None => self.heads.get(topic).map(|head| {
                    let first = self.first_entries.min(RECOVER_MAX) as u64;
                    Position { offset: head.offset.saturating_sub(first), ..*head }
                }),
            };
            if let Some(known) = known {
                if known.epoch == position.epoch && known.offset.saturating_add(1) < position.offset {
                    self.counters.gaps.fetch_add(1, Ordering::Relaxed);
                }
                self.positions.insert(topic.clone(), known);
            }
        }
        let known = self.positions.get(topic);
        if known.is_some_and(|known| known.epoch == position.epoch && known.offset >= position.offset) {
            return Ok(false);
        }
        if trail::has_been(message.headers(), &self.from.name, &self.to.name) {
            self.counters.returned.fetch_add(1, Ordering::Relaxed);
            self.positions.insert(topic.clone(), position);
            return Ok(false);
        }
        Ok(true)
    }

    /// Publishes entries of one topic until the destination has accepted or refused them.
    async fn publish(&mut self, batch: Vec<Message<Bytes>>) -> Result<()> {
        let Some(last) = batch.last() else { return Ok(()) };
        let (topic, position) = (last.topic().clone(), last.position());
        let copies = batch.iter().map(|message| self.publication(message)).collect::<Result<Vec<_>>>()?;
        let count = copies.len() as u64;
        if self.is_single || count == 1 {
            for copy in copies {
                self.publish_one(&topic, copy).await?;
            }
        } else {
            match self.attempt(&topic, copies.clone()).await {
                Ok(()) => _ = self.counters.copied.fetch_add(count, Ordering::Relaxed),
                Err(status) => {
                    // One entry is refused, or batches are.
                    self.is_single |= status.code() == Code::Unimplemented;
                    for copy in copies {
                        self.publish_one(&topic, copy).await?;
                    }
                }
            }
        }
        self.positions.insert(topic, position);
        Ok(())
    }

    async fn publish_one(&self, topic: &Topic, copy: Publication) -> Result<()> {
        match self.attempt(topic, vec![copy]).await {
            Ok(()) => _ = self.counters.copied.fetch_add(1, Ordering::Relaxed),
            Err(status) if matches!(status.code(), Code::InvalidArgument | Code::ResourceExhausted) => {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    target: "switchboard::bus", %topic, to = %self.to.name, "a copy was refused: {status}"
                );
            }
            Err(status) => return Err(status),
        }
        Ok(())
    }

    /// Publishes copies, as often as it takes while the destination is away or full. Their ids make this safe.
    async fn attempt(&self, topic: &Topic, copies: Vec<Publication>) -> Result<()> {
        let mut failures = 0;
        loop {
            let published = match &copies[..] {
                [copy] => self.to.bus.publish_encoded(topic, copy.clone()).await,
                copies => self.to.bus.publish_batch_encoded(topic, copies.to_vec()).await,
            };
            let Err(status) = published else { return Ok(()) };
            let is_full = status.code() == Code::ResourceExhausted && status.retry() != Retry::No;
            if status.code() != Code::Unavailable && !is_full {
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
