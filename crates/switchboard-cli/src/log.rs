//! Events as lines on standard error: time, level, message, fields.

use clap::ValueEnum;
use std::{
    fmt::{self, Write as _},
    io::{self, Write as _},
    time::{SystemTime, UNIX_EPOCH},
};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
};

/// Least severity of events.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Writes events of `level` and above from now on, of all threads.
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

/// Writes one line for each event. Spans are not shown.
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
        // Written with one system call, so that lines of processes that share a log are not mixed.
        let line = format!("{} {level:<5} {}{}\n", time(SystemTime::now()), line.message, line.fields);
        // A log that cannot be written does not end the process.
        let _ = io::stderr().write_all(line.as_bytes());
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        // Spans are never enabled, so one number is enough.
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

/// Formats the time in UTC with milliseconds, as RFC 3339 defines it.
fn time(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = ((since.as_secs() / 86_400) as i64, since.as_secs() % 86_400);
    // Days from 1 March of year 0, in eras of 400 years: a leap day is the last of its year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    let (hours, minutes, seconds) = (second / 3_600, second / 60 % 60, second % 60);
    let (year, millis) = (era * 400 + year, since.subsec_millis());
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_written_in_utc() {
        for (millis, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_767_225_599_001, "2025-12-31T23:59:59.001Z"),
            (1_767_225_600_000, "2026-01-01T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(time(UNIX_EPOCH + Duration::from_millis(millis)), expected);
        }
    }
}
