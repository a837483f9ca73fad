//! Calls that go to all.

use super::shelf::*;
use std::{sync::atomic::Ordering, time::Duration};
use switchboard::{Channel, Code, Codec, Parallel, Retry};

fn join(mut all: Vec<String>, more: Vec<String>) -> Vec<String> {
    all.extend(more);
    all
}

fn all(nodes: &[Node]) -> Parallel {
    Channel::parallel(channels(nodes)).merge_with(join)
}

const FAILS: Mood = Mood::Fails(Code::NotFound, Retry::No);

#[tokio::test]
async fn answers_are_merged_in_the_order_of_the_channels() {
    let nodes = nodes("merged", 3).await;
    let shelf = ShelfClient::new(all(&nodes).build().unwrap());
    let found =
        shelf.find(titles(&["x"])).meta("x-who", "me").timeout(Duration::from_secs(30)).await.unwrap();
    assert_eq!(*found, ["x at a", "x at b", "x at c"]);
    assert_eq!(found.attempts(), 3);
    for node in &nodes {
        let (who, left) = node.seen.last.lock().unwrap().take().unwrap();
        assert_eq!(who.as_deref(), Some("me"));
        assert!(left.is_some_and(|left| left <= Duration::from_secs(30)), "the deadline goes along");
    }
}

#[tokio::test]
async fn requests_are_mapped_and_channels_left_out() {
    let nodes = nodes("mapped", 3).await;
    // Each gets the titles that are its part, and is left out without any.
    let split = all(&nodes).map(|part| {
        let (all,): (Vec<String>,) = part.read()?;
        let own: Vec<_> = all.into_iter().skip(part.index).step_by(part.count).collect();
        if own.is_empty() { Ok(None) } else { part.write(&(own,)) }
    });
    let shelf = ShelfClient::new(split.build().unwrap());
    let found = shelf.find(titles(&["p", "q", "r", "s"])).await.unwrap();
    assert_eq!(*found, ["p at a", "s at a", "q at b", "r at c"]);
    let found = shelf.find(titles(&["p", "q"])).await.unwrap();
    assert_eq!(*found, ["p at a", "q at b"]);
    assert_eq!(nodes[2].calls(), 1);
    let status = shelf.find(Vec::new()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
}

#[tokio::test]
async fn failures_up_to_the_limit_are_left_out() {
    let nodes = nodes("limit", 3).await;
    nodes[1].set(FAILS);
    let lenient = ShelfClient::new(all(&nodes).build().unwrap());
    assert_eq!(*lenient.find(titles(&["x"])).await.unwrap(), ["x at a", "x at c"]);
    let strict = ShelfClient::new(all(&nodes).fail_limit(1).build().unwrap());
    let status = strict.find(titles(&["x"])).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(status.message(), "b fails (failed on 1 of 3 channels: 1)");
    nodes.iter().for_each(|node| node.set(FAILS));
    let status = lenient.find(titles(&["x"])).await.unwrap_err();
    assert!(status.message().ends_with("(failed on 3 of 3 channels: 0, 1, 2)"), "{status}");
}

#[tokio::test]
async fn end_of_the_call_ends_it_on_all_channels() {
    let nodes = nodes("cancel", 3).await;
    nodes[0].set(Mood::Hangs);
    nodes[1].set(Mood::Hangs);
    let quiet = |node: &Node| node.seen.hanging.load(Ordering::SeqCst) == 0;
    // By the first failure, by enough answers, by the deadline, and by the caller.
    let first = ShelfClient::new(all(&nodes).success_limit(1).build().unwrap());
    assert_eq!(*first.find(titles(&["x"])).await.unwrap(), ["x at c"]);
    let timed = ShelfClient::new(all(&nodes).build().unwrap());
    let status = timed.find(titles(&["x"])).timeout(Duration::from_millis(100)).await;
    // One has answered, and the failure of the others is not one too many.
    assert_eq!(*status.unwrap(), ["x at c"]);
    let strict = ShelfClient::new(all(&nodes).fail_limit(1).build().unwrap());
    let status = strict.find(titles(&["x"])).timeout(Duration::from_millis(100)).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    nodes[2].set(FAILS);
    assert_eq!(strict.find(titles(&["x"])).await.unwrap_err().code(), Code::NotFound);
    for node in &nodes[..2] {
        node.until(|seen| seen.hanging.load(Ordering::SeqCst) == 0).await;
    }
    let call = tokio::spawn(async move { timed.find(titles(&["x"])).await.map(drop) });
    for node in &nodes[..2] {
        node.until(|seen| seen.hanging.load(Ordering::SeqCst) == 1).await;
    }
    call.abort();
    for node in &nodes[..2] {
        node.until(|seen| seen.hanging.load(Ordering::SeqCst) == 0).await;
        assert!(quiet(node));
    }
}

#[tokio::test]
async fn one_way_calls_go_to_all_and_streams_to_none() {
    let nodes = nodes("oneway", 2).await;
    let shelf = ShelfClient::new(all(&nodes).build().unwrap());
    shelf.note("hello".into()).await.unwrap();
    for node in &nodes {
        node.until(|seen| *seen.notes.lock().unwrap() == ["hello"]).await;
    }
    let status = shelf.list(1).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "{status}");
}

#[tokio::test]
async fn without_a_merger_answers_of_traits_are_not_guessed() {
    let nodes = nodes("unmerged", 2).await;
    let shelf = ShelfClient::new(Channel::parallel(channels(&nodes)).build().unwrap());
    let status = shelf.find(titles(&["x"])).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("Parallel::merge_with"), "{status}");
    let status = Channel::parallel([]).build().unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn protobuf_answers_merge_as_protobuf_does() {
    // Two messages of the field 1, one after the other, are one message with both.
    let nodes = nodes("proto", 2).await;
    let channel = Channel::parallel(channels(&nodes)).build().unwrap();
    assert_eq!(channel.codec(Codec::Proto), Codec::Proto);
    // A trait service refuses protobuf, on all channels.
    let method = switchboard::ClientMethod::intern(
        "test.Shelf/Find",
        switchboard::Kind::Unary,
        switchboard::Idempotency::Unknown,
    );
    let call = channel.unary(method.unwrap(), Codec::Proto, Ok(bytes::Bytes::new()), |_, reply| Ok(reply));
    assert!(call.await.is_err());
}
