//! The adapter of an engine: peers of ZMTP on the topics of a bus.

use super::{
    Shared,
    entries::{self, Encoded},
    feed::{self, Command},
    filters::Filters,
    jobs::Jobs,
    login::{self, Login},
    peer::{Life, Peer, Role},
};
use crate::{
    feed::Feed,
    responses::{add, flush},
};
use bytes::Bytes;
use std::{collections::HashMap, sync::Arc, time::Duration};
use switchboard_core::{Result, clock};
use switchboard_fanout::{
    Adapter, Admitted, BufferId, CloseReason, Connected, Handle, State, SubscriberId, Subscribers,
};
use switchboard_message::{Message, Topic};
use switchboard_net::plugin::Services;
use switchboard_wire::{
    Input, Metadata, Outbox, Status,
    zmtp::{Connection, Credentials, Event, ProtocolError, Settings, SocketType},
};

/// Subscriptions of a peer.
const SUBSCRIPTIONS_MAX: u32 = 10_000;

/// Drives the peers of an engine.
pub(super) struct ZmtpAdapter {
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    services: Arc<dyn Services>,
    engine: Handle<ZmtpAdapter>,
    peers: HashMap<SubscriberId, Peer>,
    filters: Filters,
    /// Reads the bus while there are subscribers.
    feed: Option<Feed>,
    subscribed: usize,
    jobs: Jobs,
    /// Responses to the peer whose bytes are read.
    out: Outbox,
    found: Vec<u32>,
}

impl ZmtpAdapter {
    pub(super) fn new(
        shared: Arc<Shared>,
        settings: Arc<Settings>,
        services: Arc<dyn Services>,
        engine: Handle<ZmtpAdapter>,
    ) -> Self {
        ZmtpAdapter {
            shared,
            settings,
            services,
            engine,
            peers: HashMap::new(),
            filters: Filters::new(SUBSCRIPTIONS_MAX),
            feed: None,
            subscribed: 0,
            jobs: Jobs::new(),
            out: Outbox::new(),
            found: Vec::new(),
        }
    }

