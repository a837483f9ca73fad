//! Subscriptions to topics of an engine: what the broker keeps, then the log of this process.

use super::{Interest, Local};
use crate::{
    broker::{Page, ReadFrom, StoredEntry},
    bus::local_subscription::{LocalItem, LocalSubscription},
    log::{Attach, Gap, GapReason, Position, Source, Start, Taken, TakenEntry, Topic},
};
use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use switchboard_core::{Result, backoff};
use switchboard_wire::{Code, Status};

/// Entries of one read.
const READ_MAX: usize = 64;
/// Reads without an entry before those that are known to exist count as lost: a replica may be behind.
const EMPTY_READS_MAX: u32 = 4;
/// Longest pause between two attempts of a read.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// First entry of a subscription to a topic of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EngineStart {
    Head,
    Kept(ReadFrom),
}

/// A subscription to a topic of an engine.
pub(crate) struct EngineSubscription {
    live: LocalSubscription,
    interest: Interest,
    /// The read of kept entries, and its last offset.
    kept: Option<Kept>,
    items: VecDeque<LocalItem>,
    /// Newest position that was delivered or skipped: the log of this process may have entries up to it as well.
    delivered: Position,
    /// Position before the first entry.
    begins_after: Position,
}

type Reading = Pin<Box<dyn Future<Output = Result<Page>> + Send>>;

/// Entries that are read from the broker.
struct Kept {
    from: ReadFrom,
    /// Offset of the last one.
    through: Position,
    reading: Option<Reading>,
    /// Reads in a row that had no entry.
    empty_reads: u32,
    /// The first page decides the outcome of the start.
    reports: bool,
}

impl EngineSubscription {
    pub(crate) async fn begin(
        local: &Arc<Local>,
        topic: &Topic,
        start: EngineStart,
    ) -> Result<EngineSubscription> {
        let interest = Interest::new(local, topic)?;
        // The cursor comes first: it keeps the log of the topic.
        let attach =
            Attach { source: Source::Topic(topic.clone()), start: Start::Head, group: None, ack: None };
        let live = LocalSubscription::begin(local, &attach, 1)?;
        let Some(engine) = &local.engine else { return Err(Status::internal("the bus has no engine")) };
        let joined = interest.topic.join(engine).await?;
        let mut subscription = EngineSubscription {
            live,
            interest,
            kept: None,
            items: VecDeque::new(),
            delivered: joined,
            begins_after: joined,
        };
        if let EngineStart::Kept(from) = start {
            if !engine.broker.capabilities().has_history {
                return Err(
                    engine.unimplemented(&format!("a start before the newest entry of topic \"{topic}\""))
                );
            }
            let reports = !matches!(from, ReadFrom::Last(_));
            let page = engine.broker.read(topic, from, READ_MAX).await?;
            let mut through = page.head;
            if joined.epoch == through.epoch {
                // The read may be that of a replica which is behind.
                through.offset = through.offset.max(joined.offset);
            }
            subscription.kept = Some(Kept { from, through, reading: None, empty_reads: 0, reports });
            subscription.begins_after = begins_after(from, &page, through);
            subscription.delivered = subscription.begins_after;
            subscription.page(page);
        }
        Ok(subscription)
    }

