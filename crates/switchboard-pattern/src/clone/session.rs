//! Task of a client: one server after the other, snapshot before updates.
//!
//! ```text
//! Waiting ── HUGZ or an update: the subscription is active ──► Syncing ── KTHXBAI ──► Active ── silence ──► next
//!    └────── half of the silence limit, without HUGZ ─────────────┘ ▲ │                 │                   server
//!                                                                   │ └─ no snapshot ─┐ │
//!                                                                   └─────────────────┴─┘ a lost update, or a
//!                                                                                         server that restarted
//! ```
//!
//! Each request for a snapshot has a connection of its own, so that entries of two snapshots are never mixed.

use super::{
    CloneEndpoints, CloneEvent,
    client::{CloneClientBuilder, Shared},
    frames::{self, HUGZ, Published, SnapshotMessage, Update},
    view::{Change, Outcome, Snapshot},
};
use bytes::Bytes;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};
use switchboard_core::clock;
use switchboard_socket::{Dealer, Message, Sub, Xpub};
use tokio::sync::{mpsc, oneshot};

/// Pause before an update is sent again; it doubles up to [`REPEAT_PAUSE_MAX`].
const REPEAT_PAUSE: Duration = Duration::from_millis(250);
const REPEAT_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Pause before the next server.
const SERVER_PAUSE: Duration = Duration::from_millis(50);
/// Updates that arrive during a snapshot and wait for its end.
const WAITING_MAX: usize = 10_000;
/// Notice that the connection for updates was lost: updates may be missing, and the server may have restarted. The
/// subscription to HUGZ matches it.
const RECONNECTED: &[u8] = b"HUGZ\0reconnected";

/// An update that is to be sent.
#[derive(Debug)]
pub(super) struct Command {
    pub update: Update,
    /// Receives the number of the published update.
    pub done: oneshot::Sender<u64>,
    pub deadline: Instant,
    pub repeat: Repeat,
}

/// Time at which an update is sent again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeat {
    at: Instant,
    pause: Duration,
}

impl Repeat {
    pub(super) fn new(now: Instant) -> Repeat {
        Repeat { at: clock::after(now, REPEAT_PAUSE), pause: REPEAT_PAUSE }
    }

    /// Returns true if the update is to be sent now; the next pause is longer then.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.at;
        if is_due {
            self.pause = self.pause.saturating_mul(2).min(REPEAT_PAUSE_MAX);
            self.at = clock::after(now, self.pause);
        }
        is_due
    }
}

/// Reason for which a server is left.
struct Left {
    reason: String,
    is_silent: bool,
}

impl From<String> for Left {
    fn from(reason: String) -> Left {
        Left { reason, is_silent: false }
    }
}

impl From<switchboard_socket::Error> for Left {
    fn from(error: switchboard_socket::Error) -> Left {
        error.to_string().into()
    }
}

/// Runs until all handles of the client are dropped.
pub(super) async fn run(
    shared: Arc<Shared>,
    commands: mpsc::Receiver<Command>,
    settings: CloneClientBuilder,
) {
    let mut task = ClientTask { shared, commands, settings, pending: HashMap::new() };
    let servers = task.settings.servers.clone();
    for (index, server) in servers.iter().enumerate().cycle() {
        let Err(Left { reason, is_silent }) = task.attend(index, server).await else { return };
        tracing::debug!(reason, server = server.snapshot, "a client of CHP leaves a server");
        task.shared.lock().stats.lost += 1;
        let _ = task.shared.status.send_replace(Err(reason.clone()));
        task.shared.emit(CloneEvent::Lost { server: index, reason, is_silent });
        tokio::time::sleep(SERVER_PAUSE).await;
    }
}

struct ClientTask {
    shared: Arc<Shared>,
    commands: mpsc::Receiver<Command>,
    settings: CloneClientBuilder,
    /// Updates that were not published yet, by UUID.
    pending: HashMap<Bytes, Command>,
}

