//! Orders of the hub, and the end of connections.

use super::{
    adapter::CentrifugeAdapter,
    encoder::{BegunBy, unsubscribed},
    ending::Ending,
};
use crate::{DisconnectReason, control::Control, feeds::Notice, names};
use switchboard::Status;
use switchboard_fanout::{CloseReason, SubscriberId, Subscribers};
use switchboard_message::Topic;
use switchboard_wire::centrifuge::{Reply, code};

impl CentrifugeAdapter {
    /// Handles the subscriptions that have begun, whose replies were written.
    pub(super) fn begun(&mut self) {
        for begun in std::mem::take(&mut self.encoder.begun) {
            if let BegunBy::Subscribe(id, command) = begun
                && let Some(machine) = self.peers.get_mut(&id).and_then(|peer| peer.machine.as_mut())
            {
                machine.replied(command);
            }
        }
    }

    /// Handles what the topics report.
    pub(super) fn notices(&mut self, subscribers: &mut Subscribers) {
        self.begun();
        while let Some(notice) = self.feeds.next_notice() {
            match notice {
                Notice::Order(id, order) => self.order(id, order, subscribers),
                Notice::Close(id, order) => self.close(id, &Ending::from(order), subscribers),
                Notice::Failed(id, topic, status) => self.failed(id, &topic, &status, subscribers),
            }
            self.begun();
        }
    }

    fn order(&mut self, id: SubscriberId, order: Control, subscribers: &mut Subscribers) {
        let Some(mut peer) = self.peers.remove(&id) else { return };
        let order = peer.device.as_mut().and_then(|device| device.order(order));
        match &order {
            Some(Control::Join { room }) => self.join_by_server(id, &mut peer, room, subscribers),
            Some(Control::Leave { room }) if peer.subscriptions.contains_key(room) => {
                self.leave(id, &mut peer, room, subscribers);
                let ended = unsubscribed(room, code::UNSUBSCRIBED, "server unsubscribe");
                Reply::push(ended).write(peer.format(), &mut self.out);
            }
            _ => {}
        }
        self.peers.insert(id, peer);
        self.flush(id, subscribers);
        if let Some(order) = order.and_then(|order| order.disconnect()) {
            self.close(id, &Ending::from(order), subscribers);
        }
    }

    /// A subscription has ended, or has not begun.
    fn failed(&mut self, id: SubscriberId, topic: &Topic, status: &Status, subscribers: &mut Subscribers) {
        tracing::debug!(peer = ?id, "centrifuge: topic \"{topic}\": {status}");
        let Some(room) = names::room_of(topic.name()) else {
            let ending = Ending::new(code::SERVER_ERROR, "internal server error", DisconnectReason::Closed);
            return self.close(id, &ending, subscribers);
        };
        let Some(mut peer) = self.peers.remove(&id) else { return };
        let failed = self.not_begun(id, &mut peer, topic, room, status);
        self.leave(id, &mut peer, room, subscribers);
        self.peers.insert(id, peer);
        self.flush(id, subscribers);
        if let Err(ending) = failed {
            self.close(id, &ending, subscribers);
        }
    }

    /// Closes a connection, after the replies before.
    pub(super) fn close(&mut self, id: SubscriberId, ending: &Ending, subscribers: &mut Subscribers) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let (format, device) = (peer.format(), peer.device.take());
        peer.tasks.clear();
        peer.login = None;
        self.feeds.disconnected(id, subscribers);
        self.encoder.pending.retain(|(subscriber, _), _| *subscriber != id);
        if let Some(device) = device {
            device.disconnect(ending.why);
        }
        ending.write(format, &mut self.out);
        self.flush(id, subscribers);
        let text = ending.reason.clone().into();
        subscribers.close(
            id,
            match ending.why {
                DisconnectReason::Protocol => CloseReason::Violation { name: "protocol", text },
                DisconnectReason::TimedOut => CloseReason::TimedOut,
                _ => CloseReason::Closed,
            },
        );
    }
}
