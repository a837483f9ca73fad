//! Fail modes, retries, budgets, breakers, hedges: what callers see, and what servers get.

use crate::{flaky::*, support::raw::soon};
use std::{sync::Arc, time::Duration};
use switchboard::{
    Channel, Code, Retry,
    discover::{Fixed, Instance},
};

const SAFE: Mood = Mood::Fails(Code::Unavailable, Retry::Safe);
const MAYBE: Mood = Mood::Fails(Code::Unavailable, Retry::IfIdempotent);
const NEVER: Mood = Mood::Fails(Code::Unavailable, Retry::No);
/// No breaker and no ejection, so that every endpoint stays in the game.
const PLAIN: &str = "&breaker=off&eject=0&budget=1000";

#[tokio::test]
async fn what_surely_did_not_begin_goes_elsewhere() {
    let nodes = nodes(2).await;
    let channel = channel(&nodes, &format!("?balance=round_robin{PLAIN}")).await;
    nodes[0].set(SAFE);
    let mut twice = 0;
    for _ in 0..20 {
        let reply = soon(async { write(&channel).await }).await.unwrap();
        assert_eq!(*reply, "b");
        twice += u32::from(reply.attempts() == 2);
    }
    assert!(twice >= 5, "{twice}");
    assert_eq!((nodes[0].calls(), nodes[1].calls()), (u64::from(twice), 20));
    let attempts = nodes[1].flaky.attempts.lock().unwrap();
    assert!(attempts.iter().flatten().all(|attempt| attempt == "2"));
    assert_eq!(attempts.iter().flatten().count() as u32, twice);
    assert!(nodes[0].flaky.attempts.lock().unwrap().iter().all(Option::is_none));
}

#[tokio::test]
async fn what_may_have_begun_goes_elsewhere_only_if_that_does_no_harm() {
    let nodes = nodes(2).await;
    let channel = channel(&nodes, &format!("?balance=round_robin{PLAIN}")).await;
    nodes[0].set(MAYBE);
    let mut failed = 0;
    for _ in 0..20 {
        assert_eq!(*read(&channel).await.unwrap(), "b");
        assert_eq!(*write(&channel).idempotent().await.unwrap(), "b");
        failed += u32::from(write(&channel).await.is_err());
    }
    assert!(failed >= 5, "{failed}");
}

#[tokio::test]
async fn server_that_says_no_is_believed() {
    let nodes = nodes(2).await;
    let channel = channel(&nodes, &format!("?balance=round_robin{PLAIN}")).await;
    nodes[0].set(NEVER);
    let mut failed = 0;
    for _ in 0..20 {
        if let Err(status) = read(&channel).await {
            assert_eq!((status.code(), status.message()), (Code::Unavailable, "a fails"));
            failed += 1;
        }
    }
    assert_eq!(failed, nodes[0].calls());
    assert!(failed >= 5, "{failed}");
}

#[tokio::test]
async fn error_names_the_tried_servers() {
    let nodes = nodes(2).await;
    let channel = channel(&nodes, &format!("?retries=1{PLAIN}")).await;
    nodes.iter().for_each(|node| node.set(SAFE));
    let status = read(&channel).await.unwrap_err();
    assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe));
    assert!(status.message().contains("tried 2 times"), "{status}");
    assert!(status.message().contains("a fails") && status.message().contains("b fails"), "{status}");
    assert_eq!(nodes[0].calls() + nodes[1].calls(), 2);
    assert!(nodes.iter().any(|node| status.message().contains(&node.running.url())), "{status}");
}

#[tokio::test]
async fn failfast_tries_once_and_failtry_at_the_same_place() {
    let nodes = nodes(2).await;
    let fast = channel(&nodes, &format!("?fail=failfast{PLAIN}")).await;
    let same = channel(&nodes, &format!("?fail=failtry&retries=3{PLAIN}")).await;
    nodes.iter().for_each(|node| node.set(SAFE));
    read(&fast).await.unwrap_err();
    assert_eq!(nodes[0].calls() + nodes[1].calls(), 1);
    let before = [nodes[0].calls(), nodes[1].calls()];
    read(&same).await.unwrap_err();
    let tried = [nodes[0].calls() - before[0], nodes[1].calls() - before[1]];
    assert!(tried == [4, 0] || tried == [0, 4], "{tried:?}");
}

