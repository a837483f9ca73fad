//! Task of a client: one server after the other, snapshot before updates.
//!
//! ```text
//! Waiting ── HUGZ or an update: the subscription is active ──► Syncing ── KTHXBAI ──► Active ── silence ──► next
//!    └────── half of the silence limit, without HUGZ ─────────────┘ ▲                   │                   server
//!                                                                   └── a lost update ──┘
//! ```

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

/// Pause between two attempts to send an update.
const REPEAT_PAUSE: Duration = Duration::from_millis(250);
/// Pause before the next server.
const SERVER_PAUSE: Duration = Duration::from_millis(50);
/// Updates that arrive during a snapshot and wait for its end.
const WAITING_MAX: usize = 10_000;

/// An update that is to be sent.
#[derive(Debug)]
pub(super) struct Command {
    pub update: Update,
    /// Receives the number of the published update.
    pub done: oneshot::Sender<u64>,
    pub deadline: Instant,
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
        let Err(reason) = task.attend(index, server).await else { return };
        tracing::debug!(reason, server = server.snapshot, "a client of CHP leaves a server");
        task.shared.lock().stats.lost += 1;
        let _ = task.shared.status.send_replace(Err(reason.clone()));
        task.shared.emit(CloneEvent::Lost { server: index, reason });
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
    /// The collector has subscribed: updates reach it.
    is_collected: bool,
    repeated: Instant,
}

enum Phase {
    Active,
    Syncing { snapshot: Snapshot, waiting: Vec<Update> },
    Waiting,
}

impl ClientTask {
    /// Copies the table of a server until the client is dropped.
    ///
    /// # Errors
    /// Returns the reason for which the server is left.
    async fn attend(&mut self, index: usize, server: &CloneEndpoints) -> Result<(), String> {
        let text = |error: switchboard_socket::Error| error.to_string();
        let mut link = self.open(server).await.map_err(text)?;
        loop {
            let wake = self.wake(&link);
            let has_room = self.pending.len() < self.settings.sets_max;
            tokio::select! {
                command = self.commands.recv(), if has_room => match command {
                    Some(command) => {
                        if link.is_collected {
                            link.collector.try_send(command.update.to_message()).map_err(text)?;
                        }
                        self.pending.insert(command.update.id.clone(), command);
                    }
                    None => return Ok(()),
                },
                message = link.updates.recv() => self.published(index, &mut link, &message.map_err(text)?)?,
                message = link.snapshot.recv() => self.synced(index, &mut link, &message.map_err(text)?)?,
                change = link.collector.recv() => {
                    if change.map_err(text)?.body().first() == Some(&1) {
                        link.is_collected = true;
                        self.repeat(&mut link)?;
                    }
                }
                () = tokio::time::sleep_until(wake.into()) => self.wake_up(&mut link)?,
            }
        }
    }

    async fn open(&self, server: &CloneEndpoints) -> switchboard_socket::Result<Link> {
        let options = &self.settings.options;
        let updates = Sub::with_options(options.clone())?;
        updates.subscribe(&self.settings.subtree)?;
        // After the subtree: its first message shows that both are active.
        updates.subscribe(HUGZ)?;
        updates.connect_to(&server.updates).await?;
        let snapshot = Dealer::with_options(options.clone())?;
        snapshot.connect_to(&server.snapshot).await?;
        let collector = Xpub::with_options(options.clone())?;
        collector.connect_to(&server.collector).await?;
        let (phase, now) = (Phase::Waiting, clock::now());
        Ok(Link { snapshot, updates, collector, phase, heard: now, is_collected: false, repeated: now })
    }

    fn wake(&self, link: &Link) -> Instant {
        let silence = self.settings.silence_max;
        let limit = match link.phase {
            Phase::Waiting => silence / 2,
            _ => silence,
        };
        let mut wake = clock::after(link.heard, limit);
        if !self.pending.is_empty() {
            wake = wake.min(clock::after(link.repeated, REPEAT_PAUSE));
        }
        wake
    }

    fn wake_up(&mut self, link: &mut Link) -> Result<(), String> {
        let now = clock::now();
        self.pending.retain(|_, command| command.deadline > now && !command.done.is_closed());
        if now >= clock::after(link.repeated, REPEAT_PAUSE) {
            self.repeat(link)?;
        }
        let silence = self.settings.silence_max;
        match link.phase {
            Phase::Waiting if now >= clock::after(link.heard, silence / 2) => self.request(link),
            Phase::Active | Phase::Syncing { .. } if now >= clock::after(link.heard, silence) => {
                Err(format!("the server was silent for silence_max={silence:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Requests a snapshot.
    fn request(&self, link: &mut Link) -> Result<(), String> {
        link.phase = Phase::Syncing { snapshot: Snapshot::default(), waiting: Vec::new() };
        link.heard = clock::now();
        link.snapshot.try_send(frames::request(&self.settings.subtree)).map_err(|error| error.to_string())
    }

    /// Sends the pending updates again.
    fn repeat(&self, link: &mut Link) -> Result<(), String> {
        link.repeated = clock::now();
        for command in self.pending.values().filter(|_| link.is_collected) {
            let sent = link.collector.try_send(command.update.to_message());
            sent.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Handles a message of the connection for updates.
    fn published(&mut self, index: usize, link: &mut Link, message: &Message) -> Result<(), String> {
        let published = match frames::read_published(message.frames(), &self.settings.limits) {
            Ok(published) => published,
            Err(rule) => {
                self.invalid(rule);
                return Ok(());
            }
        };
        link.heard = clock::now();
        if matches!(link.phase, Phase::Waiting) {
            self.request(link)?;
        }
        let Published::Update(update) = published else { return Ok(()) };
        match &mut link.phase {
            Phase::Syncing { waiting, .. } if waiting.len() >= WAITING_MAX => {
                Err(format!("{WAITING_MAX} updates arrived before the snapshot was complete"))
            }
            Phase::Syncing { waiting, .. } => {
                waiting.push(update);
                Ok(())
            }
            _ => self.apply(index, link, update),
        }
    }

    /// Handles a message of the connection for snapshots.
    fn synced(&mut self, index: usize, link: &mut Link, message: &Message) -> Result<(), String> {
        let Phase::Syncing { snapshot, .. } = &mut link.phase else { return Ok(()) };
        link.heard = clock::now();
        match frames::read_snapshot(message.frames(), &self.settings.limits) {
            Err(rule) => self.invalid(rule),
            Ok(SnapshotMessage::Entry(update)) => snapshot.add(update, &self.settings.limits)?,
            Ok(SnapshotMessage::End(sequence)) => {
                let phase = std::mem::replace(&mut link.phase, Phase::Active);
                if let Phase::Syncing { snapshot, waiting } = phase {
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
    ) -> Result<(), String> {
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
    fn apply(&mut self, index: usize, link: &mut Link, update: Update) -> Result<(), String> {
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
                self.request(link)?;
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

fn event(Change { key, value }: Change, ttl: Option<Duration>, id: Bytes) -> CloneEvent {
    match value {
        Some(value) => CloneEvent::Updated { key, value, ttl, id },
        None => CloneEvent::Deleted { key, id },
    }
}
