//! The adapter of an engine: devices on the topics of a hub.

use super::{
    IM_CLOUD,
    encoder::{Key, PushEncoder},
    peer::Peer,
    settings::Context,
    stats::count,
};
use crate::{
    Device, Disconnect, DisconnectReason, Identity,
    control::Control,
    feeds::{FeedCommand, Feeds, Notice},
};
use std::{collections::HashMap, sync::Arc, time::Duration};
use switchboard::Result;
use switchboard_core::clock;
use switchboard_fanout::{
    Adapter, Admitted, BufferId, CloseReason, Connected, Handle, State, SubscriberId, Subscribers,
};
use switchboard_wire::{
    Input, Outbox,
    goim::{Auth, Variant, Variants},
};

/// Bytes of replies that wait for a device, at which its next packet is not read.
const OUTPUT_MAX: usize = 64 << 10;

/// A message to an engine.
pub(super) enum Command {
    /// For the topics.
    Feed(FeedCommand),
    /// The credentials of a device are verified, or refused.
    Verified(SubscriberId, Box<Auth>, Result<Identity>),
}

impl From<FeedCommand> for Command {
    fn from(command: FeedCommand) -> Command {
        Command::Feed(command)
    }
}

/// Drives the devices of an engine.
pub(super) struct GoimAdapter {
    pub(super) context: Arc<Context>,
    pub(super) engine: Handle<GoimAdapter>,
    pub(super) feeds: Feeds<Key>,
    pub(super) encoder: PushEncoder,
    peers: HashMap<SubscriberId, Peer>,
    /// Replies to the device whose packets are handled.
    pub(super) out: Outbox,
}

impl GoimAdapter {
    pub(super) fn new(context: Arc<Context>, engine: Handle<GoimAdapter>) -> GoimAdapter {
        GoimAdapter {
            feeds: Feeds::new(&context.hub, engine.clone()),
            encoder: PushEncoder::new(&context),
            context,
            engine,
            peers: HashMap::new(),
            out: Outbox::new(),
        }
    }

    /// Handles the packets of a device, until one waits for its verification.
    fn read(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        input: &mut Input,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        let limits = self.context.settings.limits;
        while self.out.len() < OUTPUT_MAX {
            match peer.machine.recv(input, &limits, &mut self.out) {
                Ok(Some(event)) => self.event(id, peer, event, subscribers)?,
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.context.counters.error(error.kind());
                    let (name, text) = (error.kind().name(), error.message().to_owned().into());
                    return Err(CloseReason::Violation { name, text });
                }
            }
        }
        // The rest is read when the replies are written.
        subscribers.pause(id);
        Ok(())
    }

    /// Sends the replies to a device.
    pub(super) fn flush(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        if !self.out.is_empty() {
            let replies = self.out.take_all();
            let waiting = subscribers.send(id, |out| out.tail().extend_from_slice(&replies));
            if waiting >= OUTPUT_MAX {
                subscribers.pause(id);
            }
        }
    }

    /// A device has shown that it is alive.
    pub(super) fn heard(&self, peer: &mut Peer) {
        let settings = &self.context.settings;
        let is_short = peer.machine.variant() == Variant::ImCloud && !peer.is_websocket;
        let timeout = if is_short { settings.idle_timeout } else { settings.heartbeat_timeout };
        peer.deadline = clock::after(clock::now(), timeout);
    }

    /// Sets the timer of a device: to its deadline, or to the end of its credentials.
    pub(super) fn arm(&self, id: SubscriberId, peer: &Peer, subscribers: &mut Subscribers) {
        let left = peer.deadline.saturating_duration_since(clock::now());
        let expiry = peer.device.as_ref().and_then(Device::expires_in);
        subscribers.set_timer(id, expiry.map_or(left, |expiry| expiry.min(left)));
    }

    /// Handles what the topics report.
    fn notices(&mut self, subscribers: &mut Subscribers) {
        while let Some(notice) = self.feeds.next_notice() {
            match notice {
                Notice::Order(id, order) => self.order(id, order, subscribers),
                Notice::Close(id, Disconnect { reason, .. }) => self.close(id, reason, subscribers),
                Notice::Failed(id, topic, status) => {
                    tracing::warn!(peer = ?id, "goim: topic \"{topic}\": {status}");
                    self.close(id, DisconnectReason::Closed, subscribers);
                }
            }
        }
    }

    fn order(&mut self, id: SubscriberId, order: Control, subscribers: &mut Subscribers) {
        let Some(mut peer) = self.peers.remove(&id) else { return };
        let order = peer.device.as_mut().and_then(|device| device.order(order));
        match &order {
            Some(Control::Join { room }) => self.join_by_server(id, &mut peer, room, subscribers),
            Some(Control::Leave { room }) => self.leave_by_server(id, &mut peer, room, subscribers),
            _ => {}
        }
        self.peers.insert(id, peer);
        if let Some(Disconnect { reason, .. }) = order.and_then(|order| order.disconnect()) {
            self.close(id, reason, subscribers);
        }
    }

    /// Closes a connection: goim's protocol cannot send the reason.
    fn close(&mut self, id: SubscriberId, reason: DisconnectReason, subscribers: &mut Subscribers) {
        let device = self.peers.get_mut(&id).and_then(|peer| peer.device.take());
        if let Some(device) = device {
            self.feeds.disconnected(id, subscribers);
            device.disconnect(reason);
        }
        subscribers.close(id, CloseReason::Closed);
    }
}

