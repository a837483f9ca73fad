//! Messages of QoS 1 and 2 on the way to a client.

use super::{AckKind, QoS, Reason};
use std::num::NonZeroU16;

/// Messages of QoS 1 and 2 that a client has not acknowledged, in the order in which they were sent. `M` is what the
/// driver needs to send a message again.
///
/// The number of messages is limited by the receive maximum of the client. A driver keeps the window with the session:
/// after a reconnect, [`reconnect`](Self::reconnect) marks all of them as not sent, and
/// [`next_resend`](Self::next_resend) returns them in their order.
#[derive(Debug)]
pub struct Window<M> {
    slots: Vec<Slot<M>>,
    /// The identifier that was given last.
    last: u16,
    max: u16,
    /// A packet may have to be sent again.
    has_unsent: bool,
}

#[derive(Debug)]
struct Slot<M> {
    id: NonZeroU16,
    qos: QoS,
    /// `None` after PUBREC: the client has the message, and PUBREL is sent.
    message: Option<M>,
    /// It was sent in this connection.
    is_sent: bool,
    /// The client does not know it: it is sent without DUP.
    is_new: bool,
}

/// A packet that is sent again after a reconnect.
#[derive(Debug)]
// closed: a message, or its release
pub enum Resend<'a, M> {
    /// PUBLISH, with DUP if the client may have it.
    Publish {
        /// Packet identifier.
        packet_id: NonZeroU16,
        /// QoS.
        qos: QoS,
        /// DUP.
        dup: bool,
        /// The message.
        message: &'a M,
    },
    /// PUBREL.
    Release(NonZeroU16),
}

impl<M> Window<M> {
    /// Creates an empty window for at most `max` messages, at least 1.
    pub fn new(max: u16) -> Window<M> {
        Window { slots: Vec::new(), last: 0, max: max.max(1), has_unsent: false }
    }

    /// Returns the number of messages that are not completed.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns true if everything is acknowledged.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns true if a further message can be sent.
    pub fn has_room(&self) -> bool {
        self.slots.len() < usize::from(self.max)
    }

    /// Adds a message that is sent now, of QoS 1 or 2, and returns its packet identifier; `None` without room.
    pub fn begin(&mut self, qos: QoS, message: M) -> Option<NonZeroU16> {
        if !self.has_room() {
            return None;
        }
        let id = loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            // The window is smaller than the set of identifiers, so that one is free.
            let Some(id) = NonZeroU16::new(self.last) else { continue };
            if self.slots.iter().all(|slot| slot.id != id) {
                break id;
            }
        };
        self.slots.push(Slot { id, qos, message: Some(message), is_sent: true, is_new: false });
        Some(id)
    }

    /// Handles an acknowledgement of the client. Returns the message when the client has it, or has refused it.
    /// After [`Acknowledged::Released`], the driver sends PUBREL. An acknowledgement of an unknown identifier, or of
    /// another kind than the message needs, changes nothing.
    pub fn acknowledge(&mut self, kind: AckKind, id: NonZeroU16, reason: Reason) -> Acknowledged<M> {
        let Some(at) = self.slots.iter().position(|slot| slot.id == id) else { return Acknowledged::Unknown };
        let slot = &mut self.slots[at];
        match (kind, slot.qos, slot.message.is_some()) {
            (AckKind::PubAck, QoS::AtLeastOnce, _) => Acknowledged::Completed(self.remove(at)),
            (AckKind::PubRec, QoS::ExactlyOnce, true) if reason.is_error() => {
                Acknowledged::Completed(self.remove(at))
            }
            (AckKind::PubRec, QoS::ExactlyOnce, _) => {
                slot.is_sent = true;
                Acknowledged::Released(slot.message.take())
            }
            (AckKind::PubComp, QoS::ExactlyOnce, false) => Acknowledged::Completed(self.remove(at)),
            _ => Acknowledged::Unknown,
        }
    }

    fn remove(&mut self, at: usize) -> Option<M> {
        self.slots.remove(at).message
    }

    /// Removes a message that could not be sent, for instance because it is larger than the client accepts.
    pub fn cancel(&mut self, id: NonZeroU16) -> Option<M> {
        let at = self.slots.iter().position(|slot| slot.id == id)?;
        self.remove(at)
    }

    /// Begins a new connection of the session with its receive maximum: everything is to be sent again.
    pub fn reconnect(&mut self, max: u16) {
        self.max = max.max(1);
        self.slots.iter_mut().for_each(|slot| slot.is_sent = false);
        self.has_unsent = true;
    }

    /// Begins a new session for the client: messages that it has are forgotten, and others are sent as new ones.
    pub fn restart(&mut self) {
        self.slots.retain(|slot| slot.message.is_some());
        self.slots.iter_mut().for_each(|slot| (slot.is_sent, slot.is_new) = (false, true));
        self.has_unsent = true;
    }

    /// Returns true if packets are still to be sent again: they come before further messages.
    pub fn is_resending(&self) -> bool {
        self.has_unsent && self.slots.iter().any(|slot| !slot.is_sent)
    }

    /// Returns the next packet to be sent again, in the original order, and marks it as sent. `None` when everything
    /// is sent, or when as many messages are under way as the client accepts.
    pub fn next_resend(&mut self) -> Option<Resend<'_, M>> {
        if !self.has_unsent {
            return None;
        }
        let sent = self.slots.iter().filter(|slot| slot.is_sent).count();
        if sent >= usize::from(self.max) {
            return None;
        }
        let unsent = self.slots.iter_mut().find(|slot| !slot.is_sent);
        self.has_unsent = unsent.is_some();
        let slot = unsent?;
        slot.is_sent = true;
        Some(match &mut slot.message {
            Some(message) => {
                let dup = !std::mem::take(&mut slot.is_new);
                Resend::Publish { packet_id: slot.id, qos: slot.qos, dup, message }
            }
            None => Resend::Release(slot.id),
        })
    }

    /// Returns the messages that the client may not have, in their order.
    pub fn messages(&self) -> impl Iterator<Item = &M> {
        self.slots.iter().filter_map(|slot| slot.message.as_ref())
    }

    /// Takes the messages that the client may not have and for which `is_taken` returns true, in their order.
    pub fn take_messages(&mut self, mut is_taken: impl FnMut(&M) -> bool) -> Vec<M> {
        let mut taken = Vec::new();
        self.slots.retain_mut(|slot| match slot.message.take_if(|message| is_taken(message)) {
            Some(message) => {
                taken.push(message);
                false
            }
            None => true,
        });
        taken
    }
}

