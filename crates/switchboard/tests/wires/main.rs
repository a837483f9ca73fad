//! A handler sees the same call on every wire, and its caller the same outcome.
//!
//! One [table](cases) of calls goes over every [wire](wires); the call that the [handler](probe) saw and the
//! outcome for the caller are compared with the [specification](spec). Features that a wire cannot express
//! are in one [matrix](capability_matrix), with the reason.
#![cfg(all(feature = "http", feature = "tls"))]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

#[path = "../support/mod.rs"]
mod support;

mod capability_matrix;
mod cases;
mod channel;
mod grpc_web_text;
mod http;
mod http_json;
mod json_rpc;
mod probe;
mod refusals;
mod spec;
mod wires;

use capability_matrix::{Capability, lacks};
use cases::{Case, Wanted};
use spec::Outcome;
use std::time::Duration;
use wires::{Topology, Wire};

#[tokio::test]
async fn every_call_is_the_same_on_every_wire() {
    compare(Topology::Here).await;
}

#[tokio::test]
async fn every_call_is_the_same_through_a_proxy() {
    compare(Topology::BehindProxy).await;
}

#[tokio::test]
async fn every_call_is_the_same_through_a_proxy_that_knows_no_method() {
    compare(Topology::BehindLearningProxy).await;
}

async fn compare(topology: Topology) {
    let mut wrong = Vec::new();
    for wire in wires::all(topology).await {
        for case in cases::all() {
            wrong.extend(differences(&wire, &case).await);
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

/// Lists the differences between a call and its case.
async fn differences(wire: &Wire, case: &Case) -> Vec<String> {
    let answer = support::raw::soon(wire.run(&case.spec)).await;
    let seen = wire.probe.take();
    let Some(answer) = answer else {
        assert!(wire.does_not_carry(case.spec.kind), "{}: {} was not called", wire.name, case.name);
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut compare = |what: &str, wanted: String, got: String| {
        if wanted != got {
            found.push(format!("{}, {}: {what} is {got}, not {wanted}", wire.name, case.name));
        }
    };
    match &case.wanted {
        Wanted::Outcome(wanted) => {
            let wanted = wire.expressed(&case.spec, wanted.clone(), &answer);
            compare("the outcome", shown(&wanted), shown(&answer));
            compare(
                "what the handler saw",
                format!("{:?}", vec![wire.seen(&case.spec)]),
                format!("{seen:?}"),
            );
        }
        Wanted::Refused { code, parts } => {
            let failure = answer.failure.unwrap_or_default();
            let has_reason = !lacks(wire.name, Capability::Reason);
            if has_reason && !(case.is_too_large() && lacks(wire.name, Capability::CodeOfLarge)) {
                compare("the code", format!("{:?}", Some(code)), format!("{:?}", failure.code));
            }
            for part in *parts {
                if has_reason && !failure.message.contains(part) {
                    compare("the text", format!("one with {part:?}"), format!("{:?}", failure.message));
                }
            }
            compare("what the handler saw", "[]".to_owned(), format!("{seen:?}"));
        }
    }
    if let Some(given) = case.spec.timeout
        && wire.carries_deadline(case.spec.kind)
    {
        // Wires round up to their unit, at most to milliseconds: the caller ends its call by its own clock anyway.
        let most = Duration::from_millis(given.as_nanos().div_ceil(1_000_000) as u64);
        let left = wire.probe.last_time_left();
        if !left.is_some_and(|left| left <= most && most.saturating_sub(left) < cases::TOLERANCE) {
            found.push(format!("{}, {}: the time left is {left:?} of {given:?}", wire.name, case.name));
        }
    }
    found
}

/// Large messages by their length.
fn shown(answer: &Outcome) -> String {
    let text = format!("{answer:?}");
    if text.len() < 2000 {
        text
    } else {
        format!("{} bytes that end in {:?}", text.len(), &text[text.len() - 200..])
    }
}