/// Sockets to one server.
struct Link {
    snapshot: Dealer,
    updates: Sub,
    collector: Xpub,
    phase: Phase,
    heard: Instant,
    /// Time of the last entry of a snapshot, or of the request for it.
    snapshot_heard: Instant,
    /// A snapshot is to be requested.
    is_request_due: bool,
    /// Number of the last update.
    sequence: Option<u64>,
    /// The connection for updates was lost.
    is_reconnected: bool,
    /// The collector has subscribed: updates reach it.
    is_collected: bool,
    repeated: Instant,
}

enum Phase {
    Active,
    Syncing {
        snapshot: Snapshot,
        waiting: Vec<Update>,
        /// The server has restarted since the request.
        is_outdated: bool,
    },
    Waiting,
}

impl ClientTask {
    /// Copies the table of a server until the client is dropped.
    ///
    /// # Errors
    /// Returns the reason for which the server is left.
    async fn attend(&mut self, index: usize, server: &CloneEndpoints) -> Result<(), Left> {
        let mut link = self.open(server).await?;
        loop {
            if std::mem::take(&mut link.is_request_due) {
                link.snapshot = self.request(server).await?;
                link.snapshot_heard = clock::now();
            }
            let wake = self.wake(&link);
            let has_room = self.pending.len() < self.settings.sets_max;
            tokio::select! {
                command = self.commands.recv(), if has_room => match command {
                    Some(mut command) => {
                        if link.is_collected {
                            link.collector.try_send(command.update.to_message())?;
                        }
                        command.repeat = Repeat::new(clock::now());
                        self.pending.insert(command.update.id.clone(), command);
                    }
                    None => return Ok(()),
                },
                message = link.updates.recv() => self.published(index, &mut link, &message?)?,
                message = link.snapshot.recv() => self.synced(index, &mut link, &message?)?,
                change = link.collector.recv() => {
                    if change?.body().first() == Some(&1) {
                        link.is_collected = true;
                        let now = clock::now();
                        self.pending.values_mut().for_each(|command| command.repeat = Repeat::new(now));
                        self.send_again(&mut link, |_| true)?;
                    }
                }
                () = tokio::time::sleep_until(wake.into()) => self.wake_up(&mut link, wake)?,
            }
        }
    }

    async fn open(&self, server: &CloneEndpoints) -> switchboard_socket::Result<Link> {
        let options = &self.settings.options;
        let mut noticing = options.clone();
        let notice = Some(Bytes::from_static(RECONNECTED));
        (noticing.notices.disconnect, noticing.notices.hiccup) = (notice.clone(), notice);
        let updates = Sub::with_options(noticing)?;
        updates.subscribe(&self.settings.subtree)?;
        // After the subtree: its first message shows that both are active.
        updates.subscribe(HUGZ)?;
        updates.connect_to(&server.updates).await?;
        let collector = Xpub::with_options(options.clone())?;
        collector.connect_to(&server.collector).await?;
        let (phase, now) = (Phase::Waiting, clock::now());
        let snapshot = Dealer::with_options(options.clone())?;
        Ok(Link {
            snapshot,
            updates,
            collector,
            phase,
            heard: now,
            snapshot_heard: now,
            is_request_due: false,
            sequence: None,
            is_reconnected: false,
            is_collected: false,
            repeated: now,
        })
    }

    /// Requests a snapshot on a new connection.
    async fn request(&self, server: &CloneEndpoints) -> switchboard_socket::Result<Dealer> {
        let mut options = self.settings.options.clone();
        // The server must not continue a snapshot of an earlier connection on this one.
        options.routing.routing_id = Bytes::new();
        // The request waits for the connection.
        options.routing.immediate = false;
        // One that is not needed any more takes no slot of the server.
        options.timeouts.linger = Some(Duration::ZERO);
        let snapshot = Dealer::with_options(options)?;
        snapshot.connect_to(&server.snapshot).await?;
        snapshot.try_send(frames::request(&self.settings.subtree))?;
        Ok(snapshot)
    }

