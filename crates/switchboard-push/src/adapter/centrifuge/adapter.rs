//! The adapter of an engine: clients on the topics of a hub.

use super::{
    encoder::{Key, PushEncoder},
    ending::Ending,
    errors::Failure,
    login::Purpose,
    peer::Peer,
    settings::Context,
    stats::count,
    websocket,
};
use crate::{
    Device, Disconnect, DisconnectReason, Identity,
    feeds::{FeedCommand, Feeds},
};
use std::{collections::HashMap, sync::Arc};
use switchboard::Result;
use switchboard_core::clock;
use switchboard_fanout::{
    Adapter, Admitted, BufferId, CloseReason, Connected, Handle, State, SubscriberId, Subscribers,
};
use switchboard_wire::{
    Input, Outbox,
    centrifuge::{Reply, Server, code},
};

/// Bytes of replies that wait for a client, at which its next command is not read.
const OUTPUT_MAX: usize = 64 << 10;

/// A message to an engine.
pub(super) enum Command {
    /// For the topics.
    Feed(FeedCommand),
    /// Credentials are verified, or refused.
    Verified(SubscriberId, Purpose, Result<Identity>),
    /// A command that had waited has a reply.
    Done(SubscriberId, Box<Reply>),
}

impl From<FeedCommand> for Command {
    fn from(command: FeedCommand) -> Command {
        Command::Feed(command)
    }
}

/// Drives the clients of an engine.
pub(super) struct CentrifugeAdapter {
    pub(super) context: Arc<Context>,
    pub(super) engine: Handle<CentrifugeAdapter>,
    pub(super) feeds: Feeds<Key>,
    pub(super) encoder: PushEncoder,
    pub(super) peers: HashMap<SubscriberId, Peer>,
    /// Replies to the client whose commands are handled.
    pub(super) out: Outbox,
}

impl CentrifugeAdapter {
    pub(super) fn new(context: Arc<Context>, engine: Handle<CentrifugeAdapter>) -> CentrifugeAdapter {
        CentrifugeAdapter {
            feeds: Feeds::new(&context.hub, engine.clone()),
            encoder: PushEncoder::new(&context),
            context,
            engine,
            peers: HashMap::new(),
            out: Outbox::new(),
        }
    }

    /// Handles the commands of a client, until one waits for a verification.
    fn read(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        input: &mut Input,
        subscribers: &mut Subscribers,
    ) -> Result<(), Ending> {
        if peer.machine.is_none() {
            let Some(first) = input.rest().first() else { return Ok(()) };
            peer.machine = websocket::format_of(*first).map(Server::new);
            input.skip(1);
        }
        while self.out.len() < OUTPUT_MAX {
            let Some(machine) = &mut peer.machine else { return Ok(()) };
            match machine.recv(input, &self.context.settings.limits) {
                Ok(Some(command)) => self.handle(id, peer, command, subscribers)?,
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.context.counters.violation(error.kind());
                    return Err(Ending::violation(error.kind().code(), error.message()));
                }
            }
            if peer.login.is_some() {
                return Ok(());
            }
        }
        // The rest is read when the replies are written.
        subscribers.pause(id);
        Ok(())
    }

    /// Writes the reply to a command.
    pub(super) fn reply(&mut self, peer: &mut Peer, reply: &Reply) -> Result<(), Ending> {
        let Some(machine) = &mut peer.machine else { return Ok(()) };
        if !machine.reply(reply, &mut self.out) {
            let text = "the data of the reply is no JSON; use the Protobuf format";
            return self.fail(peer, reply.id, Failure::new(code::NOT_AVAILABLE, text));
        }
        Ok(())
    }

    /// Writes the error of a command.
    ///
    /// # Errors
    /// The client had too many.
    pub(super) fn fail(&mut self, peer: &mut Peer, command: u32, failure: Failure) -> Result<(), Ending> {
        count(&self.context.counters.errors);
        if let Some(machine) = &mut peer.machine {
            machine.reply(&failure.reply(command), &mut self.out);
        }
        peer.errors = peer.errors.saturating_add(1);
        if peer.errors >= self.context.settings.errors_max {
            let reason = DisconnectReason::Limit;
            return Err(Ending::new(code::TOO_MANY_ERRORS, "too many errors", reason));
        }
        Ok(())
    }

    /// Sends the replies to a client.
    pub(super) fn flush(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        if !self.out.is_empty() {
            let replies = self.out.take_all();
            let waiting = subscribers.send(id, |out| out.tail().extend_from_slice(&replies));
            if waiting >= OUTPUT_MAX {
                subscribers.pause(id);
            }
        }
    }

    /// Ends a turn in which commands of a client were handled.
    fn finish(
        &mut self,
        id: SubscriberId,
        peer: Peer,
        result: Result<(), Ending>,
        subscribers: &mut Subscribers,
    ) {
        self.arm(id, &peer, subscribers);
        self.peers.insert(id, peer);
        self.begun();
        self.flush(id, subscribers);
        if let Err(ending) = result {
            self.close(id, &ending, subscribers);
        }
        self.feeds.turn(&mut self.encoder, subscribers);
        self.notices(subscribers);
    }

    fn arm(&self, id: SubscriberId, peer: &Peer, subscribers: &mut Subscribers) {
        if peer.device.is_some() {
            subscribers.set_timer(id, peer.next_timer());
        }
    }
}

