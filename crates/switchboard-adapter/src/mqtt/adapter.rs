//! The adapter of an engine: clients of MQTT on the topics of a bus.

use super::{
    clients::{Client, Clients, ROOM_BYTES},
    feeds::Feeds,
    sessions::Sessions,
    shared::Shared,
};
use crate::{
    responses::{add, flush},
    task::Task,
};
use bytes::Bytes;
use std::{num::NonZeroU16, sync::Arc, time::Duration};
use switchboard_core::{Caller, clock};
use switchboard_fanout::{
    Adapter, Admitted, BufferId, CloseReason, Connected, Handle, State, SubscriberId, Subscribers,
};
use switchboard_wire::{
    Input, Outbox, Status,
    mqtt::{AckKind, Acknowledged, Disconnect, PropertyId, ProtocolError, Reason, ServerEvent, Window},
};

/// Publications of the engine's own clients after which its feeds are read: the backlog of a topic is limited.
const UNREAD_MAX: usize = 128;
/// Periods of the keep alive after which a client is closed whose socket takes nothing.
const UNWRITTEN_MAX: u32 = 4;
/// Memory of a client with a session, and of a subscription with its part of the bus.
const CLIENT_BYTES: usize = 1024;
const SUBSCRIPTION_BYTES: usize = 1024;

/// A message to an engine.
#[derive(Debug)]
pub(super) enum Command {
    /// The bus has accepted a message of a client, or has refused it.
    Published {
        client_id: Bytes,
        /// Number of the session.
        number: u64,
        packet_id: Option<NonZeroU16>,
        outcome: Result<(), Status>,
    },
    /// Feeds have entries.
    Ready,
    /// A client whose outbox was full may have room.
    Room(SubscriberId),
    /// A second has passed.
    Tick,
    /// The credentials of a client were checked.
    Verdict(SubscriberId, Result<Arc<Caller>, Status>),
}

/// Drives the clients of an engine.
pub(super) struct MqttAdapter {
    pub(super) shared: Arc<Shared>,
    pub(super) engine: Handle<MqttAdapter>,
    pub(super) clients: Clients,
    pub(super) sessions: Sessions,
    pub(super) feeds: Feeds,
    /// Responses to the client whose bytes are read.
    pub(super) out: Outbox,
    /// Memory of a list that is used at once.
    pub(super) ready: Vec<u32>,
    /// Publications since the feeds were read.
    pub(super) unread: usize,
    /// Counts the seconds while sessions are absent.
    pub(super) ticker: Option<Task>,
}

impl MqttAdapter {
    pub(super) fn new(shared: Arc<Shared>, engine: Handle<MqttAdapter>) -> MqttAdapter {
        MqttAdapter {
            shared,
            clients: Clients::default(),
            sessions: Sessions::default(),
            feeds: Feeds::new(engine.clone()),
            engine,
            out: Outbox::new(),
            ready: Vec::new(),
            unread: 0,
            ticker: None,
        }
    }

    /// Handles an event of a client.
    fn event(
        &mut self,
        index: u32,
        event: ServerEvent,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        match event {
            ServerEvent::Ack(ack) if ack.kind == AckKind::PubRel => self.released(index, ack.packet_id),
            ServerEvent::Ack(ack) => {
                self.acknowledged(index, ack.kind, ack.packet_id, ack.reason, subscribers);
            }
            ServerEvent::Auth(_) => return Err(self.refuse_auth(index)),
            ServerEvent::Connect(connect) => return self.connect(index, connect, subscribers),
            ServerEvent::Disconnect(disconnect) => return Err(self.disconnect(index, &disconnect)),
            ServerEvent::Ping => {}
            ServerEvent::Publish(publish) => {
                self.publish(index, &publish)?;
                self.pause_while_full(index, subscribers);
                self.unread = self.unread.saturating_add(1);
                if self.unread >= UNREAD_MAX {
                    self.flush(index, subscribers);
                    self.deliver_ready(subscribers);
                }
            }
            ServerEvent::Subscribe(subscribe) => self.subscribe(index, &subscribe, subscribers),
            ServerEvent::Unsubscribe(unsubscribe) => self.unsubscribe(index, &unsubscribe, subscribers),
        }
        Ok(())
    }

    /// Writes the responses to a client before further messages to it.
    pub(super) fn flush(&mut self, index: u32, subscribers: &mut Subscribers) {
        if let Some(client) = self.clients.get_mut(index) {
            let waiting = flush(client.id, &mut self.out, subscribers);
            if waiting > 0 {
                client.waiting = waiting;
            }
        }
    }

