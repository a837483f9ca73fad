//! Mechanisms of the handshake, and the verification of peers.

use super::{LIMIT, join, recv, send, text, until};
use bytes::Bytes;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use switchboard_socket::{
    Event, Message, Socket, SocketOptions, SocketType,
    options::{CurvePublicKey, PeerCredentials, QueueFullPolicy, Security, Verdict, curve_keypair},
};
use tokio::time::timeout;

fn with(security: Security) -> SocketOptions {
    let mut options = SocketOptions::default();
    options.security = security;
    options.reconnect.interval = std::time::Duration::from_millis(5);
    options
}

fn socket(kind: SocketType, security: Security) -> Socket {
    Socket::new(kind, with(security)).unwrap()
}

/// Returns a server that accepts the key of the client, and the client.
fn curve_pair() -> (Security, Security, CurvePublicKey) {
    let ((server, server_secret), (client, client_secret)) =
        (curve_keypair().unwrap(), curve_keypair().unwrap());
    let accepts = move |key: &CurvePublicKey| *key == client;
    (Security::curve_server(server_secret, accepts), Security::curve_client(client_secret, server), client)
}

/// Returns the reason of the next failed handshake.
async fn failure(monitor: &mut switchboard_socket::Monitor) -> String {
    let wait = async {
        while let Some(event) = monitor.next().await {
            if let Event::HandshakeFailed { reason, .. } = event {
                return reason;
            }
        }
        panic!("the socket was closed");
    };
    timeout(LIMIT, wait).await.expect("a handshake fails in time")
}

#[tokio::test]
async fn curve_encrypts_in_both_roles_over_each_transport() {
    for does_server_bind in [true, false] {
        for endpoint in &super::endpoints()[..2] {
            let (server, client, _) = curve_pair();
            let (bound, connecting) = if does_server_bind { (server, client) } else { (client, server) };
            let (router, dealer) =
                (socket(SocketType::Router, bound), socket(SocketType::Dealer, connecting));
            join(&router, &dealer, endpoint).await;
            // Frames that are chained by reference, on more parts than one write has.
            let large = Bytes::from(vec![7; 9000]);
            let many = Message::new(vec![large; 200]);
            for message in [Message::from(""), Message::from(["a", ""]), many] {
                send(&dealer, message.clone()).await;
                let received = recv(&router).await;
                assert_eq!(received.frames()[1..], *message.frames());
                send(&router, received.clone()).await;
                assert_eq!(recv(&dealer).await, message);
            }
        }
    }
}

#[tokio::test]
async fn unsent_messages_of_curve_are_kept_for_the_next_connection() {
    let (server, client, _) = curve_pair();
    let push = socket(SocketType::Push, client);
    let pull = socket(SocketType::Pull, server.clone());
    join(&pull, &push, "tcp://127.0.0.1:0").await;
    let endpoint = pull.endpoints()[0].to_string();
    send(&push, "first").await;
    assert_eq!(text(&pull).await, "first");
    pull.close().await;
    until(&push, |stats| !stats.peers[0].is_connected).await;
    for number in 0..500 {
        send(&push, format!("{number}")).await;
    }
    let pull = socket(SocketType::Pull, server);
    pull.bind_to(&endpoint).await.unwrap();
    for number in 0..500 {
        assert_eq!(text(&pull).await, number.to_string());
    }
}