    fn wake(&self, link: &Link) -> Instant {
        let silence = self.settings.silence_max;
        let limit = match link.phase {
            Phase::Waiting => silence / 2,
            _ => silence,
        };
        let mut wake = clock::after(link.heard, limit);
        if let Phase::Syncing { .. } = link.phase {
            wake = wake.min(clock::after(link.snapshot_heard, silence / 2));
        }
        if !self.pending.is_empty() {
            wake = wake.min(clock::after(link.repeated, REPEAT_PAUSE));
        }
        wake
    }

    fn wake_up(&mut self, link: &mut Link, wake: Instant) -> Result<(), Left> {
        let (now, silence) = (clock::now(), self.settings.silence_max);
        if now.saturating_duration_since(wake) >= silence / 8 {
            // This process has paused: messages of the server wait to be read.
            (link.heard, link.snapshot_heard) = (now, now);
        }
        self.pending.retain(|_, command| command.deadline > now && !command.done.is_closed());
        if now >= clock::after(link.repeated, REPEAT_PAUSE) {
            link.repeated = now;
            self.send_again(link, |repeat| repeat.is_due(now))?;
        }
        match link.phase {
            Phase::Waiting if now >= clock::after(link.heard, silence / 2) => {
                link.heard = now;
                link.synchronize();
            }
            Phase::Active | Phase::Syncing { .. } if now >= clock::after(link.heard, silence) => {
                let reason = format!("the server was silent for silence_max={silence:?}");
                return Err(Left { reason, is_silent: true });
            }
            // The request was lost or refused, or the rest of the snapshot was lost.
            Phase::Syncing { .. } if now >= clock::after(link.snapshot_heard, silence / 2) => {
                link.synchronize();
            }
            _ => {}
        }
        Ok(())
    }

    /// Sends the pending updates again that are due.
    fn send_again(
        &mut self,
        link: &mut Link,
        mut is_due: impl FnMut(&mut Repeat) -> bool,
    ) -> Result<(), Left> {
        if link.is_collected {
            for command in self.pending.values_mut() {
                if is_due(&mut command.repeat) {
                    link.collector.try_send(command.update.to_message())?;
                }
            }
        }
        Ok(())
    }

    /// Handles a message of the connection for updates.
    fn published(&mut self, index: usize, link: &mut Link, message: &Message) -> Result<(), Left> {
        if matches!(message.frames(), [notice] if &**notice == RECONNECTED) {
            link.is_reconnected = !matches!(link.phase, Phase::Waiting);
            return Ok(());
        }
        let published = match frames::read_published(message.frames(), &self.settings.limits) {
            Ok(published) => published,
            Err(rule) => {
                self.invalid(rule);
                return Ok(());
            }
        };
        link.heard = clock::now();
        if matches!(link.phase, Phase::Waiting) {
            link.synchronize();
        }
        if std::mem::take(&mut link.is_reconnected) {
            // The subscription is active again, as this message shows.
            link.sequence = None;
            link.restart();
        }
        let Published::Update(update) = published else { return Ok(()) };
        if link.sequence.replace(update.sequence).is_some_and(|last| update.sequence <= last) {
            tracing::debug!(server = index, "a server of CHP has restarted: its numbers begin again");
            link.restart();
        }
        match &mut link.phase {
            Phase::Syncing { waiting, .. } if waiting.len() >= WAITING_MAX => {
                Err(format!("{WAITING_MAX} updates arrived before the snapshot was complete").into())
            }
            Phase::Syncing { waiting, .. } => {
                waiting.push(update);
                Ok(())
            }
            _ => self.apply(index, link, update),
        }
    }

    /// Handles a message of the connection for snapshots.
    fn synced(&mut self, index: usize, link: &mut Link, message: &Message) -> Result<(), Left> {
        let Phase::Syncing { snapshot, is_outdated, .. } = &mut link.phase else { return Ok(()) };
        link.heard = clock::now();
        link.snapshot_heard = link.heard;
        match frames::read_snapshot(message.frames(), &self.settings.limits) {
            Err(rule) => self.invalid(rule),
            Ok(SnapshotMessage::Entry(update)) => snapshot.add(update, &self.settings.limits)?,
            Ok(SnapshotMessage::End(_)) if *is_outdated => link.synchronize(),
            Ok(SnapshotMessage::End(sequence)) => {
                let phase = std::mem::replace(&mut link.phase, Phase::Active);
                if let Phase::Syncing { snapshot, waiting, .. } = phase {
                    self.complete(index, link, (snapshot, sequence), waiting)?;
                }
            }
        }
        Ok(())
    }

