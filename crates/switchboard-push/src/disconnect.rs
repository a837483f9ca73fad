//! Reasons for which a device is disconnected.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a device was disconnected.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DisconnectReason {
    /// The device closed the connection, or it broke.
    Peer,
    /// A newer connection has the same key, or the user has more devices than allowed.
    Replaced,
    /// The application closed it.
    Closed,
    /// It should connect to another server.
    Redirected,
    /// Its credentials have expired.
    Expired,
    /// It sent nothing for longer than the heartbeat allows.
    TimedOut,
    /// It was too slow.
    Lagged,
    /// It violated its protocol.
    Protocol,
    /// It exceeded a limit or a rate.
    Limit,
    /// The server stops.
    Stopped,
}

impl DisconnectReason {
    /// All of them, in the order of the counters.
    pub(crate) const ALL: [DisconnectReason; 10] = [
        DisconnectReason::Peer,
        DisconnectReason::Replaced,
        DisconnectReason::Closed,
        DisconnectReason::Redirected,
        DisconnectReason::Expired,
        DisconnectReason::TimedOut,
        DisconnectReason::Lagged,
        DisconnectReason::Protocol,
        DisconnectReason::Limit,
        DisconnectReason::Stopped,
    ];

    /// Returns the name in counters and events.
    pub fn name(self) -> &'static str {
        match self {
            DisconnectReason::Peer => "peer",
            DisconnectReason::Replaced => "replaced",
            DisconnectReason::Closed => "closed",
            DisconnectReason::Redirected => "redirected",
            DisconnectReason::Expired => "expired",
            DisconnectReason::TimedOut => "timed_out",
            DisconnectReason::Lagged => "lagged",
            DisconnectReason::Protocol => "protocol",
            DisconnectReason::Limit => "limit",
            DisconnectReason::Stopped => "stopped",
        }
    }
}

impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The order to disconnect a device: the adapter sends it in the form of its protocol, and closes the connection.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Disconnect {
    /// The reason.
    pub reason: DisconnectReason,
    /// A text for the device, which may be empty; the address of another server for [`DisconnectReason::Redirected`].
    pub text: String,
}

impl Disconnect {
    /// Creates an order.
    pub fn new(reason: DisconnectReason, text: impl Into<String>) -> Disconnect {
        Disconnect { reason, text: text.into() }
    }
}

impl From<DisconnectReason> for Disconnect {
    fn from(reason: DisconnectReason) -> Disconnect {
        Disconnect::new(reason, "")
    }
}
