//! A handler sees the same call whatever the wire, and its caller the same answer.
//!
//! One [table](cases) of calls goes over every [wire](wires); what the [handler](probe) saw and what the caller got is
//! compared with what was [asked](asked). What a wire cannot express is named in one [list](lacks), with the reason.
#![cfg(all(feature = "http", feature = "tls"))]
#![allow(clippy::unwrap_used, reason = "what fails to be set up fails the test")]

#[path = "../support/mod.rs"]
mod support;

mod asked;
mod cases;
mod channel;
mod grpc_web_text;
mod http;
mod http_json;
mod json_rpc;
mod lacks;
mod probe;
mod wires;

use asked::Answer;
use cases::{Case, Wanted};
use lacks::{Lack, lacks};
use std::time::Duration;
use wires::{Place, Wire};

#[tokio::test]
async fn every_call_is_the_same_on_every_wire() {
    compare(Place::Here).await;
}

#[tokio::test]
async fn every_call_is_the_same_through_a_proxy() {
    compare(Place::BehindProxy).await;
}

#[tokio::test]
async fn every_call_is_the_same_through_a_proxy_that_knows_no_method() {
    compare(Place::BehindLearner).await;
}

async fn compare(place: Place) {
    let mut wrong = Vec::new();
    for wire in wires::all(place).await {
        for case in cases::all() {
            wrong.extend(differences(&wire, &case).await);
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

/// How a call was seen and answered differently from what the case wants.
async fn differences(wire: &Wire, case: &Case) -> Vec<String> {
    let answer = support::raw::soon(wire.ask(&case.asked)).await;
    let seen = wire.probe.take();
    let Some(answer) = answer else {
        assert!(wire.does_not_carry(case.asked.kind), "{}: {} was not asked", wire.name, case.name);
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut compare = |what: &str, wanted: String, got: String| {
        if wanted != got {
            found.push(format!("{}, {}: {what} is {got}, not {wanted}", wire.name, case.name));
        }
    };
    match &case.wanted {
        Wanted::Answer(wanted) => {
            let wanted = wire.expressed(&case.asked, wanted.clone());
            compare("the answer", shown(&wanted), shown(&answer));
            compare(
                "what the handler saw",
                format!("{:?}", vec![wire.seen(&case.asked)]),
                format!("{seen:?}"),
            );
        }
        Wanted::Refused { code, parts } => {
            let failure = answer.failure.unwrap_or_default();
            let has_reason = !lacks(wire.name, Lack::Reason);
            if has_reason && !(case.is_too_large() && lacks(wire.name, Lack::CodeOfLarge)) {
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
    if let Some(given) = case.asked.timeout
        && wire.tells_deadline(case.asked.kind)
    {
        // Wires round up to their unit, at most to milliseconds: the caller ends its call by its own clock anyway.
        let most = Duration::from_millis(given.as_nanos().div_ceil(1_000_000) as u64);
        let left = wire.probe.last_time_left();
        if !left.is_some_and(|left| left <= most && most - left < cases::TOLERANCE) {
            found.push(format!("{}, {}: the time left is {left:?} of {given:?}", wire.name, case.name));
        }
    }
    found
}

/// Large messages by their length.
fn shown(answer: &Answer) -> String {
    let text = format!("{answer:?}");
    if text.len() < 2000 {
        text
    } else {
        format!("{} bytes that end in {:?}", text.len(), &text[text.len() - 200..])
    }
}
