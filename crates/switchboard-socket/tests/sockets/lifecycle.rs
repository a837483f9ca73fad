//! Linger, reconnects, ends of endpoints, heartbeats and credentials.

use super::*;
use switchboard_socket::{
    Error, ErrorKind, Event, Push,
    SocketType::{Dealer, Pull, Push as PushType, Router},
    blocking,
    options::Security,
};
use tokio::io::AsyncWriteExt;

fn with(kind: SocketType, change: impl FnOnce(&mut SocketOptions)) -> Socket {
    let mut options = SocketOptions::default();
    change(&mut options);
    Socket::new(kind, options).unwrap()
}

/// Waits for an event that `select` accepts.
async fn event<T>(monitor: &mut switchboard_socket::Monitor, select: impl Fn(Event) -> Option<T>) -> T {
    let wait = async {
        loop {
            match monitor.next().await {
                Some(event) => {
                    if let Some(selected) = select(event) {
                        return selected;
                    }
                }
                None => panic!("the monitor ended"),
            }
        }
    };
    timeout(LIMIT, wait).await.expect("the event happens in time")
}

#[tokio::test]
async fn a_dropped_socket_writes_its_messages() {
    let pull = socket(Pull);
    let bound = pull.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let push = socket(PushType);
    push.connect_to(&bound).await.unwrap();
    for number in 0..500 {
        send(&push, number.to_string()).await;
    }
    drop(push);
    for number in 0..500 {
        assert_eq!(text(&pull).await, number.to_string());
    }
}

