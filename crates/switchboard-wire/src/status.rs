//! Outcome of a call: a code, a human-readable text, and details for programs.
//!
//! The codes are gRPC's because every wire can express them. A [`Status`] is one pointer wide, so that the
//! success path of a `Result<T, Status>` stays small.

mod or_status;

pub use or_status::OrStatus;

use crate::Metadata;
use bytes::Bytes;
use std::{error::Error, fmt, time::Duration};

/// Reason why a call failed.
///
/// Cheap to move (one pointer). The text, details and metadata are sent to the caller; the [source](Error::source)
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

/// Kinds of failure; the numbers are those of gRPC.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
// closed: the codes of gRPC; other numbers become `Unknown`
pub enum Code {
    /// Success; only in trailers, never in an error.
    Ok = 0,
    /// The caller canceled the call.
    Canceled = 1,
    /// An unclassified failure.
    Unknown = 2,
    /// The request is invalid, independent of the state of the server.
    InvalidArgument = 3,
    /// The deadline of the call expired.
    DeadlineExceeded = 4,
    /// A requested entity does not exist.
    NotFound = 5,
    /// The entity to be created already exists.
    AlreadyExists = 6,
    /// The caller is authenticated and not permitted to make the call.
    PermissionDenied = 7,
    /// A limit or quota is exhausted.
    ResourceExhausted = 8,
    /// The server is not in the state that the call requires.
    FailedPrecondition = 9,
    /// The call conflicts with another one; the caller may retry at a higher level.
    Aborted = 10,
    /// The call goes past the valid range.
    OutOfRange = 11,
    /// The server has no such method or feature.
    Unimplemented = 12,
    /// An invariant of the server is violated.
    Internal = 13,
    /// The server is unreachable or shutting down; a later retry may succeed.
    Unavailable = 14,
    /// Data is permanently lost or corrupted.
    DataLoss = 15,
    /// The caller is not authenticated.
    Unauthenticated = 16,
}

/// Part of the system that reported the failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Origin {
    /// Code in this process.
    Local,
    /// The connection to the peer.
    Connection,
    /// The peer.
    Peer,
}

/// Retry property of a failed call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Retry {
    /// The peer may have started the call: retry only an idempotent method.
    IfIdempotent,
    /// A retry would fail again.
    No,
    /// The peer certainly did not start the call.
    Safe,
    /// The peer certainly did not start the call and requests a delay before the retry.
    After(Duration),
}

impl Code {
    /// All codes, in the order of their numbers.
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

    /// Returns the code with this number; unassigned numbers are [`Code::Unknown`].
    pub fn from_number(number: u16) -> Code {
        Code::ALL.get(usize::from(number)).copied().unwrap_or(Code::Unknown)
    }

    /// Returns the number of the code in gRPC.
    pub fn number(self) -> u16 {
        u16::from(self as u8)
    }

    /// Returns the name in lower case with underscores, as in Connect: `not_found`.
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

/// Defines constructors named after their code, such as `Status::not_found("no such post")`.
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
    /// Creates a status of this process. `message` is sent to the caller: keep secrets out of it.
    ///
    /// [`Code::Ok`] is not a failure and becomes [`Code::Unknown`].
    pub fn new(code: Code, message: impl Into<String>) -> Status {
        let code = if code == Code::Ok { Code::Unknown } else { code };
        Status(Box::new(Inner {
            code,
            origin: Origin::Local,
            retry: Retry::No,
            message: message.into(),
            details: Vec::new(),
            metadata: Metadata::new(),
            source: None,
        }))
    }

    /// Returns the kind of failure.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Returns the human-readable text.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the typed details, in the order in which they were added.
    pub fn details(&self) -> &[Detail] {
        &self.0.details
    }

    /// Returns the metadata that was received or is sent with the status.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// Returns the metadata that is sent with the status.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.0.metadata
    }

    /// Returns the part of the system that reported the failure.
    pub fn origin(&self) -> Origin {
        self.0.origin
    }

    /// Returns the retry property.
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

    /// Sets the part of the system that reported the failure.
    #[must_use]
    pub fn with_origin(mut self, origin: Origin) -> Status {
        self.0.origin = origin;
        self
    }

    /// Sets the retry property.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Status {
        self.0.retry = retry;
        self
    }

    /// Attaches the cause for logs of this process; it is never sent.
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