    /// The client ends its connection. Its will is published only on request.
    fn disconnect(&mut self, index: u32, disconnect: &Disconnect) -> CloseReason {
        if let Some(client) = self.clients.get_mut(index) {
            if disconnect.reason == Reason::SUCCESS {
                client.will = None;
            }
            match disconnect.properties.number(PropertyId::SessionExpiry) {
                Some(u32::MAX) => client.session_expiry = None,
                Some(seconds) => client.session_expiry = Some(seconds),
                None => {}
            }
        }
        CloseReason::Peer
    }

    /// A client continues an authentication that it has not begun: no method is supported.
    fn refuse_auth(&mut self, index: u32) -> CloseReason {
        if let Some(client) = self.clients.get_mut(index) {
            client.server.close(Reason::PROTOCOL_ERROR, &mut self.out);
        }
        CloseReason::Violation { name: "protocol", text: "AUTH without a method".into() }
    }

    /// The client acknowledges a message, or a step of QoS 2.
    fn acknowledged(
        &mut self,
        index: u32,
        kind: AckKind,
        packet_id: NonZeroU16,
        reason: Reason,
        subscribers: &mut Subscribers,
    ) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let Some(session) = client.session.as_mut() else { return };
        let window: &mut Window<_> = &mut session.window;
        match window.acknowledge(kind, packet_id, reason) {
            Acknowledged::Completed(_) => {}
            Acknowledged::Released(_) => {
                client.server.acknowledge(AckKind::PubRel, packet_id, Reason::SUCCESS, "", &mut self.out);
                return;
            }
            Acknowledged::Unknown if kind == AckKind::PubRec => {
                let unknown = Reason::PACKET_ID_NOT_FOUND;
                client.server.acknowledge(AckKind::PubRel, packet_id, unknown, "", &mut self.out);
                return;
            }
            Acknowledged::Unknown => return,
        }
        self.flush(index, subscribers);
        self.has_room(index, subscribers);
    }

    /// Looks at the outbox of a client after the turn in which it was full: its socket may have taken everything.
    fn recheck(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        let Some(index) = self.clients.index(id, subscribers) else { return };
        if let Some(client) = self.clients.get_mut(index) {
            client.is_rechecked = false;
        }
        self.has_room(index, subscribers);
    }

    /// Has a client without room in its outbox looked at again: when its socket has taken everything, or in a later
    /// turn.
    pub(super) fn wait_for_room(&mut self, index: u32, subscribers: &mut Subscribers) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let is_full = client.waiting >= ROOM_BYTES && !subscribers.is_blocked(client.id);
        if is_full && !client.is_rechecked {
            client.is_rechecked = self.engine.try_send(Command::Room(client.id)).is_ok();
        }
    }

    /// Continues what waits for room in the window or in the outbox of a client.
    pub(super) fn has_room(&mut self, index: u32, subscribers: &mut Subscribers) {
        if let Some(client) = self.clients.get_mut(index) {
            client.waiting = subscribers.send(client.id, |_| {});
        }
        self.redeliver(index, subscribers);
        let Some(client) = self.clients.get_mut(index) else { return };
        let mut stalled = std::mem::take(&mut client.stalled);
        // The feed that took the last room is behind the others.
        if let Some(at) = stalled.iter().position(|feed| Some(*feed) == client.served) {
            stalled[at..].rotate_left(1);
        }
        stalled.iter().for_each(|feed| self.feeds.requeue(*feed));
        self.send_retained(index, subscribers);
    }

    /// Closes a client with a reason.
    pub(super) fn close(
        &mut self,
        index: u32,
        reason: Reason,
        why: CloseReason,
        subscribers: &mut Subscribers,
    ) {
        let Some(client) = self.clients.get_mut(index) else { return };
        subscribers.send(client.id, |out| client.server.close(reason, out));
        subscribers.close(client.id, why);
    }
}

impl Adapter for MqttAdapter {
    type Command = Command;
    type Connection = Admitted;

    fn connected(&mut self, connected: Connected<Admitted>, subscribers: &mut Subscribers) {
        let Connected { id, connection, .. } = connected;
        let settings = &self.shared.settings;
        let limit = connection.limits.handshake_timeout().min(settings.connect_timeout);
        self.clients.insert(Client::new(id, connection, settings.limits), subscribers);
        subscribers.set_timer(id, limit);
    }