    /// Handles an event of a peer.
    fn event(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        event: Event,
        subscribers: &mut Subscribers,
    ) -> std::result::Result<(), CloseReason> {
        match (event, &mut peer.role) {
            (Event::Credentials(credentials), Role::Handshake(_)) => {
                self.log_in(id, peer, &credentials, subscribers)
            }
            (Event::Ready(_), _) => self.ready(id, peer, subscribers),
            (Event::Subscribe(prefix), Role::Subscriber(prefixes)) => {
                if prefixes.count >= SUBSCRIPTIONS_MAX {
                    let text = format!("a peer has at most {SUBSCRIPTIONS_MAX} subscriptions");
                    return Err(CloseReason::Violation { name: "subscriptions", text: text.into() });
                }
                prefixes.count += 1;
                let count = prefixes.all.entry(prefix.clone()).or_default();
                *count += 1;
                if *count == 1 {
                    self.filters.added(id, &prefix, prefixes, subscribers);
                }
                Ok(())
            }
            (Event::Cancel(prefix), Role::Subscriber(prefixes)) => {
                let Some(count) = prefixes.all.get_mut(&prefix) else { return Ok(()) };
                *count -= 1;
                let is_last = *count == 0;
                prefixes.count -= 1;
                if is_last {
                    prefixes.all.remove(&prefix);
                    self.filters.removed(id, &prefix, prefixes, subscribers);
                }
                Ok(())
            }
            (Event::Frame { body, more }, Role::Publisher(assembly)) => {
                peer.held_bytes = if more { peer.held_bytes.saturating_add(body.len()) } else { 0 };
                if let Some(message) = assembly.push(body, more) {
                    self.publish(&message, peer.connection.socket());
                }
                Ok(())
            }
            (Event::Ping { ttl }, _) => {
                if !peer.life.ping(clock::now()) {
                    return Err(CloseReason::Violation {
                        name: "pings",
                        text: "too many PINGs in a second".into(),
                    });
                }
                peer.life.ttl = ttl;
                if let Some(ttl) = ttl {
                    subscribers.set_timer(id, ttl);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The handshake is complete: the connection has its role.
    fn ready(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        subscribers: &mut Subscribers,
    ) -> std::result::Result<(), CloseReason> {
        subscribers.clear_timer(id);
        peer.role = Role::of(peer.connection.socket());
        let begun = match &peer.role {
            Role::Subscriber(_) => self.subscribe(),
            Role::Worker => self.jobs.enter(id, &self.shared, &self.engine),
            Role::Publisher(_) if peer.connection.socket() == SocketType::Sub => {
                // Everything that the publisher has.
                let _ = peer.connection.subscribe(b"", &mut self.out);
                Ok(())
            }
            Role::Publisher(_) | Role::Handshake(_) => Ok(()),
        };
        begun.map_err(|status| {
            // It has not begun, so it does not end.
            peer.role = Role::Handshake(None);
            CloseReason::Violation { name: "bus", text: status.message().to_owned().into() }
        })
    }

    /// Begins to check the credentials of a peer, whose next bytes wait for the verdict.
    fn log_in(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        credentials: &Credentials,
        subscribers: &mut Subscribers,
    ) -> std::result::Result<(), CloseReason> {
        let metadata = match (login::metadata(credentials), &peer.remote) {
            (Ok(metadata), Some(remote)) => {
                let checked = self.services.authenticate(remote, metadata.clone());
                peer.role = Role::Handshake(Some(Login::begin(id, metadata, checked, self.engine.clone())));
                peer.is_paused = true;
                subscribers.pause(id);
                return Ok(());
            }
            (Err(status), _) => status,
            (_, None) => Status::internal("the other end is unknown"),
        };
        peer.connection.reject(login::zap_status(&metadata), &mut self.out);
        Err(refused(&metadata))
    }

    /// The credentials of a peer were checked.
    fn verdict(&mut self, id: SubscriberId, verdict: Result<()>, subscribers: &mut Subscribers) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Role::Handshake(login @ Some(_)) = &mut peer.role else { return };
        let login = login.take();
        peer.is_paused = false;
        match verdict {
            Ok(()) => {
                peer.connection.accept(&mut self.out);
                flush(id, &mut self.out, subscribers);
                peer.credentials = login.map(Login::into_metadata).unwrap_or_default();
                subscribers.resume(id);
            }
            Err(status) => {
                peer.connection.reject(login::zap_status(&status), &mut self.out);
                flush(id, &mut self.out, subscribers);
                subscribers.close(id, refused(&status));
            }
        }
    }

    /// Counts a subscriber; the first one makes the engine read the bus.
    fn subscribe(&mut self) -> Result<()> {
        if self.feed.is_none() {
            self.feed = Some(feed::entries(&self.shared.bus, self.engine.clone())?);
        }
        self.subscribed += 1;
        Ok(())
    }

    /// Publishes the message of a peer. Its connection has no way to say that it was refused.
    fn publish(&mut self, frames: &[Bytes], own: SocketType) {
        let shared = &self.shared;
        let published = match (own, &shared.pipeline, frames) {
            (SocketType::Pull, Some(pipeline), frames) => publish(shared, &pipeline.topic, frames),
            (_, _, [frame]) => publish(shared, &shared.single_frames, std::slice::from_ref(frame)),
            (_, _, [name, frames @ ..]) => {
                Topic::from_bytes(name).and_then(|topic| publish(shared, &topic, frames))
            }
            (_, _, []) => Ok(()),
        };
        match published {
            Ok(()) => add(&shared.counters.published, 1),
            Err(status) => {
                add(&shared.counters.refused, 1);
                tracing::debug!("zmtp: a message of a peer is dropped: {status}");
            }
        }
    }

    /// Sends an entry to all subscribers with a prefix of its topic.
    fn deliver(&mut self, message: &Message<Bytes>, subscribers: &mut Subscribers) {
        let (topic, entry) = (message.topic(), message.entry());
        let name = (*topic != self.shared.single_frames).then(|| topic.name());
        let mut found = std::mem::take(&mut self.found);
        self.filters.matching(name.map_or(&entry.bytes()[..], str::as_bytes), &mut found);
        if !found.is_empty() {
            let Encoded { head, payload } = entries::encode(name, entry);
            for buffer in found.drain(..).filter_map(|filter| self.filters.buffer(filter)) {
                subscribers.append(buffer, &head, &payload);
                add(&self.shared.counters.encoded, 1);
            }
        }
        self.found = found;
    }
}

/// Publishes frames to a topic, without waiting for a slow reader of the topic.
fn publish(shared: &Shared, topic: &Topic, frames: &[Bytes]) -> Result<()> {
    crate::publish::publish(&shared.bus, topic, entries::publication(frames)?, "PUB and PUSH peers")
}

impl Adapter for ZmtpAdapter {
    type Command = Command;
    type Connection = Admitted;

    fn connected(&mut self, connected: Connected<Admitted>, subscribers: &mut Subscribers) {
        let connection = Connection::new(self.settings.clone(), &mut self.out);
        let life = Life::new(clock::now());
        let remote = Some(Arc::new(connected.connection.peer));
        let role = Role::Handshake(None);
        let peer = Peer {
            connection,
            role,
            life,
            held_bytes: 0,
            remote,
            credentials: Metadata::new(),
            is_paused: false,
        };
        self.peers.insert(connected.id, peer);
        flush(connected.id, &mut self.out, subscribers);
        subscribers.set_timer(connected.id, connected.connection.limits.handshake_timeout());
    }

    fn received(
        &mut self,
        id: SubscriberId,
        input: &mut Input,
        subscribers: &mut Subscribers,
    ) -> std::result::Result<(), CloseReason> {
        let Some(mut peer) = self.peers.remove(&id) else { return Ok(()) };
        if peer.life.ttl.is_some() {
            peer.life.heard = clock::now();
        }
        let ended = loop {
            if peer.is_paused {
                break Ok(());
            }
            match peer.connection.recv(input, &mut self.out) {
                Ok(Some(event)) => {
                    if let Err(reason) = self.event(id, &mut peer, event, subscribers) {
                        break Err(reason);
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(violation(&error)),
            }
        };
        subscribers.set_adapter_bytes(id, peer.held_bytes);
        self.peers.insert(id, peer);
        flush(id, &mut self.out, subscribers);
        ended.inspect_err(|_| add(&self.shared.counters.protocol_errors, 1))
    }

    fn command(&mut self, command: Command, subscribers: &mut Subscribers) {
        match command {
            Command::Entry(entry, _permit) => self.deliver(&entry, subscribers),
            Command::Job(job) => self.jobs.add(job, &self.shared, subscribers),
            Command::Missed(gap) => add(&self.shared.counters.missed, gap.missing.unwrap_or(0)),
            Command::Verdict(id, verdict) => self.verdict(id, verdict, subscribers),
        }
    }

    fn due(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        let Some(peer) = self.peers.get(&id) else { return };
        if matches!(peer.role, Role::Handshake(_)) {
            return subscribers.close(id, CloseReason::TimedOut);
        }
        let Some(ttl) = peer.life.ttl else { return };
        let silent = clock::since(peer.life.heard);
        if silent >= ttl {
            subscribers.close(id, CloseReason::TimedOut);
        } else {
            subscribers.set_timer(id, ttl.saturating_sub(silent).max(Duration::from_millis(1)));
        }
    }

    fn lagged(&mut self, _id: SubscriberId, _buffer: BufferId, lost: u64, _subscribers: &mut Subscribers) {
        // The protocol has no element for it: the subscriber continues with the oldest entry that is left.
        add(&self.shared.counters.lagged_bytes, lost);
    }

    fn drained(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        self.jobs.drained(id, &self.shared, subscribers);
    }

    fn disconnected(
        &mut self,
        id: SubscriberId,
        reason: &CloseReason,
        _state: State,
        subscribers: &mut Subscribers,
    ) {
        tracing::debug!(peer = ?id, "closed: {reason}");
        self.shared.counters.closed(reason);
        match self.peers.remove(&id).map(|peer| peer.role) {
            Some(Role::Subscriber(prefixes)) => {
                if let Some(filter) = prefixes.filter {
                    self.filters.leave(filter, subscribers);
                }
                self.subscribed -= 1;
                if self.subscribed == 0 {
                    self.feed = None;
                }
            }
            Some(Role::Worker) => self.jobs.leave(id),
            Some(Role::Publisher(_) | Role::Handshake(_)) | None => {}
        }
    }
}

/// Returns the reason to close a peer whose login was refused.
fn refused(status: &Status) -> CloseReason {
    CloseReason::Violation {
        name: "credentials",
        text: format!("login refused: {}", status.message()).into(),
    }
}

fn violation(error: &ProtocolError) -> CloseReason {
    CloseReason::Violation { name: error.kind().name(), text: error.to_string().into() }
}