    fn complete(
        &mut self,
        index: usize,
        link: &mut Link,
        (snapshot, sequence): (Snapshot, u64),
        waiting: Vec<Update>,
    ) -> Result<(), Left> {
        let changes = {
            let mut state = self.shared.lock();
            state.stats.snapshots += 1;
            state.view.replace(snapshot, sequence)
        };
        for change in changes {
            self.shared.emit(event(change, None, Bytes::new()));
        }
        self.shared.emit(CloneEvent::Synchronized { server: index });
        let _ = self.shared.status.send_replace(Ok(index));
        for update in waiting {
            match &mut link.phase {
                // A lost update among these: they wait for the next snapshot.
                Phase::Syncing { waiting, .. } => waiting.push(update),
                _ => self.apply(index, link, update)?,
            }
        }
        Ok(())
    }

    /// Applies an update after the snapshot.
    fn apply(&mut self, index: usize, link: &mut Link, update: Update) -> Result<(), Left> {
        let (id, ttl, sequence) = (update.id.clone(), update.properties.ttl(), update.sequence);
        let outcome = {
            let mut state = self.shared.lock();
            let outcome = state.view.apply(update.clone())?;
            match outcome {
                Outcome::Applied(_) => state.stats.updates += 1,
                Outcome::Gap => state.stats.gaps += 1,
                Outcome::Old => state.stats.old += 1,
            }
            outcome
        };
        match outcome {
            Outcome::Applied(change) => {
                if let Some(change) = change {
                    self.shared.emit(event(change, ttl, id.clone()));
                }
            }
            // Part of the snapshot, and so published.
            Outcome::Old => {}
            Outcome::Gap => {
                tracing::debug!(server = index, "an update of a server of CHP was lost");
                link.synchronize();
                if let Phase::Syncing { waiting, .. } = &mut link.phase {
                    waiting.push(update);
                }
                return Ok(());
            }
        }
        if let Some(command) = self.pending.remove(&id) {
            // The future may have been dropped.
            let _ = command.done.send(sequence);
        }
        Ok(())
    }

    fn invalid(&self, rule: &str) {
        tracing::debug!(rule, "a message of a server of CHP is not valid");
        self.shared.lock().stats.invalid += 1;
    }
}

impl Link {
    /// Begins to receive a snapshot; updates continue to wait for its end.
    fn synchronize(&mut self) {
        let waiting = match &mut self.phase {
            Phase::Syncing { waiting, .. } => std::mem::take(waiting),
            _ => Vec::new(),
        };
        self.phase = Phase::Syncing { snapshot: Snapshot::default(), waiting, is_outdated: false };
        self.is_request_due = true;
    }

    /// Drops what arrived from the server before it restarted.
    fn restart(&mut self) {
        match &mut self.phase {
            Phase::Syncing { waiting, is_outdated, .. } => {
                waiting.clear();
                *is_outdated = true;
            }
            _ => self.synchronize(),
        }
    }
}

fn event(Change { key, value }: Change, ttl: Option<Duration>, id: Bytes) -> CloneEvent {
    match value {
        Some(value) => CloneEvent::Updated { key, value, ttl, id },
        None => CloneEvent::Deleted { key, id },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_before_an_update_is_sent_again_double_up_to_their_limit() {
        let start = clock::now();
        let mut repeat = Repeat::new(start);
        let due: Vec<u128> = (0..40)
            .map(|tick| start + REPEAT_PAUSE * tick)
            .filter(|now| repeat.is_due(*now))
            .map(|now| (now - start).as_millis())
            .collect();
        assert_eq!(due, [250, 750, 1750, 3750, 5750, 7750, 9750]);
    }
}
