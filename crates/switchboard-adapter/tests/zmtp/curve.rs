//! Peers with CURVE: keys that the server knows and does not know, and each kind of traffic in boxes.

use super::{
    calls::Desk,
    peer::{Peer, closed, settled, soon},
    raw,
};
use ring::rand::{SecureRandom, SystemRandom};
use switchboard::{
    Caller, Codec, Running, Server, StopOptions,
    auth::{Basic, CurveKeys},
};
use switchboard_adapter::{CurveSecretKey, Zmtp};
use switchboard_fanout::Options;
use switchboard_message::{Bus, Delivery, Pattern, Publication, TopicRule, TopicRules};
use switchboard_wire::zmtp::{CurveClient, Mechanism, Randomness, Settings, SocketType};

const SERVER: u8 = 1;
const DESK: u8 = 2;

fn secret(number: u8) -> CurveSecretKey {
    CurveSecretKey::new([number; 32])
}

/// Settings of a peer with this key, for the server with the key `server`.
fn settings(kind: SocketType, key: u8, server: u8) -> Settings {
    let random = |bytes: &mut [u8]| SystemRandom::new().fill(bytes).map_err(|error| error.to_string());
    let keys = CurveClient::new(secret(key), secret(server).public_key(), Randomness::new(random));
    Settings::new(kind).with_mechanism(Mechanism::CurveClient(keys))
}

async fn connect(running: &Running, kind: SocketType) -> Peer {
    Peer::open(running, settings(kind, DESK, SERVER)).await.expect("a handshake")
}

/// A server that knows the key of the desk.
async fn start(zmtp: &Zmtp) -> Running {
    let keys = CurveKeys::default().key(secret(DESK).public_key(), Caller::new("desk"));
    let server = Server::new().plugin(zmtp.clone()).auth(keys).add(Desk::default());
    server.listen("tcp://127.0.0.1:0").start().await.unwrap()
}

