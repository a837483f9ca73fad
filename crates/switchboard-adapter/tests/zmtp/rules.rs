//! Rules of topics: peers with a caller who may use a topic, and with one who may not.

use super::{
    peer::{Peer, settled, soon},
    raw,
};
use switchboard::{Caller, Running, Server, auth::Basic};
use switchboard_adapter::Zmtp;
use switchboard_message::{Bus, Delivery, Pattern, TopicRule, TopicRules};
use switchboard_wire::zmtp::{Event, SocketType};

fn rules(of_single_frames: TopicRule) -> TopicRules {
    let rules = TopicRules::new([
        TopicRule::topics("quotes/>").to_subscribe(),
        TopicRule::topics("quotes/>").roles(["market"]).entry_bytes_max(20).rate(0.01).burst(2),
        TopicRule::topics("secret/>").callers(["alice"]),
        TopicRule::topics("jobs").to_publish().callers(["alice"]),
        TopicRule::topics("jobs").to_subscribe().callers(["nyse"]),
        of_single_frames,
        TopicRule::topics(">").deny(),
    ]);
    rules.unwrap()
}

async fn serve(zmtp: &Zmtp) -> Running {
    let auth = Basic::default().user("alice", "a", Caller::new("alice")).user(
        "nyse",
        "n",
        Caller::new("nyse").role("market"),
    );
    Server::new().plugin(zmtp.clone()).auth(auth).listen("tcp://127.0.0.1:0").start().await.unwrap()
}

async fn alice(running: &Running, kind: SocketType) -> Peer {
    Peer::log_in_as(running, kind, "alice", "a").await.expect("a login")
}

async fn market(running: &Running, kind: SocketType) -> Peer {
    Peer::log_in_as(running, kind, "nyse", "n").await.expect("a login")
}

/// Skips the subscription that the server sends to a PUB.
async fn publisher(mut peer: Peer) -> Peer {
    assert!(matches!(peer.event().await, Some(Event::Subscribe(_))));
    peer
}

