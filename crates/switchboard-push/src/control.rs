//! Orders to devices, as entries of the topics of users and keys.
//!
//! An order travels through the topic, so that it reaches a device on any process, after the entries that were
//! published before it.

use crate::disconnect::{Disconnect, DisconnectReason};
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};
use switchboard_core::clock;
use switchboard_message::{Entry, Publication};
use switchboard_wire::{Codec, Metadata};

/// Header that marks an entry as an order. Devices cannot publish it.
pub const CONTROL: &str = "push-control";

/// An order to the devices of a user, or to the device with a key.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "order", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Control {
    /// A connection with this session number has the key: older ones are closed.
    Connected {
        /// The session.
        session: u64,
        /// Time of the connection, in milliseconds since 1970.
        at_ms: u64,
        /// The user of the connection, if the device has chosen the key: connections of other users stay.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
    },
    /// The device is disconnected.
    Close {
        /// The reason.
        reason: DisconnectReason,
        /// The text for the device.
        text: String,
    },
    /// The device joins a room.
    Join {
        /// Name of the room.
        room: String,
    },
    /// The device leaves a room.
    Leave {
        /// Name of the room.
        room: String,
    },
}

impl Control {
    /// Returns the order of an entry; `None` for an entry that devices receive.
    ///
    /// A malformed order is none as well, and has no effect.
    pub fn of(entry: &Entry) -> Option<Option<Control>> {
        is_control(entry.headers()).then(|| serde_json::from_slice(entry.bytes()).ok())
    }

    /// Returns the order to disconnect, if it is one.
    pub fn disconnect(&self) -> Option<Disconnect> {
        match self {
            Control::Close { reason, text } => Some(Disconnect::new(*reason, text.clone())),
            _ => None,
        }
    }

    /// Returns the order as an entry.
    pub(crate) fn publication(&self) -> Publication {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let mut publication = Publication::new(Codec::Json, text);
        // The name and the value are valid.
        let _ = publication.headers.insert(CONTROL, now_ms().to_string());
        publication
    }
}

/// Returns whether an order was published before a time, in milliseconds since 1970: a topic with history has those of
/// earlier connections as well.
pub(crate) fn is_before(headers: &Metadata, time_ms: u64) -> bool {
    let published = headers.text(CONTROL).and_then(|time| time.parse().ok());
    published.unwrap_or(0_u64) < time_ms
}

/// Returns the time of day, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    ms(clock::time_of_day())
}

/// Returns a time in milliseconds since 1970.
pub(crate) fn ms(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn is_control(headers: &Metadata) -> bool {
    !headers.is_empty() && headers.value(CONTROL).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_were_written() {
        let order = Control::Close { reason: DisconnectReason::Closed, text: "moved".into() };
        let publication = order.publication();
        assert!(is_control(&publication.headers));
        assert!(!is_before(&publication.headers, now_ms() - 60_000));
        assert!(is_before(&publication.headers, now_ms() + 60_000));
        let read: Control = serde_json::from_slice(&publication.bytes).unwrap();
        assert_eq!(read, order);
        assert_eq!(read.disconnect().unwrap().text, "moved");
        assert_eq!(&publication.bytes[..], br#"{"order":"close","reason":"closed","text":"moved"}"#);
    }
}
