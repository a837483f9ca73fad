//! Topics of rooms, users and keys.
//!
//! A room has the name that the application chooses, with levels: room `live/7` is the topic `room/live/7`. The id of a
//! user and the key of a device are one level each, in which `/` and `%` are percent-encoded.

use std::borrow::Cow;
use switchboard::{Result, Status};
use switchboard_message::{Pattern, Topic};

const ROOM: &str = "room/";
/// Beginning of the topics of users.
pub(crate) const USER: &str = "user/";
/// Beginning of the topics of keys.
pub(crate) const KEY: &str = "key/";
/// Topic that every device receives.
pub const ALL: &str = "push/all";
/// Topic of the lifecycle events.
pub const EVENTS: &str = "push/events";

/// Returns the topic of a room.
///
/// # Errors
/// `InvalidArgument` that names the rule of names that is broken.
pub fn room(name: &str) -> Result<Topic> {
    checked("room", name, Topic::new(&format!("{ROOM}{name}")))
}

/// Returns the pattern of the topics of rooms: `live/*`.
///
/// # Errors
/// `InvalidArgument` that names the rule of patterns that is broken.
pub fn rooms(pattern: &str) -> Result<Pattern> {
    checked("pattern of rooms", pattern, Pattern::new(&format!("{ROOM}{pattern}")))
}

/// Returns the topic of a user.
///
/// # Errors
/// `InvalidArgument` for an empty id, or one with over 250 bytes.
pub fn user(id: &str) -> Result<Topic> {
    checked("user", id, Topic::new(&format!("{USER}{}", level(id))))
}

/// Returns the topic of the key of a device.
///
/// # Errors
/// `InvalidArgument` for an empty key, or one with over 250 bytes.
pub fn key(key: &str) -> Result<Topic> {
    checked("key", key, Topic::new(&format!("{KEY}{}", level(key))))
}

fn checked<T>(kind: &str, name: &str, result: Result<T>) -> Result<T> {
    if name.is_empty() {
        return Err(Status::invalid_argument(format!("the name of a {kind} is empty")));
    }
    result.map_err(|status| Status::invalid_argument(format!("{kind}: {}", status.message())))
}

/// Returns an id as one level of a name.
fn level(id: &str) -> Cow<'_, str> {
    match id {
        "*" => "%2A".into(),
        "+" => "%2B".into(),
        ">" => "%3E".into(),
        "#" => "%23".into(),
        _ if id.contains(['/', '%']) => id.replace('%', "%25").replace('/', "%2F").into(),
        _ => id.into(),
    }
}

/// Returns the name of the room of a topic; `None` for the topic of something else.
pub fn room_of(topic: &str) -> Option<&str> {
    topic.strip_prefix(ROOM)
}

/// Returns whether the topic is that of a user.
pub fn is_user(topic: &str) -> bool {
    topic.starts_with(USER)
}

/// Returns whether the topic is that of a user or of a key, which has few subscribers and carries
/// [orders](crate::control) to devices.
pub fn is_personal(topic: &str) -> bool {
    topic.starts_with(USER) || topic.starts_with(KEY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_one_level_and_rooms_have_levels() {
        for (id, name) in [("42", "user/42"), ("a/b", "user/a%2Fb"), ("50%", "user/50%25"), ("*", "user/%2A")]
        {
            assert_eq!(user(id).unwrap().name(), name);
        }
        assert_eq!(key("k").unwrap().name(), "key/k");
        let topic = room("live/7").unwrap();
        assert_eq!((topic.name(), room_of(topic.name())), ("room/live/7", Some("live/7")));
        assert!(rooms("live/*").unwrap().matches("room/live/7"));
        assert_eq!(room_of("user/7"), None);
    }

    #[test]
    fn a_bad_name_is_refused_with_its_kind() {
        for (status, text) in [
            (room("").unwrap_err(), "the name of a room is empty"),
            (room("live/*").unwrap_err(), "room: topic name \"room/live/*\" has a wildcard"),
            (user(&"x".repeat(300)).unwrap_err(), "user: topic name"),
            (rooms(">/x").unwrap_err(), "pattern of rooms: pattern"),
        ] {
            assert!(status.message().contains(text), "{status}");
        }
    }
}
