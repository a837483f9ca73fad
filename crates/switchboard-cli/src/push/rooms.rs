//! Settings of rooms as text: `live/* history=100 age=5min merge=20ms presence`.

use std::time::Duration;
use switchboard::Limits;
use switchboard_push::{Access, Rooms, names};

/// Age of kept entries of a room that sets none.
const AGE: Duration = Duration::from_secs(300);
/// Forms of a setting, for errors.
const FORMS: &str = "history=N, age=TIME, bytes=N, merge=TIME, conflate, presence, join=WHO, publish=WHO, list=WHO, \
                     members=N, entry_bytes=N, rate=N, where WHO is all, none, token, members or roles:NAME+NAME";

/// Settings of the rooms of a pattern.
#[derive(Clone, Debug)]
pub(super) struct RoomClass {
    pub(super) pattern: String,
    pub(super) rooms: Rooms,
}

impl RoomClass {
    /// Parses a pattern and its settings, which have spaces between them.
    ///
    /// # Errors
    /// The setting, and the forms that settings have.
    pub(super) fn parse(text: &str) -> Result<RoomClass, String> {
        let mut words = text.split_whitespace();
        let pattern = words.next().ok_or("a room needs a pattern, as in 'live/* history=100 presence'")?;
        names::rooms(pattern).map_err(|status| status.message().to_owned())?;
        let (mut rooms, mut history, mut age) = (Rooms::new(), None, None);
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let number = || count(word, value);
            rooms = match name {
                "history" => {
                    history = Some(number()?);
                    rooms
                }
                "age" => {
                    age = Some(time(word, value)?);
                    rooms
                }
                "bytes" => rooms.history_bytes(number()?),
                "merge" => rooms.merge(time(word, value)?),
                "conflate" if value.is_empty() => rooms.conflate(),
                "presence" if value.is_empty() => rooms.presence(),
                "join" => rooms.join(access(word, value)?),
                "publish" => rooms.publish(access(word, value)?),
                "list" => rooms.list(access(word, value)?),
                "members" => rooms.members_max(number()?),
                "entry_bytes" => rooms.entry_bytes_max(number()?),
                "rate" => rooms.rate(number()? as f64),
                _ => return Err(format!("{word:?} is no setting of rooms; expected {FORMS}")),
            };
        }
        match (history, age) {
            (Some(entries), age) => rooms = rooms.history(entries, age.unwrap_or(AGE)),
            (None, Some(_)) => return Err("age=TIME needs history=N, the number of kept entries".to_owned()),
            (None, None) => {}
        }
        Ok(RoomClass { pattern: pattern.to_owned(), rooms })
    }
}

/// Checks the settings of a flag.
pub(super) fn check(text: &str) -> Result<String, String> {
    RoomClass::parse(text).map(|_| text.to_owned())
}

fn count(word: &str, value: &str) -> Result<usize, String> {
    let count = value.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("{word:?}: {value:?} is not a number from 1 on"))
}

fn time(word: &str, value: &str) -> Result<Duration, String> {
    Limits::parse_time(value).map_err(|error| format!("{word:?}: {error}"))
}

fn access(word: &str, value: &str) -> Result<Access, String> {
    match value {
        "all" => Ok(Access::all()),
        "none" => Ok(Access::none()),
        "token" => Ok(Access::token()),
        "members" => Ok(Access::members()),
        _ => {
            let roles = value.strip_prefix("roles:").filter(|roles| !roles.is_empty());
            let roles = roles.map(|roles| Access::roles(roles.split('+')));
            roles.ok_or_else(|| format!("{word:?}: expected all, none, token, members or roles:NAME+NAME"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_those_of_rooms() {
        let text = "live/*  history=100 age=1min bytes=4096 merge=20ms conflate presence join=token \
                    publish=roles:chat+admin list=none members=10 entry_bytes=512 rate=5";
        let parsed = RoomClass::parse(text).unwrap();
        let expected = Rooms::new()
            .history_bytes(4096)
            .merge(Duration::from_millis(20))
            .conflate()
            .presence()
            .join(Access::token())
            .publish(Access::roles(["chat", "admin"]))
            .list(Access::none())
            .members_max(10)
            .entry_bytes_max(512)
            .rate(5.0)
            .history(100, Duration::from_secs(60));
        assert_eq!(parsed.pattern, "live/*");
        assert_eq!(format!("{:?}", parsed.rooms), format!("{expected:?}"));
        let by_default = Rooms::new().history(7, AGE);
        assert_eq!(
            format!("{:?}", RoomClass::parse("> history=7").unwrap().rooms),
            format!("{by_default:?}")
        );
    }

    #[test]
    fn errors_name_the_setting() {
        for (text, expected) in [
            ("", "needs a pattern"),
            ("live/>/x history=1", "pattern of rooms: pattern \"room/live/>/x\""),
            ("live/* histroy=1", "\"histroy=1\" is no setting of rooms; expected history=N"),
            ("live/* history=0", "\"0\" is not a number from 1 on"),
            ("live/* merge=20", "\"merge=20\""),
            ("live/* join=friends", "expected all, none"),
            ("live/* publish=roles:", "expected all, none"),
            ("live/* age=5min", "needs history=N"),
            ("live/* presence=yes", "no setting of rooms"),
        ] {
            let error = RoomClass::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
