//! Errors of a peer, each of which ends its connection.

use crate::protocol_error::{over_limit, protocol_error};

/// Rule that a peer broke, for counters.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A request is neither an array of bulk strings nor an inline command.
    Command,
    /// The peer sent an HTTP request.
    Http,
    /// An inline command arrived, and inline commands are disabled.
    Inline,
    /// A limit of [`Limits`](super::Limits) or [`ReplyLimits`](super::ReplyLimits) was exceeded.
    Limit,
    /// A reply is malformed, or no command expects it.
    Reply,
}

impl ErrorKind {
    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Command => "command",
            ErrorKind::Http => "http",
            ErrorKind::Inline => "inline",
            ErrorKind::Limit => "limit",
            ErrorKind::Reply => "reply",
        }
    }
}

protocol_error! {
    /// Error of the peer. Its text names the part of the request or reply, the rule, and the limit if there is one.
    "resp"
}

impl ProtocolError {
    /// Returns an error for `what`, whose size in `unit` is over the limit called `name`.
    pub(super) fn over(what: &str, size: u64, unit: &str, limit: u64, name: &str) -> ProtocolError {
        ProtocolError::new(ErrorKind::Limit, over_limit(what, size, unit, limit, name))
    }

    /// Returns an error for `what`, which is still incomplete at the limit called `name`.
    pub(super) fn endless(what: &str, limit: usize, name: &str) -> ProtocolError {
        let message = format!("{what} has more than {limit} bytes ({name})");
        ProtocolError::new(ErrorKind::Limit, message)
    }
}
