//! The adapter of an engine: peers of ZMTP on the topics of a bus.

use super::{
    Shared,
    calls::Calls,
    entries::{self, Encoded},
    feed::Command,
    filters::Filters,
    interests::Interests,
    jobs::Jobs,
    mapping::Local,
    peer::{Peer, Role},
    profiles::Profiles,
    publishing::Publishing,
    sealed::SealedSubscribers,
};
use crate::{
    feed::{Feed, WaitingBytes},
    responses::{add, flush},
};
use bytes::Bytes;
use std::{collections::HashMap, sync::Arc, time::Duration};
use switchboard_core::{Limit, clock};
use switchboard_fanout::{
    Adapter, Admitted, BufferId, CloseReason, Connected, Handle, State, SubscriberId, Subscribers,
};
use switchboard_message::Message;
use switchboard_net::plugin::Services;
use switchboard_wire::{
    Input, Outbox,
    zmtp::{Connection, Event, Peer as Remote, ProtocolError, SocketType},
};

/// Subscriptions of a peer.
pub(super) const SUBSCRIPTIONS_MAX: u32 = 10_000;

/// Drives the peers of an engine.
pub(super) struct ZmtpAdapter {
    pub(super) shared: Arc<Shared>,
    profiles: Arc<Profiles>,
    pub(super) services: Arc<dyn Services>,
    pub(super) engine: Handle<ZmtpAdapter>,
    pub(super) peers: HashMap<SubscriberId, Peer>,
    pub(super) filters: Filters,
    pub(super) sealed: SealedSubscribers,
    pub(super) interests: Interests<Feed>,
    pub(super) waiting: WaitingBytes,
    pub(super) jobs: Jobs,
    /// Responses to the peer whose bytes are read.
    pub(super) out: Outbox,
    found: Vec<u32>,
    /// The server stops: no call begins.
    pub(super) is_draining: bool,
}

