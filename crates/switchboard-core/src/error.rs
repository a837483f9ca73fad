//! Errors that occur outside of calls: addresses, options, sockets.

use std::{error, fmt, io};
use switchboard_wire::{Code, Status};

/// Error of a server that could not start. Opaque; query its kind with the methods below.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    text: String,
    source: Option<io::Error>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Bind,
    Config,
}

impl Error {
    #[doc(hidden)]
    pub fn bind(text: String, source: io::Error) -> Error {
        Error(Box::new(Inner { kind: Kind::Bind, text, source: Some(source) }))
    }

    #[doc(hidden)]
    pub fn config(text: impl Into<String>) -> Error {
        Error(Box::new(Inner { kind: Kind::Config, text: text.into(), source: None }))
    }

    /// Returns whether listening on an address failed.
    pub fn is_bind(&self) -> bool {
        self.0.kind == Kind::Bind
    }

    /// Returns whether an option is invalid.
    pub fn is_config(&self) -> bool {
        self.0.kind == Kind::Config
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        let code = if error.is_bind() { Code::Unavailable } else { Code::InvalidArgument };
        Status::new(code, error.to_string()).with_source(error)
    }
}
