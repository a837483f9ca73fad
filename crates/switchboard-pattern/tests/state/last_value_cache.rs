//! Last value cache: new, slow, killed and restarted peers.

use super::{forwarder::Forwarder, *};
use switchboard_pattern::{
    ErrorKind,
    last_value_cache::{Builder, LastValueCache},
};
use switchboard_socket::{Pub, SocketOptions, Sub, Xpub};

/// A cache with one publisher that it connects to.
async fn cache_of(publisher: &Xpub, change: impl FnOnce(Builder) -> Builder) -> LastValueCache {
    let builder = LastValueCache::builder()
        .connect_publisher(&publisher.endpoints()[0].to_string())
        .bind_subscribers(ANY);
    let cache = change(builder).start().await.unwrap();
    recv(publisher).await; // its subscription
    cache
}

async fn subscriber(endpoint: &str, prefix: &str) -> Sub {
    let sub = Sub::connect(endpoint).await.unwrap();
    sub.subscribe(prefix).unwrap();
    sub
}

async fn topic_and_body(sub: &Sub) -> (String, String) {
    let message = recv(sub).await;
    let text = |frame: &[u8]| String::from_utf8(frame.to_vec()).unwrap();
    (text(&message.frames()[0]), text(message.body()))
}

fn pair(topic: &str, body: &str) -> (String, String) {
    (topic.to_owned(), body.to_owned())
}

#[tokio::test]
async fn time_limits_of_sockets_do_not_end_a_cache() {
    let publisher = Xpub::bind(ANY).await.unwrap();
    let mut options = SocketOptions::default();
    options.timeouts.receive = Some(Duration::ZERO);
    let cache = cache_of(&publisher, |builder| builder.options(options)).await;
    // Connections take longer than the limit.
    let sub = subscriber(&cache.subscribers()[0].to_string(), "a").await;
    until(|| cache.stats().subscriptions == 1).await;
    publisher.send(["a", "x"]).await.unwrap();
    assert_eq!(topic_and_body(&sub).await, pair("a", "x"));
}

#[tokio::test]
async fn a_new_subscriber_receives_the_last_values_once_and_others_do_not() {
    let publisher = Xpub::bind(ANY).await.unwrap();
    let cache = cache_of(&publisher, |builder| builder).await;
    let endpoint = cache.subscribers()[0].to_string();
    for (topic, body) in [("a/1", "old"), ("a/1", "new"), ("a/2", "x"), ("b", "y")] {
        publisher.send([topic, body]).await.unwrap();
    }
    until(|| cache.stats().messages == 4).await;
    let first = subscriber(&endpoint, "a/").await;
    assert_eq!(topic_and_body(&first).await, pair("a/1", "new"));
    assert_eq!(topic_and_body(&first).await, pair("a/2", "x"));
    let second = subscriber(&endpoint, "a/1").await;
    assert_eq!(topic_and_body(&second).await, pair("a/1", "new"));
    publisher.send(["a/1", "newest"]).await.unwrap();
    for sub in [&first, &second] {
        assert_eq!(topic_and_body(sub).await, pair("a/1", "newest"));
        assert_eq!(sub.try_recv().unwrap(), None);
    }
    let stats = cache.stats();
    assert_eq!((stats.topics, stats.replayed, stats.subscriptions, stats.dropped), (3, 3, 2, 0));
    assert_eq!(cache.last("b").unwrap().body(), b"y");
}

#[tokio::test]
async fn an_ended_subscription_receives_nothing() {
    let publisher = Xpub::bind(ANY).await.unwrap();
    let cache = cache_of(&publisher, |builder| builder).await;
    let sub = subscriber(&cache.subscribers()[0].to_string(), "a").await;
    sub.subscribe("b").unwrap();
    until(|| cache.stats().subscriptions == 2).await;
    sub.unsubscribe("a").unwrap();
    sub.subscribe("c").unwrap();
    until(|| cache.stats().subscriptions == 3).await;
    for topic in ["a", "b"] {
        publisher.send([topic, "x"]).await.unwrap();
    }
    assert_eq!(topic_and_body(&sub).await, pair("b", "x"));
    until(|| cache.stats().messages == 2).await;
    let sent: u64 = 1;
    assert_eq!(sub.stats().peers[0].received, sent);
}

#[tokio::test]
async fn values_are_bounded_by_topics_and_bytes() {
    let publisher = Xpub::bind(ANY).await.unwrap();
    let cache = cache_of(&publisher, |builder| builder.topics_max(2).bytes_max(10)).await;
    for topic in ["a", "b", "c"] {
        publisher.send([topic, "1"]).await.unwrap();
    }
    publisher.send(["d", "larger than the limit"]).await.unwrap();
    until(|| cache.stats().messages == 4).await;
    let stats = cache.stats();
    assert_eq!((stats.topics, stats.bytes, stats.evicted, stats.too_large), (2, 4, 1, 1));
    assert!(cache.last("a").is_none() && cache.last("d").is_none() && cache.last("c").is_some());
}

