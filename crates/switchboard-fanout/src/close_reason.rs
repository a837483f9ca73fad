//! Reasons for which a connection is closed.

use std::{borrow::Cow, fmt};

/// Why a connection was closed.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer closed it, or it broke.
    Peer,
    /// The peer violated the protocol or a limit, for a reason that has a short name and a text.
    Violation {
        /// The name, for counters.
        name: &'static str,
        /// The rule that was violated, with the limit if there is one.
        text: Cow<'static, str>,
    },
    /// It was too slow: what waits for it alone is above the limit.
    Lagged,
    /// It held much while the server had no memory left.
    Memory,
    /// The time limit of the adapter has passed.
    TimedOut,
    /// The application wants it closed.
    Closed,
    /// The engine ends.
    Stopped,
    /// The engine has as many subscribers as it may.
    Full,
}

impl CloseReason {
    /// Returns the name in counters and pages.
    pub fn name(&self) -> &'static str {
        match self {
            CloseReason::Peer => "peer",
            CloseReason::Violation { name, .. } => name,
            CloseReason::Lagged => "lagged",
            CloseReason::Memory => "memory",
            CloseReason::TimedOut => "timed_out",
            CloseReason::Closed => "closed",
            CloseReason::Stopped => "stopped",
            CloseReason::Full => "full",
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Peer => f.write_str("the peer closed the connection"),
            CloseReason::Violation { text, .. } => f.write_str(text),
            CloseReason::Lagged => f.write_str(
                "the subscriber is too slow: the bytes that wait for it are above the limit (outbox_bytes_max)",
            ),
            CloseReason::Memory => f.write_str("the server has no memory left (memory_bytes_max)"),
            CloseReason::TimedOut => f.write_str("the subscriber did not respond in time"),
            CloseReason::Closed => f.write_str("the application closed the connection"),
            CloseReason::Stopped => f.write_str("the server stops"),
            CloseReason::Full => f.write_str("the engine has no room for a subscriber (subscribers_max)"),
        }
    }
}
