//! The frames of RFC 12, with plain sockets on the other side.

use super::*;
use bytes::Bytes;
use switchboard_socket::{Dealer, Pub, Router, Sub, Xpub};

const ONE: [u8; 8] = [0, 0, 0, 0, 0, 0, 0, 1];

fn frames(parts: &[&[u8]]) -> Message {
    Message::new(parts.iter().map(|part| Bytes::copy_from_slice(part)).collect::<Vec<_>>())
}

#[tokio::test]
async fn a_server_speaks_the_published_protocol() {
    let server = server().await;
    server.set("/a/k", "v", None).unwrap();
    let endpoints = server.endpoints();
    let dealer = Dealer::connect(&endpoints.snapshot).await.unwrap();
    dealer.send(["ICANHAZ?", "/a/"]).await.unwrap();
    assert_eq!(recv(&dealer).await, frames(&[b"/a/k", &ONE, b"", b"", b"v"]));
    assert_eq!(recv(&dealer).await, frames(&[b"KTHXBAI", &ONE, b"", b"", b"/a/"]));
    let sub = Sub::connect(&endpoints.updates).await.unwrap();
    sub.subscribe("/a/").unwrap();
    sub.subscribe("HUGZ").unwrap();
    assert_eq!(recv(&sub).await, frames(&[b"HUGZ", &[0; 8], b"", b"", b""]));
    let publisher = Xpub::connect(&endpoints.collector).await.unwrap();
    assert_eq!(recv(&publisher).await.body(), b"\x01");
    publisher.send(frames(&[b"/a/n", &[0; 8], &[9; 16], b"ttl=60\nx=y\n", b"w"])).await.unwrap();
    let mut update = recv(&sub).await;
    while update.frames()[0] == "HUGZ" {
        update = recv(&sub).await;
    }
    let two = [0, 0, 0, 0, 0, 0, 0, 2];
    assert_eq!(update, frames(&[b"/a/n", &two, &[9; 16], b"ttl=60\nx=y\n", b"w"]));
}

#[tokio::test]
async fn a_client_speaks_the_published_protocol() {
    let (snapshot, updates, collector) =
        (Router::bind(ANY).await.unwrap(), Pub::bind(ANY).await.unwrap(), Sub::bind(ANY).await.unwrap());
    collector.subscribe("").unwrap();
    let at = |endpoints: Vec<switchboard_socket::Endpoint>| endpoints[0].to_string();
    let endpoints =
        CloneEndpoints::new(at(snapshot.endpoints()), at(updates.endpoints()), at(collector.endpoints()));
    // A server without HUGZ: the request follows after half of the limit.
    let client = client_of(endpoints).subtree("/a/").start().unwrap();
    let request = recv(&snapshot).await;
    let [identity, rest @ ..] = request.frames() else { panic!("{request:?}") };
    assert_eq!(rest, ["ICANHAZ?", "/a/"]);
    let answer = |parts: &[&[u8]]| {
        let mut message = vec![identity.clone()];
        message.extend(parts.iter().map(|part| Bytes::copy_from_slice(part)));
        message
    };
    snapshot.send(answer(&[b"/a/k", &[0; 8], b"", b"", b"v"])).await.unwrap();
    snapshot.send(answer(&[b"KTHXBAI", &ONE, b"", b"", b"/a/"])).await.unwrap();
    within(client.synchronized()).await;
    assert_eq!(client.get("/a/k").unwrap(), "v");
    let confirming = async {
        let set = recv(&collector).await;
        let [key, sequence, id, properties, value] = set.frames() else { panic!("{set:?}") };
        assert_eq!((key, &sequence[..], id.len()), (&Bytes::from("/a/n"), &[0; 8][..], 16));
        assert_eq!((properties, value), (&Bytes::from("ttl=30\n"), &Bytes::from("w")));
        updates.send(frames(&[key, &[0, 0, 0, 0, 0, 0, 0, 9], id, properties, value])).await.unwrap();
    };
    let (set, ()) = tokio::join!(client.set_for("/a/n", "w", Duration::from_secs(30)), confirming);
    assert_eq!((set.unwrap(), client.get("/a/n").unwrap()), (9, "w".into()));
}

/// Receives a request for a snapshot; returns the identity of its client.
async fn requested(snapshot: &Router) -> Bytes {
    let request = recv(snapshot).await;
    let [identity, rest @ ..] = request.frames() else { panic!("{request:?}") };
    assert_eq!(rest, ["ICANHAZ?", ""]);
    identity.clone()
}