    /// Returns the position before the first entry.
    pub(crate) fn position(&self) -> Position {
        self.begins_after
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<LocalItem>> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Poll::Ready(Some(item));
            }
            if self.kept.is_some() {
                ready!(self.poll_kept(cx));
                continue;
            }
            let Some(item) = ready!(self.live.poll_next(cx)) else { return Poll::Ready(None) };
            match item {
                LocalItem::Taken(Taken::Entry(taken)) => {
                    if self.is_known(taken.position) {
                        continue;
                    }
                    self.delivered = taken.position;
                    return Poll::Ready(Some(LocalItem::Taken(Taken::Entry(taken))));
                }
                LocalItem::Taken(Taken::Gap(gap)) => {
                    let last = Position { epoch: gap.epoch, offset: gap.range.end.saturating_sub(1) };
                    if self.is_known(last) && gap.reason != GapReason::Epoch {
                        continue;
                    }
                    if gap.reason == GapReason::Lagged && self.has_history() {
                        let first = gap.range.start.saturating_sub(1).max(self.delivered.offset);
                        let from = ReadFrom::After(Position { epoch: gap.epoch, offset: first });
                        self.kept = Some(Kept::new(from, last));
                        continue;
                    }
                    let gap = self.unknown_part(gap);
                    self.delivered = last;
                    return Poll::Ready(Some(LocalItem::Taken(Taken::Gap(gap))));
                }
                item => return Poll::Ready(Some(item)),
            }
        }
    }

    fn has_history(&self) -> bool {
        let engine = self.interest.local.engine.as_ref();
        engine.is_some_and(|engine| engine.broker.capabilities().has_history)
    }

    fn is_known(&self, position: Position) -> bool {
        position.epoch == self.delivered.epoch && position.offset <= self.delivered.offset
    }

    /// Removes the entries from a gap that were read from the broker before.
    fn unknown_part(&self, mut gap: Gap) -> Gap {
        let first = self.delivered.offset.saturating_add(1);
        if gap.epoch == self.delivered.epoch && gap.range.start < first && gap.reason != GapReason::Epoch {
            let known = first - gap.range.start;
            gap.missing = gap.missing.map(|missing| missing.saturating_sub(known));
            gap.range.start = first;
        }
        gap
    }

    /// Reads the next page.
    fn poll_kept(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(kept) = &mut self.kept else { return Poll::Ready(()) };
        let (local, topic) = (self.interest.local.clone(), self.interest.topic.topic().clone());
        let (from, failures) = (kept.from, kept.empty_reads);
        let reading = kept.reading.get_or_insert_with(|| Box::pin(read(local, topic, from, failures)));
        let read = ready!(reading.as_mut().poll(cx));
        kept.reading = None;
        match read {
            Ok(page) => self.page(page),
            // The error stays: the log of this process goes on, and what was to be read is a gap.
            Err(_) => self.give_up(),
        }
        Poll::Ready(())
    }

    /// Reports the entries that were to be read.
    fn give_up(&mut self) {
        let Some(Kept { through, .. }) = self.kept.take() else { return };
        let range = self.delivered.offset.saturating_add(1)..through.offset.saturating_add(1);
        self.delivered = through;
        let gap = Gap::new(self.interest.topic.topic().clone(), through.epoch, range, None, GapReason::Lost);
        self.items.push_back(LocalItem::Taken(Taken::Gap(gap)));
    }

    /// Delivers a page, and decides what follows it.
    fn page(&mut self, page: Page) {
        let Some(mut kept) = self.kept.take() else { return };
        let topic = self.interest.topic.topic().clone();
        let local = self.interest.local.clone();
        if page.head.epoch != kept.through.epoch {
            // Another log began: its mirror reports it.
            return;
        }
        let is_first = std::mem::take(&mut kept.reports);
        match page.missing {
            Some(gap) => {
                let last = gap.range.end.saturating_sub(1);
                self.delivered = Position { epoch: page.head.epoch, offset: last };
                self.items.push_back(LocalItem::Taken(Taken::Gap(gap)));
            }
            None if is_first => self.items.push_back(LocalItem::Recovered),
            None => {}
        }
        let before = self.delivered;
        for stored in page.entries {
            self.delivered = stored.position;
            self.items.push_back(item(&local, &topic, stored));
        }
        self.delivered.offset = self.delivered.offset.max(page.through.unwrap_or(0));
        kept.empty_reads = if self.delivered == before { kept.empty_reads + 1 } else { 0 };
        if self.delivered.offset >= kept.through.offset {
            return;
        }
        kept.from = ReadFrom::After(self.delivered);
        let is_lost = kept.empty_reads > EMPTY_READS_MAX;
        self.kept = Some(kept);
        if is_lost {
            self.give_up();
        }
    }
}

/// Converts a kept entry to an item of a subscription.
pub(super) fn item(local: &Local, topic: &Topic, stored: StoredEntry) -> LocalItem {
    let (now, limits, position) = (local.now(), local.log.limits(), stored.position);
    let content = stored.publication.and_then(|publication| {
        publication.into_entry(|| now, limits.entry_bytes_max, limits.key_bytes_max).ok()
    });
    let gap = |reason| {
        let range = position.offset..position.offset.saturating_add(1);
        Taken::Gap(Gap::new(topic.clone(), position.epoch, range, Some(1), reason))
    };
    LocalItem::Taken(match content {
        None => gap(GapReason::Lost),
        Some(entry) if entry.is_expired(now) => gap(GapReason::Expired),
        Some(entry) => {
            let topic = topic.clone();
            Taken::Entry(TakenEntry { topic, position, entry, sequence: 0, attempt: 1, group: None })
        }
    })
}

impl Kept {
    fn new(from: ReadFrom, through: Position) -> Kept {
        Kept { from, through, reading: None, empty_reads: 0, reports: false }
    }
}

/// Returns the position before the first entry of a subscription, with the newest position of the topic.
fn begins_after(from: ReadFrom, page: &Page, head: Position) -> Position {
    match (from, page.entries.first()) {
        (ReadFrom::After(position), _) if position.epoch == head.epoch => {
            Position { offset: position.offset.min(head.offset), ..position }
        }
        (_, Some(first)) => Position { offset: first.position.offset.saturating_sub(1), ..first.position },
        (_, None) => page.head,
    }
}

/// Reads a page, as often as it takes while the engine is away; first pauses as after this number of failures.
async fn read(local: Arc<Local>, topic: Topic, from: ReadFrom, mut failures: u32) -> Result<Page> {
    let Some(engine) = &local.engine else { return Err(Status::internal("the bus has no engine")) };
    if failures > 0 {
        tokio::time::sleep(backoff::pause(failures, backoff::CONNECT_MIN, PAUSE_MAX)).await;
    }
    loop {
        let page = {
            let _permit = engine.repairs.acquire().await;
            engine.broker.read(&topic, from, READ_MAX).await
        };
        match page {
            Err(status) if status.code() == Code::Unavailable => failures += 1,
            page => return page,
        }
        tokio::time::sleep(backoff::pause(failures, backoff::CONNECT_MIN, PAUSE_MAX)).await;
    }
}
