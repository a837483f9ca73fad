//! Errors of components.

use std::fmt;
use switchboard_wire::{Code, Status};

/// Result of an operation of a component.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of a component. Its text names the operation, the limit or rule, and the remedy.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    text: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Kind of an [`Error`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The component has ended.
    Closed,
    /// A topic of a bus failed; the source is its status.
    Bus,
    /// An argument or a setting is not valid.
    InvalidInput,
    /// A limit was reached; the text names it.
    Limit,
    /// Messages were lost before they were received; the text names their range.
    Lost,
    /// The node is not the active one of its pair.
    NotActive,
    /// A socket failed; the source is its error.
    Socket,
    /// The operation did not complete within its time limit.
    TimedOut,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error { kind, text: text.into(), source: None }
    }

    pub(crate) fn closed(component: &str) -> Error {
        Error::new(ErrorKind::Closed, format!("{component} has ended"))
    }

    #[cfg(feature = "beacon")]
    pub(crate) fn io(text: &str, source: std::io::Error) -> Error {
        let text = format!("{text}: {source}");
        Error { kind: ErrorKind::Socket, text, source: Some(Box::new(source)) }
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
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}

impl From<switchboard_socket::Error> for Error {
    fn from(source: switchboard_socket::Error) -> Error {
        use switchboard_socket::ErrorKind as Socket;
        let kind = match source.kind() {
            Socket::Closed => ErrorKind::Closed,
            Socket::InvalidInput => ErrorKind::InvalidInput,
            Socket::TimedOut => ErrorKind::TimedOut,
            _ => ErrorKind::Socket,
        };
        Error { kind, text: source.to_string(), source: Some(Box::new(source)) }
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Error {
        Error { kind: ErrorKind::Bus, text: status.message().to_owned(), source: Some(Box::new(status)) }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        if let Some(status) = error.source.as_ref().and_then(|source| source.downcast_ref::<Status>()) {
            return status.clone();
        }
        let code = match error.kind {
            ErrorKind::Bus | ErrorKind::NotActive | ErrorKind::Socket => Code::Unavailable,
            ErrorKind::Closed => Code::Canceled,
            ErrorKind::InvalidInput => Code::InvalidArgument,
            ErrorKind::Limit => Code::ResourceExhausted,
            ErrorKind::Lost => Code::DataLoss,
            ErrorKind::TimedOut => Code::DeadlineExceeded,
        };
        Status::new(code, error.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_bus_is_kept() {
        let error = Error::from(Status::not_found("no topic"));
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Bus, "no topic".to_owned()));
        assert_eq!(Status::from(error).code(), Code::NotFound);
        assert_eq!(Status::from(Error::closed("the cache")).code(), Code::Canceled);
    }

    #[test]
    fn the_error_of_a_socket_is_the_source() {
        let error = Error::from("x".parse::<switchboard_socket::Endpoint>().unwrap_err());
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(std::error::Error::source(&error).is_some());
    }
}
