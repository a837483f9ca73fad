//! Choice of a server: keys, zones, groups, balancers of the user, registries.

use crate::{flaky::*, support::raw::soon};
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use switchboard::{
    Channel, ChannelBuilder, Code, Codec,
    balance::{Balance, Endpoint, Endpoints, Outcome, Pick},
    discover::{Fixed, Instance, State},
};

fn instance(node: &Node) -> Instance {
    Instance::new("test.Flaky", node.running.url())
}

fn fleet(list: &Arc<Fixed>) -> ChannelBuilder {
    Channel::fleet(list.clone(), "test.Flaky")
}

async fn name_or_none(channel: &Channel) -> Option<String> {
    soon(async { read(channel).await }).await.ok().map(switchboard::Response::into_inner)
}

async fn name(channel: &Channel) -> String {
    soon(async { read(channel).await }).await.unwrap().into_inner()
}

/// Who answers calls, once all that could have been connected.
async fn names(channel: &Channel) -> HashSet<String> {
    all_connected(channel).await;
    let mut names = HashSet::new();
    for _ in 0..50 {
        names.insert(name(channel).await);
    }
    names
}

#[tokio::test]
async fn members_on_wires_of_others_decide_how_messages_are_written() {
    let nodes = nodes(2).await;
    let list = Arc::new(Fixed::new([instance(&nodes[0])]));
    let channel = fleet(&list).connect().await.unwrap();
    assert_eq!(name(&channel).await, "a");
    assert_eq!(channel.codec(Codec::Postcard), Codec::Postcard);
    let rpcx = Instance::new("test.Flaky", format!("{}?wire=rpcx", nodes[1].running.url()));
    list.replace([instance(&nodes[0]), rpcx.clone()]);
    soon(async {
        while channel.codec(Codec::Postcard) == Codec::Postcard {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(channel.codec(Codec::Proto), Codec::Proto);
    assert_eq!(names(&channel).await, HashSet::from(["a".to_owned(), "b".to_owned()]));
    list.replace([rpcx]);
    soon(async { while names(&channel).await.len() > 1 {} }).await;
    assert_eq!(name(&channel).await, "b");
}

#[tokio::test]
async fn who_joins_gets_calls_and_who_leaves_gets_none() {
    let nodes = nodes(3).await;
    let list = Arc::new(Fixed::new([instance(&nodes[0])]));
    let channel = fleet(&list).balance(switchboard::balance::RoundRobin::default()).connect().await.unwrap();
    assert_eq!(name(&channel).await, "a");
    list.replace([instance(&nodes[0]), instance(&nodes[1])]);
    soon(async { while name(&channel).await != "b" {} }).await;
    // One that hangs there ends on what it has.
    nodes[0].set(Mood::Hangs);
    let hangs = {
        let channel = channel.clone();
        tokio::spawn(async move {
            loop {
                write(&channel).timeout(Duration::from_secs(60)).await.unwrap();
            }
        })
    };
    nodes[0].until_hanging(1).await;
    nodes[0].set(Mood::Fine);
    list.replace([instance(&nodes[1]), instance(&nodes[2])]);
    soon(async { while name(&channel).await != "c" {} }).await;
    let before = nodes[0].calls();
    for _ in 0..20 {
        assert_ne!(name(&channel).await, "a");
    }
    assert_eq!(nodes[0].calls(), before);
    assert!(!hangs.is_finished());
    hangs.abort();
    let _ = hangs.await;
    nodes[0].until_hanging(0).await;
    // The connection goes with the last call.
    soon(async {
        while nodes[0].running.stats().connections > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    list.replace([]);
    let status = soon(async {
        loop {
            if let Err(status) = read(&channel).await {
                return status;
            }
        }
    })
    .await;
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("there is no endpoint of test.Flaky"), "{status}");
    list.replace([instance(&nodes[2])]);
    soon(async { while read(&channel).await.is_err() {} }).await;
}

#[tokio::test]
async fn weight_and_state_of_instances_are_followed() {
    let nodes = nodes(3).await;
    let list = Arc::new(Fixed::new([
        instance(&nodes[0]),
        instance(&nodes[1]).weight(0),
        instance(&nodes[2]).state(State::Draining),
    ]));
    let channel = fleet(&list).connect().await.unwrap();
    for _ in 0..50 {
        assert_eq!(name(&channel).await, "a");
    }
    list.replace([instance(&nodes[0]).weight(0), instance(&nodes[1])]);
    soon(async { while name(&channel).await != "b" {} }).await;
}

#[tokio::test]
async fn zones_are_preferred_and_groups_and_tags_required() {
    let nodes = nodes(4).await;
    let list = Arc::new(Fixed::new([
        instance(&nodes[0]).zone("east").group("blue"),
        instance(&nodes[1]).zone("east").group("green").tag("disk", "fast"),
        instance(&nodes[2]).zone("west").group("blue").tag("disk", "fast"),
        instance(&nodes[3]).zone("west").group("green"),
    ]));
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<HashSet<_>>();
    let east = fleet(&list).zone("east").connect().await.unwrap();
    let blue = fleet(&list).group("blue").connect().await.unwrap();
    let fast = fleet(&list).tag("disk", "fast").connect().await.unwrap();
    let two = fleet(&list).subset(2, 7).connect().await.unwrap();
    assert_eq!(names(&east).await, set(&["a", "b"]));
    assert_eq!(names(&blue).await, set(&["a", "c"]));
    assert_eq!(names(&fast).await, set(&["b", "c"]));
    assert_eq!(names(&two).await.len(), 2);
    let mut nodes = nodes;
    nodes.drain(..2).for_each(|node| node.running.kill());
    soon(async { while name_or_none(&east).await.as_deref() != Some("d") {} }).await;
}

#[tokio::test]
async fn keys_decide_where_balancers_hash() {
    let nodes = nodes(4).await;
    for balance in ["ketama", "jump", "bounded"] {
        let channel = channel(&nodes, &format!("?balance={balance}&hash=metadata:x-user")).await;
        let mut seen = HashSet::new();
        for key in 0..40 {
            let key = format!("user-{key}");
            let by_call = read(&channel).hash_key(key.clone()).await.unwrap().into_inner();
            let by_metadata = read(&channel).meta("x-user", key.clone()).await.unwrap().into_inner();
            assert_eq!(by_call, by_metadata);
            seen.insert(by_call);
        }
        assert_eq!(seen.len(), 4, "{balance}");
    }
    let url: Vec<_> = nodes.iter().map(|node| node.running.url()).collect();
    let function = Channel::builder(&format!("{}?balance=ketama", url.join(",")))
        .hash_by(|method, _| Some(method.as_bytes().to_vec()));
    let function = function.connect().await.unwrap();
    assert_eq!(names(&function).await.len(), 1);
    let sticky = channel(&nodes, "?sticky=true&balance=random").await;
    let first = name(&sticky).await;
    assert_eq!(names(&sticky).await, HashSet::from([first]));
}

/// Selects the last endpoint; counts the reported outcomes.
#[derive(Default)]
struct Last {
    picked: AtomicUsize,
    done: AtomicUsize,
}

impl Balance for Last {
    fn pick(&self, set: &Endpoints, pick: &Pick<'_>) -> Option<usize> {
        let at = (0..set.len()).rev().find(|at| pick.accepts(&set[*at]))?;
        self.picked.fetch_add(1, Ordering::SeqCst);
        Some(at)
    }

    fn done(&self, endpoint: &Endpoint, outcome: &Outcome) {
        assert!(endpoint.address().starts_with("tcp://"));
        assert!(matches!(outcome.code, Code::Ok | Code::Canceled));
        self.done.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn balancer_of_the_user_hears_of_every_end() {
    let last = Arc::new(Last::default());
    let nodes = nodes(3).await;
    let list = Arc::new(Fixed::new(nodes.iter().map(|node| {
        let id = node.flaky_name();
        instance(node).id(id)
    })));
    let channel = fleet(&list).balance(last.clone()).connect().await.unwrap();
    all_connected(&channel).await;
    for _ in 0..10 {
        assert_eq!(name(&channel).await, "c");
    }
    nodes[2].set(Mood::Hangs);
    // One that is given up is heard of, too.
    let call = {
        let channel = channel.clone();
        tokio::spawn(async move { write(&channel).await })
    };
    nodes[2].until_hanging(1).await;
    call.abort();
    let _ = call.await;
    let mut stream = list_of(&channel).await;
    assert!(tokio::time::timeout(Duration::from_millis(1), stream.next()).await.is_err());
    drop(stream);
    drop(read(&channel).idempotent());
    assert_eq!(last.picked.load(Ordering::SeqCst), last.done.load(Ordering::SeqCst));
}

async fn list_of(channel: &Channel) -> switchboard::Receiver<String> {
    crate::flaky::list(channel).await.unwrap()
}

#[tokio::test]
async fn wrong_options_are_named_with_a_suggestion() {
    let wrong = |options: &str| {
        Channel::builder(&format!("tcp://127.0.0.1:1,127.0.0.1:2?{options}")).lazy().unwrap_err()
    };
    let status = wrong("balance=ketamo");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("balance=ketamo") && status.message().contains("did you mean ketama?"));
    assert!(wrong("fail=failsafe").message().contains("failfast"));
    assert!(wrong("balance=closest").message().contains("latitude"));
    let options = "balance=closest&latitude=1&longitude=2&fail=failtry&retries=0&zone=a&group=&subset=1:2";
    // The list knows no groups but the empty one.
    Channel::builder(&format!("tcp://127.0.0.1:1?{options}")).lazy().unwrap();
}
