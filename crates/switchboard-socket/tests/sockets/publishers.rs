//! Order, drops and recipients of the messages of publishers.

use super::*;
use switchboard_socket::{
    SocketType::{Dish, Radio, Sub, Xpub},
    options::QueueFullPolicy,
};

fn with(kind: SocketType, change: impl FnOnce(&mut SocketOptions)) -> Socket {
    let mut options = SocketOptions::default();
    change(&mut options);
    Socket::new(kind, options).unwrap()
}

fn xpub(change: impl FnOnce(&mut SocketOptions)) -> switchboard_socket::Xpub {
    let mut options = SocketOptions::default();
    change(&mut options);
    switchboard_socket::Xpub::with_options(options).unwrap()
}

/// Connects a subscriber of `topic`, which the publisher subscribes to the same topic.
async fn subscriber(publisher: &switchboard_socket::Xpub, topic: &str, subscriber: Socket) -> Socket {
    subscriber.connect_to(&publisher.endpoints()[0].to_string()).await.unwrap();
    subscriber.subscribe(topic).unwrap();
    assert_eq!(recv(publisher.as_ref()).await.body()[1..], *topic.as_bytes());
    publisher.subscribe_peer(topic).unwrap();
    subscriber
}

#[tokio::test]
async fn a_message_for_one_peer_is_sent_behind_those_for_all() {
    let publisher = xpub(|options| options.subscriptions.manual = true);
    publisher.bind_to("tcp://127.0.0.1:0").await.unwrap();
    let others = [(); 2].map(|()| socket(Sub));
    for other in &others {
        subscriber(&publisher, "t", other.clone()).await;
    }
    let last = subscriber(&publisher, "t", socket(Sub)).await;
    // No connection writes meanwhile: the test does not wait.
    for number in 0..100 {
        publisher.try_send(format!("t {number}")).unwrap();
        publisher.send_to_peer(format!("t only {number}")).unwrap();
    }
    for number in 0..100 {
        for subscriber in [&others[0], &others[1], &last] {
            assert_eq!(text(subscriber).await, format!("t {number}"));
        }
        assert_eq!(text(&last).await, format!("t only {number}"));
    }
    until(publisher.as_ref(), |stats| stats.peers.iter().all(|peer| peer.unsent == 0)).await;
    assert_eq!(publisher.stats().dropped, 0);
}

#[tokio::test]
async fn a_peer_that_is_gone_gets_no_subscription_and_no_last_value() {
    let publisher = xpub(|options| {
        options.subscriptions.manual_last_value = true;
        options.limits.subscriptions_max = 1;
    });
    publisher.bind_to("tcp://127.0.0.1:0").await.unwrap();
    let stays = subscriber(&publisher, "t", socket(Sub)).await;
    send(publisher.as_ref(), "t last").await;
    assert_eq!(text(&stays).await, "t last");
    let leaves = subscriber(&publisher, "t", socket(Sub)).await;
    leaves.close().await;
    until(publisher.as_ref(), |stats| stats.peers.len() == 1).await;
    send(publisher.as_ref(), "t all").await;
    assert_eq!(text(&stays).await, "t all");
    // Each one would be above the limit of the peer, and would stay for ever.
    for topic in ["a", "b", "c"] {
        publisher.subscribe_peer(topic).unwrap();
        publisher.unsubscribe_peer(topic).unwrap();
    }
    for topic in ["a", "b", "c"] {
        publisher.subscribe_peer(topic).unwrap();
    }
    send(publisher.as_ref(), "t again").await;
    assert_eq!(text(&stays).await, "t again");
}

#[tokio::test]
async fn a_last_value_goes_to_one_peer_with_inverted_matching_too() {
    let publisher = xpub(|options| {
        options.subscriptions.manual_last_value = true;
        options.subscriptions.invert_matching = true;
    });
    publisher.bind_to("tcp://127.0.0.1:0").await.unwrap();
    let inverted = || with(Sub, |options| options.subscriptions.invert_matching = true);
    let first = subscriber(&publisher, "t", inverted()).await;
    let second = subscriber(&publisher, "t", inverted()).await;
    send(publisher.as_ref(), "x last").await;
    send(publisher.as_ref(), "x all").await;
    assert_eq!(text(&first).await, "x all");
    assert_eq!((text(&second).await, text(&second).await), ("x last".to_owned(), "x all".to_owned()));
}

#[tokio::test]
async fn the_oldest_messages_are_dropped_until_a_larger_one_has_room() {
    let publisher = with(Xpub, |options| {
        options.queues.when_full = QueueFullPolicy::DropOldest;
        options.queues.send_bytes_max = 10_000;
    });
    let subscriber = socket(Sub);
    subscriber.subscribe("").unwrap();
    join(&publisher, &subscriber, "tcp://127.0.0.1:0").await;
    recv(&publisher).await;
    // No connection writes meanwhile: the test does not wait.
    for size in [[1000; 20], [5000; 20]].concat() {
        publisher.try_send(vec![b'x'; size]).unwrap();
    }
    let stats = publisher.stats();
    assert_eq!((stats.peers[0].unsent, stats.dropped, stats.peers[0].dropped), (2, 38, 38));
    assert_eq!(
        [recv(&subscriber).await, recv(&subscriber).await].map(|message| message.size_bytes()),
        [5000; 2]
    );
}

#[tokio::test]
async fn groups_that_were_left_do_not_count() {
    for endpoint in endpoints() {
        let radio = with(Radio, |options| options.limits.subscriptions_max = 2);
        let dish = socket(Dish);
        join(&radio, &dish, &endpoint).await;
        for number in 0..20 {
            dish.join(format!("{number}")).unwrap();
            dish.leave(format!("{number}")).unwrap();
        }
        dish.join("last").unwrap();
        dish.join("other").unwrap();
        let wait = async {
            while dish.try_recv().unwrap().is_none() {
                send(&radio, ["other", "body"]).await;
                tokio::task::yield_now().await;
            }
        };
        timeout(LIMIT, wait).await.expect("a message of the group arrives");
    }
}