/// Result of an acknowledgement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: every case of the protocol
pub enum Acknowledged<M> {
    /// The message is completed; it is `None` if it was returned before.
    Completed(Option<M>),
    /// The client has the message, which is `None` if it was returned before; PUBREL follows.
    Released(Option<M>),
    /// No message waits for it.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(window: &mut Window<char>) -> Option<(NonZeroU16, QoS, bool, char)> {
        match window.next_resend() {
            Some(Resend::Publish { packet_id, qos, dup, message }) => Some((packet_id, qos, dup, *message)),
            _ => None,
        }
    }

    fn id(id: u16) -> NonZeroU16 {
        NonZeroU16::new(id).unwrap()
    }

    #[test]
    fn identifiers_are_free_after_the_last_acknowledgement() {
        let mut window = Window::new(2);
        assert_eq!(window.begin(QoS::AtLeastOnce, 'a'), Some(id(1)));
        assert_eq!(window.begin(QoS::ExactlyOnce, 'b'), Some(id(2)));
        assert_eq!(window.begin(QoS::AtLeastOnce, 'c'), None);
        assert_eq!(window.acknowledge(AckKind::PubAck, id(2), Reason::SUCCESS), Acknowledged::Unknown);
        assert_eq!(window.acknowledge(AckKind::PubComp, id(2), Reason::SUCCESS), Acknowledged::Unknown);
        assert_eq!(
            window.acknowledge(AckKind::PubRec, id(2), Reason::SUCCESS),
            Acknowledged::Released(Some('b'))
        );
        assert_eq!(window.acknowledge(AckKind::PubRec, id(2), Reason::SUCCESS), Acknowledged::Released(None));
        assert!(!window.has_room(), "until PUBCOMP");
        assert_eq!(
            window.acknowledge(AckKind::PubComp, id(2), Reason::SUCCESS),
            Acknowledged::Completed(None)
        );
        assert_eq!(window.begin(QoS::AtLeastOnce, 'c'), Some(id(3)));
        assert_eq!(
            window.acknowledge(AckKind::PubAck, id(1), Reason::SUCCESS),
            Acknowledged::Completed(Some('a'))
        );
        window.last = u16::MAX - 1;
        assert_eq!(window.begin(QoS::AtLeastOnce, 'd'), Some(id(u16::MAX)));
        window.acknowledge(AckKind::PubAck, id(u16::MAX), Reason::SUCCESS);
        assert_eq!(window.begin(QoS::AtLeastOnce, 'e'), Some(id(1)), "never zero");
    }

    #[test]
    fn a_refused_message_of_qos_2_needs_no_release() {
        let mut window = Window::new(1);
        window.begin(QoS::ExactlyOnce, 'a');
        let refused = window.acknowledge(AckKind::PubRec, id(1), Reason::QUOTA_EXCEEDED);
        assert_eq!(refused, Acknowledged::Completed(Some('a')));
        assert!(window.is_empty());
    }

    #[test]
    fn everything_is_sent_again_in_order_within_the_receive_maximum() {
        let mut window = Window::new(3);
        for (qos, message) in [(QoS::AtLeastOnce, 'a'), (QoS::ExactlyOnce, 'b'), (QoS::ExactlyOnce, 'c')] {
            window.begin(qos, message);
        }
        window.acknowledge(AckKind::PubRec, id(2), Reason::SUCCESS);
        assert!(window.next_resend().is_none(), "not in the same connection");
        window.reconnect(2);
        assert_eq!(published(&mut window), Some((id(1), QoS::AtLeastOnce, true, 'a')));
        assert!(matches!(window.next_resend(), Some(Resend::Release(at)) if at == id(2)));
        assert!(window.next_resend().is_none() && window.is_resending(), "receive maximum");
        window.acknowledge(AckKind::PubAck, id(1), Reason::SUCCESS);
        assert_eq!(published(&mut window), Some((id(3), QoS::ExactlyOnce, true, 'c')));
        assert!(window.next_resend().is_none() && !window.is_resending());
        window.restart();
        assert!(matches!(window.next_resend(), Some(Resend::Publish { dup: false, message: 'c', .. })));
        assert!(window.next_resend().is_none(), "the release of b belongs to the earlier session");
        assert_eq!(window.take_messages(|_| true), ['c']);
        assert!(window.is_empty());
    }
}
