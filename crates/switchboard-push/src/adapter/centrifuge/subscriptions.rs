//! Subscriptions of clients.

use super::{
    adapter::CentrifugeAdapter,
    encoder::{Pending, has_history, position, room},
    ending::Ending,
    errors::Failure,
    login::{Purpose, ttl},
    peer::{Peer, Subscription, left},
};
use crate::{names, start::Start};
use switchboard::{Result, Status};
use switchboard_fanout::{SubscriberId, Subscribers};
use switchboard_message::Topic;
use switchboard_wire::centrifuge::{Reply, Subscribe, Subscribed, code};

impl CentrifugeAdapter {
    /// Handles *subscribe*.
    pub(super) fn subscribe(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        (command, request): (u32, Subscribe),
        subscribers: &mut Subscribers,
    ) -> Result<(), Ending> {
        if request.token.is_empty() {
            return self.subscribe_to(id, peer, (command, request), None, subscribers);
        }
        let token = request.token.clone();
        let purpose = Purpose::Subscribe { id: command, request: Box::new(request) };
        self.verify(id, peer, token, purpose, subscribers)
    }

    /// Subscribes a client: `granted` if a token permits it, else by the rules of the room.
    pub(super) fn subscribe_to(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        (command, request): (u32, Subscribe),
        granted: Option<Subscription>,
        subscribers: &mut Subscribers,
    ) -> Result<(), Ending> {
        let name = room(&request.channel);
        let is_kept = has_history(&self.context.hub, &name);
        if peer.subscriptions.contains_key(&name) {
            // After a gap, clients subscribe again to recover.
            if !request.recover || !is_kept || self.is_beginning(id, &name) {
                let text = format!("the client is subscribed to channel \"{}\"", request.channel);
                return self.fail(peer, command, Failure::new(code::ALREADY_SUBSCRIBED, text));
            }
            if let Ok(topic) = names::room(&name) {
                self.feeds.unsubscribe(id, &topic, subscribers);
            }
        }
        let Some(device) = &mut peer.device else { return Ok(()) };
        let joined = match granted {
            Some(_) => device.join_by_server(&name),
            None => device.join(&name),
        };
        let topic = match joined {
            Ok(joined) => joined.topic,
            Err(status) => {
                self.leave(id, peer, &name, subscribers);
                return self.fail(peer, command, Failure::from(status));
            }
        };
        let subscription = granted.unwrap_or_default();
        let mut subscribed = Subscribed::default();
        (subscribed.expires, subscribed.ttl) = ttl(subscription.expires_at.map(left));
        subscribed.was_recovering = request.recover;
        let pending = Pending::Subscribe { id: command, subscribed: Box::new(subscribed) };
        self.encoder.pending.insert((id, topic.clone()), pending);
        peer.subscriptions.insert(name.clone(), subscription);
        let start = match request.recover && is_kept {
            true => Start::After(position(&request.epoch, request.offset)),
            false => Start::Next,
        };
        if request.join_leave {
            self.receive_joins(id, peer, &name, subscribers);
        }
        // The replies to the commands before come first.
        self.flush(id, subscribers);
        let begun = self.feeds.subscribe(id, &topic, (peer.key(), start), &mut self.encoder, subscribers);
        match begun {
            Ok(()) => Ok(()),
            Err(status) => {
                let failed = self.not_begun(id, peer, &topic, &name, &status);
                self.leave(id, peer, &name, subscribers);
                failed
            }
        }
    }

    /// Returns whether a subscription has not begun.
    fn is_beginning(&self, id: SubscriberId, room: &str) -> bool {
        names::room(room).is_ok_and(|topic| self.encoder.pending.contains_key(&(id, topic)))
    }

    /// Responds for a subscription that has ended, or has not begun.
    pub(super) fn not_begun(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        topic: &Topic,
        room: &str,
        status: &Status,
    ) -> Result<(), Ending> {
        match self.encoder.pending.remove(&(id, topic.clone())) {
            Some(Pending::Subscribe { id: command, .. }) => self.fail(peer, command, Failure::from(status)),
            Some(Pending::Connect) => Ok(()),
            None => {
                let ended = super::encoder::unsubscribed(room, code::INSUFFICIENT, "insufficient state");
                Reply::push(ended).write(peer.format(), &mut self.out);
                Ok(())
            }
        }
    }

    /// Has a client receive the joins and leaves of a room, if the room has presence and the client may list it.
    fn receive_joins(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        room: &str,
        subscribers: &mut Subscribers,
    ) {
        let may_list = peer.device.as_ref().is_some_and(|device| device.may_list(room).is_ok());
        if !may_list || !peer.set_joins(room, true) {
            return;
        }
        let (key, topic) = (peer.key(), self.context.hub.state.events_topic.clone());
        self.feeds.rekey(id, &key, &mut self.encoder, subscribers);
        if let Err(status) =
            self.feeds.subscribe(id, &topic, (key, Start::Next), &mut self.encoder, subscribers)
        {
            tracing::debug!(peer = ?id, "centrifuge: events of rooms: {status}");
        }
    }

    /// Ends a subscription.
    pub(super) fn leave(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        room: &str,
        subscribers: &mut Subscribers,
    ) {
        peer.subscriptions.remove(room);
        let left = peer.device.as_mut().and_then(|device| device.leave_by_server(room));
        if let Some(topic) = left {
            self.feeds.unsubscribe(id, &topic, subscribers);
            if let Some(Pending::Subscribe { id: command, .. }) = self.encoder.pending.remove(&(id, topic))
                && let Some(machine) = &mut peer.machine
            {
                machine.replied(command);
            }
        }
        if peer.set_joins(room, false) {
            if peer.receives_joins() {
                self.feeds.rekey(id, &peer.key(), &mut self.encoder, subscribers);
            } else {
                let topic = self.context.hub.state.events_topic.clone();
                self.feeds.unsubscribe(id, &topic, subscribers);
                self.feeds.rekey(id, &peer.key(), &mut self.encoder, subscribers);
            }
        }
    }

    /// Subscribes a client because the server or its token wants it.
    pub(super) fn join_by_server(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        room: &str,
        subscribers: &mut Subscribers,
    ) {
        let Some(device) = &mut peer.device else { return };
        if peer.subscriptions.contains_key(room) {
            return;
        }
        let joined = device.join_by_server(room).and_then(|joined| {
            let start = (peer.key(), Start::Next);
            self.flush(id, subscribers);
            self.feeds.subscribe(id, &joined.topic, start, &mut self.encoder, subscribers)
        });
        match joined {
            Ok(()) => {
                peer.subscriptions.insert(room.to_owned(), Subscription::default());
            }
            Err(status) => tracing::debug!(peer = ?id, "centrifuge: room not joined: {status}"),
        }
    }
}
