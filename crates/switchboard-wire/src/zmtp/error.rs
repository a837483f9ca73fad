//! Errors of a peer, each of which ends its connection.

use crate::protocol_error::{over_limit, protocol_error};

/// Rule that a peer broke, or failure of this side, for counters.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A command is malformed, or it is not the one that the handshake expects.
    Command,
    /// The credentials of the peer were rejected.
    Credentials,
    /// A box of CURVE does not open, or its nonce is not new.
    Curve,
    /// The flags of a frame are not valid, or the message has more or fewer frames than the socket type allows.
    Frame,
    /// The first bytes are not those of ZMTP 3.
    Greeting,
    /// A limit of [`Limits`](super::Limits) was exceeded.
    Limit,
    /// The peer offers another mechanism.
    Mechanism,
    /// The metadata of the handshake is malformed.
    Metadata,
    /// This side has no random bytes for its keys.
    Random,
    /// The peer sent ERROR.
    Refused,
    /// The socket types of the two sides may not talk.
    SocketType,
}

impl ErrorKind {
    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Command => "command",
            ErrorKind::Credentials => "credentials",
            ErrorKind::Curve => "curve",
            ErrorKind::Frame => "frame",
            ErrorKind::Greeting => "greeting",
            ErrorKind::Limit => "limit",
            ErrorKind::Mechanism => "mechanism",
            ErrorKind::Metadata => "metadata",
            ErrorKind::Random => "random",
            ErrorKind::Refused => "refused",
            ErrorKind::SocketType => "socket_type",
        }
    }
}

protocol_error! {
    /// Error of the peer. Its text names the frame or command, the rule, and the limit if there is one.
    "zmtp"
}

impl ProtocolError {
    /// Returns an error for `what`, whose size in `unit` is over the limit called `name`.
    pub(super) fn over(what: &str, size: u64, unit: &str, limit: u64, name: &str) -> ProtocolError {
        ProtocolError::new(ErrorKind::Limit, over_limit(what, size, unit, limit, name))
    }
}