fn refused(zmtp: &Zmtp) -> (u64, u64, Vec<(&'static str, u64)>) {
    (zmtp.stats().refused, zmtp.stats().refused_subscriptions, zmtp.refused())
}

#[tokio::test]
async fn subscribers_get_the_topics_of_their_rules() {
    let bus = Bus::new();
    let zmtp = Zmtp::new(bus.clone()).plain().rules(rules(TopicRule::topics("zmq").callers(["alice"])));
    let running = serve(&zmtp).await;
    let mut peers = [alice(&running, SocketType::Sub).await, market(&running, SocketType::Xsub).await];
    for peer in &mut peers {
        // The first ones include topics that the caller may not read.
        for prefix in [&b""[..], b"quotes", b"other", b"secret/", b"quotes/"] {
            peer.subscribe(prefix).await;
        }
        // One that was refused does not exist.
        assert!(peer.connection.cancel(b"", &mut peer.out));
        peer.flush().await;
        settled(peer).await;
    }
    assert_eq!(refused(&zmtp), (0, 7, vec![("permission_denied", 7)]));
    let [mut alice, mut market] = peers;
    for topic in ["other", "quotes", "secret/a", "zmq", "quotes/x"] {
        bus.publish_encoded(topic, raw("quotes/ in content")).await.unwrap();
    }
    // In each topic alone there is an order.
    let mut names = Vec::new();
    for _ in 0..3 {
        names.push(String::from_utf8(alice.message().await.unwrap().swap_remove(0)).unwrap());
    }
    names.sort();
    assert_eq!(names, ["quotes/ in content", "quotes/x", "secret/a"]);
    assert_eq!(market.message().await.unwrap()[0], b"quotes/x");
    // Now both have the same prefixes, and not the same rights.
    assert!(alice.connection.cancel(b"secret/", &mut alice.out));
    alice.flush().await;
    settled(&mut alice).await;
    bus.publish_encoded("zmq", raw("quotes/ again")).await.unwrap();
    assert_eq!(alice.message().await.unwrap(), [b"quotes/ again"]);
    bus.publish_encoded("quotes/x", raw("last")).await.unwrap();
    for peer in [&mut alice, &mut market] {
        assert_eq!(peer.message().await.unwrap(), [&b"quotes/x"[..], b"last"]);
        settled(peer).await;
    }
}

#[tokio::test]
async fn messages_of_publishers_follow_the_rules() {
    let bus = Bus::new();
    let mut all = bus.subscribe_encoded(Pattern::prefix("")).await.unwrap();
    let zmtp = Zmtp::new(bus).plain().rules(rules(TopicRule::topics("zmq").public()));
    let running = serve(&zmtp).await;
    let mut alice = publisher(alice(&running, SocketType::Pub).await).await;
    let mut market = publisher(market(&running, SocketType::Xpub).await).await;
    let large = [b'x'; 21];
    alice.send(&[b"quotes/x", b"no"]).await;
    alice.send(&[b"other", b"no"]).await;
    alice.send(&[b"secret/a", b"1"]).await;
    settled(&mut alice).await;
    assert_eq!(refused(&zmtp), (2, 0, vec![("permission_denied", 2)]));
    market.send(&[b"secret/a", b"no"]).await;
    market.send(&[b"quotes/x", &large]).await;
    for text in [b"2", b"3", b"4"] {
        market.send(&[b"quotes/x", text]).await;
    }
    market.send(&[b"alone"]).await;
    settled(&mut market).await;
    assert_eq!(refused(&zmtp), (5, 0, vec![("permission_denied", 3), ("resource_exhausted", 2)]));
    let mut entries = Vec::new();
    while entries.len() < 4 {
        let Some(Delivery::Entry(entry)) = soon(all.next()).await.unwrap() else { panic!("no entry") };
        entries.push(format!("{}={}", entry.topic(), String::from_utf8_lossy(&entry[..])));
    }
    entries.sort();
    assert_eq!(entries, ["quotes/x=2", "quotes/x=3", "secret/a=1", "zmq=alone"]);
    assert_eq!(zmtp.stats().published, 4);
}

#[tokio::test]
async fn jobs_follow_the_rules_of_their_topic() {
    let zmtp = Zmtp::new(Bus::new()).plain().pipeline("jobs", "workers").unwrap();
    let zmtp = zmtp.rules(rules(TopicRule::topics("zmq").deny()));
    let running = serve(&zmtp).await;
    // The first worker, which would get the jobs.
    let mut idle = alice(&running, SocketType::Pull).await;
    settled(&mut idle).await;
    let mut worker = market(&running, SocketType::Pull).await;
    let mut stranger = market(&running, SocketType::Push).await;
    stranger.send(&[b"no"]).await;
    settled(&mut stranger).await;
    assert_eq!(refused(&zmtp), (1, 1, vec![("permission_denied", 2)]));
    let mut pusher = alice(&running, SocketType::Push).await;
    for text in [&b"1"[..], b"2", b"3"] {
        pusher.send(&[text]).await;
        assert_eq!(worker.message().await.unwrap(), [text]);
    }
    settled(&mut idle).await;
}

#[tokio::test]
async fn a_peer_without_a_login_is_no_caller() {
    let zmtp = Zmtp::new(Bus::new()).rules(rules(TopicRule::topics("zmq").public()));
    let running = super::start(&zmtp).await;
    let mut peer = Peer::connect(&running, SocketType::Sub).await;
    peer.subscribe(b"quotes/").await;
    settled(&mut peer).await;
    let mut publisher = publisher(Peer::connect(&running, SocketType::Pub).await).await;
    publisher.send(&[b"quotes/x", b"no"]).await;
    settled(&mut publisher).await;
    assert_eq!(refused(&zmtp), (1, 1, vec![("unauthenticated", 2)]));
}