#[tokio::test]
async fn curve_publishes_to_many_and_reads_subscriptions_in_boxes() {
    let (server, client, _) = curve_pair();
    let publisher = socket(SocketType::Xpub, server);
    let endpoint = publisher.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let subscribers = [(); 3].map(|()| socket(SocketType::Sub, client.clone()));
    for (number, subscriber) in subscribers.iter().enumerate() {
        subscriber.connect_to(&endpoint).await.unwrap();
        subscriber.subscribe(format!("{number}")).unwrap();
        subscriber.subscribe("all").unwrap();
    }
    for _ in 0..4 {
        recv(&publisher).await;
    }
    until(&publisher, |stats| stats.peers.len() == 3).await;
    // Every subscriber has sent both of its subscriptions once its own is known.
    let large = Bytes::from(vec![1; 70_000]);
    let all: Message = [Bytes::from_static(b"all"), large].into();
    for (number, subscriber) in subscribers.iter().enumerate() {
        publisher.send([number.to_string(), "own".to_owned()]).await.unwrap();
        assert_eq!(text(subscriber).await, "own");
    }
    let wait = async {
        for subscriber in &subscribers {
            loop {
                publisher.send(all.clone()).await.unwrap();
                if let Ok(Some(message)) = subscriber.try_recv() {
                    assert_eq!(message, all);
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    };
    timeout(LIMIT, wait).await.unwrap();
}

#[tokio::test]
async fn an_unknown_key_and_a_wrong_server_are_refused() {
    let (server, client, _) = curve_pair();
    let pull = socket(SocketType::Pull, server);
    let mut monitor = pull.monitor();
    let endpoint = pull.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    // The client of another pair knows another server.
    let (_, stranger, _) = curve_pair();
    let push = socket(SocketType::Push, stranger);
    push.connect_to(&endpoint).await.unwrap();
    let reason = failure(&mut monitor).await;
    assert!(reason.contains("HELLO of CURVE"), "{reason}");
    push.close().await;
    // A client of NULL has another mechanism.
    let push = socket(SocketType::Push, Security::default());
    push.connect_to(&endpoint).await.unwrap();
    let reason = loop {
        let reason = failure(&mut monitor).await;
        if !reason.contains("HELLO of CURVE") {
            break reason;
        }
    };
    assert!(reason.contains("NULL") || reason.contains("mechanism"), "{reason}");
    drop((push, client));
    // A server that accepts no key.
    let ((key, secret), (_, client)) = (curve_keypair().unwrap(), curve_keypair().unwrap());
    let pull = socket(SocketType::Pull, Security::curve_server(secret, |_| false));
    let mut monitor = pull.monitor();
    let push = socket(SocketType::Push, Security::curve_client(client, key));
    let mut client_monitor = push.monitor();
    join(&pull, &push, "tcp://127.0.0.1:0").await;
    assert_eq!(failure(&mut monitor).await, "the credentials of the peer were rejected");
    let reason = failure(&mut client_monitor).await;
    assert!(reason.contains("\"400\""), "{reason}");
}

#[tokio::test]
async fn a_verifier_reads_what_a_handler_of_zap_reads_and_returns_its_statuses() {
    let calls = Arc::new(AtomicUsize::new(0));
    let (count, secret) = (calls.clone(), curve_keypair().unwrap());
    let server = Security::curve_server(secret.1, |_| false).with_verifier(move |request| {
        let count = count.clone();
        async move {
            // A verifier may wait.
            tokio::task::yield_now().await;
            assert!(request.endpoint.starts_with("tcp://127.0.0.1:"), "{request:?}");
            assert!(request.address.starts_with("tcp://127.0.0.1:"), "{request:?}");
            let PeerCredentials::Curve(key) = request.credentials else { return Verdict::Failed };
            match count.fetch_add(1, Ordering::Relaxed) {
                0 => Verdict::Unavailable,
                1 => Verdict::Failed,
                _ => Verdict::Accepted { user_id: key.to_string() },
            }
        }
    });
    let (client_key, client_secret) = curve_keypair().unwrap();
    let pull = socket(SocketType::Pull, server);
    let mut options = with(Security::curve_client(client_secret, secret.0));
    options.metadata = vec![("X-Desk".to_owned(), "fx".to_owned())];
    let push = Socket::new(SocketType::Push, options).unwrap();
    let mut monitor = push.monitor();
    join(&pull, &push, "tcp://127.0.0.1:0").await;
    for status in ["\"300\"", "\"500\""] {
        let reason = failure(&mut monitor).await;
        assert!(reason.contains(status), "{reason}");
    }
    send(&push, "third").await;
    assert_eq!(text(&pull).await, "third");
    let stats = pull.stats();
    assert_eq!(stats.peers[0].user_id.as_deref(), Some(&*client_key.to_string()));
    assert_eq!(stats.peers[0].properties, [("X-Desk".to_owned(), Bytes::from_static(b"fx"))]);
    assert!(stats.peers[0].address.as_ref().is_some_and(|address| address.starts_with("tcp://127.0.0.1:")));
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_verifier_refuses_peers_of_null_and_plain() {
    let null = Security::default().with_verifier(async |request| {
        let PeerCredentials::Null { identity } = request.credentials else { return Verdict::Failed };
        Verdict::of(&identity[..] == b"good")
    });
    let router = socket(SocketType::Router, null);
    let mut monitor = router.monitor();
    let endpoint = router.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let dealer = |id: &'static str| {
        let mut options = SocketOptions::default();
        options.routing.routing_id = id.into();
        Socket::new(SocketType::Dealer, options).unwrap()
    };
    let (bad, good) = (dealer("bad"), dealer("good"));
    let mut bad_monitor = bad.monitor();
    bad.connect_to(&endpoint).await.unwrap();
    send(&bad, "kept").await;
    assert_eq!(failure(&mut monitor).await, "the credentials of the peer were rejected");
    // Its handshake fails: it has sent nothing, and connects again after longer and longer pauses.
    let reason = failure(&mut bad_monitor).await;
    assert!(reason.contains("\"400\""), "{reason}");
    assert_eq!((bad.stats().peers[0].unsent, bad.stats().peers[0].connections), (1, 0));
    good.connect_to(&endpoint).await.unwrap();
    send(&good, "hello").await;
    assert_eq!(recv(&router).await, Message::from(["good", "hello"]));

    let plain = Security::plain_server(|credentials| credentials.password() == b"secret");
    let pull = socket(SocketType::Pull, plain);
    let push = socket(SocketType::Push, Security::plain_client("admin", "wrong").unwrap());
    let mut monitor = push.monitor();
    join(&pull, &push, "tcp://127.0.0.1:0").await;
    let reason = failure(&mut monitor).await;
    assert!(reason.contains("\"400\""), "{reason}");
}

#[tokio::test]
async fn a_verifier_of_the_side_that_connects_closes_the_connection_with_the_status() {
    let null = Security::default().with_verifier(async |_| Verdict::Unavailable);
    let (dealer, router) =
        (socket(SocketType::Dealer, null), socket(SocketType::Router, Security::default()));
    let mut monitor = router.monitor();
    join(&router, &dealer, "tcp://127.0.0.1:0").await;
    let wait = async {
        loop {
            if let Some(Event::Disconnected { reason, .. }) = monitor.next().await {
                break reason;
            }
        }
    };
    let reason = timeout(LIMIT, wait).await.unwrap();
    assert!(reason.contains("\"300\""), "{reason}");
    // Two sides with verifiers do not wait for each other.
    let verifies = || Security::default().with_verifier(async |_| Verdict::of(true));
    let (push, pull) = (socket(SocketType::Push, verifies()), socket(SocketType::Pull, verifies()));
    join(&pull, &push, "tcp://127.0.0.1:0").await;
    send(&push, "task").await;
    assert_eq!(text(&pull).await, "task");
}

/// Messages of each test with several subscribers of CURVE.
const MESSAGES: usize = 3000;
/// Topics, and the subscribers of each.
const TOPICS: [(&str, &[usize]); 4] =
    [("all ", &[0, 1, 2]), ("two ", &[0, 2]), ("one ", &[1]), ("none ", &[])];

/// Returns the message with a number, of 1 to 1,000 bytes behind its topic.
fn numbered(number: usize) -> (usize, Message) {
    let topic = [0, 0, 1, 0, 2, 1, 0, 3][number * 7 % 11 % 8];
    let body: Vec<u8> = (0..1 + number * 379 % 1000).map(|at| (at + number) as u8).collect();
    let head = format!("{}{number} ", TOPICS[topic].0);
    (topic, Message::from([head.into_bytes(), body]))
}

/// The welcome message of a publisher, of which all prefixes from this length on are subscribed one by one.
const WELCOME: &str = "all welcome";
const WELCOME_FROM: usize = 5;

/// Receives all messages of the topics of a subscriber; returns the number of welcome messages among them.
async fn receive_with_curve(subscriber: &Socket, at: usize, has_welcome: bool) -> usize {
    let (mut welcomes, mut prefixes) = (0, WELCOME_FROM..=WELCOME.len());
    for number in 0..MESSAGES {
        if has_welcome
            && number % 400 == 100
            && let Some(length) = prefixes.next()
        {
            subscriber.subscribe(&WELCOME[..length]).unwrap();
        }
        let (topic, expected) = numbered(number);
        if !TOPICS[topic].1.contains(&at) {
            continue;
        }
        let mut message = recv(subscriber).await;
        while has_welcome && message == Message::from(WELCOME) {
            welcomes += 1;
            message = recv(subscriber).await;
        }
        assert!(message == expected, "{number} of subscriber {at}: {message:?}");
    }
    welcomes
}

/// Sends many small messages to three subscribers of different topics.
async fn publish_with_curve(has_welcome: bool) {
    let (server, client, _) = curve_pair();
    let mut options = with(server);
    options.subscriptions.verbose = true;
    options.subscriptions.welcome = has_welcome.then(|| WELCOME.into());
    options.queues.when_full = QueueFullPolicy::Wait;
    options.queues.send_messages_max = 500;
    let publisher = Socket::new(SocketType::Xpub, options).unwrap();
    let endpoint = publisher.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let subscribers = [(); 3].map(|()| socket(SocketType::Sub, client.clone()));
    for (at, subscriber) in subscribers.iter().enumerate() {
        subscriber.connect_to(&endpoint).await.unwrap();
        for (topic, _) in TOPICS.iter().filter(|(_, subscribers)| subscribers.contains(&at)) {
            subscriber.subscribe(topic).unwrap();
            recv(&publisher).await;
        }
    }
    let receiving = subscribers.clone().into_iter().enumerate().map(|(at, subscriber)| {
        tokio::spawn(async move { receive_with_curve(&subscriber, at, has_welcome).await })
    });
    let receiving: Vec<_> = receiving.collect();
    for number in 0..MESSAGES {
        send(&publisher, numbered(number).1).await;
    }
    let mut welcomes = 0;
    for receiving in receiving {
        welcomes += timeout(LIMIT, receiving).await.unwrap().unwrap();
    }
    // A welcome message without room was dropped, and the last ones may arrive behind all messages.
    let expected = if has_welcome { 3 * (2 + WELCOME.len() - WELCOME_FROM) } else { 0 };
    let rest = async {
        while welcomes + usize::try_from(publisher.stats().dropped).unwrap() < expected {
            for subscriber in &subscribers {
                while let Some(message) = subscriber.try_recv().unwrap() {
                    assert_eq!(message, Message::from(WELCOME));
                    welcomes += 1;
                }
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, rest).await.expect("all welcome messages are sent or dropped");
    assert_eq!(welcomes + usize::try_from(publisher.stats().dropped).unwrap(), expected);
}

#[tokio::test]
async fn small_messages_of_curve_reach_the_subscribers_of_their_topics_in_order() {
    publish_with_curve(false).await;
}

#[tokio::test]
async fn welcome_messages_of_curve_are_among_small_messages() {
    publish_with_curve(true).await;
}
