//! STREAM and the messages about connections of ROUTER.

use super::{LIMIT, join, recv, send, socket, text, until};
use bytes::Bytes;
use switchboard_socket::{
    ErrorKind, Message, Socket, SocketOptions,
    SocketType::{Dealer, Router, Stream},
    options::{Security, Verdict},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

fn with(kind: switchboard_socket::SocketType, set: impl FnOnce(&mut SocketOptions)) -> Socket {
    let mut options = SocketOptions::default();
    set(&mut options);
    Socket::new(kind, options).unwrap()
}

async fn client(stream: &Socket) -> TcpStream {
    if stream.endpoints().is_empty() {
        stream.bind_to("tcp://127.0.0.1:0").await.unwrap();
    }
    let endpoint = stream.endpoints()[0].to_string();
    TcpStream::connect(endpoint.trim_start_matches("tcp://")).await.unwrap()
}

/// Receives the bytes of a peer until there are `count`.
async fn bytes(stream: &Socket, route: &Bytes, count: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < count {
        let message = recv(stream).await;
        assert_eq!(message.frames()[0], route);
        assert!(!message.frames()[1].is_empty(), "the connection ended after {} bytes", all.len());
        all.extend_from_slice(&message.frames()[1]);
    }
    all
}

#[tokio::test]
async fn a_stream_serves_a_client_of_tcp() {
    // A connection has no handshake that could count.
    let stream = with(Stream, |options| options.limits.handshakes_max = 1);
    let _first = client(&stream).await;
    recv(&stream).await;
    let mut client = client(&stream).await;
    let connected = recv(&stream).await;
    let route = connected.frames()[0].clone();
    assert_eq!((route.len(), route[0], connected.body()), (5, 0, &b""[..]));
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    assert_eq!(bytes(&stream, &route, 18).await, b"GET / HTTP/1.0\r\n\r\n");
    let large = vec![b'x'; 300_000];
    send(&stream, [route.clone(), "HTTP/1.0 200 OK\r\n\r\n".into()]).await;
    send(&stream, [route.clone(), large.into()]).await;
    // No bytes end the connection once the others are written.
    send(&stream, [route.clone(), Bytes::new()]).await;
    let error = stream.send([route.clone(), "behind the end".into()]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let mut response = Vec::new();
    timeout(LIMIT, client.read_to_end(&mut response)).await.unwrap().unwrap();
    assert_eq!(response.len(), 19 + 300_000);
    assert!(response.starts_with(b"HTTP/1.0 200 OK\r\n\r\nxxx"));
    assert_eq!(recv(&stream).await, Message::from([route.clone(), Bytes::new()]), "the end is reported");
    let error = stream.send([route, "late".into()]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
}

#[tokio::test]
async fn a_stream_connects_with_an_id_of_its_choice_and_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = with(Stream, |options| options.reconnect.interval = std::time::Duration::from_millis(5));
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    stream.connect_as(&endpoint, "server").await.unwrap();
    for _ in 0..2 {
        let (mut server, _) = timeout(LIMIT, listener.accept()).await.unwrap().unwrap();
        assert_eq!(recv(&stream).await, Message::from(["server", ""]));
        send(&stream, ["server", "ping"]).await;
        let mut ping = [0; 4];
        server.read_exact(&mut ping).await.unwrap();
        server.write_all(b"pong").await.unwrap();
        assert_eq!(bytes(&stream, &"server".into(), 4).await, b"pong");
        drop(server);
        assert_eq!(recv(&stream).await, Message::from(["server", ""]));
    }
    for id in [&b""[..], b"\0a", &[1; 256]] {
        let error = stream.connect_as(&endpoint, Bytes::copy_from_slice(id)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    let error = socket(Dealer).connect_as(&endpoint, "id").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State, "{error}");
}

#[tokio::test]
async fn a_quiet_stream_reports_no_connections() {
    let stream = with(Stream, |options| options.routing.stream_notify = false);
    let mut client = client(&stream).await;
    client.write_all(b"a").await.unwrap();
    assert_eq!(text(&stream).await, "a");
    drop(client);
    until(&stream, |stats| stats.peers.is_empty()).await;
    assert_eq!(stream.try_recv().unwrap(), None);
}

#[tokio::test]
async fn a_stream_does_not_read_or_write_above_its_limits() {
    let stream = with(Stream, |options| {
        options.queues.receive_bytes_max = 64 << 10;
        options.queues.send_messages_max = 2;
    });
    let mut client = client(&stream).await;
    let route = recv(&stream).await.frames()[0].clone();
    // The peer writes until the buffers of the system are full.
    let part = vec![0; 64 << 10];
    let mut written = 0;
    while let Ok(bytes) = timeout(std::time::Duration::from_millis(100), client.write(&part)).await {
        written += bytes.unwrap();
        assert!(written < 64 << 20, "the stream reads without a limit");
    }
    assert!(stream.stats().peers[0].unread <= 17, "{:?}", stream.stats());
    // A send to a peer that does not read waits.
    let large = Bytes::from(vec![0; 8 << 20]);
    let mut sent = 0;
    while stream.try_send([route.clone(), large.clone()]).is_ok() {
        sent += 1;
        assert!(sent < 10, "the stream sends without a limit");
        tokio::task::yield_now().await;
    }
    let error = stream.try_send([route.clone(), large]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert_eq!(bytes(&stream, &route, written).await.len(), written);
}

#[tokio::test]
async fn a_stream_refuses_other_messages_and_transports() {
    let stream = socket(Stream);
    for message in [Message::from("one"), Message::from(["a", "b", "c"])] {
        assert_eq!(stream.send(message).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(stream.send(["unknown", "x"]).await.unwrap_err().kind(), ErrorKind::Unreachable);
    for endpoint in &super::endpoints()[1..] {
        assert_eq!(stream.bind_to(endpoint).await.unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(stream.connect_to(endpoint).await.unwrap_err().kind(), ErrorKind::Unsupported);
    }
}

#[tokio::test]
async fn a_router_reports_peers_that_come_and_go() {
    for (connect, disconnect) in [(true, true), (true, false), (false, true)] {
        let router = with(Router, |options| {
            options.routing.notify_connect = connect;
            options.routing.notify_disconnect = disconnect;
        });
        let dealer = with(Dealer, |options| options.routing.routing_id = "d".into());
        join(&router, &dealer, "tcp://127.0.0.1:0").await;
        send(&dealer, "hello").await;
        if connect {
            assert_eq!(recv(&router).await, Message::from(["d", ""]));
        }
        assert_eq!(recv(&router).await, Message::from(["d", "hello"]));
        dealer.close().await;
        until(&router, |stats| stats.peers.is_empty()).await;
        if disconnect {
            assert_eq!(recv(&router).await, Message::from(["d", ""]));
        }
        assert_eq!(router.try_recv().unwrap(), None);
    }
}

#[tokio::test]
async fn a_router_that_connects_gives_its_peer_an_id() {
    let (dealer, router) = (socket(Dealer), with(Router, |options| options.routing.mandatory = true));
    let endpoint = dealer.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    router.connect_as(&endpoint, "mine").await.unwrap();
    until(&router, |stats| stats.peers.iter().any(|peer| peer.is_connected)).await;
    send(&router, ["mine", "hello"]).await;
    assert_eq!(text(&dealer).await, "hello");
    send(&dealer, "back").await;
    assert_eq!(recv(&router).await, Message::from(["mine", "back"]));
}

#[tokio::test]
async fn a_connection_that_was_ended_does_not_wait_for_ever_for_a_peer_that_does_not_read() {
    let stream = with(Stream, |options| {
        options.timeouts.linger = Some(std::time::Duration::from_millis(20));
    });
    let _client = client(&stream).await;
    let route = recv(&stream).await.frames()[0].clone();
    send(&stream, [route.clone(), vec![0; 64 << 20].into()]).await;
    send(&stream, [route.clone(), Bytes::new()]).await;
    assert_eq!(recv(&stream).await, Message::from([route, Bytes::new()]), "the end is reported");
    assert_eq!((stream.stats().peers.len(), stream.stats().dropped), (0, 1));
}

#[tokio::test]
async fn a_connection_that_the_application_ended_is_not_made_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = with(Stream, |options| options.reconnect.interval = std::time::Duration::from_millis(1));
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    stream.connect_as(&endpoint, "server").await.unwrap();
    let (mut server, _) = timeout(LIMIT, listener.accept()).await.unwrap().unwrap();
    assert_eq!(recv(&stream).await, Message::from(["server", ""]));
    send(&stream, ["server", "last"]).await;
    send(&stream, ["server", ""]).await;
    let mut bytes = Vec::new();
    timeout(LIMIT, server.read_to_end(&mut bytes)).await.unwrap().unwrap();
    assert_eq!(bytes, b"last");
    drop(server);
    assert_eq!(recv(&stream).await, Message::from(["server", ""]));
    let again = timeout(std::time::Duration::from_millis(200), listener.accept()).await;
    assert!(again.is_err(), "the stream connects again");
    // The application can connect again.
    stream.disconnect(&endpoint).unwrap();
    stream.connect_as(&endpoint, "server").await.unwrap();
    timeout(LIMIT, listener.accept()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_stream_refuses_the_options_of_zmtp() {
    type Change = fn(&mut SocketOptions);
    let changes: [(&str, Change); 4] = [
        ("security", |options| options.security = Security::plain_client("admin", "secret").unwrap()),
        ("security", |options| {
            options.security = Security::default().with_verifier(async |_| Verdict::Refused);
        }),
        ("heartbeats.interval", |options| options.heartbeats.interval = Some(LIMIT)),
        ("notices.hello", |options| options.notices.hello = Some("hello".into())),
    ];
    for (name, change) in changes {
        let mut options = SocketOptions::default();
        change(&mut options);
        Socket::new(Dealer, options.clone()).unwrap();
        let error = Socket::new(Stream, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(&format!("option {name} is not available on STREAM")), "{error}");
    }
}
