//! Requests of the interface.

use crate::adapter::centrifuge::Failure;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use std::collections::BTreeMap;
use switchboard::Status;
use switchboard_wire::centrifuge::code;

/// A method of the interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Method {
    Batch,
    Broadcast,
    Channels,
    Disconnect,
    History,
    Info,
    Presence,
    PresenceStats,
    Publish,
    Subscribe,
    Unsubscribe,
}

impl Method {
    pub(super) const ALL: [Method; 11] = [
        Method::Batch,
        Method::Broadcast,
        Method::Channels,
        Method::Disconnect,
        Method::History,
        Method::Info,
        Method::Presence,
        Method::PresenceStats,
        Method::Publish,
        Method::Subscribe,
        Method::Unsubscribe,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Method::Batch => "batch",
            Method::Broadcast => "broadcast",
            Method::Channels => "channels",
            Method::Disconnect => "disconnect",
            Method::History => "history",
            Method::Info => "info",
            Method::Presence => "presence",
            Method::PresenceStats => "presence_stats",
            Method::Publish => "publish",
            Method::Subscribe => "subscribe",
            Method::Unsubscribe => "unsubscribe",
        }
    }

    pub(super) fn of(name: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|method| method.name() == name)
    }
}

/// Publishes to one channel, or to several.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Publish {
    pub(super) channel: String,
    pub(super) channels: Vec<String>,
    pub(super) data: Option<Box<RawValue>>,
    pub(super) b64data: String,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) idempotency_key: String,
}

/// Names the devices of a user, or one connection, and a channel.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Target {
    pub(super) user: String,
    pub(super) client: String,
    pub(super) channel: String,
    pub(super) disconnect: Reason,
}

/// The reason of a disconnection.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Reason {
    pub(super) reason: String,
}

/// Names channels.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Channels {
    pub(super) pattern: String,
}

/// Several requests.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Batch {
    pub(super) commands: Vec<BTreeMap<String, Value>>,
}

/// An error of a request.
pub(super) struct Failed(Failure);

impl Failed {
    pub(super) fn bad_request(text: impl Into<String>) -> Failed {
        Failed(Failure::new(code::BAD_REQUEST, text))
    }

    pub(super) fn response(self) -> Value {
        json!({ "error": { "code": self.0.code, "message": self.0.text } })
    }
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Failed {
        Failed(failure)
    }
}

impl From<Status> for Failed {
    fn from(status: Status) -> Failed {
        Failed(Failure::from(status))
    }
}
