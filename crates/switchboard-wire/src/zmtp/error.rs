//! Errors of a peer, each of which ends its connection.

use crate::Fatal;
use std::fmt;

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

/// Error of the peer. Its text names the frame or command, the rule, and the limit if there is one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ProtocolError {
    kind: ErrorKind,
    message: String,
}

impl ProtocolError {
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> ProtocolError {
        ProtocolError { kind, message: message.into() }
    }

    /// Returns an error for `what`, whose size in `unit` is over the limit called `name`.
    pub(super) fn over(what: &str, size: u64, unit: &str, limit: u64, name: &str) -> ProtocolError {
        let message = format!("{what} has {size} {unit}; the limit is {limit} ({name})");
        ProtocolError::new(ErrorKind::Limit, message)
    }

    /// Returns the broken rule.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the text without the name of the protocol, as an ERROR carries it.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zmtp: {}", self.message)
    }
}

impl std::error::Error for ProtocolError {}

impl From<ProtocolError> for Fatal {
    fn from(error: ProtocolError) -> Fatal {
        Fatal(error.to_string())
    }
}
