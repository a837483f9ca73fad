//! Fixed concurrency limits.

use super::*;
use std::time::Duration;
use switchboard::{Code, Retry, guard::Concurrency};

#[tokio::test]
async fn limit_of_a_method_holds_on_every_wire() {
    let (running, seen) = start(Server::new().method_concurrency("test.Probe/Hang", 1)).await;
    for client in Client::each(&running).await {
        let wire = client.wire;
        let first = client.call::<()>(&HANG, &"");
        let first = tokio::spawn(async move { first.await.map(drop) });
        soon(seen.until(|seen| seen.hanging() == 1)).await;
        let status = failed(soon(client.call::<()>(&HANG, &"")).await);
        assert_eq!(status.code(), Code::ResourceExhausted, "{wire}: {status}");
        assert!(
            status
                .message()
                .contains("1 calls are running, the fixed concurrency limit of the method test.Probe/Hang"),
            "{wire}: {status}"
        );
        if wire.is_empty() {
            assert!(matches!(status.retry(), Retry::After(_)), "{wire}: {:?}", status.retry());
        }
        // Other methods are not concerned.
        assert_eq!(client.echo().await.unwrap(), [1, 2], "{wire}");
        // A call that is canceled gives its place back.
        first.abort();
        // Not every wire can say that a call is canceled; the end of its connection says it too.
        drop(client);
        soon(seen.until(|seen| seen.hanging() == 0)).await;
        until(|| running.concurrency()[0].in_flight == 0).await;
    }
    let stats = running.concurrency();
    assert_eq!((stats.len(), stats[0].limit), (1, 1));
    assert_eq!(stats[0].what, "method test.Probe/Hang");
    assert_eq!(stats[0].refused, WIRES.len() as u64);
}

#[tokio::test]
async fn calls_that_would_be_late_are_refused_at_once_on_every_wire() {
    let server = Server::new().method_concurrency("test.Probe/Hang", Concurrency::in_time(100));
    let (running, seen) = start(server).await;
    let channel = Channel::connect(&running.url()).await.unwrap();
    // One that is cut after a while shows how long calls take here, and another one runs.
    let cut = call::<_, ()>(&channel, &HANG, &"").timeout(Duration::from_millis(300));
    assert_eq!(failed(soon(cut).await).code(), Code::DeadlineExceeded);
    soon(seen.until(|seen| seen.hanging() == 0)).await;
    let other = call::<_, ()>(&channel, &HANG, &"");
    let other = tokio::spawn(async move { other.await.map(drop) });
    soon(seen.until(|seen| seen.hanging() == 1)).await;
    let mut clients = Client::each(&running).await;
    // In the text wire of WebSockets calls have no deadline.
    clients.retain(|client| !client.wire.starts_with("ws"));
    for client in &clients {
        let hurried = client.call::<()>(&HANG, &"").timeout(Duration::from_millis(250));
        let status = failed(soon(hurried).await);
        assert_eq!(status.code(), Code::ResourceExhausted, "{}: {status}", client.wire);
        assert!(status.message().contains("until the deadline"), "{}: {status}", client.wire);
    }
    assert_eq!(seen.hanging(), 1, "none of them was begun");
    let stats = &running.concurrency()[0];
    assert_eq!((stats.how, stats.limit, stats.refused), ("in time", 100, clients.len() as u64));
    other.abort();
}

#[tokio::test]
async fn streams_hold_their_place_to_their_end() {
    let (running, seen) = start(Server::new().service_concurrency("test.Probe", 2)).await;
    let channel = Channel::connect(&running.url()).await.unwrap();
    let in_flight = || running.concurrency()[0].in_flight;
    let (sender, mut receiver) = chat(&channel).await.unwrap();
    sender.send("a".into()).await.unwrap();
    assert_eq!(receiver.next().await.unwrap().unwrap(), "A");
    let upload = sum(&channel).await.unwrap();
    until(|| in_flight() == 2).await;
    assert_eq!(failed(mirror(&channel, vec![1]).await).code(), Code::ResourceExhausted);
    upload.send(7).await.unwrap();
    assert_eq!(*upload.finish().await.unwrap(), 7);
    mirror(&channel, vec![1]).await.unwrap();
    sender.finish();
    assert_eq!(receiver.next().await.unwrap(), None);
    until(|| in_flight() == 0).await;
    // A stream whose reader goes away, one that fails, and one that panics.
    let mut counted = count(&channel, 1_000_000, 1000).await.unwrap();
    counted.next().await.unwrap();
    assert_eq!(in_flight(), 1);
    drop(counted);
    soon(seen.until(|seen| seen.hanging() == 0)).await;
    until(|| in_flight() == 0).await;
    for number in [13, 666] {
        let mut counted = count(&channel, number, 1).await.unwrap();
        while let Ok(Some(_)) = counted.next().await {}
        until(|| in_flight() == 0).await;
    }
    let panicked: Result<()> = ask(&channel, &PANIC, &()).await;
    assert_eq!(failed(panicked).code(), Code::Internal);
    assert_eq!(in_flight(), 0);
}

#[tokio::test]
async fn limits_of_server_and_method_hold_together() {
    let server = Server::new().concurrency(2).method_concurrency("test.Probe/Ha*", 1);
    let (running, seen) = start(server).await;
    let channel = Channel::connect(&running.url()).await.unwrap();
    let hang = call::<_, ()>(&channel, &HANG, &"");
    let hang = tokio::spawn(async move { hang.await.map(drop) });
    soon(seen.until(|seen| seen.hanging() == 1)).await;
    // What the method refuses takes no place of the server.
    for _ in 0..5 {
        let status = failed(ask::<_, ()>(&channel, &HANG, &"").await);
        assert!(status.message().contains("method test.Probe/Hang"), "{status}");
    }
    mirror(&channel, vec![1]).await.unwrap();
    let stats = running.concurrency();
    assert_eq!((&stats[0].what[..], stats[0].in_flight, stats[0].refused), ("server", 1, 0));
    hang.abort();
}

#[tokio::test]
async fn limits_of_unknown_methods_are_refused_at_the_start() {
    let server = || Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0");
    let error = config_error(server().method_concurrency("test.Probe/Nope", 1).start().await);
    assert!(
        error.contains("method_concurrency: unknown method test.Probe/Nope: test.Probe has Echo"),
        "{error}"
    );
    let error = config_error(server().service_concurrency("test.Prob", 1).start().await);
    assert!(error.contains("test.Prob/* matches no method"), "{error}");
}

/// Waits for what another task does in its own time.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("it does not happen");
}
