//! Waiting in turn.

use super::*;
use crate::concurrency::until;
use std::{sync::Mutex, time::Duration};
use switchboard::{Code, Retry, guard::Fair, layer};
use tokio::sync::Semaphore;

/// A server that runs one call at a time, each for a permit of the gate, and writes down whose ran.
async fn gated(fair: Fair) -> (Running, Arc<Semaphore>, Arc<Mutex<Vec<String>>>) {
    let (gate, log) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (opens, writes) = (gate.clone(), log.clone());
    let server = Server::new().concurrency(1).fair(fair).layer(layer::from_fn("gate", move |call, next| {
        let (opens, writes) = (opens.clone(), writes.clone());
        Box::pin(async move {
            let tenant = call.cx().metadata().text("tenant").unwrap_or_default().to_owned();
            writes.lock().unwrap().push(tenant);
            opens.acquire().await.unwrap().forget();
            next.call(call).await
        })
    }));
    let (running, _) = start(server).await;
    (running, gate, log)
}

fn send(
    channel: &Channel,
    tenant: &'static str,
    priority: &'static str,
) -> tokio::task::JoinHandle<Result<()>> {
    let call = channel.unary(&MIRROR, Codec::Postcard, Ok(vec![1u8]), |_, _| Ok(()));
    let call = call.meta("tenant", tenant).meta("switchboard-priority", priority);
    tokio::spawn(async move { soon(call).await.map(drop) })
}

#[tokio::test]
async fn each_tenant_gets_its_turn_however_many_calls_another_sends() {
    let fair = Fair::by_metadata("tenant").share("c", 2).wait_max(Duration::from_secs(100));
    let (running, gate, log) = gated(fair).await;
    // One connection, which keeps calls in their order.
    let channel = Channel::builder(&running.url()).connections(1).connect().await.unwrap();
    let mut calls = Vec::new();
    let first = send(&channel, "a", "normal");
    until(|| log.lock().unwrap().len() == 1).await;
    for (tenant, priority) in [
        ("a", "normal"),
        ("a", "normal"),
        ("a", "normal"),
        ("b", "low"),
        ("b", "critical"),
        ("c", "normal"),
        ("c", "odd"),
        ("c", "normal"),
    ] {
        calls.push(send(&channel, tenant, priority));
        tokio::task::yield_now().await;
    }
    let sent = calls.len() as u64;
    until(|| running.stats().calls_in_flight == sent + 1).await;
    gate.add_permits(100);
    first.await.unwrap().unwrap();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(log.lock().unwrap().concat(), "aabccabca");
    until(|| running.concurrency()[0].in_flight == 0).await;
}

#[tokio::test]
async fn those_that_wait_are_bounded_and_may_go() {
    let fair = Fair::by_metadata("tenant").waiting_max(2).wait_max(Duration::from_secs(100));
    let (running, gate, log) = gated(fair).await;
    let channel = Channel::builder(&running.url()).connections(1).connect().await.unwrap();
    let first = send(&channel, "a", "normal");
    until(|| log.lock().unwrap().len() == 1).await;
    let stats = || running.stats();
    let waits = |count: u64| until(move || stats().calls_in_flight == count + 1);
    let low = send(&channel, "a", "low");
    soon(waits(1)).await;
    let normal = send(&channel, "a", "normal");
    soon(waits(2)).await;
    // It takes the place of the one that is less urgent, and no other is.
    let urgent = send(&channel, "a", "high");
    let status = failed(low.await.unwrap());
    assert!(status.message().starts_with("a more urgent call of the same tenant"), "{status}");
    let status = failed(send(&channel, "a", "low").await.unwrap());
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(
        status.message().starts_with("2 calls of one value of tenant are waiting (waiting_max)"),
        "{status}"
    );
    assert!(matches!(status.retry(), Retry::After(_)));
    // Other tenants may wait, and a waiting call may be canceled.
    let other = send(&channel, "b", "normal");
    soon(waits(3)).await;
    urgent.abort();
    soon(waits(2)).await;
    gate.add_permits(100);
    for call in [first, normal, other] {
        call.await.unwrap().unwrap();
    }
    assert_eq!(log.lock().unwrap().concat(), "aab");
    until(|| running.concurrency()[0].in_flight == 0).await;
    assert_eq!(running.concurrency()[0].refused, 2);
}

#[tokio::test]
async fn no_call_waits_longer_than_allowed() {
    let (running, gate, log) = gated(Fair::by_peer().wait_max(Duration::from_millis(20))).await;
    let channel = Channel::connect(&running.url()).await.unwrap();
    let first = send(&channel, "a", "normal");
    until(|| log.lock().unwrap().len() == 1).await;
    let status = failed(send(&channel, "a", "critical").await.unwrap());
    assert!(status.message().starts_with("not admitted within 20ms (wait_max)"), "{status}");
    gate.add_permits(2);
    first.await.unwrap().unwrap();
    send(&channel, "a", "normal").await.unwrap().unwrap();
    let server = Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0");
    let error = config_error(server.fair(Fair::by_peer()).start().await);
    assert!(error.contains("nothing to wait for without a concurrency limit"), "{error}");
}
