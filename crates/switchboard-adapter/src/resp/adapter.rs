//! The adapter of an engine: clients of Redis on the topics of a bus.

use super::{
    ServerContext, Shared,
    feed::Command,
    peer::{Client, Held, Subscriptions, Waits},
    sets::Sets,
    sources::Sources,
};
use crate::{
    feed::Feed,
    responses::{add, flush},
};
use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, Waker},
};
use switchboard_core::{Caller, Peer};
use switchboard_fanout::{
    Adapter, Admitted, BufferId, CloseReason, Connected, Handle, State, SubscriberId, Subscribers,
};
use switchboard_wire::{Input, Metadata, Outbox, resp::Server};

/// Bytes of replies of a client that wait, at which its next command is not read.
const OUTPUT_MAX: usize = 256 << 10;

/// Drives the clients of an engine.
pub(super) struct RespAdapter {
    pub(super) server: Arc<ServerContext>,
    pub(super) engine: Handle<RespAdapter>,
    clients: HashMap<SubscriberId, Client>,
    pub(super) sources: Sources,
    sets: Sets,
    /// Reads the bus while there are subscribers.
    pub(super) feed: Option<Feed>,
    /// Number of clients with subscriptions.
    subscribed: usize,
    /// Replies to the client whose commands are executed.
    pub(super) out: Outbox,
    /// The server stops: new calls are refused.
    pub(super) is_draining: bool,
}

impl RespAdapter {
    pub(super) fn new(server: Arc<ServerContext>, engine: Handle<RespAdapter>) -> RespAdapter {
        RespAdapter {
            server,
            engine,
            clients: HashMap::new(),
            sources: Sources::default(),
            sets: Sets::default(),
            feed: None,
            subscribed: 0,
            out: Outbox::new(),
            is_draining: false,
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.server.shared
    }

    /// Returns the caller that the certificate of a peer authenticates.
    fn certified(&self, peer: &Arc<Peer>) -> Option<Arc<Caller>> {
        if !self.server.has_auth || peer.identity.is_none() {
            return None;
        }
        let check = pin!(self.server.services.authenticate(peer, Metadata::new()));
        // A check that takes time is made when the client sends credentials.
        match check.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(caller)) => caller,
            Poll::Ready(Err(_)) | Poll::Pending => None,
        }
    }

    /// Executes the commands of a client, until it has to wait for something.
    fn read(&mut self, id: SubscriberId, client: &mut Client, input: &mut Input) -> Result<(), CloseReason> {
        while !client.waits.any() {
            if self.out.len() >= OUTPUT_MAX {
                client.waits.for_output = true;
                break;
            }
            let before = self.out.len();
            match client.machine.recv(input, &mut self.out) {
                Ok(Some(event)) => {
                    client.has_command = true;
                    self.event(id, client, event, before)?;
                }
                Ok(None) => break,
                Err(error) => {
                    let (name, text) = (error.kind().name(), error.message().to_owned().into());
                    return Err(CloseReason::Violation { name, text });
                }
            }
        }
        Ok(())
    }

    /// Takes a client back after its commands: chooses the set of its subscriptions, and sends the replies.
    fn finish(&mut self, id: SubscriberId, mut client: Client, subscribers: &mut Subscribers) {
        let version = client.machine.version();
        let own = &mut client.subscriptions;
        if own.is_changed || (own.set.is_some() && own.version != version) {
            let had_any = own.set.is_some();
            let is_complete = self.sets.settle(id, own, version, &mut self.sources, subscribers);
            self.count_subscribed(had_any, client.subscriptions.set.is_some());
            if !is_complete {
                subscribers.abort(id, CloseReason::Lagged);
            }
        }
        if self.subscribed == 0 {
            self.feed = None;
        }
        let is_ready = client.has_command && client.machine.is_authenticated();
        match (client.is_ready, is_ready) {
            (false, true) => subscribers.clear_timer(id),
            (true, false) => subscribers.set_timer(id, client.login_time),
            _ => {}
        }
        client.is_ready = is_ready;
        if flush(id, &mut self.out, subscribers) >= OUTPUT_MAX {
            client.waits.for_output = true;
        }
        if client.waits.any() {
            subscribers.pause(id);
        }
        subscribers.set_busy(id, client.waits.for_call());
        subscribers.set_adapter_bytes(id, client.adapter_bytes());
        self.clients.insert(id, client);
    }

    fn count_subscribed(&mut self, before: bool, after: bool) {
        match (before, after) {
            (false, true) => self.subscribed += 1,
            (true, false) => self.subscribed -= 1,
            _ => {}
        }
    }

    /// The task of a client has a result: `apply` replies with it, and the next commands are executed.
    fn complete(
        &mut self,
        id: SubscriberId,
        subscribers: &mut Subscribers,
        apply: impl FnOnce(&mut RespAdapter, &mut Client) -> Result<(), CloseReason>,
    ) {
        let Some(mut client) = self.clients.remove(&id) else { return };
        client.waits.task = None;
        let applied = apply(self, &mut client);
        let waits = client.waits.any();
        self.finish(id, client, subscribers);
        match applied {
            Err(reason) => self.violated(id, reason, subscribers),
            Ok(()) if !waits => self.resume(id, subscribers, |_| {}),
            Ok(()) => {}
        }
    }

    fn violated(&self, id: SubscriberId, reason: CloseReason, subscribers: &mut Subscribers) {
        add(&self.shared().counters.protocol_errors, 1);
        subscribers.close(id, reason);
    }

    /// A reason to wait is gone: reads the commands of the client again, if it was the last one.
    fn resume(&mut self, id: SubscriberId, subscribers: &mut Subscribers, change: impl FnOnce(&mut Waits)) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        change(&mut client.waits);
        if !client.waits.any() {
            subscribers.resume(id);
        }
    }

    /// Ends all subscriptions of a client.
    pub(super) fn end_subscriptions(&mut self, own: &mut Subscriptions) {
        for number in own.all.drain(..) {
            if let Some(source) = self.sources.get(number) {
                self.server.shared.directory.remove(source.kind, &source.name);
            }
            own.left.push(number);
        }
        (own.is_changed, own.bytes) = (true, 0);
    }
}

