//! Options of the engine.

use std::time::Duration;
use switchboard_core::Result;
use switchboard_wire::Status;

/// Options of the engine Redis. Processes that share topics use the same ones.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) prefix: String,
    pub(super) history: usize,
    pub(super) keep: Duration,
    pub(super) dedup_window: Duration,
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
            topics_max: 100_000,
        }
    }

    /// Sets the beginning of all keys; default `swb`. Prefixes separate the topics of systems that share a server.
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

    /// Sets the period after which Redis forgets a topic that has no publications; default 7 days. A later publication
    /// begins a new epoch.
    #[must_use]
    pub fn keep(mut self, period: Duration) -> Options {
        self.keep = period;
        self
    }

    /// Sets the period in which a publication id is recognised; default 2 minutes, zero for never.
    #[must_use]
    pub fn dedup_window(mut self, period: Duration) -> Options {
        self.dedup_window = period;
        self
    }

    /// Limits the topics that this process follows at a time; default 100,000.
    #[must_use]
    pub fn topics_max(mut self, topics: usize) -> Options {
        self.topics_max = topics;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.prefix.contains(['{', '}']) {
            let text = format!(
                "the prefix \"{}\" of the engine Redis has a brace, which selects the slot of a key; choose another one",
                self.prefix
            );
            return Err(Status::invalid_argument(text));
        }
        Ok(())
    }
}