#[tokio::test]
async fn the_queue_of_a_subscriber_has_room_for_all_values() {
    const TOPICS: usize = 5000;
    let publisher = Xpub::bind(ANY).await.unwrap();
    let cache = cache_of(&publisher, |builder| builder.topics_max(TOPICS)).await;
    for topic in 0..TOPICS {
        publisher.send([format!("{topic:05}"), "x".to_owned()]).await.unwrap();
        // Below the queues of the sockets.
        if topic % 500 == 499 {
            until(|| cache.stats().messages > topic as u64).await;
        }
    }
    let sub = subscriber(&cache.subscribers()[0].to_string(), "").await;
    for topic in 0..TOPICS {
        assert_eq!(topic_and_body(&sub).await, pair(&format!("{topic:05}"), "x"));
    }
    assert_eq!(cache.stats().dropped, 0);
}

#[tokio::test]
async fn a_slow_subscriber_loses_messages_that_are_counted_and_others_receive_all() {
    const MESSAGES: u64 = 300;
    let publisher = Xpub::bind(ANY).await.unwrap();
    let cache = cache_of(&publisher, |builder| {
        let mut options = SocketOptions::default();
        options.queues.send_messages_max = 1;
        builder.topics_max(1).options(options)
    })
    .await;
    let endpoint = cache.subscribers()[0].to_string();
    let mut options = SocketOptions::default();
    options.queues.receive_messages_max = 1;
    let slow = Sub::with_options(options).unwrap();
    slow.connect_to(&endpoint).await.unwrap();
    slow.subscribe("").unwrap();
    let fast = subscriber(&endpoint, "").await;
    until(|| cache.stats().subscriptions == 2).await;
    // Larger than the buffers of the system and the queue of 1,001 messages and 32 MiB together.
    let body = vec![7; 1 << 20];
    for number in 0..MESSAGES {
        publisher.send([format!("{number}").into_bytes(), body.clone()]).await.unwrap();
        assert_eq!(recv(&fast).await.frames()[0], format!("{number}"));
    }
    assert!(cache.stats().dropped > 0);
    assert_eq!(&recv(&slow).await.frames()[0][..], b"0");
}

#[tokio::test]
async fn a_subscriber_whose_network_fails_receives_the_last_value_again() {
    let publisher = Xpub::bind(ANY).await.unwrap();
    let cache = cache_of(&publisher, |builder| builder).await;
    let network = Forwarder::to(&cache.subscribers()[0].to_string()).await;
    publisher.send(["a", "1"]).await.unwrap();
    until(|| cache.stats().messages == 1).await;
    let sub = subscriber(&network.endpoint, "a").await;
    assert_eq!(topic_and_body(&sub).await, pair("a", "1"));
    network.cut();
    publisher.send(["a", "2"]).await.unwrap();
    until(|| cache.stats().messages == 2).await;
    network.repair();
    let mut received = topic_and_body(&sub).await;
    if received == pair("a", "1") {
        received = topic_and_body(&sub).await;
    }
    assert_eq!(received, pair("a", "2"));
}

#[tokio::test]
async fn a_restarted_cache_fills_again_and_its_peers_return() {
    let cache = LastValueCache::builder().bind_publishers(ANY).bind_subscribers(ANY).start().await.unwrap();
    let endpoints = [cache.publishers()[0].to_string(), cache.subscribers()[0].to_string()];
    let publisher = Pub::connect(&endpoints[0]).await.unwrap();
    let sub = subscriber(&endpoints[1], "").await;
    until(|| cache.stats().subscriptions == 1 && publisher.stats().peers[0].is_connected).await;
    within(cache.stop()).await;
    let cache = LastValueCache::builder()
        .bind_publishers(&endpoints[0])
        .bind_subscribers(&endpoints[1])
        .start()
        .await
        .unwrap();
    until(|| cache.stats().subscriptions == 1).await;
    within(async {
        while cache.stats().messages == 0 {
            publisher.send(["a", "1"]).await.unwrap();
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(topic_and_body(&sub).await, pair("a", "1"));
}

#[tokio::test]
async fn messages_of_subscribers_and_settings_are_checked() {
    let publisher = Xpub::bind(ANY).await.unwrap();
    let cache = cache_of(&publisher, |builder| builder).await;
    let xsub = switchboard_socket::Xsub::connect(&cache.subscribers()[0].to_string()).await.unwrap();
    for message in [&b""[..], b"\x02a", b"\x07"] {
        within(xsub.send(message)).await.unwrap();
    }
    xsub.send(b"\x01a").await.unwrap();
    until(|| cache.stats().subscriptions == 1).await;
    let error = LastValueCache::builder().bind_publishers(ANY).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}