impl Adapter for GoimAdapter {
    type Command = Command;
    type Connection = Admitted;

    fn connected(&mut self, connected: Connected<Admitted>, subscribers: &mut Subscribers) {
        let Connected { id, connection, .. } = connected;
        let Admitted { wire, peer, is_websocket, metadata, .. } = connection;
        let variants = match wire.name() == IM_CLOUD.name {
            true => Variants::Only(Variant::ImCloud),
            false => self.context.settings.variants,
        };
        let login = self.context.hub.heartbeat().login;
        subscribers.set_timer(id, login);
        let mut peer = Peer::new(variants, is_websocket, peer, login);
        peer.metadata = metadata;
        self.peers.insert(id, peer);
    }

    fn received(
        &mut self,
        id: SubscriberId,
        input: &mut Input,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        let Some(mut peer) = self.peers.remove(&id) else { return Ok(()) };
        if peer.has_idle_timeout() {
            self.heard(&mut peer);
            self.arm(id, &peer, subscribers);
        }
        let result = self.read(id, &mut peer, input, subscribers);
        self.peers.insert(id, peer);
        self.flush(id, subscribers);
        self.feeds.turn(&mut self.encoder, subscribers);
        self.notices(subscribers);
        result
    }

    fn command(&mut self, command: Command, subscribers: &mut Subscribers) {
        match command {
            Command::Feed(command) => self.feeds.command(command, &mut self.encoder, subscribers),
            Command::Verified(id, auth, verified) => {
                let Some(mut peer) = self.peers.remove(&id) else { return };
                peer.login = None;
                let result = self.verified(id, &mut peer, &auth, verified, subscribers);
                self.peers.insert(id, peer);
                self.flush(id, subscribers);
                self.feeds.turn(&mut self.encoder, subscribers);
                match result {
                    Ok(()) => subscribers.resume(id),
                    Err(reason) => subscribers.close(id, reason),
                }
            }
        }
        self.notices(subscribers);
    }

    fn due(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let counters = &self.context.counters;
        match &peer.device {
            None => {
                count(&counters.login_timeouts);
                subscribers.close(id, CloseReason::TimedOut);
            }
            Some(device) if device.expires_in() == Some(Duration::ZERO) => {
                self.close(id, DisconnectReason::Expired, subscribers);
            }
            Some(_) if peer.deadline <= clock::now() => {
                count(&counters.heartbeat_timeouts);
                subscribers.close(id, CloseReason::TimedOut);
            }
            Some(_) => {
                let peer = &self.peers[&id];
                self.arm(id, peer, subscribers);
            }
        }
    }

    fn lagged(&mut self, id: SubscriberId, buffer: BufferId, _lost: u64, subscribers: &mut Subscribers) {
        if !self.feeds.lagged(id, buffer, &mut self.encoder, subscribers) {
            subscribers.abort(id, CloseReason::Lagged);
        }
        self.notices(subscribers);
    }

    fn read_closed(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        if self.peers.get(&id).is_some_and(|peer| peer.login.is_some()) {
            subscribers.abort(id, CloseReason::Peer);
        }
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
        tracing::debug!(peer = ?id, "goim: closed: {reason}");
        self.feeds.disconnected(id, subscribers);
        if *reason == CloseReason::Lagged {
            count(&self.context.counters.lagged);
        }
        let Some(peer) = self.peers.remove(&id) else { return };
        if let Some(address) = peer.address {
            self.context.addresses.remove(address);
        }
        let Some(device) = peer.device else { return };
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