impl Adapter for CentrifugeAdapter {
    type Command = Command;
    type Connection = Admitted;

    fn connected(&mut self, connected: Connected<Admitted>, subscribers: &mut Subscribers) {
        let Connected { id, connection, .. } = connected;
        let login = self.context.hub.heartbeat().login;
        subscribers.set_timer(id, login);
        self.peers.insert(id, Peer::new(connection.peer, connection.metadata, login));
    }

    fn received(
        &mut self,
        id: SubscriberId,
        input: &mut Input,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        let Some(mut peer) = self.peers.remove(&id) else { return Ok(()) };
        peer.pong_until = None;
        let result = self.read(id, &mut peer, input, subscribers);
        self.finish(id, peer, result, subscribers);
        Ok(())
    }

    fn command(&mut self, command: Command, subscribers: &mut Subscribers) {
        match command {
            Command::Feed(command) => {
                self.feeds.command(command, &mut self.encoder, subscribers);
                self.notices(subscribers);
            }
            Command::Verified(id, purpose, verified) => {
                let Some(mut peer) = self.peers.remove(&id).filter(|peer| peer.login.is_some()) else {
                    return;
                };
                peer.login = None;
                let result = self.verified(id, &mut peer, purpose, verified, subscribers);
                subscribers.resume(id);
                self.finish(id, peer, result, subscribers);
            }
            Command::Done(id, reply) => {
                let Some(mut peer) = self.peers.remove(&id) else { return };
                let result = match peer.tasks.remove(&reply.id) {
                    None => Ok(()),
                    Some(_) => self.done(&mut peer, &reply),
                };
                self.finish(id, peer, result, subscribers);
            }
        }
    }

    fn due(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let (now, counters) = (clock::now(), &self.context.counters);
        let Some(device) = &peer.device else {
            count(&counters.login_timeouts);
            let ending = Ending::new(code::STALE, "stale", DisconnectReason::TimedOut);
            return self.close(id, &ending, subscribers);
        };
        let is_expired = |device: &Device| device.expires_in().is_some_and(|left| left.is_zero());
        let ending = if is_expired(device) {
            Some(Ending::from(Disconnect::from(DisconnectReason::Expired)))
        } else if peer.has_expired_subscription() {
            let reason = DisconnectReason::Expired;
            Some(Ending::new(code::SUBSCRIPTION_EXPIRED, "subscription expired", reason))
        } else if peer.pong_until.is_some_and(|until| until <= now) {
            count(&counters.pong_timeouts);
            Some(Ending::from(Disconnect::from(DisconnectReason::TimedOut)))
        } else {
            None
        };
        if let Some(ending) = ending {
            return self.close(id, &ending, subscribers);
        }
        if peer.ping_at <= now {
            peer.ping_at = clock::after(now, self.context.hub.heartbeat().interval);
            peer.pong_until.get_or_insert_with(|| clock::after(now, self.context.settings.pong_timeout));
            Reply::default().write(peer.format(), &mut self.out);
            self.flush(id, subscribers);
        }
        if let Some(peer) = self.peers.get(&id) {
            self.arm(id, peer, subscribers);
        }
    }

    fn lagged(&mut self, id: SubscriberId, buffer: BufferId, _lost: u64, subscribers: &mut Subscribers) {
        if !self.feeds.lagged(id, buffer, &mut self.encoder, subscribers) {
            subscribers.abort(id, CloseReason::Lagged);
        }
        self.notices(subscribers);
    }

    fn drained(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        self.feeds.drained(id, &mut self.encoder, subscribers);
        if self.peers.get(&id).is_some_and(|peer| peer.login.is_none()) {
            subscribers.resume(id);
        }
        self.notices(subscribers);
    }

    fn disconnected(
        &mut self,
        id: SubscriberId,
        reason: &CloseReason,
        _state: State,
        subscribers: &mut Subscribers,
    ) {
        tracing::debug!(peer = ?id, "centrifuge: closed: {reason}");
        self.feeds.disconnected(id, subscribers);
        self.encoder.pending.retain(|(subscriber, _), _| *subscriber != id);
        let Some(device) = self.peers.remove(&id).and_then(|peer| peer.device) else { return };
        device.disconnect(match reason {
            CloseReason::Violation { .. } => DisconnectReason::Protocol,
            CloseReason::Lagged => DisconnectReason::Lagged,
            CloseReason::Memory | CloseReason::Full => DisconnectReason::Limit,
            CloseReason::TimedOut => DisconnectReason::TimedOut,
            CloseReason::Closed => DisconnectReason::Closed,
            CloseReason::Stopped => DisconnectReason::Stopped,
            _ => DisconnectReason::Peer,
        });
    }
}
