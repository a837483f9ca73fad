//! What a caller is told that asks what the limits did.

use super::*;
use crate::concurrency::until;
use std::time::{Duration, Instant};
use switchboard::{
    Code,
    guard::{Fair, Rate},
};

/// What the only attempt was told.
fn limits<R>(told: &switchboard::Explained<R>) -> &str {
    let [attempt] = &told.attempts[..] else { panic!("{:?}", told.attempts) };
    attempt.limits.as_deref().unwrap_or_default()
}

#[tokio::test]
async fn callers_that_ask_hear_what_the_limits_did() {
    let fair = Fair::by_peer().waiting_max(1).wait_max(Duration::from_secs(100));
    let server = Server::new().concurrency(1).fair(fair).method_concurrency("test.Probe/Hang", 1);
    let (running, seen) = start(server.rate(Rate::per_second(1e6).by_peer())).await;
    let other = Client::on(&running, "", Codec::Postcard).await;
    for client in Client::each(&running).await {
        let wire = client.wire;
        let told = soon(client.call::<Vec<u8>>(&ECHO, &[1u8].to_vec()).explained()).await;
        assert_eq!(**told.outcome.as_ref().unwrap(), [1], "{wire}");
        if wire.starts_with("ws") {
            assert_eq!(limits(&told), "", "there is no place for it");
            continue;
        }
        let text = "1000000 calls a second of one address to *, server 0 of 1 (fixed), fair queue 0 waiting; admitted after ";
        assert!(limits(&told).starts_with(text), "{wire}: {told:?}");
        let unasked = soon(client.call::<Vec<u8>>(&ECHO, &[1u8].to_vec())).await.unwrap();
        assert_eq!(unasked.trailers().text("switchboard-limits"), None, "{wire}");

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
        let told = soon(waiting).await.unwrap();
        assert_eq!(**told.outcome.as_ref().unwrap(), [2], "{wire}");
        let text = limits(&told);
        let (_, after) =
            text.split_once("server 1 of 1 (fixed), fair queue 0 waiting; admitted after ").unwrap();
        let ms: f64 = after.trim_end_matches(" ms").parse().unwrap();
        assert!(ms >= waited - 0.1, "{wire}: {waited} ms at least, and not {text}");
        assert!(told.attempts[0].to_string().contains("; limits: 1000000 calls a second"), "{wire}");
    }
}

#[tokio::test]
async fn limits_of_a_method_are_told_with_its_refusals() {
    let (running, seen) = start(Server::new().method_concurrency("test.Probe/Hang", 1)).await;
    let client = Client::on(&running, "?wire=grpc", Codec::Json).await;
    let hang = client.call::<()>(&HANG, &"");
    let hang = tokio::spawn(async move { hang.await.map(drop) });
    soon(seen.until(|seen| seen.hanging() == 1)).await;
    let told = soon(client.call::<()>(&HANG, &"").explained()).await;
    let text = limits(&told);
    assert!(text.starts_with("method test.Probe/Hang 1 of 1 (fixed); refused after "), "{text}");
    let told = soon(client.call::<Vec<u8>>(&ECHO, &[1u8].to_vec()).explained()).await;
    assert!(limits(&told).starts_with("no limits; admitted after "), "{told:?}");
    hang.abort();
}
