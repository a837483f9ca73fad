//! How a call ended: one code, a text for people, details for programs.
//!
//! The codes are gRPC's because every wire can express them. A [`Status`] is one pointer wide, so that the
//! success path of a `Result<T, Status>` stays small.

use crate::Metadata;
use bytes::Bytes;
use std::{error::Error, fmt, time::Duration};

/// Why a call did not succeed.
///
/// Cheap to move (one pointer); the text, details and metadata travel to the caller, the [source](Error::source)
/// never leaves the process.
pub struct Status(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    origin: Origin,
    retry: Retry,
    message: String,
    details: Vec<Detail>,
    metadata: Metadata,
    source: Option<std::sync::Arc<dyn Error + Send + Sync>>,
}

/// A typed detail of a [`Status`]: the fields of `google.protobuf.Any`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Detail {
    /// Full name of the message type, without a URL prefix: `google.rpc.RetryInfo`.
    pub type_name: String,
    /// The encoded message.
    pub value: Bytes,
}

/// The kinds of failure; the numbers are those of gRPC.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Code {
    /// Success; only in trailers, never in an error.
    Ok = 0,
    /// The caller gave up.
    Canceled = 1,
    /// A failure that nobody classified.
    Unknown = 2,
    /// The request is wrong whatever the state of the server.
    InvalidArgument = 3,
    /// The time allowed for the call ran out.
    DeadlineExceeded = 4,
    /// What was asked for does not exist.
    NotFound = 5,
    /// What was to be created exists.
    AlreadyExists = 6,
    /// The caller is known and may not.
    PermissionDenied = 7,
    /// A limit or quota is used up.
    ResourceExhausted = 8,
    /// The server is not in the state that the call needs.
    FailedPrecondition = 9,
    /// A conflict with another call; try again from the start.
    Aborted = 10,
    /// Past the end.
    OutOfRange = 11,
    /// The server has no such method or feature.
    Unimplemented = 12,
    /// An invariant of the server broke.
    Internal = 13,
    /// The server cannot be reached or is going away; try again later.
    Unavailable = 14,
    /// Data is lost or damaged for good.
    DataLoss = 15,
    /// The caller is not known.
    Unauthenticated = 16,
}

/// Who said that the call failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Origin {
    /// Code in this process.
    Here,
    /// The connection in between.
    Path,
    /// The peer.
    Peer,
}

/// Whether trying again may help.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Retry {
    /// The peer may have begun: only if the method is idempotent.
    IfIdempotent,
    /// It would fail again.
    No,
    /// The peer surely did not begin.
    Safe,
    /// The peer surely did not begin and asks for a pause.
    After(Duration),
}

impl Code {
    /// Every code, in the order of the numbers.
    pub const ALL: [Code; 17] = [
        Code::Ok,
        Code::Canceled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
        Code::Unauthenticated,
    ];

    /// The code with this number; numbers that nobody assigned are [`Code::Unknown`].
    pub fn from_number(number: u16) -> Code {
        Code::ALL.get(usize::from(number)).copied().unwrap_or(Code::Unknown)
    }

    /// The number that gRPC gives the code.
    pub fn number(self) -> u16 {
        u16::from(self as u8)
    }

