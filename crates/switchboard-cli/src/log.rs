//! Events as lines on standard error.

use clap::ValueEnum;
use std::{
    fmt::{self, Write as _},
    io::{self, Write as _},
};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
};

/// How grave an event must be.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Writes events of `level` and graver ones from now on, of all threads.
pub(crate) fn install(level: Level) {
    let filter = match level {
        Level::Off => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    tracing::subscriber::set_global_default(Lines(filter)).expect("installed once");
}

/// One line an event: level, message, fields. Spans are not shown.
struct Lines(LevelFilter);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.0
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let level = event.metadata().level();
        // Written at once: lines of processes that share a log are not mixed, and it is one system call.
        let line = format!("{level:<5} {}{}\n", line.message, line.fields);
        // A log that cannot be written is no reason to end.
        let _ = io::stderr().write_all(line.as_bytes());
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        // Never enabled, so that one number does for all.
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string never fails.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
