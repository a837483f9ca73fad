//! Errors of sockets.

use std::{fmt, io};
use switchboard_wire::{Code, Status};

/// Result of an operation of a socket.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of a socket. Its text names the operation, the limit or rule, and the remedy.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    text: String,
    source: Option<io::Error>,
}

/// Kind of an [`Error`], with the error number of libzmq that it corresponds to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An endpoint cannot be bound or resolved (`EADDRINUSE`, `EADDRNOTAVAIL`).
    Address,
    /// The socket is closed (`ETERM`, `ENOTSOCK`).
    Closed,
    /// An argument, a message or an option is not valid (`EINVAL`).
    InvalidInput,
    /// The connection ended before the reply to the pending request arrived. libzmq waits forever instead.
    ReplyLost,
    /// The operation is not allowed now, such as a second request before the reply (`EFSM`).
    State,
    /// The operation did not complete within its time limit, or would have waited (`EAGAIN`).
    TimedOut,
    /// No peer has this routing id (`EHOSTUNREACH`).
    Unreachable,
    /// The feature is not supported; the text names it (`EPROTONOSUPPORT`, `ENOTSUP`).
    Unsupported,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error { kind, text: text.into(), source: None }
    }

    pub(crate) fn caused(kind: ErrorKind, text: &str, source: io::Error) -> Error {
        Error { kind, text: format!("{text}: {source}"), source: Some(source) }
    }

    pub(crate) fn address(text: &str, source: io::Error) -> Error {
        Error::caused(ErrorKind::Address, text, source)
    }

    pub(crate) fn closed() -> Error {
        Error::new(ErrorKind::Closed, "socket is closed")
    }

    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        let code = match error.kind {
            ErrorKind::Address | ErrorKind::ReplyLost | ErrorKind::Unreachable => Code::Unavailable,
            ErrorKind::Closed => Code::Canceled,
            ErrorKind::InvalidInput => Code::InvalidArgument,
            ErrorKind::State => Code::FailedPrecondition,
            ErrorKind::TimedOut => Code::DeadlineExceeded,
            ErrorKind::Unsupported => Code::Unimplemented,
        };
        Status::new(code, error.to_string()).with_source(error)
    }
}
