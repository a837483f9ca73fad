//! Errors of a peer, each of which ends its connection.

use crate::Fatal;
use std::fmt;

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

/// Error of the peer. Its text names the part of the request or reply, the rule, and the limit if there is one.
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

    /// Returns an error for `what`, which is still incomplete at the limit called `name`.
    pub(super) fn endless(what: &str, limit: usize, name: &str) -> ProtocolError {
        let message = format!("{what} has more than {limit} bytes ({name})");
        ProtocolError::new(ErrorKind::Limit, message)
    }

    /// Returns the broken rule.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the text without the name of the protocol, as it follows `-ERR Protocol error: `.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "resp: {}", self.message)
    }
}

impl std::error::Error for ProtocolError {}

impl From<ProtocolError> for Fatal {
    fn from(error: ProtocolError) -> Fatal {
        Fatal(error.to_string())
    }
}
