//! The adapter of an engine: clients of NATS on the topics of a bus.

use super::{
    feeds::Feeds,
    peer::{Client, Clients},
    shared::Shared,
};
use crate::responses::{add, flush};
use std::{sync::Arc, time::Duration};
use switchboard_core::Caller;
use switchboard_fanout::{
    Adapter, Admitted, BufferId, CloseReason, Connected, Handle, State, SubscriberId, Subscribers,
};
use switchboard_message::Topic;
use switchboard_wire::{
    Input, Outbox, Status,
    nats::{ErrorKind, Info, ProtocolError, ServerEvent},
};

/// Time for CONNECT where credentials are needed, as in the servers of NATS.
const AUTH_TIMEOUT: Duration = Duration::from_secs(2);
/// PINGs without a response after which a connection is closed.
const PINGS_MAX: u32 = 2;
/// Publications of the engine's own clients after which its feeds are read: the backlog of a topic is limited.
const UNREAD_MAX: usize = 128;
/// Memory of a subscription, with its part of the bus.
const SUBSCRIPTION_BYTES: usize = 1024;

/// A message to an engine.
#[derive(Debug)]
pub(super) enum Command {
    /// A call of a client has ended.
    CallEnded(SubscriberId, u64),
    /// Feeds have entries.
    Ready,
    /// The credentials of a client were checked.
    Verdict(SubscriberId, Result<Arc<Caller>, Status>),
}

/// Drives the clients of an engine.
pub(super) struct NatsAdapter {
    pub(super) shared: Arc<Shared>,
    pub(super) engine: Handle<NatsAdapter>,
    pub(super) clients: Clients,
    pub(super) feeds: Feeds,
    /// Responses to the client whose bytes are read.
    pub(super) out: Outbox,
    /// Memory of lists that are used at once.
    pub(super) ready: Vec<u32>,
    pub(super) ended: Vec<u32>,
    /// Publications since the feeds were read, and the topic of the last one.
    pub(super) unread: usize,
    pub(super) last_topic: Option<Topic>,
    /// Number of the newest call.
    pub(super) last_call: u64,
}

impl NatsAdapter {
    pub(super) fn new(shared: Arc<Shared>, engine: Handle<NatsAdapter>) -> NatsAdapter {
        NatsAdapter {
            shared,
            clients: Clients::default(),
            feeds: Feeds::new(engine.clone()),
            engine,
            out: Outbox::new(),
            ready: Vec::new(),
            ended: Vec::new(),
            unread: 0,
            last_topic: None,
            last_call: 0,
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
            ServerEvent::Connect(connect) => return self.connect(index, &connect, subscribers),
            ServerEvent::InvalidSubject => add(&self.shared.settings.counters.invalid_subjects, 1),
            // What was published before the PING arrives before the PONG.
            ServerEvent::Ping => self.deliver_ready(subscribers),
            // Any byte shows that the client is alive.
            ServerEvent::Pong | ServerEvent::Tls => {}
            ServerEvent::Publish(message) => {
                self.publish(index, message, subscribers);
                self.unread = self.unread.saturating_add(1);
                if self.unread >= UNREAD_MAX {
                    self.deliver_ready(subscribers);
                }
            }
            ServerEvent::Subscribe { pattern, queue, sid } => {
                self.subscribe(index, &pattern, queue.as_deref(), sid);
            }
            ServerEvent::Unsubscribe { sid, max } => self.unsubscribe(index, &sid, max),
        }
        Ok(())
    }

    /// Closes a client with an error.
    fn close(&mut self, index: u32, kind: ErrorKind, subscribers: &mut Subscribers) {
        let Some(client) = self.clients.get_mut(index) else { return };
        client.server.close(kind, &mut self.out);
        let id = client.id;
        flush(id, &mut self.out, subscribers);
        subscribers.close(id, CloseReason::TimedOut);
    }
}

impl Adapter for NatsAdapter {
    type Command = Command;
    type Connection = Admitted;

