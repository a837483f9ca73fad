//! The decisions of limits, reported to a caller that requests them.

use super::*;
use crate::concurrency::until;
use std::time::{Duration, Instant};
use switchboard::{
    Code,
    auth::{Caller, Tokens},
    guard::{Fair, Rate, Rule},
};

/// Name of the report in rules.
const EXPLAIN: &str = "switchboard.Limits/Explain";

/// Returns the reported limits of the only attempt.
fn limits<R>(report: &switchboard::Explained<R>) -> &str {
    let [attempt] = &report.attempts[..] else { panic!("{:?}", report.attempts) };
    attempt.limits.as_deref().unwrap_or_default()
}

#[tokio::test]
async fn callers_that_ask_hear_what_the_limits_did() {
    let fair = Fair::by_peer().waiting_max(1).wait_max(Duration::from_secs(100));
    let server = Server::new().concurrency(1).fair(fair).method_concurrency("test.Probe/Hang", 1);
    let server = server.rate(Rate::per_second(1e6).by_peer()).rule(Rule::methods(EXPLAIN).public());
    let (running, seen) = start(server).await;
    let other = Client::on(&running, "", Codec::Postcard).await;
    for client in Client::each(&running).await {
        let wire = client.wire;
        let report = soon(client.call::<Vec<u8>>(&ECHO, &[1u8].to_vec()).explained()).await;
        assert_eq!(**report.outcome.as_ref().unwrap(), [1], "{wire}");
        if wire.starts_with("ws") {
            assert_eq!(limits(&report), "", "this wire has no metadata for it");
            continue;
        }
        let text = "1000000 calls a second of one address to *, server 0 of 1 (fixed), fair queue 0 waiting; admitted after ";
        assert!(limits(&report).starts_with(text), "{wire}: {report:?}");
        let plain = soon(client.call::<Vec<u8>>(&ECHO, &[1u8].to_vec())).await.unwrap();
        assert_eq!(plain.trailers().text("switchboard-limits"), None, "{wire}");

        let hang = other.call::<()>(&HANG, &"");
        let hang = tokio::spawn(async move { hang.await.map(drop) });
        soon(seen.until(|seen| seen.hanging() == 1)).await;
        let waiting = client.call::<Vec<u8>>(&ECHO, &[2u8].to_vec());
        let waiting = tokio::spawn(waiting.explained());
        let stats = || running.stats();
        soon(until(|| stats().calls_in_flight == 2)).await;
        let waits = Instant::now();
        let refused = soon(client.call::<Vec<u8>>(&ECHO, &[3u8].to_vec()).explained()).await;
        assert_eq!(refused.outcome.as_ref().unwrap_err().code(), Code::ResourceExhausted, "{wire}");
        let text = limits(&refused);
        assert!(
            text.contains("server 1 of 1 (fixed), fair queue 1 waiting; refused after "),
            "{wire}: {text}"
        );
        assert!(text.contains("waiting (waiting_max)"), "{wire}: {text}");
        let waited = waits.elapsed().as_secs_f64() * 1e3;
        hang.abort();
        let report = soon(waiting).await.unwrap();
        assert_eq!(**report.outcome.as_ref().unwrap(), [2], "{wire}");
        let text = limits(&report);
        let (_, after) =
            text.split_once("server 1 of 1 (fixed), fair queue 0 waiting; admitted after ").unwrap();
        let ms: f64 = after.trim_end_matches(" ms").parse().unwrap();
        assert!(ms >= waited - 0.1, "{wire}: {waited} ms at least, and not {text}");
        assert!(report.attempts[0].to_string().contains("; limits: 1000000 calls a second"), "{wire}");
    }
}

#[tokio::test]
async fn limits_of_a_method_are_reported_with_its_refusals() {
    let server = Server::new().method_concurrency("test.Probe/Hang", 1).rule(Rule::methods(EXPLAIN).public());
    let (running, seen) = start(server).await;
    let client = Client::on(&running, "?wire=grpc", Codec::Json).await;
    let hang = client.call::<()>(&HANG, &"");
    let hang = tokio::spawn(async move { hang.await.map(drop) });
    soon(seen.until(|seen| seen.hanging() == 1)).await;
    let report = soon(client.call::<()>(&HANG, &"").explained()).await;
    let text = limits(&report);
    assert!(text.starts_with("method test.Probe/Hang 1 of 1 (fixed); refused after "), "{text}");
    let report = soon(client.call::<Vec<u8>>(&ECHO, &[1u8].to_vec()).explained()).await;
    assert!(limits(&report).starts_with("no limits; admitted after "), "{report:?}");
    hang.abort();
}

#[tokio::test]
async fn only_callers_that_a_rule_admits_hear_what_the_limits_did() {
    let tokens = || {
        Tokens::default().token("one", Caller::new("ann").role("operator")).token("two", Caller::new("bob"))
    };
    for (rule, hear) in [
        (None, [false, false]),
        (Some(Rule::methods(EXPLAIN).roles(["operator"])), [true, false]),
        (Some(Rule::methods("*")), [true, true]),
        (Some(Rule::methods("*").deny()), [false, false]),
    ] {
        let server = Server::new().auth(tokens()).method_concurrency("test.Probe/Echo", 8);
        let open = Rule::methods("test.Probe/*");
        let server = rule.into_iter().fold(server.rule(open), Server::rule);
        let (running, _) = start(server).await;
        for (token, hears) in ["one", "two", "wrong"].into_iter().zip(hear.into_iter().chain([false])) {
            let client = Client::on(&running, "", Codec::Postcard).await;
            let call = client.call::<Vec<u8>>(&ECHO, &[1u8].to_vec());
            let report = soon(call.meta("authorization", format!("Bearer {token}")).explained()).await;
            assert_eq!(!limits(&report).is_empty(), hears, "{token}: {report:?}");
        }
    }
}
