//! The end of a connection: a code and a reason, which the CLOSE of the WebSocket has.
//!
//! The engine writes bytes. The order to close is in them, behind the replies, in a form that no reply has:
//!
//! ```text
//! JSON 00, Protobuf 80 00 │ code u16 BE │ length of the reason u8 │ reason
//! ```

use crate::{Disconnect, DisconnectReason};
use bytes::{Buf, BufMut, BytesMut};
use switchboard_wire::{
    Outbox,
    centrifuge::{Format, code},
};

/// Longest reason of a CLOSE in bytes.
const REASON_BYTES_MAX: usize = 123;

/// The end of a connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Ending {
    pub(super) code: u16,
    pub(super) reason: String,
    /// For the counters and events of the hub.
    pub(super) why: DisconnectReason,
}

impl Ending {
    pub(super) fn new(code: u16, reason: impl Into<String>, why: DisconnectReason) -> Ending {
        Ending { code, reason: reason.into(), why }
    }

    /// A client that violated the protocol.
    pub(super) fn violation(code: u16, reason: impl Into<String>) -> Ending {
        Ending::new(code, reason, DisconnectReason::Protocol)
    }

    /// Appends the order.
    pub(super) fn write(&self, format: Format, out: &mut Outbox) {
        let reason = &self.reason[..self.reason.floor_char_boundary(REASON_BYTES_MAX)];
        let into = out.tail();
        into.extend_from_slice(mark(format));
        into.put_u16(self.code);
        into.put_u8(reason.len() as u8);
        into.extend_from_slice(reason.as_bytes());
    }

    /// Takes an order from the front of the bytes of an engine. `None` if there is none, or a part of one.
    pub(super) fn take(format: Format, bytes: &mut BytesMut) -> Option<(u16, String)> {
        let mut rest = bytes.strip_prefix(mark(format))?;
        let code = rest.get(..2).map(|mut code| code.get_u16())?;
        rest = &rest[2..];
        let reason = rest.get(1..=usize::from(*rest.first()?))?;
        let taken = (code, String::from_utf8_lossy(reason).into_owned());
        bytes.clear();
        Some(taken)
    }

    /// Returns whether the bytes begin with an order, or a part of one.
    pub(super) fn is_next(format: Format, bytes: &[u8]) -> bool {
        let mark = mark(format);
        !bytes.is_empty() && (bytes.starts_with(mark) || mark.starts_with(bytes))
    }
}

fn mark(format: Format) -> &'static [u8] {
    match format {
        Format::Json => &[0],
        // A length of one byte in two, which no machine writes.
        Format::Protobuf => &[0x80, 0],
    }
}

impl From<Disconnect> for Ending {
    fn from(order: Disconnect) -> Ending {
        let (code, text) = match order.reason {
            DisconnectReason::Replaced => {
                (code::FORCE_DISCONNECT, "a newer connection has replaced this one")
            }
            DisconnectReason::Closed => (code::FORCE_DISCONNECT, "force disconnect"),
            DisconnectReason::Redirected => (code::FORCE_RECONNECT, "force reconnect"),
            DisconnectReason::Expired => (code::CONNECTION_EXPIRED, "connection expired"),
            DisconnectReason::TimedOut => (code::NO_PONG, "no pong"),
            DisconnectReason::Lagged => (code::SLOW, "slow"),
            DisconnectReason::Protocol => (code::BAD_COMMAND, "bad request"),
            DisconnectReason::Limit => (code::TOO_MANY, "too many requests"),
            DisconnectReason::Stopped => (code::SHUTDOWN, "shutdown"),
            DisconnectReason::Peer => (code::CLOSED, "closed"),
        };
        let reason = if order.text.is_empty() { text.to_owned() } else { order.text };
        Ending::new(code, reason, order.reason)
    }
}
