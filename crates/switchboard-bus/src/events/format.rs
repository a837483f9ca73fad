//! The events of a stream as text: server-sent events, or objects for the messages of a WebSocket.

use bytes::Bytes;
use serde::de::IgnoredAny;
use std::fmt::Write;
use switchboard::Codec;
use switchboard_message::{Gap, GapReason, Message};

/// Form of the events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: each form of the events is written here
pub enum Format {
    /// Server-sent events.
    Events,
    /// An object for each message.
    Messages,
}

impl Format {
    /// Appends the first event: the pause before a client reconnects, and the position at which the stream begins.
    pub fn begin(self, id: &str, into: &mut String) {
        match self {
            // An event without data is not delivered, and its id counts.
            Format::Events => _ = write!(into, "retry: 1000\nid: {id}\n\n"),
            Format::Messages => self.event("started", id, "", into),
        }
    }

    /// Appends an entry.
    pub fn entry(self, message: &Message<Bytes>, id: &str, into: &mut String) {
        let mut members = String::with_capacity(message.len() + 64);
        let (topic, offset) = (text(message.topic().name()), message.position().offset);
        let _ = write!(members, "\"topic\":{topic},\"offset\":{offset},\"data\":");
        put_data(message, &mut members);
        match self {
            Format::Events => put_event(None, id, &members, into),
            Format::Messages => _ = write!(into, "{{\"id\":\"{id}\",{members}}}"),
        }
    }

    /// Appends a gap.
    pub fn gap(self, gap: &Gap, id: &str, into: &mut String) {
        let mut members = members_of_gap(gap.topic.name(), gap.reason.name());
        if gap.range.start < gap.range.end && gap.reason != GapReason::Epoch {
            let _ =
                write!(members, ",\"from\":{},\"to\":{}", gap.range.start, gap.range.end.saturating_sub(1));
        }
        self.event("gap", id, &members, into);
    }

    /// Appends a gap of a topic that begins at its head although the client has an id.
    pub fn unreadable(self, topic: &str, id: &str, into: &mut String) {
        self.event("gap", id, &members_of_gap(topic, "unreadable"), into);
    }

    /// Appends the event that no entry is missing since the id of the client.
    pub fn resumed(self, id: &str, into: &mut String) {
        self.event("resumed", id, "", into);
    }

    /// Appends an event of this kind, with members of an object.
    pub fn event(self, kind: &str, id: &str, members: &str, into: &mut String) {
        match self {
            Format::Events => put_event(Some(kind), id, members, into),
            Format::Messages => {
                let comma = if members.is_empty() { "" } else { "," };
                let _ = write!(into, "{{\"event\":\"{kind}\",\"id\":\"{id}\"{comma}{members}}}");
            }
        }
    }
}

/// A comment, which clients ignore.
pub const HEARTBEAT: &str = ":\n\n";

fn members_of_gap(topic: &str, reason: &str) -> String {
    format!("\"topic\":{},\"reason\":\"{reason}\"", text(topic))
}

/// Appends a server-sent event. Its data can have several lines, which the client joins: JSON has line breaks only as
/// blanks.
fn put_event(kind: Option<&str>, id: &str, members: &str, into: &mut String) {
    if let Some(kind) = kind {
        let _ = writeln!(into, "event: {kind}");
    }
    let _ = write!(into, "id: {id}\ndata: {{");
    let mut lines = members.split(['\r', '\n']);
    into.push_str(lines.next().unwrap_or_default());
    for line in lines {
        let _ = write!(into, "\ndata: {line}");
    }
    into.push_str("}\n\n");
}

/// Appends the value of an entry: JSON as it is, other text as a string, and other bytes in base64.
fn put_data(message: &Message<Bytes>, into: &mut String) {
    let entry = message.entry();
    let Ok(data) = std::str::from_utf8(entry.bytes()) else {
        use base64::{Engine, prelude::BASE64_STANDARD};
        let _ = write!(into, "\"{}\",\"base64\":true", BASE64_STANDARD.encode(entry.bytes()));
        return;
    };
    // A publisher can name the codec of anything: text that is no value must not become members of the object.
    match entry.codec() == Codec::Json && serde_json::from_str::<IgnoredAny>(data).is_ok() {
        true => into.push_str(data.trim_ascii()),
        false => into.push_str(&text(data)),
    }
}

/// Returns text as a JSON string.
fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
