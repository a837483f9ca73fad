//! `--explain`: how the server of a call was selected, as text and as JSON.

use serde_json::{Value, json};
use std::time::Duration;
use switchboard::{Attempt, Candidate, Channel, Explanation};

/// Longest wait for connections to the servers.
const PATIENCE: Duration = Duration::from_secs(1);

/// A call as its channel reports it.
#[derive(Debug)]
pub(super) struct Explain {
    before: Explanation,
    attempts: Vec<Attempt>,
}

impl Explain {
    pub(super) fn new(before: Explanation, attempts: Vec<Attempt>) -> Explain {
        Explain { before, attempts }
    }

    /// Returns lines for standard error.
    pub(super) fn text(&self) -> String {
        let mut text = self.before.to_string();
        for (at, attempt) in self.attempts.iter().enumerate() {
            text.push_str(&format!("  attempt {}: {attempt}\n", at + 1));
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let Explanation { method, channel, rules, candidates, .. } = &self.before;
        let rules: Vec<_> = rules.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        json!({
            "method": method,
            "channel": channel,
            "rules": rules,
            "candidates": candidates.iter().map(candidate).collect::<Vec<_>>(),
            "attempts": self.attempts.iter().map(attempt).collect::<Vec<_>>(),
        })
    }
}

fn candidate(candidate: &Candidate) -> Value {
    let Candidate {
        id,
        address,
        weight,
        zone,
        in_flight,
        calls,
        failures,
        latency,
        exclusion_reason,
        chosen,
        ..
    } = candidate;
    json!({
        "id": id,
        "address": address,
        "weight": weight,
        "zone": zone,
        "in_flight": in_flight,
        "calls": calls,
        "failures": failures,
        "latency_ms": ms(*latency),
        "exclusion_reason": exclusion_reason,
        "chosen": chosen,
    })
}

fn attempt(attempt: &Attempt) -> Value {
    let failure = attempt.failure.as_ref();
    json!({
        "address": attempt.address,
        "began_ms": ms(attempt.began),
        "sent_ms": attempt.sent.map(ms),
        "ended_ms": attempt.ended.map(ms),
        "failure": failure.map(|status| json!({"code": status.code().name(), "message": status.message()})),
        "limits": attempt.limits,
    })
}

fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

/// Waits a little until the channel has a connection to each server, or an error for it.
pub(super) async fn settled(channel: &Channel) {
    let connecting = || channel.endpoints().iter().any(|endpoint| endpoint.state == "connecting");
    let settled = async {
        while connecting() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // Servers that are still connecting then are shown as such.
    let _ = tokio::time::timeout(PATIENCE, settled).await;
}
