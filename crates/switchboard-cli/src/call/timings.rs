//! Durations of the parts of a call.

use std::{
    fmt,
    time::{Duration, Instant},
};

/// Parts that did not happen are missing.
#[derive(Debug)]
pub(super) struct Timings {
    started: Instant,
    /// Looking up the host's name; the connection repeats the lookup, so this one is only measured.
    pub(super) dns: Option<Duration>,
    /// Opening the connection.
    pub(super) connect: Option<Duration>,
    /// Reading the schema from the server, or compiling it.
    pub(super) schema: Option<Duration>,
    /// Time from sending the call to its first reply.
    pub(super) first_message: Option<Duration>,
    /// Time from the start of the command to the end of the call.
    pub(super) total: Option<Duration>,
}

impl Timings {
    pub(super) fn start() -> Timings {
        Timings {
            started: Instant::now(),
            dns: None,
            connect: None,
            schema: None,
            first_message: None,
            total: None,
        }
    }

    pub(super) fn stop(&mut self) {
        self.total = Some(self.started.elapsed());
    }

    fn parts(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        [
            ("dns", self.dns),
            ("connect", self.connect),
            ("schema", self.schema),
            ("first message", self.first_message),
            ("total", self.total),
        ]
        .into_iter()
        .filter_map(|(name, time)| time.map(|time| (name, time)))
    }

    /// In milliseconds.
    pub(super) fn json(&self) -> serde_json::Value {
        let parts = self.parts().map(|(name, time)| {
            let ms = time.as_micros() as f64 / 1e3;
            (format!("{}_ms", name.replace(' ', "_")), ms.into())
        });
        serde_json::Value::Object(parts.collect())
    }
}

impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, time)) in self.parts().enumerate() {
            let before = if at == 0 { "" } else { ", " };
            write!(f, "{before}{name} {:.2} ms", time.as_secs_f64() * 1e3)?;
        }
        Ok(())
    }
}
