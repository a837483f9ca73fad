//! Pushes, in bytes that devices share.

use super::{HEADER_BYTES, Variant, operation::RAW, packet::header};
use bytes::BytesMut;
use std::fmt;

/// Version in pushes.
const VERSION: i16 = 1;
/// Sequence in pushes, which reply to no request.
const SEQUENCE: i32 = 0;
/// Largest length in a header.
const LENGTH_MAX: usize = i32::MAX as usize;

/// A message for devices.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Push<'a> {
    /// Operation of the application; im-cloud does not send it.
    pub operation: i32,
    /// Any bytes.
    pub payload: &'a [u8],
}

/// Form of pushes on a connection. Connections with one form have the same bytes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
// closed: a variant on a transport
pub enum PushForm {
    /// goim on TCP: a packet for each push, back to back.
    Packets,
    /// goim in WebSockets: one packet with the operation 9, whose body is a packet for each push.
    Container,
    /// im-cloud: a packet with the operation 9 for each push, whose body is the payload.
    Messages,
}

impl PushForm {
    /// Returns the form of a connection.
    pub fn new(variant: Variant, is_websocket: bool) -> PushForm {
        match (variant, is_websocket) {
            (Variant::Goim, false) => PushForm::Packets,
            (Variant::Goim, true) => PushForm::Container,
            (Variant::ImCloud, _) => PushForm::Messages,
        }
    }

    /// Returns the number of pushes that one WebSocket message can have: clients of im-cloud read one push from each.
    pub fn message_pushes_max(self) -> usize {
        match self {
            PushForm::Packets | PushForm::Container => usize::MAX,
            PushForm::Messages => 1,
        }
    }

    /// Returns the number of bytes that [`write`](Self::write) appends, which a frame around them needs before them.
    ///
    /// # Errors
    /// If a packet would be longer than its length field can say.
    pub fn len(self, pushes: &[Push<'_>]) -> Result<usize, TooLarge> {
        let mut sum = 0usize;
        for push in pushes {
            let packet = push.payload.len().saturating_add(HEADER_BYTES);
            if packet > LENGTH_MAX {
                return Err(TooLarge);
            }
            sum = sum.saturating_add(packet);
        }
        if self == PushForm::Container {
            sum = sum.saturating_add(HEADER_BYTES);
            if sum > LENGTH_MAX {
                return Err(TooLarge);
            }
        }
        Ok(sum)
    }

    /// Appends pushes, in this order.
    ///
    /// # Errors
    /// If a packet would be longer than its length field can say; nothing is appended then.
    pub fn write(self, pushes: &[Push<'_>], into: &mut BytesMut) -> Result<(), TooLarge> {
        let len = self.len(pushes)?;
        into.reserve(len);
        if self == PushForm::Container {
            into.extend_from_slice(&header((len - HEADER_BYTES) as u32, VERSION, RAW, SEQUENCE));
        }
        for push in pushes {
            let operation = if self == PushForm::Messages { RAW } else { push.operation };
            into.extend_from_slice(&header(push.payload.len() as u32, VERSION, operation, SEQUENCE));
            into.extend_from_slice(push.payload);
        }
        Ok(())
    }
}

/// Error of pushes that are too long for a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TooLarge;

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the push is longer than a packet of goim can be, 2147483647 bytes; send a shorter one")
    }
}

impl std::error::Error for TooLarge {}
