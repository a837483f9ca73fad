//! Errors of the protocol, as `-ERR` carries them, and errors of sending.

use super::message::is_word;
use crate::{Outbox, protocol_error::protocol_error};
use std::fmt;

/// Error that a server reports in `-ERR`, for counters.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No CONNECT arrived in time.
    AuthenticationTimeout,
    /// The credentials were rejected, or a command arrived before the required CONNECT.
    Authorization,
    /// A control line is too long.
    ControlLine,
    /// A subject is not valid. The connection stays open.
    InvalidSubject,
    /// The verb is unknown, or the other side sends it.
    Operation,
    /// The arguments, the headers or the end of a payload are malformed.
    Parser,
    /// A payload is too large.
    Payload,
    /// The client may not publish to the subject. The connection stays open.
    PublishDenied,
    /// The client reads too slowly.
    SlowConsumer,
    /// The client did not respond to PING.
    StaleConnection,
    /// The client may not subscribe to the subject. The connection stays open.
    SubscribeDenied,
    /// The client has as many subscriptions as it may. The connection stays open.
    Subscriptions,
    /// The client did not start TLS, which the server requires.
    TlsRequired,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [ErrorKind; 13] = [
        ErrorKind::AuthenticationTimeout,
        ErrorKind::Authorization,
        ErrorKind::ControlLine,
        ErrorKind::InvalidSubject,
        ErrorKind::Operation,
        ErrorKind::Parser,
        ErrorKind::Payload,
        ErrorKind::PublishDenied,
        ErrorKind::SlowConsumer,
        ErrorKind::StaleConnection,
        ErrorKind::SubscribeDenied,
        ErrorKind::Subscriptions,
        ErrorKind::TlsRequired,
    ];

    /// Returns true if the server closes the connection after the error.
    pub fn closes(self) -> bool {
        !matches!(
            self,
            ErrorKind::InvalidSubject
                | ErrorKind::PublishDenied
                | ErrorKind::SubscribeDenied
                | ErrorKind::Subscriptions
        )
    }

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::AuthenticationTimeout => "authentication_timeout",
            ErrorKind::Authorization => "authorization",
            ErrorKind::ControlLine => "control_line",
            ErrorKind::InvalidSubject => "invalid_subject",
            ErrorKind::Operation => "operation",
            ErrorKind::Parser => "parser",
            ErrorKind::Payload => "payload",
            ErrorKind::PublishDenied => "publish_denied",
            ErrorKind::SlowConsumer => "slow_consumer",
            ErrorKind::StaleConnection => "stale_connection",
            ErrorKind::SubscribeDenied => "subscribe_denied",
            ErrorKind::Subscriptions => "subscriptions",
            ErrorKind::TlsRequired => "tls_required",
        }
    }

    /// Returns the text in `-ERR`, which clients compare. The quoted subject follows that of a denied permission.
    pub fn text(self) -> &'static str {
        match self {
            ErrorKind::AuthenticationTimeout => "Authentication Timeout",
            ErrorKind::Authorization => "Authorization Violation",
            ErrorKind::ControlLine => "Maximum Control Line Exceeded",
            ErrorKind::InvalidSubject => "Invalid Subject",
            ErrorKind::Operation => "Unknown Protocol Operation",
            ErrorKind::Parser => "Parser Error",
            ErrorKind::Payload => "Maximum Payload Violation",
            ErrorKind::PublishDenied => "Permissions Violation for Publish to",
            ErrorKind::SlowConsumer => "Slow Consumer",
            ErrorKind::StaleConnection => "Stale Connection",
            ErrorKind::SubscribeDenied => "Permissions Violation for Subscription to",
            ErrorKind::Subscriptions => "Maximum Subscriptions Exceeded",
            ErrorKind::TlsRequired => "Secure Connection - TLS Required",
        }
    }

    /// Writes `-ERR`. A subject that could break the line is left out.
    pub(super) fn write(self, subject: Option<&[u8]>, out: &mut Outbox) {
        let tail = out.tail();
        tail.extend_from_slice(b"-ERR '");
        tail.extend_from_slice(self.text().as_bytes());
        if let Some(subject) = subject.filter(|subject| is_word(subject)) {
            tail.extend_from_slice(b" \"");
            tail.extend_from_slice(subject);
            tail.extend_from_slice(b"\"");
        }
        tail.extend_from_slice(b"'\r\n");
    }

    /// Returns the kind of the text in an `-ERR`, in any case.
    fn of(text: &str) -> Option<ErrorKind> {
        // The servers of NATS have a text of its own for publications.
        if text.eq_ignore_ascii_case("Invalid Publish Subject") {
            return Some(ErrorKind::InvalidSubject);
        }
        ErrorKind::ALL.into_iter().find(|kind| {
            let expected = kind.text();
            match kind {
                ErrorKind::PublishDenied | ErrorKind::SubscribeDenied => {
                    text.get(..expected.len()).is_some_and(|start| start.eq_ignore_ascii_case(expected))
                }
                _ => text.eq_ignore_ascii_case(expected),
            }
        })
    }
}

protocol_error! {
    /// Error of the peer, which ends the connection. Its text names the command, the rule, and the limit if there is
    /// one.
    "nats"
}

impl ProtocolError {
    pub(super) fn parser(message: impl Into<String>) -> ProtocolError {
        ProtocolError::new(ErrorKind::Parser, message)
    }
}

/// Error that a server reported to a client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerError {
    /// Text without its quotes.
    pub text: String,
    /// Kind of the text; `None` if this version does not know it.
    pub kind: Option<ErrorKind>,
}

impl ServerError {
    /// Reads the argument of `-ERR`.
    pub(super) fn read(argument: &[u8]) -> ServerError {
        let quoted = argument.strip_prefix(b"'").and_then(|rest| rest.strip_suffix(b"'"));
        let text = String::from_utf8_lossy(quoted.unwrap_or(argument)).into_owned();
        let kind = ErrorKind::of(&text);
        ServerError { text, kind }
    }

    /// Returns true if the server closes the connection after this error.
    pub fn closes(&self) -> bool {
        self.kind.is_some_and(ErrorKind::closes)
    }
}

/// Reason why a command was not written. The connection is unchanged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SendError {
    /// The command, in this number of bytes, is longer than the limit of control lines.
    ControlLine(usize, u32),
    /// The server does not accept headers.
    HeadersUnsupported,
    /// The subject, the reply subject, the queue group or the sid is not valid.
    InvalidSubject,
    /// The connection is closed, or the client has not sent CONNECT.
    NotOpen,
    /// The payload, in this number of bytes with its headers, is over the limit.
    Payload(usize, u64),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::ControlLine(bytes, limit) => {
                write!(f, "nats: control line has {bytes} bytes; the limit is {limit} (control_line_bytes_max)")
            }
            SendError::HeadersUnsupported => f.write_str("nats: the server does not accept headers"),
            SendError::InvalidSubject => f.write_str(
                "nats: subject, queue group or sid is empty, or has an empty token, a blank or a misplaced wildcard",
            ),
            SendError::NotOpen => f.write_str("nats: connection is not open"),
            SendError::Payload(bytes, limit) => {
                write!(f, "nats: payload with headers has {bytes} bytes; the limit is {limit} (max_payload)")
            }
        }
    }
}

impl std::error::Error for SendError {}
