//! Limits whose numbers are flags, set while calls run.

use super::*;
use std::time::{Duration, Instant};
use switchboard::{
    Code, Flag,
    guard::{Concurrency, Rate},
    limits::Unit,
};

#[tokio::test]
async fn limits_that_are_flags_hold_for_the_next_call_on_every_wire() {
    let flag = |name, unit| Flag::new(name, unit, 0, 0..=1_000_000, "of a test");
    let (calls, rate) = (flag("calls", Unit::Count), flag("rate", Unit::Count));
    let most = flag("most", Unit::Milliseconds);
    let server = Server::new()
        .flag(&calls)
        .concurrency(Concurrency::Flag(calls.clone()))
        .rate(Rate::by_flag(&rate).by_peer())
        .flag(&rate)
        .deadline_max_by_flag(&most)
        .flag(&most);
    assert_eq!(server.layers(), ["deadline caps", "rate of *", "concurrency limits"]);
    let (running, seen) = start(server).await;
    let set = |name: &str, value: &str| running.set_flag(name, value, "a test").unwrap();
    let error = running.check_flag("calls", "1000001").unwrap_err().to_string();
    assert!(error.contains("out of range: 0 to 1000000"), "{error}");
    running.check_flag("calls", "1").unwrap();
    assert_eq!((calls.value(), running.concurrency()[0].limit), (0, u32::MAX));
    for client in Client::each(&running).await {
        let wire = client.wire;
        client.echo().await.unwrap();
        let first = client.call::<()>(&HANG, &"");
        let first = tokio::spawn(async move { first.await.map(drop) });
        soon(seen.until(|seen| seen.hanging() == 1)).await;

        // It counts, though it began without a limit.
        set("calls", "1");
        let status = failed(client.echo().await);
        assert_eq!(status.code(), Code::ResourceExhausted, "{wire}: {status}");
        assert!(status.message().contains("1 calls are running, the fixed concurrency limit of the server"));
        set("calls", "0");
        client.echo().await.unwrap();

        set("most", "50ms");
        let status = failed(soon(client.call::<()>(&HANG, &"")).await);
        assert_eq!(status.code(), Code::DeadlineExceeded, "{wire}: {status}");
        set("most", "0ms");

        set("rate", "1");
        let begun = Instant::now();
        let status = loop {
            // Two of them come within a second.
            if let Err(status) = client.echo().await {
                break status;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{wire}");
        };
        assert_eq!(status.code(), Code::ResourceExhausted, "{wire}: {status}");
        assert!(status.message().contains("more than 1 calls a second of one address to *"), "{status}");
        set("rate", "0");
        client.echo().await.unwrap();

        assert_eq!(seen.hanging(), 1, "{wire}");
        first.abort();
        drop(client);
        soon(seen.until(|seen| seen.hanging() == 0)).await;
    }
}
