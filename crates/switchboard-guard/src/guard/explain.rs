//! Report of rates and limits to a caller that requests it, as `Explained` does.
//!
//! The response to a call with the metadata `switchboard-explain: limits` contains `switchboard-limits` in
//! its trailers, or in the metadata of its status: the rates and limits that applied, their use, the waiting
//! time, and whether the call was admitted. Other calls pay only a lookup of that metadata. The report
//! reveals the load by other callers, so it is sent only to callers that a [`Rule`](super::Rule) for
//! `switchboard.Limits/Explain` admits; without such a rule it is never sent.

use super::{Chain, Permit, access::Check};
use std::{fmt::Write, time::Instant};
use switchboard_core::{
    Call, Cx, Reply, Result,
    reserved::{EXPLAIN_REQUEST, LIMITS_REPORT},
};
use switchboard_wire::Status;

/// The report on one call.
pub(crate) struct LimitsReport {
    text: String,
    came: Instant,
    is_allowed: bool,
}

impl Chain {
    /// Returns whether the call requests a report.
    #[inline]
    pub(crate) fn wants_report(&self, cx: &Cx) -> bool {
        self.explains.is_some() && cx.metadata().text(EXPLAIN_REQUEST.0) == Some(EXPLAIN_REQUEST.1)
    }

    /// Returns whether the caller may receive the report. Call it after authentication.
    fn may_explain(&self, cx: &Cx) -> bool {
        let check = |check: &Check| check.before(cx.peer()).is_ok() && check.after(cx.caller()).is_ok();
        self.explains.as_ref().is_some_and(check)
    }

    /// Records the state of the rates and limits before the call.
    pub(crate) fn limits_report(&self, call: &Call) -> LimitsReport {
        let method = self.method(call.method());
        let rates = method.rates.iter().map(ToString::to_string);
        let limits = method.limiters.iter().map(|limiter| {
            let stats = limiter.stats();
            format!("{} {} of {} ({})", stats.what, stats.in_flight, stats.limit, stats.how)
        });
        let waiting = self.queue.iter().map(|queue| format!("fair queue {} waiting", queue.len()));
        let text = rates.chain(limits).chain(waiting).collect::<Vec<_>>().join(", ");
        LimitsReport { text, came: switchboard_core::clock::now(), is_allowed: false }
    }
}

impl LimitsReport {
    /// Adds the decision of the guards.
    pub(crate) fn decided(&mut self, chain: &Chain, cx: &Cx, admitted: &Result<Permit<'_>>) {
        self.is_allowed = chain.may_explain(cx);
        let waited = switchboard_core::clock::since(self.came).as_secs_f64() * 1e3;
        let word = if admitted.is_ok() { "admitted" } else { "refused" };
        let text = if self.text.is_empty() { "no limits" } else { &self.text };
        let mut report = format!("{text}; {word} after {waited:.1} ms");
        if let Err(status) = admitted {
            let _ = write!(report, ": {}", status.message());
        }
        // Metadata values must not contain line breaks.
        report.retain(|letter| matches!(letter, ' '..='~'));
        self.text = report;
    }

    /// Adds the report to the response.
    pub(crate) fn add_to(self, mut result: Result<Reply>) -> Result<Reply> {
        if !self.is_allowed {
            return result;
        }
        let metadata = match &mut result {
            Ok(reply) => &mut reply.parts_mut().trailers,
            Err(status) => Status::metadata_mut(status),
        };
        // Full metadata is sent without the report.
        let _ = metadata.insert(LIMITS_REPORT, self.text);
        result
    }
}
