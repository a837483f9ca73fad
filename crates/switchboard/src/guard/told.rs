//! What limits did with a call, for a caller that asks: [`Explained`](crate::Explained) does.
//!
//! A call with the metadata `switchboard-explain: limits` is answered with `switchboard-limits` in its trailers, or in
//! the metadata of its status: which rates and limits it met, how full they were, how long it waited, and whether it
//! was let in. Nobody else pays more than a look for that metadata.

use super::{Chain, Permit};
use crate::{Call, Cx, Reply, Result, Status};
use std::{fmt::Write, time::Instant};

/// In this metadata a caller asks.
pub(crate) const ASKED: (&str, &str) = ("switchboard-explain", "limits");
/// In this one it is told.
pub(crate) const TOLD: &str = "switchboard-limits";

/// What a call met on its way in.
pub(crate) struct Told {
    text: String,
    came: Instant,
}

impl Chain {
    /// Whether the caller wants to know.
    #[inline]
    pub(crate) fn is_asked(&self, cx: &Cx) -> bool {
        cx.metadata().text(ASKED.0) == Some(ASKED.1)
    }

    /// What the call is about to meet.
    pub(crate) fn tell(&self, call: &Call) -> Told {
        let method = self.method(call.method());
        let rates = method.rates.iter().map(ToString::to_string);
        let limits = method.limiters.iter().map(|limiter| {
            let stats = limiter.stats();
            format!("{} {} of {} ({})", stats.what, stats.in_flight, stats.limit, stats.how)
        });
        let waiting = self.queue.iter().map(|queue| format!("fair queue {} waiting", queue.len()));
        let text = rates.chain(limits).chain(waiting).collect::<Vec<_>>().join(", ");
        Told { text, came: crate::clock::now() }
    }
}

impl Told {
    /// Notes what became of the call: now it begins, or is refused.
    pub(crate) fn decided(&mut self, admitted: &Result<Permit<'_>>) {
        let waited = crate::clock::since(self.came).as_secs_f64() * 1e3;
        let word = if admitted.is_ok() { "admitted" } else { "refused" };
        let text = if self.text.is_empty() { "no limits" } else { &self.text };
        let mut told = format!("{text}; {word} after {waited:.1} ms");
        if let Err(status) = admitted {
            let _ = write!(told, ": {}", status.message());
        }
        // A value of metadata has no line ends.
        told.retain(|letter| matches!(letter, ' '..='~'));
        self.text = told;
    }

    /// Adds it to the answer.
    pub(crate) fn add_to(self, mut result: Result<Reply>) -> Result<Reply> {
        let metadata = match &mut result {
            Ok(reply) => &mut reply.parts_mut().trailers,
            Err(status) => Status::metadata_mut(status),
        };
        // Where it finds no room the call is none the worse.
        let _ = metadata.insert(TOLD, self.text);
        result
    }
}
