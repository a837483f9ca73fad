//! Lifecycle events of devices and rooms.

use super::{registry::Session, state::State};
use crate::{control, disconnect::DisconnectReason};
use serde::{Deserialize, Serialize};
use switchboard_message::Publication;
use switchboard_wire::Codec;

/// An event of the topic [`push/events`](crate::names::EVENTS), as JSON. Fields that an event does not have are empty.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HubEvent {
    /// `connected`, `disconnected`, `joined`, `left`, `occupied` or `empty`.
    pub event: String,
    /// Number of the event in its process, without holes: a missing number is a lost event.
    pub seq: u64,
    /// Number of the process.
    pub node: u64,
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// Session of the device.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub session: u64,
    /// Id of the user.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Key of the device.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Protocol of the device.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    /// Name of the room.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub room: String,
    /// Name of the [`DisconnectReason`], of *disconnected*.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl State {
    pub(super) fn device_event(&self, event: &str, session: &Session, reason: Option<DisconnectReason>) {
        self.event(HubEvent {
            event: event.to_owned(),
            reason: reason.map_or_else(String::new, |reason| reason.name().to_owned()),
            ..of_session(session)
        });
    }

    pub(super) fn member_event(&self, event: &str, session: &Session, room: &str) {
        self.event(HubEvent { event: event.to_owned(), room: room.to_owned(), ..of_session(session) });
    }

    pub(super) fn room_event(&self, event: &str, room: &str) {
        self.event(HubEvent { event: event.to_owned(), room: room.to_owned(), ..HubEvent::default() });
    }

    fn event(&self, event: HubEvent) {
        if !self.has_events {
            return;
        }
        let mut order = self.events.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *order += 1;
        let event = HubEvent { seq: *order, node: self.node, time_ms: control::now_ms(), ..event };
        let mut publication = Publication::new(Codec::Json, serde_json::to_vec(&event).unwrap_or_default());
        if self.is_shared {
            // The publication may be repeated.
            publication.id = format!("{:x}.{}", self.node, event.seq).into();
        }
        // Published under the lock, so that the sequence numbers are in order.
        if let Err(status) = self.post(&self.events_topic, publication) {
            crate::counters::add(&self.counters.events_lost, 1);
            tracing::debug!("push: event {} of {} is lost: {status}", event.seq, event.event);
        }
    }
}

fn of_session(session: &Session) -> HubEvent {
    HubEvent {
        session: session.id,
        user: (*session.user).to_owned(),
        key: (*session.key).to_owned(),
        protocol: session.protocol.to_owned(),
        ..HubEvent::default()
    }
}
