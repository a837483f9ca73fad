//! Options of subscriptions, limits, filters of peers and heartbeats: each test reaches one of them.

use super::{LIMIT, join, recv, send, socket, text, until};
use bytes::Bytes;
use std::time::Duration;
use switchboard_socket::{
    Event, Message, Monitor, Socket, SocketOptions,
    SocketType::{self, Dish, Pair, Pub, Pull, Push, Sub, Xpub},
    options::{AddressRange, QueueFullPolicy},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

fn with(kind: SocketType, set: impl FnOnce(&mut SocketOptions)) -> Socket {
    let mut options = SocketOptions::default();
    options.reconnect.interval = Duration::from_millis(5);
    set(&mut options);
    Socket::new(kind, options).unwrap()
}

/// Returns what `select` finds in the events.
async fn event<T>(monitor: &mut Monitor, mut select: impl FnMut(Event) -> Option<T>) -> T {
    let wait = async {
        loop {
            let event = monitor.next().await.expect("the socket is open");
            if let Some(selected) = select(event) {
                return selected;
            }
        }
    };
    timeout(LIMIT, wait).await.expect("the event arrives in time")
}

async fn disconnected(monitor: &mut Monitor) -> String {
    event(monitor, |event| match event {
        Event::Disconnected { reason, .. } => Some(reason),
        _ => None,
    })
    .await
}

#[tokio::test]
async fn inverted_matching_delivers_what_does_not_match() {
    for endpoint in super::endpoints() {
        let publisher = with(Xpub, |options| options.subscriptions.invert_matching = true);
        let bound = publisher.bind_to(&endpoint).await.unwrap().to_string();
        let mut subscribers = Vec::new();
        for topic in ["a", "b", "c"] {
            let subscriber = with(Sub, |options| options.subscriptions.invert_matching = true);
            subscriber.subscribe(topic).unwrap();
            subscriber.connect_to(&bound).await.unwrap();
            assert_eq!(recv(&publisher).await.body()[1..], *topic.as_bytes());
            subscribers.push((topic, subscriber));
        }
        for message in ["a1", "b1", "c1"] {
            send(&publisher, message).await;
        }
        for (topic, subscriber) in &subscribers {
            let expected: Vec<_> =
                ["a1", "b1", "c1"].into_iter().filter(|text| !text.starts_with(topic)).collect();
            for message in expected {
                assert_eq!(text(subscriber).await, message, "{endpoint}");
            }
        }
    }
}

#[tokio::test]
async fn a_verbose_xpub_reports_repeated_changes() {
    for (verbose, verboser) in [(false, false), (true, false), (false, true)] {
        let publisher = with(Xpub, |options| {
            options.subscriptions.verbose = verbose;
            options.subscriptions.verboser = verboser;
        });
        let bound = publisher.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
        let subscribers = [socket(Sub), socket(Sub)];
        for subscriber in &subscribers {
            subscriber.connect_to(&bound).await.unwrap();
            subscriber.subscribe("t").unwrap();
            // Changes of one peer are in order, and those of a new connection are sorted.
            subscriber.subscribe(format!("u{:p}", std::ptr::from_ref(subscriber))).unwrap();
        }
        let mut reported = Vec::new();
        while reported.iter().filter(|body: &&Bytes| body.len() > 2).count() < 2 {
            reported.push(recv(&publisher).await.frames()[0].clone());
        }
        let count =
            |reported: &[Bytes], change: &[u8]| reported.iter().filter(|body| &body[..] == change).count();
        assert_eq!(count(&reported, b"\x01t"), if verbose || verboser { 2 } else { 1 });
        reported.clear();
        for subscriber in &subscribers {
            subscriber.unsubscribe("t").unwrap();
            subscriber.subscribe(format!("end {:p}", std::ptr::from_ref(subscriber))).unwrap();
        }
        while reported.iter().filter(|body: &&Bytes| body.len() > 2).count() < 2 {
            reported.push(recv(&publisher).await.frames()[0].clone());
        }
        assert_eq!(count(&reported, b"\x00t"), if verboser { 2 } else { 1 });
    }
}

#[tokio::test]
async fn the_last_value_goes_to_the_new_subscriber_only() {
    let mut options = SocketOptions::default();
    options.subscriptions.manual_last_value = true;
    let cache = switchboard_socket::Xpub::with_options(options).unwrap();
    let bound = cache.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let (first, second) = (socket(Sub), socket(Sub));
    for (subscriber, value) in [(&first, "t first"), (&second, "t second")] {
        subscriber.connect_to(&bound).await.unwrap();
        subscriber.subscribe("t").unwrap();
        assert_eq!(recv(cache.as_ref()).await.body(), b"\x01t");
        cache.subscribe_peer("t").unwrap();
        send(cache.as_ref(), value).await;
        assert_eq!(text(subscriber).await, value);
    }
    send(cache.as_ref(), "t all").await;
    assert_eq!((text(&first).await, text(&second).await), ("t all".to_owned(), "t all".to_owned()));
}

#[tokio::test]
async fn messages_of_several_frames_are_no_subscriptions() {
    let publisher = socket(Xpub);
    let subscriber = socket(SocketType::Xsub);
    join(&publisher, &subscriber, "tcp://127.0.0.1:0").await;
    until(&subscriber, |stats| stats.peers.iter().any(|peer| peer.is_connected)).await;
    send(&subscriber, ["\u{1}topic", "rest"]).await;
    assert_eq!(recv(&publisher).await, Message::from(["\u{1}topic", "rest"]));
    send(&publisher, "topic").await;
    send(&subscriber, "\u{1}topic").await;
    assert_eq!(recv(&publisher).await.body(), b"\x01topic");
    assert_eq!(subscriber.try_recv().unwrap(), None);
}

#[tokio::test]
async fn subscriptions_are_limited_on_both_sides() {
    let publisher = with(Pub, |options| options.limits.subscriptions_max = 2);
    let mut monitor = publisher.monitor();
    let subscriber = socket(Sub);
    for topic in ["a", "b", "c"] {
        subscriber.subscribe(topic).unwrap();
    }
    join(&publisher, &subscriber, "tcp://127.0.0.1:0").await;
    let reason = disconnected(&mut monitor).await;
    assert!(reason.contains("the limit is 2 (subscriptions_max)"), "{reason}");
    for kind in [Sub, Dish] {
        let own = with(kind, |options| options.limits.subscriptions_max = 2);
        let add = |topic: &str| if kind == Sub { own.subscribe(topic) } else { own.join(topic) };
        for topic in ["a", "b"] {
            add(topic).unwrap();
        }
        let error = add("c").unwrap_err();
        assert!(error.to_string().contains("2 subscriptions (limits.subscriptions_max)"), "{error}");
    }
    let radio = with(SocketType::Radio, |options| options.limits.subscriptions_max = 1);
    let mut monitor = radio.monitor();
    let dish = socket(Dish);
    dish.join("a").unwrap();
    dish.join("b").unwrap();
    join(&radio, &dish, "tcp://127.0.0.1:0").await;
    let reason = disconnected(&mut monitor).await;
    assert!(reason.contains("the limit is 1 (limits.subscriptions_max)"), "{reason}");
}

#[tokio::test]
async fn frames_of_a_message_are_limited() {
    let pull = with(Pull, |options| options.limits.message_frames_max = 3);
    let mut monitor = pull.monitor();
    let push = socket(Push);
    join(&pull, &push, "tcp://127.0.0.1:0").await;
    send(&push, ["1", "2", "3"]).await;
    assert_eq!(recv(&pull).await.frames().len(), 3);
    send(&push, ["1", "2", "3", "4"]).await;
    let reason = disconnected(&mut monitor).await;
    assert!(reason.contains("4 frames or more; the limit is 3 (message_frames_max)"), "{reason}");
}

#[tokio::test]
async fn received_bytes_that_wait_are_limited() {
    let pull = with(Pull, |options| options.queues.receive_bytes_max = 100_000);
    let push = with(Push, |options| {
        options.queues.send_bytes_max = 100_000;
        options.timeouts.send = Some(Duration::from_millis(200));
    });
    join(&pull, &push, "tcp://127.0.0.1:0").await;
    let mut sent = 0;
    // Until the buffers of the system are full too.
    while push.send(vec![0; 20_000]).await.is_ok() {
        sent += 1;
        assert!(sent < 5_000, "the socket reads without a limit");
    }
    let peer = &pull.stats().peers[0];
    // One read brings up to 64 KiB above the limit.
    assert!((5..=9).contains(&peer.unread), "{peer:?}");
    for _ in 0..sent {
        assert_eq!(recv(&pull).await.size_bytes(), 20_000);
    }
}

#[tokio::test]
async fn a_message_that_waits_for_room_is_counted() {
    let push = with(Push, |options| options.queues.send_messages_max = 1);
    push.connect_to("tcp://127.0.0.1:1").await.unwrap();
    send(&push, "in the queue").await;
    assert_eq!((push.stats().waiting_sends, push.stats().peers[0].unsent), (0, 1));
    let waiting = [1, 2].map(|number: u32| {
        let push = push.clone();
        tokio::spawn(async move { push.send(number.to_string()).await })
    });
    until(&push, |stats| stats.waiting_sends == 2).await;
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    until(&push, |stats| stats.waiting_sends == 0).await;
}

#[tokio::test]
async fn a_connection_that_ended_is_not_made_again_with_the_stop_condition() {
    let pull = socket(Pull);
    let push = with(Push, |options| options.reconnect.stop.disconnected = true);
    let mut monitor = push.monitor();
    join(&pull, &push, "tcp://127.0.0.1:0").await;
    send(&push, "one").await;
    recv(&pull).await;
    pull.close().await;
    disconnected(&mut monitor).await;
    until(&push, |stats| stats.peers.is_empty()).await;
    push.close().await;
    while let Some(event) = monitor.next().await {
        assert!(!matches!(event, Event::ConnectRetried { .. }), "{event:?}");
    }
}

#[tokio::test]
async fn connections_from_other_addresses_are_closed() {
    let range = |text: &str| text.parse::<AddressRange>().unwrap();
    let pull = with(Pull, |options| options.transport.accept_from = vec![range("10.0.0.0/8"), range("::2")]);
    let mut monitor = pull.monitor();
    let endpoint = pull.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let mut client = TcpStream::connect(endpoint.trim_start_matches("tcp://")).await.unwrap();
    let reason = event(&mut monitor, |event| match event {
        Event::AcceptFailed { reason, .. } => Some(reason),
        Event::Accepted { .. } => panic!("the connection was accepted"),
        _ => None,
    })
    .await;
    assert!(reason.contains("127.0.0.1 is in no range of transport.accept_from"), "{reason}");
    assert_eq!(timeout(LIMIT, client.read(&mut [0])).await.unwrap().unwrap_or(0), 0);
    let pull = with(Pull, |options| options.transport.accept_from = vec![range("127.0.0.0/8")]);
    let push = socket(Push);
    join(&pull, &push, "tcp://127.0.0.1:0").await;
    send(&push, "accepted").await;
    assert_eq!(text(&pull).await, "accepted");
}

#[tokio::test]
async fn processes_of_ipc_are_filtered() {
    let endpoint = &super::endpoints()[1];
    let pull = with(Pull, |options| options.transport.ipc_filter.users = vec![u32::MAX - 7]);
    let mut monitor = pull.monitor();
    let push = socket(Push);
    join(&pull, &push, endpoint).await;
    let reason = event(&mut monitor, |event| match event {
        Event::AcceptFailed { reason, .. } => Some(reason),
        _ => None,
    })
    .await;
    assert!(reason.contains("transport.ipc_filter"), "{reason}");
    drop((pull, push));
    let own = i32::try_from(std::process::id()).unwrap();
    let pull = with(Pull, |options| options.transport.ipc_filter.processes = vec![own]);
    let push = socket(Push);
    join(&pull, &push, &super::endpoints()[1]).await;
    send(&push, "accepted").await;
    assert_eq!(text(&pull).await, "accepted");
}

#[tokio::test]
async fn sockets_of_the_system_have_the_options() {
    // The values of a socket are checked in `network.rs`; messages pass with them.
    let set = |options: &mut SocketOptions| {
        options.transport.send_buffer_bytes = Some(8_000);
        options.transport.receive_buffer_bytes = Some(8_000);
    };
    let (pull, push) = (with(Pull, set), with(Push, set));
    join(&pull, &push, "tcp://127.0.0.1:0").await;
    send(&push, vec![1; 1 << 20]).await;
    assert_eq!(recv(&pull).await.size_bytes(), 1 << 20);
    let error = Socket::new(Push, {
        let mut options = SocketOptions::default();
        options.transport.backlog = 0;
        options
    });
    assert!(error.unwrap_err().to_string().contains("transport.backlog"));
}

/// Returns a connection to a socket that has completed its handshake as this type.
async fn raw(endpoint: &str, mechanism: &[u8], socket_type: &str) -> TcpStream {
    let mut stream = TcpStream::connect(endpoint.trim_start_matches("tcp://")).await.unwrap();
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10], greeting[11]) = (0xff, 0x7f, 3, 1);
    greeting[12..12 + mechanism.len()].copy_from_slice(mechanism);
    stream.write_all(&greeting).await.unwrap();
    let mut ready = b"\x05READY\x0bSocket-Type\0\0\0".to_vec();
    ready.push(socket_type.len() as u8);
    ready.extend_from_slice(socket_type.as_bytes());
    stream.write_all(&[4, ready.len() as u8]).await.unwrap();
    stream.write_all(&ready).await.unwrap();
    stream
}