#[tokio::test]
async fn budget_ends_retries_but_not_calls() {
    let nodes = nodes(2).await;
    let urls = format!("{},{}", nodes[0].running.url(), nodes[1].running.url());
    let builder = Channel::builder(&urls).retry_budget(0, 1).breaker(0).eject(0);
    let channel = builder.connect().await.unwrap();
    all_connected(&channel).await;
    nodes.iter().for_each(|node| node.set(SAFE));
    for _ in 0..50 {
        read(&channel).await.unwrap_err();
    }
    // One a second, of ten seconds.
    assert_eq!(nodes[0].calls() + nodes[1].calls(), 50 + 10);
}

#[tokio::test]
async fn deadline_caps_everything() {
    let nodes = nodes(2).await;
    let channel = channel(&nodes, "?hedge=1ms").await;
    nodes.iter().for_each(|node| node.set(Mood::Hangs));
    let status = soon(async { read(&channel).timeout(Duration::from_millis(50)).await }).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    // A pause that is longer than the time left is not waited for.
    let pause = Duration::from_secs(3600);
    nodes.iter().for_each(|node| node.set(Mood::Fails(Code::ResourceExhausted, Retry::After(pause))));
    let status = soon(async { read(&channel).timeout(Duration::from_secs(60)).await }).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
}

