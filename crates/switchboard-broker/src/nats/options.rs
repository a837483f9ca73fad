//! Options of the engine, and the subjects of topics.

use std::{fmt::Write, time::Duration};
use switchboard_core::Result;
use switchboard_message::Topic;
use switchboard_wire::Status;

/// Options of the engine NATS. They apply when the stream is created; processes that share topics use the same ones.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) prefix: String,
    pub(super) history: usize,
    pub(super) keep: Duration,
    pub(super) dedup_window: Duration,
    pub(super) in_memory: bool,
    pub(super) replicas: u32,
    pub(super) topics_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options::new()
    }
}

impl Options {
    /// Creates the default options.
    pub fn new() -> Options {
        Options {
            prefix: "swb".to_owned(),
            history: 1_000,
            keep: Duration::from_secs(7 * 86_400),
            dedup_window: Duration::from_secs(120),
            in_memory: false,
            replicas: 1,
            topics_max: 100_000,
        }
    }

    /// Sets the name of the stream, and the first part of its subjects; default `swb`. Letters, digits, `-` and `_`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Options {
        self.prefix = prefix.into();
        self
    }

    /// Sets the number of entries that each topic keeps; default 1,000, at least 1.
    #[must_use]
    pub fn history(mut self, entries_max: usize) -> Options {
        self.history = entries_max.max(1);
        self
    }

    /// Sets the period that an entry is kept; default 7 days.
    #[must_use]
    pub fn keep(mut self, period: Duration) -> Options {
        self.keep = period;
        self
    }

    /// Sets the period in which a publication id is recognised; default 2 minutes, at least 100 ms.
    #[must_use]
    pub fn dedup_window(mut self, period: Duration) -> Options {
        self.dedup_window = period.max(Duration::from_millis(100));
        self
    }

    /// Keeps the stream in the memory of the server; the default is in files.
    #[must_use]
    pub fn in_memory(mut self) -> Options {
        self.in_memory = true;
        self
    }

    /// Sets the number of servers of a cluster that have the stream; default 1.
    #[must_use]
    pub fn replicas(mut self, replicas: u32) -> Options {
        self.replicas = replicas.max(1);
        self
    }

    /// Limits the topics that this process follows at a time; default 100,000.
    #[must_use]
    pub fn topics_max(mut self, topics: usize) -> Options {
        self.topics_max = topics;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if self.prefix.is_empty() || self.prefix.len() > 64 || !self.prefix.bytes().all(is_plain) {
            let text = format!(
                "the prefix \"{}\" of the engine NATS is not the name of a stream; use 1 to 64 letters, digits, - and _",
                self.prefix
            );
            return Err(Status::invalid_argument(text));
        }
        Ok(())
    }

    /// Returns the subject under which the stream has the entries of a topic.
    pub(super) fn stored(&self, topic: &Topic) -> String {
        format!("{}.log.{}", self.prefix, subject(topic.name()))
    }

    /// Returns the subject to which they are republished.
    pub(super) fn live(&self, topic: &Topic) -> String {
        format!("{}.live.{}", self.prefix, subject(topic.name()))
    }
}

/// Converts the name of a topic to a subject; different names have different subjects.
fn subject(name: &str) -> String {
    let levels = name.split('/').map(|level| match level {
        // No escape is a lone percent sign.
        "" => "%".to_owned(),
        level => escape(level.as_bytes()),
    });
    levels.collect::<Vec<_>>().join(".")
}

/// Escapes what a token of a subject, or a header, does not contain.
pub(super) fn escape(bytes: &[u8]) -> String {
    let mut escaped = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_' | b':' | b'=' | b'@' => {
                escaped.push(char::from(*byte));
            }
            _ => _ = write!(escaped, "%{byte:02X}"),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_subjects() {
        for (name, expected) in [
            ("quotes/acme", "quotes.acme"),
            ("v1.2/x", "v1%2E2.x"),
            ("a//b", "a.%.b"),
            ("a b/c>d/é", "a%20b.c%3Ed.%C3%A9"),
            ("50%25", "50%2525"),
        ] {
            assert_eq!(subject(name), expected);
        }
    }

    #[test]
    fn a_prefix_is_the_name_of_a_stream() {
        assert!(Options::new().prefix("swb-2").check().is_ok());
        for prefix in ["", "a.b", "a b", "*"] {
            assert!(Options::new().prefix(prefix).check().is_err(), "{prefix}");
        }
    }
}
