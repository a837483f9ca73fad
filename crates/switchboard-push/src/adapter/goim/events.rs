//! Events of a connected device.

use super::{adapter::GoimAdapter, peer::Peer, settings::DeviceMessage, stats::count};
use crate::{Joined, api, start::Start};
use std::{
    pin::Pin,
    task::{Context as TaskContext, Waker},
};
use switchboard::{Result, runtime};
use switchboard_fanout::{CloseReason, SubscriberId, Subscribers};
use switchboard_wire::goim::{
    Event, Variant,
    imcloud::{self, Receivers},
};

impl GoimAdapter {
    /// Handles an event of the machine.
    ///
    /// # Errors
    /// The reason to close the connection.
    pub(super) fn event(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        event: Event,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        match event {
            Event::Auth(auth) => return self.verify(id, peer, auth, subscribers),
            Event::Heartbeat => {
                let members = peer.room.as_ref().map_or(0, |room| self.context.hub.room(room).count());
                peer.machine.heartbeat(u32::try_from(members).unwrap_or(u32::MAX), &mut self.out);
                self.heard(peer);
                self.arm(id, peer, subscribers);
            }
            Event::ChangeRoom { room } => {
                let room = room.map(|room| api::room_name(&room));
                self.change_room(id, peer, room.as_deref(), subscribers);
            }
            Event::Subscribe { operations } => self.change_accepts(id, peer, &operations, true, subscribers),
            Event::Unsubscribe { operations } => {
                self.change_accepts(id, peer, &operations, false, subscribers);
            }
            Event::Message { operation, body } => {
                count(&self.context.counters.messages);
                if let (Some(receive), Some(device)) = (&self.context.settings.receive, &peer.device) {
                    let (user, key) = (&*device.identity().user, device.key());
                    receive(DeviceMessage { user, key, operation, body });
                }
            }
            Event::Push(push) => self.push(peer, push),
            Event::Refused { refusal, .. } => self.context.counters.refusal(refusal),
            Event::Skipped { .. } => count(&self.context.counters.skipped),
        }
        Ok(())
    }

    /// Moves a device to another room, or out of its room. A room that the hub refuses leaves the device where it is;
    /// goim's protocol cannot report it.
    pub(super) fn change_room(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        room: Option<&str>,
        subscribers: &mut Subscribers,
    ) {
        if peer.room.as_deref() == room {
            return;
        }
        let changed = match room {
            Some(room) => self.join(id, peer, room, subscribers),
            None => match (&mut peer.device, &peer.room) {
                (Some(device), Some(room)) => device.leave(room).map(|topic| {
                    if let Some(topic) = topic {
                        self.feeds.unsubscribe(id, &topic, subscribers);
                    }
                }),
                _ => Ok(()),
            },
        };
        match changed {
            Err(status) => {
                tracing::debug!(peer = ?id, "goim: room not changed: {status}");
                count(&self.context.counters.rooms_refused);
            }
            Ok(()) => {
                let left = std::mem::replace(&mut peer.room, room.map(Into::into));
                let had_chosen = std::mem::replace(&mut peer.has_chosen, room.is_some());
                // Without a next room it was left already.
                if let (Some(left), true, true) = (left, had_chosen, room.is_some()) {
                    self.leave_by_server(id, peer, &left, subscribers);
                }
            }
        }
    }

    fn join(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        room: &str,
        subscribers: &mut Subscribers,
    ) -> Result<()> {
        let Some(device) = &mut peer.device else { return Ok(()) };
        let joined = device.join(room)?;
        self.subscribe_room(id, peer, (room, &joined), subscribers)
    }

    /// Subscribes to a room that a device has joined; without a subscription, it is no member.
    fn subscribe_room(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        (room, joined): (&str, &Joined),
        subscribers: &mut Subscribers,
    ) -> Result<()> {
        let start = (peer.key(), Start::Next);
        let subscribed = self.feeds.subscribe(id, &joined.topic, start, &mut self.encoder, subscribers);
        if subscribed.is_err()
            && !joined.is_known
            && let Some(device) = &mut peer.device
        {
            device.leave_by_server(room);
        }
        subscribed
    }

    /// Has a device join a room because the server or its token wants it.
    pub(super) fn join_by_server(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        room: &str,
        subscribers: &mut Subscribers,
    ) {
        let Some(device) = &mut peer.device else { return };
        let joined = device
            .join_by_server(room)
            .and_then(|joined| self.subscribe_room(id, peer, (room, &joined), subscribers));
        match joined {
            Ok(()) => drop(peer.room.get_or_insert_with(|| room.into())),
            Err(status) => {
                tracing::debug!(peer = ?id, "goim: room not joined: {status}");
                count(&self.context.counters.rooms_refused);
            }
        }
    }

    /// Has a device leave a room because the server wants it, or because it has joined another.
    pub(super) fn leave_by_server(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        room: &str,
        subscribers: &mut Subscribers,
    ) {
        let topic = peer.device.as_mut().and_then(|device| device.leave_by_server(room));
        if let Some(topic) = topic {
            self.feeds.unsubscribe(id, &topic, subscribers);
        }
        if peer.room.as_deref() == Some(room) {
            peer.room = None;
        }
    }

    /// Changes the operations that a device receives. A device with im-cloud receives all.
    fn change_accepts(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        operations: &[i32],
        adds: bool,
        subscribers: &mut Subscribers,
    ) {
        let Some(device) = &mut peer.device else { return };
        let accepts = match adds {
            true => device.accepts().with(operations.iter().copied()),
            false => device.accepts().without(operations),
        };
        let max = self.context.settings.limits.accepts_max as usize;
        if accepts.operations().is_some_and(|count| count > max) {
            return self.context.counters.refusal(switchboard_wire::goim::Refusal::Operations);
        }
        device.set_accepts(accepts);
        if peer.machine.variant() == Variant::Goim {
            self.feeds.rekey(id, &peer.key(), &mut self.encoder, subscribers);
        }
    }

    /// Publishes a push of a device with im-cloud. One that waits for an engine of the bus is completed by a task.
    fn push(&self, peer: &mut Peer, mut push: imcloud::Push) {
        let hub = &self.context.hub;
        let is_allowed = self.context.settings.allows_device_pushes;
        // Each receiver is a publication.
        let receivers = match &mut push.to {
            Receivers::Keys(keys) => {
                keys.sort_unstable();
                keys.dedup();
                keys.len()
            }
            Receivers::Mids(mids) => {
                mids.sort_unstable();
                mids.dedup();
                mids.len()
            }
            _ => 1,
        };
        if !is_allowed || !peer.may_push(receivers, hub.limits().publications_per_s) {
            return count(&self.context.counters.pushes_refused);
        }
        count(&self.context.counters.pushes);
        let hub = hub.clone();
        let mut work = Box::pin(async move {
            if let Err(status) = api::publish(&hub, &push.to, None, push.message).await {
                tracing::warn!("goim: push of a device: {status}");
            }
        });
        let polled = Pin::new(&mut work).poll(&mut TaskContext::from_waker(Waker::noop()));
        if polled.is_pending() {
            runtime::spawn(work);
        }
    }
}