    fn connected(&mut self, connected: Connected<Admitted>, subscribers: &mut Subscribers) {
        let Connected { id, connection, .. } = connected;
        let limit = match self.shared.requires_auth {
            true => connection.limits.handshake_timeout().min(AUTH_TIMEOUT),
            false => self.shared.settings.ping_interval,
        };
        let client = Client::new(id, connection, &self.shared, &mut self.out);
        self.clients.insert(client, subscribers);
        flush(id, &mut self.out, subscribers);
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
            client.is_heard = true;
            match client.server.recv(input, &mut self.out) {
                Ok(Some(event)) => {
                    if let Err(reason) = self.event(index, event, subscribers) {
                        break Err(reason);
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => {
                    add(&self.shared.settings.counters.protocol_errors, 1);
                    break Err(violation(&error));
                }
            }
        };
        if let Some(client) = self.clients.get(index) {
            let bytes = client.subscriptions.len().saturating_mul(SUBSCRIPTION_BYTES);
            subscribers.set_adapter_bytes(id, bytes);
            subscribers.set_busy(id, !client.calls.is_empty());
        }
        flush(id, &mut self.out, subscribers);
        self.deliver_ready(subscribers);
        ended
    }

    fn command(&mut self, command: Command, subscribers: &mut Subscribers) {
        match command {
            Command::CallEnded(id, call) => {
                // A drain closes a client after the replies to its calls.
                self.deliver_ready(subscribers);
                let is_busy = self.call_ended(id, call, subscribers);
                subscribers.set_busy(id, is_busy);
            }
            Command::Ready => {}
            Command::Verdict(id, checked) => self.verdict(id, checked, subscribers),
        }
        self.deliver_ready(subscribers);
    }

    fn due(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        let Some(index) = self.clients.index(id, subscribers) else { return };
        let Some(client) = self.clients.get_mut(index) else { return };
        if !client.server.is_open() {
            return self.close(index, ErrorKind::AuthenticationTimeout, subscribers);
        }
        if std::mem::take(&mut client.is_heard) {
            client.pings = 0;
        } else if client.pings >= PINGS_MAX {
            return self.close(index, ErrorKind::StaleConnection, subscribers);
        } else if client.server.ping(&mut self.out) {
            client.pings = client.pings.saturating_add(1);
        }
        flush(id, &mut self.out, subscribers);
        subscribers.set_timer(id, self.shared.settings.ping_interval);
    }

    fn lagged(&mut self, _id: SubscriberId, _buffer: BufferId, _lost: u64, _subscribers: &mut Subscribers) {}

    fn drained(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        if let Some(index) = self.clients.index(id, subscribers)
            && let Some(client) = self.clients.get_mut(index)
        {
            (client.waiting, client.is_slow) = (0, false);
        }
    }

    fn disconnected(
        &mut self,
        id: SubscriberId,
        reason: &CloseReason,
        state: State,
        _subscribers: &mut Subscribers,
    ) {
        tracing::debug!(client = ?id, "nats: closed: {reason}");
        let index = state.bits as u32;
        if self.clients.get(index).is_none_or(|client| client.id != id) {
            return;
        }
        let Some(client) = self.clients.get_mut(index) else { return };
        client.calls.clear();
        // A removal moves another subscription, which may be of this client, too.
        while let Some(client) = self.clients.get(index)
            && let Some(place) = client.subscriptions.values().next().copied()
        {
            self.remove_member(place);
        }
        self.clients.remove(index);
    }

    fn draining(&mut self, subscribers: &mut Subscribers) {
        for client in self.clients.iter_mut() {
            let info = Info { ldm: true, ..self.shared.info(client.number) };
            // Clients of the first version of the protocol learn of it by the end of their connection.
            if client.server.send_info(&info, &mut self.out) {
                flush(client.id, &mut self.out, subscribers);
            }
        }
    }
}

fn violation(error: &ProtocolError) -> CloseReason {
    CloseReason::Violation { name: error.kind().name(), text: error.to_string().into() }
}
