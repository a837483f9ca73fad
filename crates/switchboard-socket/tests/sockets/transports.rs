//! Every pair of socket types over tcp, ipc and inproc.

use super::*;
use switchboard_socket::SocketType::{self, *};

const BODIES: [usize; 6] = [0, 1, 255, 256, 9_000, 300_000];

fn message(sizes: &[usize]) -> Message {
    Message::new(sizes.iter().map(|size| vec![b'x'; *size]))
}

async fn exchange(bound: SocketType, connecting: SocketType, endpoint: &str) {
    let (one, other) = pair(bound, connecting, endpoint).await;
    match (bound, connecting) {
        (Push, Pull) | (Scatter, Gather) => one_way(&one, &other).await,
        (Pull, Push) | (Gather, Scatter) => one_way(&other, &one).await,
        (Pub | Xpub, _) => publish(&one, &other).await,
        (_, Pub | Xpub) => publish(&other, &one).await,
        (Radio, Dish) => groups(&one, &other).await,
        (Dish, Radio) => groups(&other, &one).await,
        (Rep, _) => request(&other, &one).await,
        (_, Rep) => request(&one, &other).await,
        (Router, Req | Dealer) => request(&other, &one).await,
        (Req | Dealer, Router) => request(&one, &other).await,
        (Server, Client) => request(&other, &one).await,
        (Client, Server) => request(&one, &other).await,
        _ => both_ways(&one, &other).await,
    }
    let reports = [one.stats(), other.stats()];
    assert!(reports.iter().all(|stats| stats.dropped == 0), "{reports:?}");
}

fn sample(kind: SocketType) -> Message {
    if matches!(kind, Scatter | Channel | Client | Server) { message(&[300_000]) } else { message(&BODIES) }
}

async fn one_way(from: &Socket, to: &Socket) {
    for _ in 0..3 {
        send(from, sample(from.kind())).await;
        assert_eq!(recv(to).await, sample(from.kind()));
    }
}

async fn both_ways(one: &Socket, other: &Socket) {
    one_way(one, other).await;
    one_way(other, one).await;
}

async fn request(client: &Socket, server: &Socket) {
    for _ in 0..2 {
        // A DEALER writes the envelope that REQ adds.
        let envelope: &[usize] = if client.kind() == Dealer { &[0] } else { &[] };
        let body = if client.kind() == Client { vec![9_000] } else { BODIES.to_vec() };
        send(client, message(&[envelope, &body].concat())).await;
        let mut frames = recv(server).await.into_frames();
        let route: Vec<_> = match server.kind() {
            Router => frames.drain(..2).collect(),
            Server => frames.drain(..1).collect(),
            _ => Vec::new(),
        };
        assert_eq!(Message::from(frames.clone()), message(&body));
        frames.reverse();
        let reply = Message::from(frames.clone());
        frames.splice(..0, route);
        send(server, frames).await;
        let received = recv(client).await;
        assert_eq!(received.frames()[envelope.len()..], *reply.frames());
    }
}

async fn publish(publisher: &Socket, subscriber: &Socket) {
    subscriber.subscribe("top").unwrap();
    if publisher.kind() == Xpub {
        assert_eq!(recv(publisher).await, Message::from("\u{1}top"));
    }
    // A PUB drops messages until it has read the subscription.
    let mut sent = 0;
    let first = loop {
        send(publisher, [format!("topic {sent}"), "first".to_owned()]).await;
        sent += 1;
        tokio::task::yield_now().await;
        if let Some(message) = subscriber.try_recv().unwrap() {
            break message;
        }
    };
    assert_eq!(first.body(), b"first");
    send(publisher, ["other", "not delivered"]).await;
    send(publisher, ["top", "last"]).await;
    while recv(subscriber).await != Message::from(["top", "last"]) {}
    if publisher.kind() == Xpub {
        subscriber.unsubscribe("top").unwrap();
        assert_eq!(recv(publisher).await, Message::from("\0top"));
    }
}

async fn groups(radio: &Socket, dish: &Socket) {
    dish.join("g").unwrap();
    loop {
        send(radio, ["g", "body"]).await;
        send(radio, ["h", "not delivered"]).await;
        tokio::task::yield_now().await;
        if let Some(message) = dish.try_recv().unwrap() {
            assert_eq!(message, Message::from(["g", "body"]));
            return;
        }
    }
}

#[tokio::test]
async fn every_pair_of_types_talks_over_every_transport() {
    for bound in SocketType::ALL {
        for connecting in bound.peers() {
            // Two ROUTERs know no id of each other, and PEER addresses by number: both have tests of their own.
            if matches!((bound, connecting), (Router, Router) | (Peer, _)) {
                continue;
            }
            for endpoint in endpoints() {
                let exchanged = exchange(bound, *connecting, &endpoint);
                if timeout(LIMIT, exchanged).await.is_err() {
                    panic!("{bound} bound, {connecting} connecting, {endpoint}: not in time");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_socket_has_many_endpoints() {
    let pull = socket(Pull);
    let mut pushes = Vec::new();
    for endpoint in endpoints() {
        let bound = pull.bind_to(&endpoint).await.unwrap().to_string();
        for _ in 0..2 {
            let push = socket(Push);
            push.connect_to(&bound).await.unwrap();
            send(&push, bound.as_str()).await;
            pushes.push(push);
        }
    }
    assert_eq!(pull.endpoints().len(), 3);
    let mut received = Vec::new();
    for _ in 0..6 {
        received.push(text(&pull).await);
    }
    received.sort_unstable();
    received.dedup();
    assert_eq!(received.len(), 3, "{received:?}");
    assert_eq!(pull.stats().peers.len(), 6);
}

#[tokio::test]
async fn inproc_connects_before_it_is_bound() {
    let [_, _, endpoint] = endpoints();
    let push = socket(Push);
    push.connect_to(&endpoint).await.unwrap();
    assert!(push.try_send("no peer").is_err());
    let pull = socket(Pull);
    pull.bind_to(&endpoint).await.unwrap();
    send(&push, "task").await;
    assert_eq!(text(&pull).await, "task");
    assert!(socket(Pull).bind_to(&endpoint).await.is_err(), "the name is in use");
    pull.close().await;
    socket(Pull).bind_to(&endpoint).await.unwrap();
}
