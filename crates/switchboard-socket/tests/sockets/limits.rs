//! High-water marks, drops, timeouts and limits.

use super::*;
use switchboard_socket::{
    ErrorKind, Event,
    SocketType::{Dealer, Pair, Pull, Push, Sub, Xpub},
    options::QueueFullPolicy,
};

fn with(kind: SocketType, change: impl FnOnce(&mut SocketOptions)) -> Socket {
    let mut options = SocketOptions::default();
    change(&mut options);
    Socket::new(kind, options).unwrap()
}

#[tokio::test]
async fn a_send_waits_at_the_high_water_mark() {
    let push = with(Push, |options| {
        options.queues.send_messages_max = 10;
        options.timeouts.send = Some(Duration::ZERO);
    });
    // A port without a listener: messages wait for the connection.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp://{}", free.local_addr().unwrap());
    drop(free);
    push.connect_to(&endpoint).await.unwrap();
    for number in 0..10 {
        push.try_send(number.to_string()).unwrap();
    }
    let error = push.send("one too many").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("send_messages_max 10"), "{error}");
    let pull = socket(Pull);
    pull.bind_to(&endpoint).await.unwrap();
    for number in 0..10 {
        assert_eq!(text(&pull).await, number.to_string());
    }
    until(&push, |stats| stats.peers[0].unsent == 0).await;
    push.try_send("room again").unwrap();
    assert_eq!(text(&pull).await, "room again");
}

#[tokio::test]
async fn bytes_have_a_high_water_mark_too() {
    let push = with(Push, |options| options.queues.send_bytes_max = 10_000);
    push.connect_to("tcp://127.0.0.1:1").await.unwrap();
    push.try_send(vec![0; 6000]).unwrap();
    push.try_send(vec![0; 6000]).unwrap();
    assert_eq!(push.try_send("x").unwrap_err().kind(), ErrorKind::TimedOut);
}

#[tokio::test]
async fn a_stalled_receiver_stops_the_sender_and_loses_nothing() {
    for endpoint in endpoints() {
        let (pull, push) = pair(Pull, Push, &endpoint).await;
        let body = vec![7; 10_000];
        let mut sent = 0u32;
        // The queues of both sides and the buffers of the system are full after a while.
        while timeout(Duration::from_millis(200), push.send(body.clone())).await.is_ok() {
            sent += 1;
            assert!(sent < 100_000, "the queues have no limit");
        }
        assert!(sent >= 1000, "{sent}");
        for _ in 0..sent {
            assert_eq!(recv(&pull).await.body(), body);
        }
        assert_eq!((push.stats().dropped, pull.try_recv().unwrap()), (0, None));
    }
}

#[tokio::test]
async fn a_stalled_peer_does_not_stop_the_others() {
    let push = with(Push, |options| options.queues.send_messages_max = 10);
    let bound = push.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let small = |options: &mut SocketOptions| options.queues.receive_messages_max = 10;
    let (stalled, busy) = (with(Pull, small), with(Pull, small));
    stalled.connect_to(&bound).await.unwrap();
    busy.connect_to(&bound).await.unwrap();
    until(&push, |stats| stats.peers.iter().filter(|peer| peer.is_connected).count() == 2).await;
    let body = vec![0; 100_000];
    let sender = async {
        for _ in 0..1000 {
            send(&push, body.clone()).await;
        }
    };
    let receiver = async {
        loop {
            recv(&busy).await;
        }
    };
    tokio::select! {
        () = sender => {}
        () = receiver => {}
        () = tokio::time::sleep(LIMIT) => panic!("{:?}", push.stats()),
    }
    // The stalled peer has what its queues and the buffers of the system hold.
    assert_eq!(push.stats().dropped, 0);
}

async fn publish_to_a_stalled_subscriber(when_full: QueueFullPolicy) -> (Vec<u32>, u64) {
    let publisher = with(Xpub, |options| {
        options.queues.send_messages_max = 10;
        options.queues.when_full = when_full;
    });
    let subscriber = with(Sub, |options| options.queues.receive_messages_max = 1);
    join(&publisher, &subscriber, "tcp://127.0.0.1:0").await;
    subscriber.subscribe("").unwrap();
    recv(&publisher).await;
    let mut monitor = publisher.monitor();
    let mut sent = 0u32;
    while publisher.stats().dropped < 20 {
        let mut body = vec![0; 100_000];
        body[..4].copy_from_slice(&sent.to_be_bytes());
        send(&publisher, body).await;
        sent += 1;
        assert!(sent < 10_000);
        tokio::task::yield_now().await;
    }
    let event = monitor.next().await;
    assert!(matches!(event, Some(Event::Dropped { peer: Some(_), count: 1, .. })), "{event:?}");
    let dropped = publisher.stats().dropped;
    assert_eq!(publisher.stats().peers[0].dropped, dropped);
    let mut received = Vec::new();
    while received.len() as u64 + dropped < u64::from(sent) {
        let message = recv(&subscriber).await;
        received.push(u32::from_be_bytes(*message.body().first_chunk().unwrap()));
    }
    assert!(received.is_sorted());
    (received, u64::from(sent))
}

#[tokio::test]
async fn a_publisher_drops_the_newest_messages_and_counts_them() {
    let (received, sent) = publish_to_a_stalled_subscriber(QueueFullPolicy::DropNewest).await;
    assert!(u64::from(*received.last().unwrap()) < sent - 1, "{received:?}");
}