#[tokio::test]
async fn close_waits_for_unsent_messages_up_to_linger() {
    let push = with(PushType, |options| options.timeouts.linger = Some(Duration::from_millis(20)));
    push.connect_to("tcp://127.0.0.1:1").await.unwrap();
    send(&push, "never read").await;
    timeout(LIMIT, push.close()).await.expect("linger has a limit");
    assert_eq!(push.stats().dropped, 1);
    assert_eq!(push.send("late").await.unwrap_err().kind(), ErrorKind::Closed);
    let pull = socket(Pull);
    pull.close().await;
    assert_eq!(pull.recv().await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn close_wakes_waiting_calls() {
    let (pull, push) = (socket(Pull), socket(PushType));
    let receive = pull.recv();
    let send = push.send("no peer");
    let (received, sent, (), ()) =
        timeout(LIMIT, async { tokio::join!(receive, send, pull.close(), push.close()) }).await.unwrap();
    assert_eq!(received.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn messages_wait_for_the_next_connection() {
    let (pull, push) = pair(Pull, PushType, "tcp://127.0.0.1:0").await;
    let endpoint = pull.endpoints()[0].to_string();
    send(&push, "first").await;
    assert_eq!(text(&pull).await, "first");
    let mut monitor = push.monitor();
    pull.close().await;
    event(&mut monitor, |event| matches!(event, Event::ConnectRetried { .. }).then_some(())).await;
    send(&push, "second").await;
    let pull = socket(Pull);
    pull.bind_to(&endpoint).await.unwrap();
    assert_eq!(text(&pull).await, "second");
    let stats = push.stats();
    assert_eq!((stats.peers[0].connections, stats.dropped), (2, 0));
}

#[tokio::test]
async fn an_immediate_socket_sends_to_connected_peers_only() {
    let push = with(PushType, |options| options.routing.immediate = true);
    push.connect_to("tcp://127.0.0.1:1").await.unwrap();
    assert_eq!(push.try_send("x").unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(push.stats().peers.is_empty());
}

#[tokio::test]
async fn a_refused_endpoint_ends_on_request() {
    let push = with(PushType, |options| options.reconnect.stop.refused = true);
    push.connect_to("tcp://127.0.0.1:1").await.unwrap();
    until(&push, |stats| stats.peers.is_empty()).await;
}

#[tokio::test]
async fn endpoints_end_one_by_one() {
    let pull = socket(Pull);
    let bound = pull.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let push = socket(PushType);
    push.connect_to(&bound).await.unwrap();
    send(&push, "a").await;
    assert_eq!(text(&pull).await, "a");
    pull.unbind(&bound).unwrap();
    assert_eq!(pull.unbind(&bound).unwrap_err().kind(), ErrorKind::InvalidInput);
    send(&push, "b").await;
    assert_eq!(text(&pull).await, "b", "accepted connections continue");
    send(&push, "c").await;
    push.disconnect(&bound).unwrap();
    assert_eq!(text(&pull).await, "c", "unsent messages are written first");
    until(&push, |stats| stats.peers.is_empty()).await;
    until(&pull, |stats| stats.peers.is_empty()).await;
    assert_eq!(push.try_send("d").unwrap_err().kind(), ErrorKind::TimedOut);
}

#[tokio::test]
async fn credentials_are_verified() {
    let pull = with(Pull, |options| {
        options.security = Security::plain_server(|credentials| {
            credentials.username() == b"admin" && credentials.password() == b"secret"
        });
    });
    let mut monitor = pull.monitor();
    let bound = pull.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let client = |password: &str| {
        with(PushType, |options| {
            options.security = Security::plain_client("admin", password.to_owned()).unwrap();
            options.reconnect.stop.handshake_failed = true;
        })
    };
    let wrong = client("wrong");
    wrong.connect_to(&bound).await.unwrap();
    let reason = event(&mut monitor, |event| match event {
        Event::HandshakeFailed { reason, .. } => Some(reason),
        _ => None,
    })
    .await;
    assert!(reason.contains("rejected"), "{reason}");
    until(&wrong, |stats| stats.peers.is_empty()).await;
    let right = client("secret");
    right.connect_to(&bound).await.unwrap();
    send(&right, "task").await;
    assert_eq!(text(&pull).await, "task");
}

#[tokio::test]
async fn mechanisms_and_types_must_match() {
    let pull = socket(Pull);
    let mut monitor = pull.monitor();
    let bound = pull.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let plain = with(PushType, |options| options.security = Security::plain_client("a", "b").unwrap());
    plain.connect_to(&bound).await.unwrap();
    let failure = |event| match event {
        Event::HandshakeFailed { reason, .. } => Some(reason),
        _ => None,
    };
    assert!(event(&mut monitor, failure).await.contains("PLAIN"));
    plain.close().await;
    let dealer = socket(Dealer);
    dealer.connect_to(&bound).await.unwrap();
    loop {
        if event(&mut monitor, failure).await.contains("DEALER does not talk to PULL") {
            break;
        }
    }
}

#[tokio::test]
async fn a_silent_peer_is_noticed() {
    let router = with(Router, |options| {
        options.heartbeats.interval = Some(Duration::from_millis(20));
        options.heartbeats.timeout = Some(Duration::from_millis(60));
        options.timeouts.handshake = Duration::from_millis(50);
    });
    let mut monitor = router.monitor();
    let bound = router.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let address = bound.strip_prefix("tcp://").unwrap();
    // A connection that says nothing, and one that completes the handshake and is silent then.
    let silent = tokio::net::TcpStream::connect(address).await.unwrap();
    let reason = event(&mut monitor, |event| match event {
        Event::HandshakeFailed { reason, .. } => Some(reason),
        _ => None,
    })
    .await;
    assert!(reason.contains("timeouts.handshake"), "{reason}");
    drop(silent);
    let mut mute = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10], greeting[11]) = (0xFF, 0x7F, 3, 1);
    greeting[12..16].copy_from_slice(b"NULL");
    mute.write_all(&greeting).await.unwrap();
    mute.write_all(b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER").await.unwrap();
    let reason = event(&mut monitor, |event| match event {
        Event::Disconnected { reason, .. } => Some(reason),
        _ => None,
    })
    .await;
    assert!(reason.contains("heartbeats.timeout"), "{reason}");
    let dealer = socket(Dealer);
    dealer.connect_to(&bound).await.unwrap();
    send(&dealer, "alive").await;
    assert_eq!(text(&router).await, "alive");
}

#[tokio::test]
async fn garbage_ends_the_connection_alone() {
    let (pull, push) = pair(Pull, PushType, "tcp://127.0.0.1:0").await;
    let mut monitor = pull.monitor();
    let bound = pull.endpoints()[0].to_string();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xFF; 200], &[0; 64]] {
        let mut stream = tokio::net::TcpStream::connect(bound.strip_prefix("tcp://").unwrap()).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        event(&mut monitor, |event| matches!(event, Event::HandshakeFailed { .. }).then_some(())).await;
    }
    send(&push, "unharmed").await;
    assert_eq!(text(&pull).await, "unharmed");
}

#[test]
fn blocking_sockets_need_no_runtime() {
    let push = blocking::Socket::new(PushType, SocketOptions::default()).unwrap();
    let pull = blocking::Socket::new(Pull, SocketOptions::default()).unwrap();
    let bound = push.bind("tcp://127.0.0.1:0").unwrap();
    pull.connect(&bound.to_string()).unwrap();
    let count = 5000;
    let receiver =
        std::thread::spawn(move || (0..count).map(|_| pull.recv().unwrap().size_bytes()).sum::<usize>());
    for _ in 0..count {
        push.send("task").unwrap();
    }
    assert_eq!(receiver.join().unwrap(), 4 * count);
    push.close().unwrap();
    assert_eq!(Push::new().unwrap_err().kind(), ErrorKind::State);
}

#[tokio::test]
async fn unsupported_features_are_named() {
    let push = socket(PushType);
    for endpoint in ["pgm://eth0;239.1.1.1:5555", "tipc://{1,2}", "vmci://*:1", "norm://1", "udp://h:1"] {
        for error in [push.bind_to(endpoint).await.unwrap_err(), push.connect_to(endpoint).await.unwrap_err()]
        {
            let transport = endpoint.split(':').next().unwrap();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains(transport), "{error}");
        }
    }
    let error: Error = push.bind_to("tcp://256.0.0.1:1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Address, "{error}");
}

#[tokio::test]
async fn zero_is_refused_where_it_means_nothing() {
    type Change = fn(&mut SocketOptions);
    let changes: [(&str, Change); 4] = [
        ("reconnect.interval", |options| options.reconnect.interval = Duration::ZERO),
        ("timeouts.handshake", |options| options.timeouts.handshake = Duration::ZERO),
        ("limits.handshakes_max", |options| options.limits.handshakes_max = 0),
        ("limits.message_bytes_max", |options| options.limits.message_bytes_max = 0),
    ];
    for (name, change) in changes {
        let mut options = SocketOptions::default();
        change(&mut options);
        let error = Socket::new(Pull, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(name), "{error}");
    }
    // No time at all is a choice for these.
    let zero = Duration::ZERO;
    with(Pull, |options| {
        (options.timeouts.send, options.timeouts.receive, options.timeouts.linger) =
            (Some(zero), Some(zero), Some(zero));
    });
}
