//! Subscriptions as messages: what an application reads from an XPUB and writes to an XSUB.

use crate::zmtp::subscription::{CANCEL, SUBSCRIBE};
use bytes::{BufMut, Bytes, BytesMut};

/// A change of the subscriptions. As a message it is one frame: 1 or 0, then the prefix.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: a subscription begins or ends
pub enum Change {
    /// Ends one subscription to the prefix.
    Cancel(Bytes),
    /// Subscribes to the prefix.
    Subscribe(Bytes),
}

impl Change {
    /// Reads a message; `None` if it is not a change of the subscriptions, but a message for the publisher.
    pub fn read(message: &[Bytes]) -> Option<Change> {
        let [frame] = message else { return None };
        match frame.first() {
            Some(&SUBSCRIBE) => Some(Change::Subscribe(frame.slice(1..))),
            Some(&CANCEL) => Some(Change::Cancel(frame.slice(1..))),
            _ => None,
        }
    }

    /// Returns the frame of the message.
    pub fn to_frame(&self) -> Bytes {
        let (first, topic) = match self {
            Change::Cancel(topic) => (CANCEL, topic),
            Change::Subscribe(topic) => (SUBSCRIBE, topic),
        };
        let mut frame = BytesMut::with_capacity(1 + topic.len());
        frame.put_u8(first);
        frame.put_slice(topic);
        frame.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_messages_of_one_frame() {
        for change in [Change::Cancel(Bytes::new()), Change::Subscribe(Bytes::from_static(b"top"))] {
            let frame = change.to_frame();
            assert_eq!(Change::read(std::slice::from_ref(&frame)), Some(change));
            assert_eq!(Change::read(&[frame.clone(), frame]), None);
        }
        for other in [&b""[..], b"\x02top"] {
            assert_eq!(Change::read(&[Bytes::from_static(other)]), None);
        }
        assert_eq!(Change::read(&[]), None);
    }
}