impl Adapter for RespAdapter {
    type Command = Command;
    type Connection = Admitted;

    fn connected(&mut self, connected: Connected<Admitted>, subscribers: &mut Subscribers) {
        let Connected { id, connection, .. } = connected;
        let peer = Arc::new(connection.peer);
        let certified = self.certified(&peer);
        let is_known = certified.is_some();
        let settings = if is_known { &self.server.authenticated } else { &self.server.settings };
        let number = self.shared().connections.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let login_time = connection.limits.handshake_timeout();
        let client = Client::new(Server::new(settings.clone(), number), peer, certified, login_time);
        self.clients.insert(id, client);
        subscribers.set_timer(id, login_time);
    }

    fn received(
        &mut self,
        id: SubscriberId,
        input: &mut Input,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        let Some(mut client) = self.clients.remove(&id) else { return Ok(()) };
        let read = self.read(id, &mut client, input);
        self.finish(id, client, subscribers);
        read.inspect_err(|reason| {
            if *reason != CloseReason::Peer {
                add(&self.shared().counters.protocol_errors, 1);
            }
        })
    }

    fn command(&mut self, command: Command, subscribers: &mut Subscribers) {
        match command {
            Command::Entry(entry, _permit) => {
                let (topic, bytes) = (entry.topic().name(), entry.entry().bytes());
                let count = self.sets.deliver(topic, bytes, &mut self.sources, subscribers);
                add(&self.shared().counters.encoded, count);
            }
            Command::Missed(gap) => add(&self.shared().counters.missed, gap.missing.unwrap_or(0)),
            Command::Authenticated(id, result) => {
                self.complete(id, subscribers, |adapter, client| adapter.authenticated(client, result));
            }
            Command::Called(id, result) => self.complete(id, subscribers, |adapter, client| {
                client.machine.called(result.as_ref(), &mut adapter.out);
                Ok(())
            }),
            Command::Published(id, channel, result) => self.complete(id, subscribers, |adapter, client| {
                adapter.published(id, client, &channel, result);
                Ok(())
            }),
            Command::Continue(id) => self.complete(id, subscribers, |adapter, client| {
                client.waits.for_window = false;
                match client.held.take() {
                    Some(Held::Publish(channel, payload)) => adapter.publish(id, client, channel, payload),
                    Some(Held::Subscribe(kind, name)) => {
                        client.has_waited = true;
                        adapter.subscribe(id, client, kind, name);
                    }
                    Some(Held::Unsubscribe(kind, name, reply)) => {
                        client.has_waited = true;
                        adapter.out.put(&reply);
                        adapter.end_subscription(client, kind, &name);
                    }
                    None => {}
                }
                client.has_waited &= client.machine.has_more_names();
                Ok(())
            }),
        }
    }

    fn draining(&mut self, _subscribers: &mut Subscribers) {
        self.is_draining = true;
    }

    fn due(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        if self.clients.get(&id).is_some_and(|client| !client.is_ready) {
            subscribers.close(id, CloseReason::TimedOut);
        }
    }

    fn lagged(&mut self, id: SubscriberId, _buffer: BufferId, _lost: u64, subscribers: &mut Subscribers) {
        // Redis closes the connection too: its client knows then that messages are missing.
        subscribers.abort(id, CloseReason::Lagged);
    }

    fn read_closed(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        if self.clients.get(&id).is_some_and(|client| client.waits.for_call()) {
            subscribers.abort(id, CloseReason::Peer);
        }
    }

    fn drained(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        self.resume(id, subscribers, |waits| waits.for_output = false);
    }

    fn disconnected(
        &mut self,
        id: SubscriberId,
        reason: &CloseReason,
        _state: State,
        subscribers: &mut Subscribers,
    ) {
        tracing::debug!(peer = ?id, "closed: {reason}");
        if *reason == CloseReason::Lagged {
            add(&self.shared().counters.lagged, 1);
        }
        let Some(mut client) = self.clients.remove(&id) else { return };
        self.end_subscriptions(&mut client.subscriptions);
        if let Some(set) = client.subscriptions.set {
            self.sets.leave(set, &mut self.sources, subscribers);
            self.count_subscribed(true, false);
        }
        client.subscriptions.left.drain(..).for_each(|source| self.sources.release(source));
        if self.subscribed == 0 {
            self.feed = None;
        }
    }
}
