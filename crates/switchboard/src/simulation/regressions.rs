//! What simulations have found, each in as few steps as it takes.

use super::{
    chance::Chance,
    journal::Journal,
    network::Link,
    service::{Ask, READ, Told, WRITE, Work},
};
use crate::{
    Channel, Code, Codec, Result, Server,
    codec::serde::{decode, encode},
    guard::ResultCache,
    net::memory,
};
use bytes::Bytes;
use std::{future::IntoFuture, sync::Arc, time::Duration};
use tokio::time::{Instant, advance, timeout};

const SOON: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn deadline_that_passes_as_the_connection_is_given_up_ends_its_call() {
    let mut silent = memory::Listener::bind("sim-silent").unwrap();
    let channel = Channel::builder("memory://sim-silent").keepalive(Duration::from_secs(1)).lazy().unwrap();
    let call = channel.unary(&READ, Codec::Postcard, Ok(Bytes::new()), |_, reply: Bytes| Ok(reply));
    let call = tokio::spawn(call.timeout(Duration::from_secs(3)).into_future());
    let held = silent.accept().await.unwrap();
    // The ping that nobody answers, and long after it everything at once.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    advance(Duration::from_secs(60)).await;
    let status = timeout(SOON, call).await.expect("it ends").unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn time_that_connecting_takes_is_taken_off_the_timeout() {
    for (name, options) in [("sim-slow", ""), ("sim-slow-fleet", "?fail=failtry")] {
        let mut silent = memory::Listener::bind(name).unwrap();
        let mut held = Vec::new();
        // Until nobody else gets in.
        while let Ok(dialled) = timeout(Duration::from_millis(1), memory::dial(name)).await {
            held.push(dialled.unwrap());
        }
        let channel = Channel::builder(&format!("memory://{name}{options}")).lazy().unwrap();
        let call = channel.unary(&READ, Codec::Postcard, Ok(Bytes::new()), |_, reply: Bytes| Ok(reply));
        let call = tokio::spawn(call.timeout(Duration::from_millis(400)).into_future());
        let began = Instant::now();
        tokio::time::sleep(Duration::from_millis(300)).await;
        held.push(silent.accept().await.unwrap());
        let status = timeout(SOON, call).await.expect("it ends").unwrap().unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        assert!(began.elapsed() < Duration::from_millis(410), "{options}: {:?}", began.elapsed());
    }
}

/// Sends a write that takes 100 ms, and cuts its connection after 50; what came of it, and how often it took effect.
async fn cut_write(name: &str, options: &str) -> (Result<u32>, u32) {
    let (front, back) = (format!("sim-{name}"), format!("sim-{name}-back"));
    let journal = Arc::new(Journal::new());
    let work = Work { journal: journal.clone(), place: (0, 0) };
    let server = Server::new().add(work).listen(format!("memory://{back}"));
    let running = server.result_cache(ResultCache::of("sim.Work/Write")).start().await.unwrap();
    let link = Link::new(front.clone(), back, Chance::new(1));
    let channel = Channel::connect(&format!("memory://{front}?{options}")).await.unwrap();
    let ask = Ask { request: 1, work_ms: 100, bytes: 1, count: 0, fails: 0 };
    let call = channel.unary(&WRITE, Codec::Postcard, encode(&ask, Codec::Postcard), decode::<Told>);
    let call = tokio::spawn(call.into_future());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(link.cut(true, &Chance::new(1)), 1);
    let outcome = timeout(SOON, call).await.expect("it ends").unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    running.stop(Duration::ZERO, SOON).await;
    (outcome.map(|told| told.attempts()), journal.effects(1))
}

#[tokio::test(start_paused = true)]
async fn write_with_a_key_runs_once_when_its_connection_is_cut_before_the_reply() {
    let (outcome, effects) = cut_write("keyed", "idempotency_keys=true").await;
    assert_eq!((outcome.unwrap(), effects), (2, 1));
    let (outcome, effects) = cut_write("unkeyed", "idempotency_keys=false").await;
    assert_eq!((outcome.unwrap_err().code(), effects), (Code::Unavailable, 1), "it is not sent again");
}
