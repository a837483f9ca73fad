//! Lag guards: delays, full queues, lost messages.

use super::*;
use switchboard_pattern::{
    ErrorKind,
    lag::{Ended, LagLimits, LagReason, Stamp, StampedPub, WatchedSub},
};
use switchboard_socket::{Pub, SocketOptions, options::QueueFullPolicy};

async fn connected(limits: LagLimits, options: SocketOptions) -> (StampedPub, WatchedSub) {
    let publisher = StampedPub::with_options(options.clone()).unwrap();
    publisher.bind_to(ANY).await.unwrap();
    let sub = WatchedSub::with_options(limits, options).unwrap();
    sub.subscribe("").unwrap();
    sub.connect_to(&publisher.endpoints()[0].to_string()).await.unwrap();
    (publisher, sub)
}

/// Publishes until the subscriber has received the first message.
async fn begin(publisher: &StampedPub, sub: &mut WatchedSub) {
    let publishing = async {
        loop {
            publisher.send("t", "begin").await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    within(async {
        tokio::select! {
            _ = publishing => {}
            message = sub.recv() => assert_eq!(message.unwrap().topic(), &b"t"[..]),
        }
    })
    .await;
}

fn lagged(ended: Ended) -> LagReason {
    match ended {
        Ended::Lagged(reason) => reason,
        other => panic!("{other}"),
    }
}

/// Receives until the subscription ends.
async fn reason(sub: &mut WatchedSub) -> LagReason {
    within(async {
        loop {
            if let Err(ended) = sub.recv().await {
                return lagged(ended);
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_message_that_is_too_late_ends_the_subscription() {
    let mut limits = LagLimits::default();
    limits.delay_max = Duration::from_secs(3600);
    let old = Pub::bind(ANY).await.unwrap();
    let mut sub = WatchedSub::new(limits).unwrap();
    sub.subscribe("").unwrap();
    sub.connect_to(&old.endpoints()[0].to_string()).await.unwrap();
    until(|| old.stats().peers.iter().any(|peer| peer.is_connected)).await;
    // A stamp of 1970, and messages without one before it.
    let stamp = Stamp { run: 1, number: 1, time_us: 1 }.to_bytes().to_vec();
    let publishing = tokio::spawn(async move {
        loop {
            old.send("no stamp").await.unwrap();
            old.send([b"t".to_vec(), vec![1; 23], Vec::new()]).await.unwrap();
            old.send([b"t".to_vec(), stamp.clone(), b"body".to_vec()]).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let reason = reason(&mut sub).await;
    publishing.abort();
    assert!(matches!(reason, LagReason::Delay { delay, limit } if delay > limit), "{reason}");
    assert_eq!(lagged(sub.recv().await.unwrap_err()), reason, "it stays ended");
    assert!(sub.stats().received == 1 && sub.stats().invalid > 0);
}

#[tokio::test]
async fn unread_messages_end_the_subscription() {
    let mut limits = LagLimits::default();
    (limits.delay_max, limits.unread_max) = (Duration::MAX, Some(50));
    let (publisher, mut sub) = connected(limits, SocketOptions::default()).await;
    begin(&publisher, &mut sub).await;
    let stats = publisher.stats();
    for _ in 0..500 {
        publisher.send("t", "x").await.unwrap();
    }
    until(|| publisher.stats().peers[0].unsent == 0).await;
    assert_eq!(publisher.stats().dropped, stats.dropped);
    let reason = reason(&mut sub).await;
    assert!(matches!(reason, LagReason::Unread { messages, limit: 50 } if messages > 50), "{reason}");
}

#[tokio::test]
async fn messages_that_the_publisher_dropped_end_the_subscription() {
    let mut limits = LagLimits::default();
    (limits.delay_max, limits.missing_max) = (Duration::MAX, Some(3));
    let mut options = SocketOptions::default();
    (options.queues.send_messages_max, options.queues.receive_messages_max) = (4, 4);
    let (publisher, mut sub) = connected(limits, options).await;
    begin(&publisher, &mut sub).await;
    let body = vec![0; 1 << 20];
    while publisher.stats().peers[0].dropped < 4 {
        publisher.send("t", body.clone()).await.unwrap();
    }
    let receiving = async {
        loop {
            publisher.send("t", "after").await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let reason = tokio::select! {
        () = receiving => unreachable!(),
        reason = reason(&mut sub) => reason,
    };
    assert!(matches!(reason, LagReason::Missing { messages, limit: 3 } if messages > 3), "{reason}");
}

#[tokio::test]
async fn a_restarted_publisher_is_a_new_run() {
    let mut limits = LagLimits::default();
    (limits.delay_max, limits.missing_max) = (Duration::MAX, Some(0));
    let (publisher, mut sub) = connected(limits, SocketOptions::default()).await;
    let endpoint = publisher.endpoints()[0].to_string();
    begin(&publisher, &mut sub).await;
    drop(publisher);
    let restarted = within(async {
        loop {
            if let Ok(restarted) = StampedPub::bind(&endpoint).await {
                return restarted;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    begin(&restarted, &mut sub).await;
    assert_eq!(sub.stats().missing, 0);
}

#[tokio::test]
async fn settings_are_checked() {
    let mut options = SocketOptions::default();
    options.queues.when_full = QueueFullPolicy::Wait;
    assert_eq!(StampedPub::with_options(options).unwrap_err().kind(), ErrorKind::InvalidInput);
    let mut limits = LagLimits::default();
    limits.missing_max = Some(1);
    let error = WatchedSub::new(limits).unwrap().subscribe("prefix").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}
