//! Calls that go to one of several channels.

use super::shelf::*;
use std::time::Duration;
use switchboard::{Channel, Code, Retry, balance::RoundRobin};

const SAFE: Mood = Mood::Fails(Code::Unavailable, Retry::Safe);
const MAYBE: Mood = Mood::Fails(Code::Unavailable, Retry::IfIdempotent);

#[tokio::test]
async fn selective_tries_elsewhere_what_does_no_harm() {
    let nodes = nodes("selective", 3).await;
    let selective = || Channel::selective(channels(&nodes)).balance(RoundRobin::default());
    let shelf = ShelfClient::new(selective().build().unwrap());
    for _ in 0..3 {
        shelf.add("x".into()).await.unwrap();
    }
    assert!(nodes.iter().all(|node| node.calls() == 1), "each in its turn");
    nodes[0].set(SAFE);
    let (mut again, mut refused) = (0, 0);
    for _ in 0..6 {
        again += shelf.add("x".into()).await.unwrap().attempts() - 1;
    }
    assert!(again > 0);
    nodes[0].set(MAYBE);
    for _ in 0..6 {
        assert!(shelf.find(titles(&["x"])).await.is_ok(), "idempotent");
    }
    // One round.
    for _ in 0..3 {
        refused += u32::from(shelf.add("x".into()).await.is_err());
    }
    assert_eq!(refused, 1, "what may have begun is not repeated");
    // Every channel once, and no more.
    nodes.iter().for_each(|node| node.set(SAFE));
    let before: u64 = nodes.iter().map(Node::calls).sum();
    let shelf = ShelfClient::new(selective().retries(9).build().unwrap());
    assert_eq!(shelf.add("x".into()).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(nodes.iter().map(Node::calls).sum::<u64>(), before + 3);
    let once = ShelfClient::new(selective().retries(0).build().unwrap());
    once.add("x".into()).await.unwrap_err();
    assert_eq!(nodes.iter().map(Node::calls).sum::<u64>(), before + 4);
}

#[tokio::test]
async fn selective_takes_streams_and_keeps_the_deadline() {
    let nodes = nodes("streams", 2).await;
    let shelf = ShelfClient::new(Channel::selective(channels(&nodes)).build().unwrap());
    let mut listed = shelf.list(2).await.unwrap();
    assert!(listed.next().await.unwrap().unwrap().starts_with("0 of "));
    assert!(listed.next().await.unwrap().is_some() && listed.next().await.unwrap().is_none());
    let upload = shelf.count().await.unwrap();
    upload.send("x".into()).await.unwrap();
    assert_eq!(*upload.finish().await.unwrap(), 1);
    nodes.iter().for_each(|node| node.set(Mood::Hangs));
    let status = shelf.find(titles(&["x"])).timeout(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert_eq!(nodes[0].calls() + nodes[1].calls(), 2, "one stream and one call");
}

#[tokio::test]
async fn partitions_are_chosen_by_key() {
    let nodes = nodes("partitions", 4).await;
    let shelf = ShelfClient::new(Channel::partitioned(channels(&nodes)).build().unwrap());
    let mut owners = std::collections::HashMap::new();
    for _ in 0..3 {
        for user in 0..40u32 {
            let added = shelf.add("x".into()).hash_key(user.to_le_bytes().to_vec()).await.unwrap();
            let owner = owners.entry(user).or_insert_with(|| (*added).clone());
            assert_eq!(*owner, *added, "user {user} stays");
        }
    }
    assert!(nodes.iter().all(|node| node.calls() > 0), "all have some");
    let status = shelf.add("x".into()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    // The key is in the request.
    let by_request = Channel::partitioned(channels(&nodes)).key_of(|_, request| Some(request.to_vec()));
    let shelf = ShelfClient::new(by_request.build().unwrap());
    let first = shelf.add("moby".into()).await.unwrap().into_inner();
    for _ in 0..5 {
        assert_eq!(*shelf.add("moby".into()).await.unwrap(), first);
    }
    let mut listed = shelf.list(1).await.unwrap();
    assert!(listed.next().await.unwrap().is_some());
}

#[tokio::test]
async fn combinations_nest() {
    let nodes = nodes("nested", 4).await;
    // Two halves of the books, each twice; a call goes to both halves, and to either copy.
    let half = |at: usize| Channel::selective(channels(&nodes[at..at + 2])).build();
    let halves = [half(0).unwrap(), half(2).unwrap()];
    let all =
        Channel::parallel(halves).fail_limit(1).merge_with(|mut all: Vec<String>, more: Vec<String>| {
            all.extend(more);
            all
        });
    let shelf = ShelfClient::new(all.build().unwrap());
    nodes[0].set(SAFE);
    nodes[3].set(SAFE);
    for _ in 0..10 {
        let found = shelf.find(titles(&["x"])).timeout(Duration::from_secs(30)).await.unwrap();
        assert_eq!(*found, ["x at b", "x at c"]);
    }
    nodes[1].set(SAFE);
    let status = shelf.find(titles(&["x"])).await.unwrap_err();
    assert!(status.message().contains("failed on 1 of 2 channels: 0"), "{status}");
}
