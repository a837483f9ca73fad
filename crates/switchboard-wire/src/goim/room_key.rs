//! Keys of rooms: `type://id`.

/// Returns the key of a room from its type and its name. im-cloud's callers may send the type with `://` at its end.
pub fn room_key(kind: &str, room: &str) -> String {
    let kind = kind.strip_suffix("://").unwrap_or(kind);
    format!("{kind}://{room}")
}

/// Splits the key of a room into type and name; `None` if it has no `://`.
pub fn split_room_key(key: &str) -> Option<(&str, &str)> {
    key.split_once("://")
}