    /// The name in lower case with underscores, as Connect spells it: `not_found`.
    pub fn name(self) -> &'static str {
        match self {
            Code::Ok => "ok",
            Code::Canceled => "canceled",
            Code::Unknown => "unknown",
            Code::InvalidArgument => "invalid_argument",
            Code::DeadlineExceeded => "deadline_exceeded",
            Code::NotFound => "not_found",
            Code::AlreadyExists => "already_exists",
            Code::PermissionDenied => "permission_denied",
            Code::ResourceExhausted => "resource_exhausted",
            Code::FailedPrecondition => "failed_precondition",
            Code::Aborted => "aborted",
            Code::OutOfRange => "out_of_range",
            Code::Unimplemented => "unimplemented",
            Code::Internal => "internal",
            Code::Unavailable => "unavailable",
            Code::DataLoss => "data_loss",
            Code::Unauthenticated => "unauthenticated",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Constructors named for their code, `Status::not_found("no such post")` and so on.
macro_rules! constructors {
    ($($name:ident $code:ident),* $(,)?) => {
        impl Status {
            $(
                #[doc = concat!("A status with [`Code::", stringify!($code), "`].")]
                pub fn $name(message: impl Into<String>) -> Status {
                    Status::new(Code::$code, message)
                }
            )*
        }
    };
}

constructors! {
    aborted Aborted,
    already_exists AlreadyExists,
    canceled Canceled,
    data_loss DataLoss,
    deadline_exceeded DeadlineExceeded,
    failed_precondition FailedPrecondition,
    internal Internal,
    invalid_argument InvalidArgument,
    not_found NotFound,
    out_of_range OutOfRange,
    permission_denied PermissionDenied,
    resource_exhausted ResourceExhausted,
    unauthenticated Unauthenticated,
    unavailable Unavailable,
    unimplemented Unimplemented,
    unknown Unknown,
}

impl Status {
    /// A status made in this process. `message` is sent to the caller: keep secrets out of it.
    ///
    /// [`Code::Ok`] is not a failure and becomes [`Code::Unknown`].
    pub fn new(code: Code, message: impl Into<String>) -> Status {
        let code = if code == Code::Ok { Code::Unknown } else { code };
        Status(Box::new(Inner {
            code,
            origin: Origin::Here,
            retry: Retry::No,
            message: message.into(),
            details: Vec::new(),
            metadata: Metadata::new(),
            source: None,
        }))
    }

    /// The kind of failure.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The text for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Typed details, in the order in which they were added.
    pub fn details(&self) -> &[Detail] {
        &self.0.details
    }

    /// Metadata that came, or is to go, with the status.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// Metadata that is to go with the status.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.0.metadata
    }

    /// Who said so.
    pub fn origin(&self) -> Origin {
        self.0.origin
    }

    /// Whether trying again may help.
    pub fn retry(&self) -> Retry {
        self.0.retry
    }

    /// Adds a typed detail.
    #[must_use]
    pub fn with_detail(mut self, type_name: impl Into<String>, value: impl Into<Bytes>) -> Status {
        self.0.details.push(Detail { type_name: type_name.into(), value: value.into() });
        self
    }

    /// Replaces the metadata.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Status {
        self.0.metadata = metadata;
        self
    }

    /// Says who failed.
    #[must_use]
    pub fn with_origin(mut self, origin: Origin) -> Status {
        self.0.origin = origin;
        self
    }

    /// Says whether trying again may help.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Status {
        self.0.retry = retry;
        self
    }

    /// Keeps the cause for logs of this process; it is never sent.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Status {
        self.0.source = Some(source.into().into());
        self
    }
}

impl Clone for Status {
    fn clone(&self) -> Self {
        Status(self.0.clone())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Status")
            .field("code", &self.0.code)
            .field("message", &self.0.message)
            .field("origin", &self.0.origin)
            .field("retry", &self.0.retry)
            .field("details", &self.0.details)
            .field("metadata", &self.0.metadata)
            .field("source", &self.0.source)
            .finish()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code, self.0.message)
    }
}

impl Error for Status {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_those_of_grpc() {
        for (number, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!(code.number() as usize, number);
            assert_eq!(Code::from_number(number as u16), code);
        }
        assert_eq!(Code::from_number(17), Code::Unknown);
        assert_eq!(Code::FailedPrecondition.to_string(), "failed_precondition");
    }

    #[test]
    fn status_is_one_pointer_and_never_ok() {
        assert_eq!(size_of::<Result<(), Status>>(), size_of::<usize>());
        assert_eq!(Status::new(Code::Ok, "odd").code(), Code::Unknown);
    }

    #[test]
    fn source_is_kept_but_not_displayed() {
        let status = Status::unavailable("no answer").with_source("connection reset");
        assert_eq!(status.to_string(), "unavailable: no answer");
        assert_eq!(status.source().expect("source").to_string(), "connection reset");
    }
}
