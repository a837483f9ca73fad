//! The calls of one read pass permits and tokens to each other, without effect on limits and rates.

use super::*;
use std::time::Duration;
use switchboard::{
    Code,
    guard::{Concurrency, Fair, Rate},
};
use tokio::task::JoinSet;

#[tokio::test]
async fn calls_that_come_at_once_get_as_many_tokens_as_there_are() {
    // One call in a thousand seconds: no test waits for it.
    let rate = || Rate::per_second(0.001);
    let server =
        Server::new().rate(rate().burst(200).methods("test.Probe/E*")).rate(rate().burst(90).by_method());
    let (running, _) = start(server).await;
    let channel = Channel::connect(&running.url()).await.unwrap();
    let mut passed = 0;
    // Batches of many sizes.
    for calls in [1, 2, 3, 17, 40, 60, 100] {
        let calls: JoinSet<_> = (0..calls).map(|_| echo(channel.clone())).collect();
        for answer in soon(calls.join_all()).await {
            match answer {
                Ok(_) => passed += 1,
                Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
            }
        }
    }
    assert_eq!(passed, 90);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn places_are_free_when_a_reply_is_there() {
    let (running, _) = start(Server::new().concurrency(1)).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(Client::on(&running, "", Codec::Postcard).await);
    }
    for _ in 0..500 {
        for client in &clients {
            client.echo().await.unwrap();
        }
    }
    let stats = &running.concurrency()[0];
    assert_eq!((stats.in_flight, stats.refused), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn every_permit_is_released_for_any_mix_of_calls() {
    let server = Server::new()
        .concurrency(Concurrency::Fixed(1000))
        .service_concurrency("test.Probe", 900)
        .method_concurrency("test.Probe/Echo", 800)
        .rate(Rate::per_second(1e6).by_peer())
        .fair(Fair::by_peer());
    let (running, seen) = start(server).await;
    let mut channels = Vec::new();
    for _ in 0..3 {
        channels.push(Channel::connect(&running.url()).await.unwrap());
    }
    for round in 0..20 {
        let calls =
            channels.iter().flat_map(|channel| (0..60).map(|number| one(channel.clone(), round + number)));
        soon(calls.collect::<JoinSet<_>>().join_all()).await;
    }
    soon(seen.until(|seen| seen.hanging() == 0)).await;
    concurrency::until(|| running.concurrency().iter().all(|stats| stats.in_flight == 0)).await;
    assert!(running.concurrency().iter().all(|stats| stats.refused == 0));
}

async fn echo(channel: Channel) -> Result<Vec<u8>> {
    ask(&channel, &ECHO, &[7u8].to_vec()).await
}

/// A call of the kind of this number.
async fn one(channel: Channel, number: u64) {
    match number % 7 {
        0 => assert_eq!(failed(ask::<_, ()>(&channel, &FAIL, &"x").await).code(), Code::NotFound),
        1 => assert_eq!(failed(ask::<_, ()>(&channel, &PANIC, &()).await).code(), Code::Internal),
        2 => {
            let mut counted = count(&channel, 3, 1).await.unwrap();
            while counted.next().await.unwrap().is_some() {}
        }
        3 => {
            let hang = call::<_, ()>(&channel, &HANG, &"").timeout(Duration::from_millis(1));
            assert_eq!(failed(hang.await).code(), Code::DeadlineExceeded);
        }
        _ => assert_eq!(echo(channel).await.unwrap(), [7]),
    }
}