#[tokio::test]
async fn keys_are_checked_by_the_server() {
    let bus = Bus::new();
    let zmtp = Zmtp::new(bus.clone()).curve(secret(SERVER));
    let running = start(&zmtp).await;
    let mut peer = connect(&running, SocketType::Sub).await;
    peer.subscribe(b"a").await;
    settled(&mut peer).await;
    bus.publish_encoded("a", raw("x")).await.unwrap();
    assert_eq!(peer.message().await.unwrap(), [b"a", b"x"]);
    assert!(Peer::open(&running, settings(SocketType::Sub, 3, SERVER)).await.is_none(), "an unknown key");
    assert_eq!(closed(&zmtp, "credentials"), 1, "{:?}", zmtp.closed());
    assert!(Peer::open(&running, settings(SocketType::Sub, DESK, 9)).await.is_none(), "another server");
    assert_eq!(closed(&zmtp, "curve"), 1, "{:?}", zmtp.closed());
    assert!(Peer::open(&running, Settings::new(SocketType::Sub)).await.is_none(), "NULL");
    assert_eq!(closed(&zmtp, "mechanism"), 1, "{:?}", zmtp.closed());
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn subscribers_get_the_entries_of_their_prefixes_once() {
    let bus = Bus::new();
    let zmtp = Zmtp::new(bus.clone()).curve(secret(SERVER));
    let running = start(&zmtp).await;
    let mut peers = [connect(&running, SocketType::Sub).await, connect(&running, SocketType::Xsub).await];
    for peer in &mut peers {
        for prefix in [&b"a"[..], b"a/b", b"c"] {
            peer.subscribe(prefix).await;
        }
        assert!(peer.connection.cancel(b"c", &mut peer.out));
        settled(peer).await;
    }
    let mut publisher = connect(&running, SocketType::Pub).await;
    publisher.event().await.expect("a subscription to everything");
    publisher.send(&[b"c", b"no"]).await;
    publisher.send(&[b"a/b", b"one", b"", b"three"]).await;
    publisher.send(&[b"a/b", b"last"]).await;
    for peer in &mut peers {
        assert_eq!(peer.message().await.unwrap(), [&b"a/b"[..], b"one", b"", b"three"]);
        assert_eq!(peer.message().await.unwrap(), [&b"a/b"[..], b"last"]);
    }
    let [gone, mut left] = peers;
    drop(gone);
    bus.publish_encoded("a", raw("x")).await.unwrap();
    assert_eq!(left.message().await.unwrap(), [b"a", b"x"]);
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn jobs_and_publications_travel_in_boxes() {
    let bus = Bus::new();
    let mut all = bus.subscribe_encoded(Pattern::prefix("")).await.unwrap();
    let zmtp = Zmtp::new(bus).curve(secret(SERVER)).pipeline("jobs", "workers").unwrap();
    let running = start(&zmtp).await;
    let mut worker = connect(&running, SocketType::Pull).await;
    let mut pusher = connect(&running, SocketType::Push).await;
    for _ in 0..3 {
        pusher.send(&[b"part", b"job"]).await;
        assert_eq!(worker.message().await.unwrap(), [&b"part"[..], b"job"]);
        let Some(Delivery::Entry(entry)) = soon(all.next()).await.unwrap() else { panic!("no entry") };
        assert_eq!((entry.topic().name(), &entry[..]), ("jobs", &b"partjob"[..]));
    }
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn calls_have_the_caller_of_the_key() {
    let zmtp = Zmtp::new(Bus::new()).curve(secret(SERVER)).services([SocketType::Dealer]);
    let running = start(&zmtp).await;
    let mut peer = connect(&running, SocketType::Dealer).await;
    peer.send(&[b"test.Desk/Name", b""]).await;
    assert_eq!(peer.message().await.unwrap(), [&b"OK"[..], b"desk"]);
    // Metadata proves nothing: the key of the connection counts.
    let key = format!("authorization: Curve {}", secret(3).public_key());
    peer.send(&[b"test.Desk/Name", key.as_bytes(), b""]).await;
    assert_eq!(peer.message().await.unwrap(), [&b"OK"[..], b"desk"]);
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn rules_of_topics_are_for_the_caller_of_the_key() {
    let bus = Bus::new();
    let rules = TopicRules::new([TopicRule::topics("a/>").callers(["desk"]), TopicRule::topics(">").deny()]);
    let zmtp = Zmtp::new(bus.clone()).curve(secret(SERVER)).rules(rules.unwrap());
    let running = start(&zmtp).await;
    let mut peer = connect(&running, SocketType::Sub).await;
    for prefix in [&b"a"[..], b"b/", b"a/"] {
        peer.subscribe(prefix).await;
    }
    settled(&mut peer).await;
    assert_eq!(zmtp.stats().refused_subscriptions, 2);
    // Messages without a topic have one, which the caller may not read.
    for (topic, text) in [("b/1", "no"), ("zmq", "a/ no"), ("a/1", "yes")] {
        bus.publish_encoded(topic, raw(text)).await.unwrap();
    }
    assert_eq!(peer.message().await.unwrap(), [&b"a/1"[..], b"yes"]);
    settled(&mut peer).await;
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_loses_entries_and_stays() {
    let bus = Bus::new();
    let zmtp = Zmtp::new(bus.clone()).curve(secret(SERVER));
    let mut options = Options::default();
    options.outbox_bytes_max = 100_000;
    let zmtp = zmtp.options(options);
    let running = start(&zmtp).await;
    let (mut slow, mut quick) =
        (connect(&running, SocketType::Sub).await, connect(&running, SocketType::Sub).await);
    for peer in [&mut slow, &mut quick] {
        peer.subscribe(b"t").await;
        settled(peer).await;
    }
    let body = "x".repeat(50_000);
    let mut sent = 0;
    while zmtp.stats().lagged_bytes == 0 {
        bus.publish_encoded("t", Publication::new(Codec::Raw, body.clone())).await.unwrap();
        sent += 1;
        assert_eq!(quick.message().await.unwrap()[1].len(), body.len());
        assert!(sent < 10_000, "it never lags");
    }
    drop(quick);
    // It reads what was sent to it, and then what follows.
    let mut received = 0;
    loop {
        bus.publish_encoded("t", raw("end")).await.unwrap();
        if slow.message().await.expect("the connection is open")[1] == b"end" {
            break;
        }
        received += 1;
    }
    assert!(received < sent, "{received} of {sent}");
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn a_server_needs_a_decision_on_keys() {
    let curve = || Zmtp::new(Bus::new()).curve(secret(SERVER));
    let start = |server: Server| async move { server.listen("tcp://127.0.0.1:0").start().await };
    let error = start(Server::new().plugin(curve())).await.err().unwrap().to_string();
    assert!(error.contains("auth::CurveKeys") && error.contains("Zmtp::anonymous"), "{error}");
    let keys = || CurveKeys::default().key(secret(DESK).public_key(), Caller::new("desk"));
    let error = start(Server::new().plugin(curve().plain()).auth(keys())).await.err().unwrap().to_string();
    assert!(error.contains("choose one"), "{error}");
    let running = start(Server::new().plugin(curve().anonymous())).await.unwrap();
    assert!(Peer::open(&running, settings(SocketType::Sub, 7, SERVER)).await.is_some(), "any key");
    running.stop(StopOptions::new()).await;
    // A server that knows no keys admits none.
    let basic = Basic::default().user("a", "b", Caller::new("a"));
    let running = start(Server::new().plugin(curve()).auth(basic)).await.unwrap();
    assert!(Peer::open(&running, settings(SocketType::Sub, DESK, SERVER)).await.is_none());
    running.stop(StopOptions::new()).await;
}