#[tokio::test]
async fn a_peer_that_requested_a_time_to_live_is_closed_after_it() {
    let pair = socket(Pair);
    let mut monitor = pair.monitor();
    let endpoint = pair.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let mut peer = raw(&endpoint, b"NULL", "PAIR").await;
    // PING with a time to live of a tenth of a second.
    peer.write_all(b"\x04\x07\x04PING\x00\x01").await.unwrap();
    let reason = disconnected(&mut monitor).await;
    assert!(reason.contains("the ttl of its PING"), "{reason}");
    // The own PINGs have the time to live of the option.
    let pair = with(Pair, |options| {
        options.heartbeats.interval = Some(Duration::from_millis(10));
        options.heartbeats.timeout = Some(LIMIT);
        options.heartbeats.ttl = Some(Duration::from_millis(1500));
    });
    let endpoint = pair.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let mut peer = raw(&endpoint, b"NULL", "PAIR").await;
    let mut bytes = Vec::new();
    while !bytes.windows(9).any(|window| window == b"\x04\x07\x04PING\x00\x0f") {
        assert!(timeout(LIMIT, peer.read_buf(&mut bytes)).await.unwrap().unwrap() > 0, "{bytes:?}");
    }
}

#[tokio::test]
async fn a_peer_with_gssapi_is_refused_by_name() {
    let pair = socket(Pair);
    let mut monitor = pair.monitor();
    let endpoint = pair.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let _peer = raw(&endpoint, b"GSSAPI", "PAIR").await;
    let reason = event(&mut monitor, |event| match event {
        Event::HandshakeFailed { reason, .. } => Some(reason),
        _ => None,
    })
    .await;
    assert!(reason.contains("GSSAPI"), "{reason}");
}

#[tokio::test]
async fn a_publisher_can_wait_for_its_slowest_subscriber() {
    let publisher = with(Xpub, |options| {
        options.queues.when_full = QueueFullPolicy::Wait;
        options.queues.send_messages_max = 2;
    });
    let subscriber = socket(Sub);
    subscriber.subscribe("").unwrap();
    join(&publisher, &subscriber, "tcp://127.0.0.1:0").await;
    recv(&publisher).await;
    let publishing = {
        let publisher = publisher.clone();
        tokio::spawn(async move {
            for number in 0..5_000 {
                publisher.send(number.to_string()).await.unwrap();
            }
        })
    };
    for number in 0..5_000 {
        assert_eq!(text(&subscriber).await, number.to_string());
    }
    publishing.await.unwrap();
    assert_eq!(publisher.stats().dropped, 0);
}