async fn answer(snapshot: &Router, identity: &Bytes, parts: &[&[u8]]) {
    let mut message = vec![identity.clone()];
    message.extend(parts.iter().map(|part| Bytes::copy_from_slice(part)));
    snapshot.send(message).await.unwrap();
}

#[tokio::test]
async fn a_client_requests_a_snapshot_again_after_a_loss_a_restart_or_a_gap() {
    let (snapshot, updates, collector) =
        (Router::bind(ANY).await.unwrap(), Pub::bind(ANY).await.unwrap(), Sub::bind(ANY).await.unwrap());
    let at = |endpoints: Vec<switchboard_socket::Endpoint>| endpoints[0].to_string();
    let endpoints =
        CloneEndpoints::new(at(snapshot.endpoints()), at(updates.endpoints()), at(collector.endpoints()));
    let client = client_of(endpoints).start().unwrap();
    let heart = updates.clone();
    // A live server: HUGZ does not stand for a snapshot.
    let beating = tokio::spawn(async move {
        loop {
            heart.send(frames(&[b"HUGZ", &[0; 8], b"", b"", b""])).await.unwrap();
            tokio::time::sleep(HEARTBEAT).await;
        }
    });
    let first = requested(&snapshot).await;
    answer(&snapshot, &first, &[b"stale", &ONE, b"", b"", b"v"]).await;
    let second = requested(&snapshot).await;
    assert_ne!(first, second, "entries of two snapshots do not mix");
    let number = |number: u8| [0, 0, 0, 0, 0, 0, 0, number];
    answer(&snapshot, &second, &[b"k", &number(4), b"", b"", b"v"]).await;
    answer(&snapshot, &second, &[b"KTHXBAI", &number(4), b"", b"", b""]).await;
    within(client.synchronized()).await;
    assert_eq!(entries(&client).into_keys().collect::<Vec<_>>(), ["k"]);
    for (sequence, value) in [(5, b"5"), (1, b"1")] {
        updates.send(frames(&[b"k", &number(sequence), b"", b"", value])).await.unwrap();
    }
    // The number 1 after 5: the server has restarted.
    let third = requested(&snapshot).await;
    answer(&snapshot, &third, &[b"KTHXBAI", &number(0), b"", b"", b""]).await;
    until(|| client.get("k").is_some_and(|value| value == "1")).await;
    assert_eq!((client.stats().sequence, client.stats().gaps), (1, 0));
    updates.send(frames(&[b"k", &number(3), b"", b"", b"3"])).await.unwrap();
    let fourth = requested(&snapshot).await;
    answer(&snapshot, &fourth, &[b"two", &number(2), b"", b"", b"v"]).await;
    answer(&snapshot, &fourth, &[b"KTHXBAI", &number(2), b"", b"", b""]).await;
    until(|| client.stats().sequence == 3).await;
    assert_eq!((client.stats().gaps, client.stats().lost, client.stats().entries), (1, 0, 2));
    beating.abort();
}

#[tokio::test]
async fn any_frames_at_any_socket_leave_the_server_and_the_client_alive() {
    let server = server().await;
    let client = client(&server).await;
    let endpoints = server.endpoints();
    let dealer = Dealer::connect(&endpoints.snapshot).await.unwrap();
    let publisher = Xpub::connect(&endpoints.collector).await.unwrap();
    recv(&publisher).await;
    let xsub = switchboard_socket::Xsub::connect(&endpoints.updates).await.unwrap();
    let mut random = fastrand::Rng::with_seed(11);
    let words: [&[u8]; 8] =
        [b"ICANHAZ?", b"HUGZ", b"KTHXBAI", b"/a/", &[0; 8], &[0; 16], b"ttl=1\n", &[0xFF; 40]];
    for _ in 0..500 {
        let parts: Vec<&[u8]> = (0..random.usize(1..8)).map(|_| words[random.usize(..words.len())]).collect();
        within(dealer.send(frames(&parts))).await.unwrap();
        within(publisher.send(frames(&parts))).await.unwrap();
        // Its own rules refuse some, such as the end of a subscription that does not exist.
        let _ = within(xsub.send(frames(&parts))).await;
    }
    for socket in [dealer.as_ref(), publisher.as_ref(), xsub.as_ref()] {
        until(|| socket.stats().peers.iter().all(|peer| peer.unsent == 0)).await;
    }
    until(|| server.stats().invalid > 0).await;
    within(client.set("k", "v")).await.unwrap();
    assert_eq!(client.stats().lost, 0);
}