impl ZmtpAdapter {
    pub(super) fn new(
        shared: Arc<Shared>,
        profiles: Arc<Profiles>,
        services: Arc<dyn Services>,
        engine: Handle<ZmtpAdapter>,
    ) -> Self {
        let single_frames = shared.single_frames.clone();
        let sealed = SealedSubscribers::new(SUBSCRIPTIONS_MAX, &shared);
        ZmtpAdapter {
            shared,
            profiles,
            services,
            engine,
            peers: HashMap::new(),
            filters: Filters::new(SUBSCRIPTIONS_MAX),
            sealed,
            interests: Interests::new(single_frames),
            waiting: WaitingBytes::new(),
            jobs: Jobs::new(),
            out: Outbox::new(),
            found: Vec::new(),
            is_draining: false,
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
            #[cfg(feature = "curve")]
            (Event::ClientKey(key), Role::Handshake(_)) => self.log_in_with_key(id, peer, key, subscribers),
            (Event::Ready(remote), _) => self.ready(id, peer, &remote, subscribers),
            (Event::Subscribe(prefix), Role::Subscriber(_)) => self.subscribe(id, peer, &prefix, subscribers),
            (Event::Cancel(prefix), Role::Subscriber(_)) => {
                self.cancel(id, peer, &prefix, subscribers);
                Ok(())
            }
            (Event::Frame { body, more }, _) => {
                peer.held_bytes = if more { peer.held_bytes.saturating_add(body.len()) } else { 0 };
                self.frame(id, peer, body, more, subscribers)
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

    /// Handles a frame of a message.
    fn frame(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        body: Bytes,
        more: bool,
        subscribers: &mut Subscribers,
    ) -> std::result::Result<(), CloseReason> {
        match &mut peer.role {
            Role::Caller(calls) => {
                if let Some(request) = calls.push(body, more) {
                    return self.call(id, peer, request, subscribers);
                }
            }
            Role::Publisher(publishing) => {
                if let Some(message) = publishing.push(body, more) {
                    self.publish(id, peer, message, subscribers);
                }
            }
            Role::Routed(routed) => {
                if let Some(message) = routed.push(body, more) {
                    return self.route_in(id, peer, message, subscribers);
                }
            }
            Role::Handshake(_) | Role::Subscriber(_) | Role::Worker => {}
        }
        Ok(())
    }

    /// The handshake is complete: the connection has its role.
    fn ready(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        remote: &Remote,
        subscribers: &mut Subscribers,
    ) -> std::result::Result<(), CloseReason> {
        subscribers.clear_timer(id);
        let (end, credentials) = (peer.remote.take(), std::mem::take(&mut peer.credentials));
        // The settings of the connection accept no other types.
        let local = peer.profile.mapping.local(remote.socket);
        peer.role = match (local, end, remote.socket) {
            (Some(Local::Services), Some(end), _) => {
                Role::Caller(Box::new(Calls::new(end, credentials, peer.calls_max)))
            }
            (Some(Local::Dealer(index) | Local::Pair(index)), ..) => {
                self.enter_router(id, &Bytes::new(), index)?
            }
            (Some(Local::Router(router)), ..) => self.enter_router(id, &remote.identity, router)?,
            (Some(Local::Pipeline), _, SocketType::Pull) => {
                self.enter_workers(id, peer.caller.as_deref())?;
                Role::Worker
            }
            (Some(Local::Topics), _, SocketType::Sub | SocketType::Xsub) => {
                Role::Subscriber(self.subscriptions(peer.caller.as_deref()))
            }
            (Some(local), ..) => {
                if local == Local::Topics {
                    // Everything that the publisher has.
                    let _ = peer.connection.subscribe(b"", &mut self.out);
                }
                Role::Publisher(Publishing::new(local))
            }
            (None, ..) => Role::Handshake(None),
        };
        Ok(())
    }

    /// Sends an entry to all subscribers with a prefix of its topic.
    fn deliver(&mut self, message: &Message<Bytes>, subscribers: &mut Subscribers) {
        let (topic, entry) = (message.topic(), message.entry());
        let name = (*topic != self.shared.single_frames).then(|| topic.name());
        let mut found = std::mem::take(&mut self.found);
        self.filters.matching(name.map_or(&entry.bytes()[..], str::as_bytes), &mut found);
        if !found.is_empty() {
            let Encoded { head, payload } = entries::encode(name, entry);
            let is_named = name.is_some();
            for buffer in found.drain(..).filter_map(|filter| self.filters.buffer(filter, is_named)) {
                subscribers.append(buffer, &head, &payload);
                add(&self.shared.counters.encoded, 1);
            }
        }
        self.found = found;
        self.sealed.deliver(name, entry, &mut self.peers, &self.shared, subscribers);
    }
}

impl Adapter for ZmtpAdapter {
    type Command = Command;
    type Connection = Admitted;

    fn connected(&mut self, connected: Connected<Admitted>, subscribers: &mut Subscribers) {
        let Admitted { peer: remote, limits, .. } = connected.connection;
        let profile = self.profiles.of(&limits);
        let connection = Connection::new(profile.settings.clone(), &mut self.out);
        let calls_max = usize::try_from(limits.get(Limit::CallsMax)).unwrap_or(usize::MAX);
        let peer = Peer::new(connection, profile, remote, calls_max);
        self.peers.insert(connected.id, peer);
        flush(connected.id, &mut self.out, subscribers);
        subscribers.set_timer(connected.id, limits.handshake_timeout());
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
        subscribers.set_adapter_bytes(id, peer.adapter_bytes());
        self.peers.insert(id, peer);
        flush(id, &mut self.out, subscribers);
        ended.inspect_err(|_| add(&self.shared.counters.protocol_errors, 1))
    }

    fn command(&mut self, command: Command, subscribers: &mut Subscribers) {
        match command {
            Command::Entry(task, entry, _permit) => {
                add(&self.shared.counters.read, 1);
                if self.interests.is_owner(task, entry.topic()) {
                    self.deliver(&entry, subscribers);
                }
            }
            Command::Job(job) => self.jobs.add(job, &self.shared, &mut self.peers, subscribers),
            Command::Missed(gap) => add(&self.shared.counters.missed, gap.missing.unwrap_or(0)),
            Command::Response(id, frames) => self.respond(id, frames, subscribers),
            Command::Resume(id) => {
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.resume(id, subscribers);
                }
            }
            Command::Route(id, frames, permit) => self.route_out(id, &frames, permit, subscribers),
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
        if silent >= ttl && !peer.is_paused {
            subscribers.close(id, CloseReason::TimedOut);
        } else {
            subscribers.set_timer(id, ttl.saturating_sub(silent).max(Duration::from_millis(1)));
        }
    }

    fn draining(&mut self, _subscribers: &mut Subscribers) {
        self.is_draining = true;
    }

    fn lagged(&mut self, _id: SubscriberId, _buffer: BufferId, lost: u64, _subscribers: &mut Subscribers) {
        // The protocol has no element for it: the subscriber continues with the oldest entry that is left.
        add(&self.shared.counters.lagged_bytes, lost);
    }

    fn drained(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        match self.peers.get_mut(&id) {
            Some(Peer { role: Role::Worker, .. }) => {
                self.jobs.drained(id, &self.shared, &mut self.peers, subscribers);
            }
            Some(Peer { role: Role::Subscriber(_), .. }) => self.sealed.drained(id),
            Some(Peer { role: Role::Routed(routed), .. }) => routed.drained(),
            Some(peer @ Peer { role: Role::Caller(_), .. }) => peer.send_responses(id, subscribers),
            _ => {}
        }
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
                self.sealed.remove(id);
                prefixes.all.keys().for_each(|prefix| self.interests.remove(prefix));
            }
            Some(Role::Worker) => self.jobs.leave(id),
            Some(Role::Routed(routed)) => routed.leave(),
            Some(Role::Caller(_) | Role::Handshake(_) | Role::Publisher(_)) | None => {}
        }
    }
}

fn violation(error: &ProtocolError) -> CloseReason {
    CloseReason::Violation { name: error.kind().name(), text: error.to_string().into() }
}
