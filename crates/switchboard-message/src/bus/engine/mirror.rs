//! One topic of an engine, followed in this process.
//!
//! ```text
//! Idle ─ join ─► Live ─ a hole, another epoch, an interruption ─► Repairing ─ caught up ─► Live
//! ```
//!
//! Live entries are appended while they follow the newest known one. In the other phases only their position is noted:
//! a repair reads them from the broker, so that no entry waits in a queue. At most one repair runs per topic.

use super::{Engine, Local};
use crate::{
    broker::{LiveEvent, Mailbox, Page, ReadFrom, StoredEntry},
    log::{GapReason, Mirrored, Missing, Position, Topic},
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use switchboard_core::{Result, backoff};
use switchboard_wire::Status;

/// Entries of one read of a repair.
const READ_MAX: usize = 256;
/// Longest pause between two attempts of a repair.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Reads that do not contain an entry which was delivered before it counts as lost: a replica may be behind.
const MISSING_READS_MAX: u32 = 4;

/// A topic that this process follows.
#[derive(Debug)]
pub(super) struct MirrorTopic {
    topic: Topic,
    local: Weak<Local>,
    state: Mutex<State>,
    /// Held while the first subscription begins to follow the topic.
    joining: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Subscriptions of this process.
    readers: usize,
    /// Newest position in the log of this process.
    known: Position,
    /// Newest position that the broker has delivered or reported.
    seen: Position,
    /// The broker does not deliver the topic any more.
    is_interrupted: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// Not followed yet.
    Idle,
    Live,
    Repairing,
    /// The last subscription has ended.
    Closed,
}

impl MirrorTopic {
    pub(super) fn new(topic: Topic, local: Weak<Local>) -> Arc<MirrorTopic> {
        let (known, seen) = (Position::default(), Position::default());
        let state = State { phase: Phase::Idle, readers: 0, known, seen, is_interrupted: false };
        let (state, joining) = (Mutex::new(state), tokio::sync::Mutex::default());
        Arc::new(MirrorTopic { topic, local, state, joining })
    }

    pub(super) fn topic(&self) -> &Topic {
        &self.topic
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a subscription. Called under the lock of the engine's topics.
    pub(super) fn add_reader(&self) {
        self.state().readers += 1;
    }

    /// Returns whether the topic is to be removed: a repair that runs does so at its end.
    pub(super) fn remove_reader(&self) -> bool {
        let mut state = self.state();
        state.readers = state.readers.saturating_sub(1);
        let is_last = state.readers == 0 && state.phase != Phase::Repairing;
        if is_last {
            state.phase = Phase::Closed;
        }
        is_last
    }

    /// Begins to follow the topic, unless it does; resolves to the newest position in the log of this process. The
    /// subscription that calls it has its cursor already.
    pub(super) async fn join(self: &Arc<Self>, engine: &Engine) -> Result<Position> {
        let _joining = self.joining.lock().await;
        {
            let state = self.state();
            if state.phase != Phase::Idle {
                let Some(local) = self.local.upgrade() else { return Err(ended()) };
                // During a repair, the log may have ended with the last subscription and begun with this one.
                local.log.mirror_again(&self.topic, state.known, local.now())?;
                return Ok(state.known);
            }
        }
        let head = engine.broker.subscribe(&self.topic, None, self.mailbox()).await?;
        engine.note_response();
        let Some(local) = self.local.upgrade() else { return Err(ended()) };
        let mut state = self.state();
        local.log.mirror_from(&self.topic, head, local.now())?;
        state.known = head;
        if state.seen.epoch != head.epoch || state.seen.offset < head.offset {
            state.seen = head;
        }
        let is_behind = state.is_interrupted || state.seen != head;
        state.phase = Phase::Live;
        if is_behind {
            self.repair(&mut state);
        }
        Ok(head)
    }

    fn mailbox(self: &Arc<Self>) -> Mailbox {
        let topic = Arc::downgrade(self);
        Mailbox::new(move |event| {
            let Some(topic) = topic.upgrade() else { return };
            match event {
                LiveEvent::Entry(entry) => topic.entry(entry),
                LiveEvent::Interrupted(status) => topic.interrupted(&status),
            }
        })
    }

    fn entry(self: &Arc<Self>, entry: StoredEntry) {
        let Some(local) = self.local.upgrade() else { return };
        let mut state = self.state();
        let position = entry.position;
        if state.phase != Phase::Live {
            let is_newer = state.seen.epoch != position.epoch || state.seen.offset < position.offset;
            if is_newer {
                state.seen = position;
            }
            return;
        }
        if position.epoch == state.known.epoch {
            if position.offset <= state.known.offset {
                return;
            }
            if entry.previous <= state.known.offset {
                self.append(&local, &mut state, entry);
                return;
            }
        }
        state.seen = position;
        if has_history(&local) {
            self.repair(&mut state);
        } else {
            self.skip(&local, &mut state, position.offset);
            self.append(&local, &mut state, entry);
        }
    }

    fn interrupted(self: &Arc<Self>, status: &Status) {
        if let Some(local) = self.local.upgrade()
            && let Some(engine) = &local.engine
        {
            engine.report(&self.topic, status);
        }
        let mut state = self.state();
        state.is_interrupted = true;
        if state.phase == Phase::Live {
            self.repair(&mut state);
        }
    }

    fn append(&self, local: &Local, state: &mut State, entry: StoredEntry) {
        let (position, now, limits) = (entry.position, local.now(), local.log.limits());
        let content = entry.publication.and_then(|publication| {
            publication.into_entry(|| now, limits.entry_bytes_max, limits.key_bytes_max).ok()
        });
        let event = match content {
            Some(content) => Mirrored::Entry(position, content),
            None => {
                let range = position.offset..position.offset.saturating_add(1);
                Mirrored::Missing(position, Missing { range, entries: Some(1), reason: GapReason::Lost })
            }
        };
        local.log.mirror(&self.topic, event, now);
        state.known = position;
    }

    /// Starts a repair. Without a runtime, in which no broker delivers, the topic stays as it is.
    fn repair(self: &Arc<Self>, state: &mut State) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        state.phase = Phase::Repairing;
        runtime.spawn(repair(Arc::downgrade(self)));
    }

    /// Does one step of a repair; returns whether the topic is live again, or closed.
    async fn step(self: &Arc<Self>, engine: &Engine, attempts: u32) -> Result<bool> {
        let _permit = engine.repairs.acquire().await;
        let (is_interrupted, known) = {
            let mut state = self.state();
            if state.readers == 0 {
                return Ok(false);
            }
            (std::mem::take(&mut state.is_interrupted), state.known)
        };
        if is_interrupted {
            match engine.broker.subscribe(&self.topic, Some(known), self.mailbox()).await {
                Ok(head) => {
                    let mut state = self.state();
                    if state.seen.epoch != head.epoch || state.seen.offset < head.offset {
                        state.seen = head;
                    }
                }
                Err(status) => {
                    self.state().is_interrupted = true;
                    return Err(status);
                }
            }
        }
        loop {
            let known = {
                let mut state = self.state();
                let is_behind =
                    state.seen.epoch != state.known.epoch || state.seen.offset > state.known.offset;
                if !is_behind {
                    if state.readers > 0 && !state.is_interrupted {
                        state.phase = Phase::Live;
                        return Ok(true);
                    }
                    return Ok(false);
                }
                if !engine.broker.capabilities().has_history {
                    let Some(local) = self.local.upgrade() else { return Err(ended()) };
                    let end = state.seen.offset.saturating_add(1);
                    self.skip(&local, &mut state, end);
                    continue;
                }
                state.known
            };
            let page = engine.broker.read(&self.topic, ReadFrom::After(known), READ_MAX).await?;
            let Some(local) = self.local.upgrade() else { return Err(ended()) };
            self.apply(&local, page, attempts)?;
        }
    }

    /// Appends what a broker has kept. Fails if that brings the log no further.
    fn apply(&self, local: &Local, page: Page, attempts: u32) -> Result<()> {
        let mut state = self.state();
        let before = state.known;
        if let Some(gap) = page.missing {
            let position = Position { epoch: page.head.epoch, offset: gap.range.end.saturating_sub(1) };
            self.missing(local, &mut state, position, (gap.range, gap.missing, gap.reason));
        } else if page.head.epoch != state.known.epoch {
            // The new log has all its entries; those of the old one are gone.
            let position = Position { epoch: page.head.epoch, offset: 0 };
            self.missing(local, &mut state, position, (1..1, None, GapReason::Epoch));
        }
        for entry in page.entries {
            if entry.position.offset > state.known.offset {
                self.append(local, &mut state, entry);
            }
        }
        if let Some(through) = page.through.filter(|_| page.head.epoch == state.known.epoch) {
            state.known.offset = state.known.offset.max(through);
        }
        if state.known != before {
            return Ok(());
        }
        if state.seen.epoch != page.head.epoch {
            // Nothing is behind the known entry: the entry that was delivered before belongs to another log.
            state.known.offset = state.known.offset.max(page.head.offset);
            state.seen = state.known;
            return Ok(());
        }
        if attempts < MISSING_READS_MAX {
            let text = format!("topic \"{}\" has an entry that the engine does not show yet", self.topic);
            return Err(Status::unavailable(text));
        }
        let (first, seen) = (state.known.offset.saturating_add(1), state.seen);
        self.missing(local, &mut state, seen, (first..seen.offset.saturating_add(1), None, GapReason::Lost));
        Ok(())
    }

    /// Reports the entries of the log of the newest position before this offset, which the engine does not keep.
    fn skip(&self, local: &Local, state: &mut State, end: u64) {
        let seen = Position { offset: end.saturating_sub(1), ..state.seen };
        let missing = match state.known.epoch == seen.epoch {
            true => (state.known.offset.saturating_add(1)..end, None, GapReason::Lost),
            false => (1..end.max(1), None, GapReason::Epoch),
        };
        self.missing(local, state, seen, missing);
    }

    fn missing(
        &self,
        local: &Local,
        state: &mut State,
        position: Position,
        (range, entries, reason): (std::ops::Range<u64>, Option<u64>, GapReason),
    ) {
        let event = Mirrored::Missing(position, Missing { range, entries, reason });
        local.log.mirror(&self.topic, event, local.now());
        state.known = position;
    }

    /// Removes the topic if its last subscription ended during the repair.
    fn close_unused(&self, engine: &Engine) -> bool {
        let mut topics = engine.topics();
        let mut state = self.state();
        if state.readers > 0 {
            return false;
        }
        state.phase = Phase::Closed;
        topics.remove(&self.topic);
        engine.broker.unsubscribe(&self.topic);
        true
    }
}

/// Repairs a topic until it is live, or has no subscription.
async fn repair(topic: Weak<MirrorTopic>) {
    let (mut failures, mut reported) = (0, None);
    loop {
        {
            let Some(topic) = topic.upgrade() else { return };
            let Some(local) = topic.local.upgrade() else { return };
            let Some(engine) = &local.engine else { return };
            let step = topic.step(engine, failures).await;
            if step.is_ok() {
                engine.note_response();
            }
            match step {
                Ok(true) => return,
                Ok(false) if topic.close_unused(engine) => return,
                Ok(false) => continue,
                Err(_) if topic.close_unused(engine) => return,
                Err(status) => {
                    if reported.replace(status.code()) != Some(status.code()) {
                        engine.report(&topic.topic, &status);
                    }
                    failures += 1;
                }
            }
        }
        tokio::time::sleep(backoff::pause(failures, backoff::CONNECT_MIN, PAUSE_MAX)).await;
    }
}

fn has_history(local: &Local) -> bool {
    local.engine.as_ref().is_some_and(|engine| engine.broker.capabilities().has_history)
}

fn ended() -> Status {
    Status::unavailable("the bus has ended")
}