    fn received(
        &mut self,
        id: SubscriberId,
        input: &mut Input,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        let Some(index) = self.clients.index(id, subscribers) else { return Ok(()) };
        let ended = loop {
            let Some(client) = self.clients.get_mut(index) else { break Ok(()) };
            client.heard_at = clock::now_ns();
            if client.is_paused {
                break Ok(());
            }
            match client.server.recv(input, &mut self.out) {
                Ok(Some(event)) => {
                    if let Err(reason) = self.event(index, event, subscribers) {
                        break Err(reason);
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => {
                    add(&self.shared.counters().protocol_errors, 1);
                    break Err(violation(&error));
                }
            }
        };
        if let Some(session) = self.clients.get(index).and_then(|client| client.session.as_ref()) {
            let subscriptions = session.subscriptions.len().saturating_mul(SUBSCRIPTION_BYTES);
            subscribers.set_adapter_bytes(id, subscriptions.saturating_add(CLIENT_BYTES));
        }
        self.flush(index, subscribers);
        self.deliver_ready(subscribers);
        ended
    }

    fn command(&mut self, command: Command, subscribers: &mut Subscribers) {
        match command {
            Command::Published { client_id, number, packet_id, outcome } => {
                self.published((&client_id, number), packet_id, outcome, subscribers);
            }
            Command::Ready => {}
            Command::Room(id) => self.recheck(id, subscribers),
            Command::Tick => self.tick(subscribers),
            Command::Verdict(id, checked) => self.verdict(id, checked, subscribers),
        }
        self.deliver_ready(subscribers);
    }

    fn due(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        let Some(index) = self.clients.index(id, subscribers) else { return };
        let Some(client) = self.clients.get_mut(index) else { return };
        if !client.server.is_open() {
            let text = "no CONNECT in time, or its credentials were not checked in time".into();
            let why = CloseReason::Violation { name: "connect_timeout", text };
            return self.close(index, Reason::NOT_AUTHORIZED, why, subscribers);
        }
        let Some(silence_max) = client.silence_max else { return };
        let is_blocked = subscribers.is_blocked(id);
        client.unwritten = match client.unwritten.filter(|_| is_blocked) {
            Some((before, times)) => {
                let waiting = subscribers.send(id, |_| {});
                Some((waiting, if waiting == before { times.saturating_add(1) } else { 0 }))
            }
            None => is_blocked.then(|| (subscribers.send(id, |_| {}), 0)),
        };
        let is_taking = client.unwritten.is_some_and(|(_, times)| times < UNWRITTEN_MAX);
        // The server reads nothing from a client whose messages wait, or whose socket is full.
        if client.is_paused || is_taking {
            client.heard_at = clock::now_ns();
        }
        let silence = Duration::from_nanos(clock::now_ns().saturating_sub(client.heard_at));
        if silence >= silence_max {
            add(&self.shared.counters().keep_alive_timeouts, 1);
            return self.close(index, Reason::KEEP_ALIVE_TIMEOUT, CloseReason::TimedOut, subscribers);
        }
        subscribers.set_timer(id, silence_max.saturating_sub(silence));
    }

    fn lagged(&mut self, _id: SubscriberId, _buffer: BufferId, _lost: u64, _subscribers: &mut Subscribers) {
        add(&self.shared.counters().dropped, 1);
    }

    fn drained(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        let Some(index) = self.clients.index(id, subscribers) else { return };
        if let Some(client) = self.clients.get_mut(index) {
            client.waiting = 0;
            if client.unwritten.take().is_some() {
                // The server may not have read it while its socket was full.
                client.heard_at = clock::now_ns();
            }
        }
        self.has_room(index, subscribers);
    }

    fn disconnected(
        &mut self,
        id: SubscriberId,
        reason: &CloseReason,
        state: State,
        subscribers: &mut Subscribers,
    ) {
        tracing::debug!(client = ?id, "mqtt: closed: {reason}");
        let index = state.bits as u32;
        if self.clients.get(index).is_some_and(|client| client.id == id) {
            self.ended(index, subscribers);
        }
    }

    fn draining(&mut self, subscribers: &mut Subscribers) {
        for client in self.clients.iter_mut().filter(|client| client.server.version().is_v5()) {
            subscribers.send(client.id, |out| client.server.close(Reason::SERVER_SHUTTING_DOWN, out));
        }
    }
}

fn violation(error: &ProtocolError) -> CloseReason {
    CloseReason::Violation { name: error.kind().name(), text: error.to_string().into() }
}
