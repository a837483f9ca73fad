//! Explanations of a channel: its choice of a server, and the attempts of a call.

use crate::{flaky::*, support::raw::soon};
use std::sync::Arc;
use switchboard::{
    Channel, Code, Explained, Retry, Server,
    discover::{Fixed, Instance, State},
    layer,
};

#[tokio::test]
async fn every_candidate_says_what_keeps_it_from_the_call() {
    let nodes = nodes(4).await;
    let instance = |at: usize| Instance::new("test.Flaky", nodes[at].running.url()).id(at.to_string());
    let list = Fixed::new([
        instance(0).zone("here"),
        instance(1).zone("there"),
        instance(2).zone("here").state(State::Draining),
        instance(3).group("other"),
    ]);
    let builder = Channel::fleet(Arc::new(list), "test.Flaky").zone("here").group("").breaker(2).retries(0);
    let channel = builder.connect().await.unwrap();
    all_connected(&channel).await;
    let hindrances = |channel: &Channel| {
        let explanation = channel.explain("test.Flaky/Read", None);
        let each = explanation.candidates.iter();
        let each: Vec<_> = each
            .map(|candidate| (candidate.chosen, candidate.exclusion_reason.clone().unwrap_or_default()))
            .collect();
        (each, explanation.to_string())
    };
    let (each, text) = hindrances(&channel);
    assert_eq!(each[0], (true, String::new()), "{text}");
    assert_eq!(each[1], (false, "in zone \"there\", while a server in \"here\" is healthy".to_owned()));
    assert_eq!(each[2], (false, "draining in the registry".to_owned()));
    for part in
        ["test.Flaky/Read of test.Flaky in", "balance: p2c", "zone: here", "4 instances, 3 of them selected"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }

    nodes[0].set(Mood::Fails(Code::Internal, Retry::No));
    for _ in 0..2 {
        assert!(soon(read(&channel)).await.is_err());
    }
    let (each, text) = hindrances(&channel);
    assert!(each[0].1.starts_with("the breaker of the method is open, for "), "{text}");
    assert!(each[1].0 && each[1].1.is_empty(), "{text}");
    let other = channel.explain("test.Flaky/Write", None);
    assert!(other.candidates[0].chosen, "breakers are those of methods: {other}");
}

/// The first call of many that went to the wrong server first.
async fn tried_twice(mut call: impl AsyncFnMut() -> Explained<String>) -> Explained<String> {
    soon(async {
        loop {
            let report = call().await;
            if report.attempts.len() == 2 {
                return report;
            }
        }
    })
    .await
}

#[tokio::test]
async fn attempts_are_reported_with_times_and_outcomes() {
    let nodes = nodes(2).await;
    let channel = channel(&nodes, "?balance=random").await;
    nodes[0].set(Mood::Fails(Code::Unavailable, Retry::Safe));
    let report = tried_twice(async || write(&channel).explained().await).await;
    assert_eq!(*report.outcome.unwrap(), "b");
    let [first, second] = &report.attempts[..] else { panic!("{:?}", report.attempts) };
    assert_eq!((&first.address, &second.address), (&nodes[0].running.url(), &nodes[1].running.url()));
    assert_eq!(first.failure.as_ref().map(switchboard::Status::code), Some(Code::Unavailable));
    assert!(second.failure.is_none());
    let times = [first.sent, first.ended, Some(second.began), second.sent, second.ended, Some(report.took)];
    assert!(times.iter().all(Option::is_some) && times.is_sorted(), "{times:?}");
    let chosen: Vec<_> = report.before.candidates.iter().filter(|candidate| candidate.chosen).collect();
    assert!(chosen.len() == 1 && chosen[0].address == first.address, "{}", report.before);
    assert!(first.to_string().contains("unavailable") && second.to_string().contains("replied at"));
}

#[tokio::test]
async fn a_late_hedge_is_reported_too() {
    let nodes = nodes(2).await;
    let channel = channel(&nodes, "?hedge=5ms&balance=random").await;
    nodes[0].set(Mood::Hangs);
    let report = tried_twice(async || read(&channel).explained().await).await;
    assert_eq!(*report.outcome.unwrap(), "b");
    let [first, second] = &report.attempts[..] else { panic!("{:?}", report.attempts) };
    assert!(first.ended.is_none() && second.ended.is_some());
    assert!(first.to_string().contains("canceled"), "{first}");
}

#[tokio::test]
async fn channels_of_other_kinds_report_their_attempts() {
    let node = node("a").await;
    let url = node.running.url();
    for url in [url.clone(), format!("{url}?wire=grpc")] {
        let channel = Channel::connect(&url).await.unwrap();
        let report = soon(read(&channel).explained()).await;
        assert_eq!(*report.outcome.unwrap(), "a");
        assert!(report.before.candidates.is_empty());
        let [attempt] = &report.attempts[..] else { panic!("{:?}", report.attempts) };
        assert!(attempt.ended.is_some() && attempt.failure.is_none(), "{attempt}");
        assert!(
            node.running.url().contains(report.before.channel.trim_end_matches("?wire=grpc")),
            "{}",
            report.before
        );
    }
    let empty = Server::new().listen("tcp://127.0.0.1:0").start().await.unwrap();
    let channel = Channel::connect(&empty.url()).await.unwrap();
    let report = soon(read(&channel).explained()).await;
    assert_eq!(report.outcome.unwrap_err().code(), Code::Unimplemented);
    assert_eq!(report.attempts[0].failure.as_ref().map(switchboard::Status::code), Some(Code::Unimplemented));
}

#[tokio::test]
async fn layers_hide_neither_candidates_nor_attempts() {
    let nodes = nodes(2).await;
    let pass = layer::from_fn("pass", |call, next| next.call(call));
    let channel = channel(&nodes, "?balance=random").await.layer(pass);
    nodes[0].set(Mood::Fails(Code::Unavailable, Retry::Safe));
    let report = tried_twice(async || write(&channel).explained().await).await;
    assert_eq!(*report.outcome.unwrap(), "b");
    let addresses: Vec<_> = report.attempts.iter().map(|attempt| &attempt.address).collect();
    assert_eq!(addresses, [nodes[0].running.url(), nodes[1].running.url()].each_ref());
    assert_eq!(report.before.candidates.len(), 2, "{}", report.before);
}
