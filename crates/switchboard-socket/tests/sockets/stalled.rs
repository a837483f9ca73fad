//! Peers that send and do not read, and peers that do not complete the handshake.

use super::*;
use switchboard_socket::{
    Event,
    SocketType::{Dealer, Pull, Push, Router, Xpub},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

fn with(kind: SocketType, change: impl FnOnce(&mut SocketOptions)) -> Socket {
    let mut options = SocketOptions::default();
    change(&mut options);
    Socket::new(kind, options).unwrap()
}

async fn connect(bound: &str) -> TcpStream {
    TcpStream::connect(bound.strip_prefix("tcp://").unwrap()).await.unwrap()
}

/// Connects as a peer of ZMTP 3.1 that completes its side of the handshake and reads nothing after it.
async fn stalled_peer(bound: &str, kind: &str, identity: &str) -> TcpStream {
    let mut stream = connect(bound).await;
    shake(&mut stream, kind, identity).await;
    stream
}

/// Sends the greeting and the READY command, and reads the greeting of the socket.
async fn shake(stream: &mut TcpStream, kind: &str, identity: &str) {
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10], greeting[11]) = (0xFF, 0x7F, 3, 1);
    greeting[12..16].copy_from_slice(b"NULL");
    let mut ready = b"\x05READY".to_vec();
    for (name, value) in [("Socket-Type", kind), ("Identity", identity)] {
        ready.push(name.len() as u8);
        ready.extend_from_slice(name.as_bytes());
        ready.extend_from_slice(&(value.len() as u32).to_be_bytes());
        ready.extend_from_slice(value.as_bytes());
    }
    stream.write_all(&greeting).await.unwrap();
    stream.write_all(&[4, ready.len() as u8]).await.unwrap();
    stream.write_all(&ready).await.unwrap();
    stream.read_exact(&mut greeting).await.unwrap();
}

#[tokio::test]
async fn welcome_messages_have_the_limit_of_the_queue() {
    const SUBSCRIPTIONS: u64 = 4000;
    let publisher = with(Xpub, |options| {
        options.subscriptions.welcome = Some(vec![b'w'; 100_000].into());
        options.queues.send_messages_max = 10;
    });
    let bound = publisher.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let mut peer = stalled_peer(&bound, "SUB", "").await;
    for _ in 0..SUBSCRIPTIONS {
        peer.write_all(b"\x00\x01\x01\x00\x01\x00").await.unwrap();
    }
    let attempts =
        |stats: &switchboard_socket::SocketStats| stats.peers.iter().any(|peer| peer.received > 100);
    let reader = async {
        loop {
            recv(&publisher).await;
        }
    };
    tokio::select! {
        () = reader => {}
        () = until(&publisher, |stats| attempts(stats) && stats.dropped > 0) => {}
    }
    let stats = publisher.stats();
    assert!(stats.peers[0].unsent <= 10, "{stats:?}");
    assert_eq!(stats.peers[0].dropped, stats.dropped);
}

#[tokio::test]
async fn a_welcome_message_is_sent_over_every_transport() {
    for endpoint in endpoints() {
        let publisher = with(Xpub, |options| options.subscriptions.welcome = Some("topic welcome".into()));
        let subscriber = socket(SocketType::Sub);
        join(&publisher, &subscriber, &endpoint).await;
        subscriber.subscribe("other").unwrap();
        subscriber.subscribe("topic").unwrap();
        assert_eq!(text(&subscriber).await, "topic welcome", "{endpoint}");
    }
}

#[tokio::test]
async fn a_handover_closes_a_connection_whose_peer_does_not_read() {
    let router = with(Router, |options| {
        options.routing.handover = true;
        options.routing.mandatory = true;
    });
    let bound = router.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let _stalled = stalled_peer(&bound, "DEALER", "id").await;
    until(&router, |stats| stats.peers.iter().any(|peer| peer.is_connected)).await;
    // The queue and the buffers of the system are full.
    while timeout(
        Duration::from_millis(200),
        router.send(Message::from([vec![b'i', b'd'], vec![0; 100_000]])),
    )
    .await
    .is_ok()
    {}
    let mut monitor = router.monitor();
    let second = with(Dealer, |options| options.routing.routing_id = "id".into());
    second.connect_to(&bound).await.unwrap();
    let closed = async {
        loop {
            if let Some(Event::Disconnected { reason, .. }) = monitor.next().await {
                break reason;
            }
        }
    };
    let reason = timeout(LIMIT, closed).await.expect("the old connection is closed");
    assert!(reason.contains("another peer took the routing id"), "{reason}");
    send(&router, ["id", "new"]).await;
    assert_eq!(text(&second).await, "new");
}

async fn read_some(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    timeout(LIMIT, stream.read_exact(&mut bytes)).await.expect("bytes arrive in time").unwrap();
    bytes
}

#[tokio::test]
async fn the_hello_message_precedes_all_others_on_each_connection() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dealer = with(Dealer, |options| {
        options.notices.hello = Some("hello".into());
        options.reconnect.interval = Duration::from_millis(1);
    });
    dealer.connect_to(&format!("tcp://{}", listener.local_addr().unwrap())).await.unwrap();
    send(&dealer, "first").await;
    for expected in [&b"\x00\x05hello\x00\x05first"[..], b"\x00\x05hello"] {
        let (mut stream, _) = timeout(LIMIT, listener.accept()).await.unwrap().unwrap();
        shake(&mut stream, "ROUTER", "").await;
        // The READY command of the DEALER.
        let header = read_some(&mut stream, 2).await;
        read_some(&mut stream, usize::from(header[1])).await;
        assert_eq!(read_some(&mut stream, expected.len()).await, expected);
    }
}

#[tokio::test]
async fn connections_in_the_handshake_are_limited() {
    let pull = with(Pull, |options| {
        options.limits.handshakes_max = 1;
        options.timeouts.handshake = Duration::from_millis(100);
    });
    let mut monitor = pull.monitor();
    let bound = pull.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let _silent = [connect(&bound).await, connect(&bound).await, connect(&bound).await];
    let mut order = String::new();
    while order.len() < 6 {
        match timeout(LIMIT, monitor.next()).await.unwrap().unwrap() {
            Event::Accepted { .. } => order.push('a'),
            Event::HandshakeFailed { .. } => order.push('f'),
            _ => {}
        }
    }
    assert_eq!(order, "afafaf", "a connection is accepted once the one before is out of the handshake");
    let push = socket(Push);
    push.connect_to(&bound).await.unwrap();
    send(&push, "task").await;
    assert_eq!(text(&pull).await, "task");
    let other = socket(Push);
    other.connect_to(&bound).await.unwrap();
    send(&other, "open connections do not count").await;
    assert_eq!(text(&pull).await, "open connections do not count");
}
