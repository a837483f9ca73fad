//! Errors of clients, and errors of sending.

use super::Reason;
use crate::protocol_error::protocol_error;
use std::fmt;

/// Error of a client, for counters. Each closes the connection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The client identifier is too long, or empty where it must not be.
    ClientId,
    /// A field, a flag or a length breaks the format.
    Malformed,
    /// The first packet is not CONNECT of MQTT.
    NotConnect,
    /// A packet is larger than the limit.
    PacketTooLarge,
    /// A packet, or a property, must not be sent at this time.
    Protocol,
    /// A list is longer than its limit.
    Quota,
    /// More messages are unacknowledged than the server allows.
    ReceiveMaximum,
    /// A topic alias is zero, too large, or unknown.
    TopicAlias,
    /// A filter breaks the rules of filters.
    TopicFilter,
    /// A topic name is empty, too long, or has a wildcard.
    TopicName,
    /// The version of the protocol is not supported.
    UnsupportedVersion,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [ErrorKind; 11] = [
        ErrorKind::ClientId,
        ErrorKind::Malformed,
        ErrorKind::NotConnect,
        ErrorKind::PacketTooLarge,
        ErrorKind::Protocol,
        ErrorKind::Quota,
        ErrorKind::ReceiveMaximum,
        ErrorKind::TopicAlias,
        ErrorKind::TopicFilter,
        ErrorKind::TopicName,
        ErrorKind::UnsupportedVersion,
    ];

    /// Returns the name in counters.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::ClientId => "client_id",
            ErrorKind::Malformed => "malformed",
            ErrorKind::NotConnect => "not_connect",
            ErrorKind::PacketTooLarge => "packet_too_large",
            ErrorKind::Protocol => "protocol",
            ErrorKind::Quota => "quota",
            ErrorKind::ReceiveMaximum => "receive_maximum",
            ErrorKind::TopicAlias => "topic_alias",
            ErrorKind::TopicFilter => "topic_filter",
            ErrorKind::TopicName => "topic_name",
            ErrorKind::UnsupportedVersion => "unsupported_version",
        }
    }

    /// Returns the reason code that a client of version 5 receives.
    pub fn reason(self) -> Reason {
        match self {
            ErrorKind::ClientId => Reason::CLIENT_ID_NOT_VALID,
            ErrorKind::Malformed => Reason::MALFORMED_PACKET,
            ErrorKind::NotConnect | ErrorKind::Protocol => Reason::PROTOCOL_ERROR,
            ErrorKind::PacketTooLarge => Reason::PACKET_TOO_LARGE,
            ErrorKind::Quota => Reason::QUOTA_EXCEEDED,
            ErrorKind::ReceiveMaximum => Reason::RECEIVE_MAXIMUM_EXCEEDED,
            ErrorKind::TopicAlias => Reason::TOPIC_ALIAS_INVALID,
            ErrorKind::TopicFilter => Reason::TOPIC_FILTER_INVALID,
            ErrorKind::TopicName => Reason::TOPIC_NAME_INVALID,
            ErrorKind::UnsupportedVersion => Reason::UNSUPPORTED_VERSION,
        }
    }
}

protocol_error! {
    /// Error of a peer: the broken rule, and a text for messages.
    "mqtt"
}

impl ProtocolError {
    pub(super) fn malformed(message: impl Into<String>) -> ProtocolError {
        ProtocolError::new(ErrorKind::Malformed, message)
    }

    pub(super) fn protocol(message: impl Into<String>) -> ProtocolError {
        ProtocolError::new(ErrorKind::Protocol, message)
    }
}

/// Reason why a message was not written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SendError {
    /// The connection is not accepted yet, or closed.
    NotOpen,
    /// The packet is larger than the client accepts. The standard has it count as delivered.
    TooLarge,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::NotOpen => "the connection is not open",
            SendError::TooLarge => "the packet is larger than the client accepts",
        })
    }
}

impl std::error::Error for SendError {}
