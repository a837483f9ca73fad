//! Errors of a peer, each of which ends its connection.

use crate::protocol_error::{over_limit, protocol_error};

/// Rule that a peer broke, for counters.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The body of the authentication is not an object of JSON with members of the right types.
    Auth,
    /// A container has bytes that are not a complete packet.
    Container,
    /// The length of the header is not 16.
    HeaderLength,
    /// A limit of [`Limits`](super::Limits) or [`PushLimits`](super::PushLimits) was exceeded.
    Limit,
    /// A packet is shorter than its header.
    PackageLength,
}

impl ErrorKind {
    /// Every kind, for counters.
    pub const ALL: [ErrorKind; 5] = [
        ErrorKind::Auth,
        ErrorKind::Container,
        ErrorKind::HeaderLength,
        ErrorKind::Limit,
        ErrorKind::PackageLength,
    ];

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Auth => "auth",
            ErrorKind::Container => "container",
            ErrorKind::HeaderLength => "header_length",
            ErrorKind::Limit => "limit",
            ErrorKind::PackageLength => "package_length",
        }
    }
}

protocol_error! {
    /// Error of the peer. Its text names the part of the packet, the rule, and the limit if there is one.
    "goim"
}

impl ProtocolError {
    /// Returns an error for `what`, whose size in `unit` is over the limit called `name`.
    pub(super) fn over(what: &str, size: usize, unit: &str, limit: usize, name: &str) -> ProtocolError {
        ProtocolError::new(ErrorKind::Limit, over_limit(what, size as u64, unit, limit as u64, name))
    }
}