#[tokio::test]
async fn a_publisher_drops_the_oldest_messages_on_request() {
    let (received, sent) = publish_to_a_stalled_subscriber(QueueFullPolicy::DropOldest).await;
    assert_eq!(u64::from(*received.last().unwrap()), sent - 1, "{received:?}");
}

#[tokio::test]
async fn a_publisher_waits_on_request() {
    let publisher = with(Xpub, |options| options.queues.when_full = QueueFullPolicy::Wait);
    let subscriber = with(Sub, |options| options.queues.receive_messages_max = 1);
    join(&publisher, &subscriber, "tcp://127.0.0.1:0").await;
    subscriber.subscribe("").unwrap();
    recv(&publisher).await;
    let mut sent = 0u32;
    while timeout(Duration::from_millis(200), publisher.send(vec![0; 100_000])).await.is_ok() {
        sent += 1;
        assert!(sent < 10_000);
    }
    assert_eq!(publisher.stats().dropped, 0);
    recv(&subscriber).await;
}

#[tokio::test]
async fn conflate_keeps_the_newest_message() {
    let pull = with(Pull, |options| options.queues.conflate = true);
    let push = socket(Push);
    join(&pull, &push, "tcp://127.0.0.1:0").await;
    for number in 0..100 {
        send(&push, number.to_string()).await;
    }
    until(&pull, |stats| stats.peers.iter().any(|peer| peer.received == 100 || peer.unread == 1)).await;
    let mut last = text(&pull).await;
    while last != "99" {
        last = text(&pull).await;
    }
    let mut options = SocketOptions::default();
    options.queues.conflate = true;
    assert_eq!(Socket::new(Pair, options).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn a_receive_has_a_time_limit() {
    let pull = with(Pull, |options| options.timeouts.receive = Some(Duration::from_millis(1)));
    let error = pull.recv().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("timeouts.receive"), "{error}");
}

#[tokio::test]
async fn a_message_over_the_limit_ends_the_connection_with_its_reason() {
    let pull = with(Pull, |options| options.limits.message_bytes_max = 1000);
    let mut monitor = pull.monitor();
    let push = socket(Push);
    join(&pull, &push, "tcp://127.0.0.1:0").await;
    send(&push, vec![0; 1000]).await;
    assert_eq!(recv(&pull).await.size_bytes(), 1000);
    send(&push, vec![0; 1001]).await;
    let reason = loop {
        match timeout(LIMIT, monitor.next()).await.unwrap() {
            Some(Event::Disconnected { reason, .. }) => break reason,
            Some(_) => {}
            None => panic!("the monitor ended"),
        }
    };
    assert!(reason.contains("1001 bytes; the limit is 1000"), "{reason}");
}

#[tokio::test]
async fn peers_are_limited() {
    let pull = with(Pull, |options| options.limits.peers_max = 1);
    let mut monitor = pull.monitor();
    let bound = pull.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let (first, second) = (socket(Push), socket(Push));
    first.connect_to(&bound).await.unwrap();
    until(&pull, |stats| stats.peers.len() == 1).await;
    second.connect_to(&bound).await.unwrap();
    loop {
        if let Some(Event::HandshakeFailed { reason, .. }) = timeout(LIMIT, monitor.next()).await.unwrap() {
            assert!(reason.contains("the limit is 1 (limits.peers_max)"), "{reason}");
            break;
        }
    }
}

#[tokio::test]
async fn a_pair_has_one_peer() {
    let (one, other) = pair(Pair, Pair, "tcp://127.0.0.1:0").await;
    send(&other, "hello").await;
    recv(&one).await;
    let third = socket(Pair);
    let mut monitor = one.monitor();
    third.connect_to(&one.endpoints()[0].to_string()).await.unwrap();
    loop {
        if let Some(Event::HandshakeFailed { reason, .. }) = timeout(LIMIT, monitor.next()).await.unwrap() {
            assert!(reason.contains("PAIR has a peer already"), "{reason}");
            break;
        }
    }
    assert_eq!(other.connect_to("tcp://127.0.0.1:1").await.unwrap_err().kind(), ErrorKind::State);
    send(&one, "still here").await;
    assert_eq!(text(&other).await, "still here");
}

#[tokio::test]
async fn concurrent_handles_share_a_socket() {
    let (router, dealer) = pair(Dealer, Dealer, "tcp://127.0.0.1:0").await;
    let count = 1000;
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let dealer = dealer.clone();
            tokio::spawn(async move {
                for _ in 0..count {
                    send(&dealer, "x").await;
                }
            })
        })
        .collect();
    let receivers: Vec<_> = (0..4)
        .map(|_| {
            let router = router.clone();
            tokio::spawn(async move {
                for _ in 0..count {
                    recv(&router).await;
                }
            })
        })
        .collect();
    for task in senders.into_iter().chain(receivers) {
        timeout(LIMIT, task).await.unwrap().unwrap();
    }
    assert_eq!(router.try_recv().unwrap(), None);
}

#[tokio::test]
async fn a_loop_that_only_publishes_drops_nothing_for_a_fast_subscriber() {
    let (publisher, subscriber) = pair(Xpub, Sub, "tcp://127.0.0.1:0").await;
    subscriber.subscribe("").unwrap();
    recv(&publisher).await;
    let count = 20_000;
    let receiver = tokio::spawn(async move {
        for number in 0..count {
            assert_eq!(text(&subscriber).await, number.to_string());
        }
    });
    for number in 0..count {
        publisher.send(number.to_string()).await.unwrap();
    }
    assert_eq!(publisher.stats().dropped, 0);
    timeout(LIMIT, receiver).await.unwrap().unwrap();
}
