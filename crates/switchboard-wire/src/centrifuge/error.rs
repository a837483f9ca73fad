//! Errors of a peer, each of which ends its connection.

use super::code;
use crate::protocol_error::{over_limit, protocol_error};

/// Rule that a peer broke, for counters.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A command is not an object of JSON, or no message of Protocol Buffers, or has fields of other types.
    Encoding,
    /// A command has no id, or that of a command in flight.
    Id,
    /// A limit of [`Limits`](super::Limits) was exceeded.
    Limit,
    /// The first command is not *connect*, or a later one is.
    Order,
    /// A command has several requests.
    Requests,
}

impl ErrorKind {
    /// Every kind, for counters.
    pub const ALL: [ErrorKind; 5] =
        [ErrorKind::Encoding, ErrorKind::Id, ErrorKind::Limit, ErrorKind::Order, ErrorKind::Requests];

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Encoding => "encoding",
            ErrorKind::Id => "id",
            ErrorKind::Limit => "limit",
            ErrorKind::Order => "order",
            ErrorKind::Requests => "requests",
        }
    }

    /// Returns the code with which the WebSocket is closed.
    pub fn code(self) -> u16 {
        code::BAD_COMMAND
    }
}

protocol_error! {
    /// Error of the peer. Its text names the part of the command, the rule, and the limit if there is one.
    "centrifuge"
}

impl ProtocolError {
    /// Returns an error for `what`, whose size in `unit` is over the limit called `name`.
    pub(super) fn over(what: &str, size: usize, unit: &str, limit: usize, name: &str) -> ProtocolError {
        ProtocolError::new(ErrorKind::Limit, over_limit(what, size as u64, unit, limit as u64, name))
    }
}