#[tokio::test]
async fn hedge_answers_for_a_server_that_hangs_and_cancels_there() {
    let nodes = nodes(2).await;
    let channel = channel(&nodes, "?balance=round_robin&hedge=5ms&budget=1000").await;
    nodes[0].set(Mood::Hangs);
    for _ in 0..10 {
        let reply = soon(async { read(&channel).await }).await.unwrap();
        assert_eq!(*reply, "b");
    }
    assert!(nodes[0].calls() >= 2);
    nodes[0].until_hanging(0).await;
    // What may have begun twice is not hedged.
    nodes[1].set(Mood::Hangs);
    let before = nodes[0].calls() + nodes[1].calls();
    let call = write(&channel).timeout(Duration::from_millis(100));
    assert_eq!(soon(call).await.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(nodes[0].calls() + nodes[1].calls(), before + 1);
}

#[tokio::test]
async fn hedge_goes_to_another_server_whatever_the_balancer_would_choose() {
    let nodes = nodes(2).await;
    // Every call has the same key.
    let channel = channel(&nodes, "?balance=ketama&hash=request&hedge=5ms&budget=1000").await;
    let owner = read(&channel).await.unwrap();
    let other = nodes.iter().find(|node| node.flaky_name() != *owner).unwrap();
    nodes.iter().find(|node| node.flaky_name() == *owner).unwrap().set(Mood::Hangs);
    let reply = soon(async { read(&channel).await }).await.unwrap();
    assert_eq!((&*reply, reply.attempts()), (&other.flaky_name(), 2));
}

#[cfg(feature = "http")]
#[tokio::test]
async fn servers_say_when_to_come_back_on_every_wire() {
    let pause = Duration::from_millis(20);
    for wire in ["native", "grpc", "grpc-web", "connect", "connect&http=1"] {
        let nodes = nodes(1).await;
        let channel = channel(&nodes, &format!("?wire={wire}&retries=2{PLAIN}")).await;
        nodes[0].set(Mood::Fails(Code::ResourceExhausted, Retry::After(pause)));
        // Whatever the method: it did not begin.
        let status = soon(async { write(&channel).await }).await.unwrap_err();
        assert_eq!((status.code(), status.retry()), (Code::ResourceExhausted, Retry::After(pause)), "{wire}");
        assert_eq!(nodes[0].calls(), 3, "{wire}");
        // The client does not wait for an hour.
        nodes[0].set(Mood::Fails(Code::ResourceExhausted, Retry::After(Duration::from_secs(3600))));
        soon(async { write(&channel).await }).await.unwrap_err();
        assert_eq!(nodes[0].calls(), 4, "{wire}");
    }
}

#[tokio::test]
async fn breaker_keeps_calls_of_the_method_away() {
    let nodes = nodes(2).await;
    let channel = channel(&nodes, "?balance=round_robin&breaker=3&eject=0&budget=1000").await;
    nodes[0].set(MAYBE);
    for _ in 0..100 {
        assert_eq!(*read(&channel).await.unwrap(), "b");
    }
    let tripped = nodes[0].calls();
    // Three in a row, and now and then one call that finds out.
    assert!((3..10).contains(&tripped), "{tripped}");
    let stats = channel.endpoints();
    let broken: Vec<_> = stats.iter().filter(|endpoint| !endpoint.open_breakers.is_empty()).collect();
    assert_eq!((broken.len(), &broken[0].address), (1, &nodes[0].running.url()));
    assert_eq!(broken[0].open_breakers, ["test.Flaky/Read"]);
    assert_eq!((broken[0].calls, broken[0].failures, broken[0].in_flight), (tripped, tripped, 0));
    // Other methods still go there.
    let mut refused = false;
    for _ in 0..4 {
        refused |= write(&channel).await.is_err();
    }
    assert!(refused);
}

#[tokio::test]
async fn breakers_of_all_do_not_fail_the_fleet() {
    let nodes = nodes(2).await;
    let channel = channel(&nodes, "?breaker=1&retries=0").await;
    nodes.iter().for_each(|node| node.set(MAYBE));
    for _ in 0..20 {
        let status = read(&channel).await.unwrap_err();
        assert!(status.message().contains("fails"), "the call was still sent: {status}");
    }
    nodes.iter().for_each(|node| node.set(Mood::Fine));
    read(&channel).await.unwrap();
}

#[tokio::test]
async fn outlier_is_put_aside() {
    let nodes = nodes(4).await;
    let channel = channel(&nodes, "?balance=round_robin&breaker=off&budget=1000").await;
    nodes[2].set(Mood::Fails(Code::Internal, Retry::IfIdempotent));
    for _ in 0..200 {
        assert_ne!(*read(&channel).await.unwrap(), "c");
    }
    assert_eq!(nodes[2].calls(), 10);
    let stats = channel.endpoints();
    let ejected: Vec<_> = stats.iter().filter(|endpoint| endpoint.state == "ejected").collect();
    assert_eq!((ejected.len(), &ejected[0].address), (1, &nodes[2].running.url()));
}

#[tokio::test]
async fn streams_begin_anew_only_before_their_first_message() {
    let nodes = nodes(2).await;
    let channel = channel(&nodes, &format!("?balance=round_robin{PLAIN}")).await;
    nodes[0].set(SAFE);
    for _ in 0..6 {
        let mut names = list(&channel).await.unwrap();
        let mut got = Vec::new();
        while let Some(name) = soon(names.next()).await.unwrap() {
            got.push(name);
        }
        assert_eq!(got, ["b", "b"]);
    }
    // Turns go by address: the first call may have begun with either.
    let first = nodes[0].calls();
    assert!((5..=6).contains(&first) && nodes[1].calls() == 6, "{first}");
    nodes.iter().for_each(|node| node.set(Mood::Breaks));
    let mut names = list(&channel).await.unwrap();
    soon(names.next()).await.unwrap().expect("a first message");
    assert_eq!(soon(names.next()).await.unwrap_err().message(), "broken off");
    assert_eq!(nodes[0].calls() + nodes[1].calls(), first + 7);
}

#[tokio::test]
async fn one_way_calls_go_to_connected_servers() {
    let mut nodes = nodes(2).await;
    let channel = channel(&nodes, "?balance=round_robin").await;
    nodes.remove(0).running.kill();
    soon(async {
        while nodes[0].calls() < 5 {
            // The first ones may be lost with their connection: one-way calls have no reply.
            let _ = note(&channel).await;
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn broadcast_fork_and_inform_go_to_all() {
    let nodes = nodes(3).await;
    let channel = channel(&nodes, "").await;
    let replies = write(&channel).broadcast().await.unwrap();
    let mut names: Vec<&str> = replies.iter().map(|name| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "b", "c"]);

    nodes[1].set(NEVER);
    let status = write(&channel).broadcast().await.unwrap_err();
    assert!(status.message().contains("failed at 1 of 3"), "{status}");
    assert!(status.message().contains(&nodes[1].running.url()), "{status}");
    let receipts = write(&channel).inform().await.unwrap();
    assert_eq!(receipts.len(), 3);
    let failed: Vec<_> = receipts.iter().filter(|receipt| receipt.outcome.is_err()).collect();
    assert_eq!((failed.len(), &failed[0].address), (1, &nodes[1].running.url()));

    nodes[0].set(Mood::Hangs);
    assert_eq!(*soon(write(&channel).fork()).await.unwrap(), "c");
    nodes[0].until_hanging(0).await;
    nodes[0].set(NEVER);
    nodes[2].set(NEVER);
    assert!(write(&channel).fork().await.unwrap_err().message().contains("failed at 3 of 3"));

    // A channel to one address has one.
    let alone = Channel::connect(&nodes[2].running.url()).await.unwrap();
    nodes[2].set(Mood::Fine);
    assert_eq!(write(&alone).broadcast().await.unwrap().len(), 1);
    assert_eq!(write(&alone).inform().await.unwrap()[0].address, nodes[2].running.url());
}

#[cfg(feature = "http")]
#[tokio::test]
async fn http_wires_fail_over_too() {
    for wire in ["grpc", "connect", "grpc-web"] {
        let mut nodes = nodes(3).await;
        let channel = channel(&nodes, &format!("?wire={wire}&budget=1000")).await;
        for _ in 0..30 {
            read(&channel).await.unwrap();
        }
        nodes.remove(1).running.kill();
        for _ in 0..50 {
            read(&channel).await.unwrap();
        }
        let mut names = list(&channel).await.unwrap();
        assert!(soon(names.next()).await.unwrap().is_some());
    }
}

/// Returns how many of 400 calls succeeded; the others must have failed at once.
async fn spared(channel: &Channel) -> u32 {
    let mut answered = 0;
    for _ in 0..400 {
        match soon(async { write(channel).await }).await {
            Ok(_) => answered += 1,
            Err(status) => {
                assert_eq!(status.code(), Code::Unavailable, "{status}");
                assert!(status.message().contains("min_working"), "{status}");
                assert!(matches!(status.retry(), Retry::After(_)), "{status:?}");
            }
        }
    }
    answered
}

#[tokio::test]
async fn few_servers_that_are_left_are_spared_the_load_of_all() {
    let nodes = nodes(4).await;
    let instance = |node: &Node| Instance::new("test.Flaky", node.running.url());
    let list = Arc::new(Fixed::new(nodes.iter().map(instance)));
    let channel = Channel::fleet(list.clone(), "test.Flaky").min_working(4).connect().await.unwrap();
    // Servers that were never tried count as healthy: no call is refused at the start.
    assert_eq!(spared(&channel).await, 400);
    all_connected(&channel).await;
    // A registry that knows one of them: a quarter of the calls, give or take what chance does.
    list.replace(nodes[..1].iter().map(instance));
    soon(async {
        while channel.endpoints().len() > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let before = nodes[0].calls();
    let answered = spared(&channel).await;
    assert!((40..180).contains(&answered), "{answered} of 400");
    assert_eq!(nodes[0].calls() - before, u64::from(answered), "what failed was not sent");
    let report = channel.explain("test.Flaky/Write", None).to_string();
    assert!(report.contains("1 servers are healthy, 4 are needed"), "{report}");
    list.replace(nodes.iter().map(instance));
    soon(async {
        while channel.endpoints().len() < 4 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    all_connected(&channel).await;
    assert_eq!(spared(&channel).await, 400);
}

#[tokio::test]
async fn servers_that_died_or_fail_do_not_count_as_working() {
    let mut nodes = nodes(4).await;
    let channel = channel(&nodes, "?min_working=4&breaker=2&fail=failfast&balance=round_robin&eject=0").await;
    // The breakers of one, and the connections of two.
    nodes[0].set(NEVER);
    let failing =
        |channel: &Channel| channel.endpoints().iter().any(|endpoint| !endpoint.open_breakers.is_empty());
    soon(async {
        while !failing(&channel) {
            let _ = write(&channel).await;
        }
    })
    .await;
    nodes.drain(2..).for_each(|node| node.running.kill());
    let up = |channel: &Channel| channel.endpoints().iter().filter(|endpoint| endpoint.state == "up").count();
    soon(async {
        while up(&channel) > 2 {
            let _ = read(&channel).await;
        }
    })
    .await;
    let (mut answered, mut spared) = (0, 0);
    for _ in 0..400 {
        match write(&channel).await {
            Ok(_) => answered += 1,
            Err(status) if status.message().contains("min_working") => spared += 1,
            // A breaker finds out from time to time.
            Err(_) => {}
        }
    }
    assert!(answered > 40 && spared > 100, "{answered} answered, {spared} spared");
}
