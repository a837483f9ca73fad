//! Peers of ZMTP on a server: what they may do, and what ends with them. Sockets of libzmq are in `interop/zmtp`.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod calls;
mod counters;
mod curve;
mod peer;
mod router;
mod rules;

use peer::{Peer, closed, settled, soon};
use std::{sync::Arc, time::Duration};
use switchboard::{
    Caller, Codec, Running, Server, Status, StopOptions,
    auth::{self, Basic, Checked, Credential, Tokens},
};
use switchboard_adapter::Zmtp;
use switchboard_message::{
    Bus, Delivery, Pattern, Publication, SlowReader, TopicOptions, TopicRule, TopicRules,
};
use switchboard_wire::zmtp::{Event, Settings, SocketType};

async fn start(zmtp: &Zmtp) -> Running {
    Server::new().plugin(zmtp.clone()).listen("tcp://127.0.0.1:0").start().await.unwrap()
}

fn raw(text: &'static str) -> Publication {
    Publication::new(Codec::Raw, text)
}

#[tokio::test]
async fn entries_of_the_bus_reach_subscribers() {
    let bus = Bus::new();
    let running = start(&Zmtp::new(bus.clone())).await;
    let mut peer = Peer::connect(&running, SocketType::Sub).await;
    peer.subscribe(b"a/").await;
    settled(&mut peer).await;
    for (topic, text) in [("b/1", "no"), ("a/1", "one"), ("a/1", "two")] {
        bus.publish_encoded(topic, raw(text)).await.unwrap();
    }
    assert_eq!(peer.message().await.unwrap(), [b"a/1".to_vec(), b"one".to_vec()]);
    assert_eq!(peer.message().await.unwrap(), [b"a/1".to_vec(), b"two".to_vec()]);
    // An entry with lengths of frames that do not fit, of another publisher: one frame.
    let mut forged = raw("text");
    forged.headers.insert("zmq-frame-lengths", "3,2").unwrap();
    bus.publish_encoded("a/1", forged).await.unwrap();
    assert_eq!(peer.message().await.unwrap(), [b"a/1".to_vec(), b"text".to_vec()]);
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn a_prefix_that_is_added_loses_no_entry() {
    let bus = Bus::new();
    let running = start(&Zmtp::new(bus.clone())).await;
    let mut peer = Peer::connect(&running, SocketType::Sub).await;
    peer.subscribe(b"t").await;
    settled(&mut peer).await;
    // More prefixes than a shared set has, each of which moves the subscriber to another set.
    let mut expected = 0;
    for at in 0..40_u8 {
        for _ in 0..5 {
            bus.publish_encoded("t", raw("x")).await.unwrap();
            expected += 1;
        }
        peer.subscribe(&[b'p', at]).await;
    }
    for _ in 0..expected {
        assert_eq!(peer.message().await.unwrap()[0], b"t");
    }
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn messages_of_publishers_are_entries() {
    let bus = Bus::new();
    let mut all = bus.subscribe_encoded(Pattern::prefix("")).await.unwrap();
    let zmtp = Zmtp::new(bus).pipeline("jobs", "workers").unwrap();
    let running = start(&zmtp).await;
    let mut publisher = Peer::connect(&running, SocketType::Pub).await;
    let Some(Event::Subscribe(everything)) = publisher.event().await else { panic!("no subscription") };
    assert_eq!(everything, "");
    publisher.send(&[b"t", b"one", b"two"]).await;
    let Some(Delivery::Entry(entry)) = soon(all.next()).await.unwrap() else { panic!("no entry") };
    assert_eq!((entry.topic().name(), &entry[..]), ("t", &b"onetwo"[..]));
    assert_eq!(entry.headers().text("zmq-frame-lengths"), Some("3,3"));
    let mut pusher = Peer::connect(&running, SocketType::Push).await;
    pusher.send(&[b"job"]).await;
    let Some(Delivery::Entry(entry)) = soon(all.next()).await.unwrap() else { panic!("no entry") };
    assert_eq!((entry.topic().name(), &entry[..]), ("jobs", &b"job"[..]));
    assert_eq!(zmtp.stats().published, 2);
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn jobs_that_no_peer_has_go_back_to_the_group() {
    // Room for all of them while no member takes them.
    let jobs = TopicOptions::new().backlog_bytes(128 << 20);
    let bus = Bus::builder().topics("jobs", jobs).unwrap().build();
    let zmtp = Zmtp::new(bus.clone()).pipeline("jobs", "workers").unwrap();
    let running = start(&zmtp).await;
    let mut peer = Peer::connect(&running, SocketType::Pull).await;
    settled(&mut peer).await;
    let mut own = zmtp.member().unwrap().await.unwrap();
    // More than the buffers of the connection have room for; the peer reads one.
    let body = vec![b'x'; 512 << 10];
    for _ in 0..64 {
        bus.publish_encoded("jobs", Publication::new(Codec::Raw, body.clone())).await.unwrap();
    }
    assert_eq!(peer.message().await.unwrap()[0].len(), body.len());
    drop(peer);
    // The other member gets those that were not written to the connection, at least half of them.
    for _ in 0..32 {
        let Some(Delivery::Entry(job)) = soon(own.next()).await.unwrap() else { panic!("no job") };
        assert!(job.ack());
    }
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn a_server_with_credentials_needs_a_decision() {
    let server = |zmtp: Zmtp| {
        let auth = Tokens::default().token("secret", Caller::new("admin"));
        Server::new().plugin(zmtp).auth(auth).listen("tcp://127.0.0.1:0")
    };
    let text = server(Zmtp::new(Bus::new())).start().await.err().unwrap().to_string();
    assert!(text.contains("plugin: zmtp does not start") && text.contains("Zmtp::anonymous"), "{text}");
    let text = server(Zmtp::new(Bus::new()).anonymous().plain()).start().await.err().unwrap().to_string();
    assert!(text.contains("choose one"), "{text}");
    let unchecked = Server::new().plugin(Zmtp::new(Bus::new()).plain()).listen("tcp://127.0.0.1:0");
    let text = unchecked.start().await.err().unwrap().to_string();
    assert!(text.contains("the server checks none: add Server::auth"), "{text}");
    let running = server(Zmtp::new(Bus::new()).anonymous()).start().await.unwrap();
    Peer::connect(&running, SocketType::Sub).await;
}

#[tokio::test]
async fn limits_of_a_peer_close_its_connection() {
    let zmtp = Zmtp::new(Bus::new());
    let running = start(&zmtp).await;
    let mut subscriber = Peer::connect(&running, SocketType::Sub).await;
    for at in 0..10_001_u32 {
        assert!(subscriber.connection.subscribe(&at.to_be_bytes(), &mut subscriber.out));
    }
    subscriber.flush().await;
    assert_eq!(subscriber.event().await, None, "10,001 subscriptions");
    let mut noisy = Peer::connect(&running, SocketType::Sub).await;
    for _ in 0..1000 {
        assert!(noisy.connection.ping(None, b"x", &mut noisy.out));
    }
    noisy.flush().await;
    while noisy.event().await.is_some() {}
    assert_eq!(zmtp.stats().protocol_errors, 2);
    // Others are not affected.
    let mut peer = Peer::connect(&running, SocketType::Sub).await;
    settled(&mut peer).await;
}

#[tokio::test]
async fn logins_are_checked_by_the_server() {
    let bus = Bus::new();
    let zmtp = Zmtp::new(bus.clone()).plain();
    let basic = Basic::default().user("alice", "secret", Caller::new("alice"));
    let tokens = Tokens::default().token("t0ken", Caller::new("robot"));
    let server = Server::new().plugin(zmtp.clone()).auth(basic).auth(tokens).listen("tcp://127.0.0.1:0");
    let running = server.start().await.unwrap();
    for (username, password) in [("alice", "secret"), ("bearer", "t0ken")] {
        let mut peer = Peer::log_in(&running, username, password).await.expect("a login");
        peer.subscribe(b"a").await;
        settled(&mut peer).await;
        bus.publish_encoded("a", raw("x")).await.unwrap();
        assert_eq!(peer.message().await.unwrap(), [b"a", b"x"]);
    }
    for (username, password) in
        [("alice", "wrong"), ("bob", "secret"), ("alice:s", "ecret"), ("", "none"), ("", "")]
    {
        assert!(Peer::log_in(&running, username, password).await.is_none(), "{username} {password}");
    }
    assert_eq!(closed(&zmtp, "credentials"), 5, "{:?}", zmtp.closed());
    // Another mechanism.
    assert!(Peer::open(&running, Settings::new(SocketType::Sub)).await.is_none());
    assert_eq!(closed(&zmtp, "mechanism"), 1, "{:?}", zmtp.closed());
}

#[tokio::test]
async fn a_verifier_that_waits_stops_no_other_peer() {
    let (release, released) = tokio::sync::watch::channel(false);
    let slow = auth::from_fn("slow", move |credentials| {
        let Some(pair) = credentials.authorization("Basic").map(str::to_owned) else {
            return Checked::Absent;
        };
        let mut released = released.clone();
        Checked::Later(Box::pin(async move {
            // Of "slow:x" and "down:x"; that of others is ready at once.
            match pair.as_str() {
                "c2xvdzp4" => drop(released.wait_for(|released| *released).await),
                "ZG93bjp4" => return Err(Status::unavailable("the store is down")),
                _ => {}
            }
            Ok(Arc::new(Caller::new(pair)))
        }))
    });
    let zmtp = Zmtp::new(Bus::new()).plain();
    let auth = slow.reads(Credential::Authorization("Basic".into()));
    let server = Server::new().plugin(zmtp.clone()).auth(auth).listen("tcp://127.0.0.1:0");
    let running = server.start().await.unwrap();
    let mut waiting = std::pin::pin!(Peer::log_in(&running, "slow", "x"));
    let quick = async {
        assert!(Peer::log_in(&running, "quick", "x").await.is_some());
        assert!(Peer::log_in(&running, "down", "x").await.is_none(), "a verifier that fails admits no peer");
    };
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("the verdict waits"),
        () = quick => {}
    }
    release.send_replace(true);
    assert!(waiting.await.is_some());
    assert_eq!(closed(&zmtp, "credentials"), 1);
}

#[tokio::test]
async fn topics_without_subscribers_are_not_read() {
    let bus = Bus::new();
    let zmtp = Zmtp::new(bus.clone());
    let running = start(&zmtp).await;
    let mut peer = Peer::connect(&running, SocketType::Sub).await;
    peer.subscribe(b"a/b/").await;
    settled(&mut peer).await;
    let publish = async |topic: &'static str| {
        bus.publish_encoded(topic, raw("x")).await.unwrap();
    };
    for _ in 0..100 {
        publish("other").await;
    }
    publish("a/b/1").await;
    assert_eq!(peer.message().await.unwrap()[0], b"a/b/1");
    assert_eq!(zmtp.stats().read, 1, "entries of other topics");

    // Prefixes of another peer, shorter and longer: each entry arrives once at each.
    let mut wide = Peer::connect(&running, SocketType::Sub).await;
    wide.subscribe(b"a/").await;
    wide.subscribe(b"a/b/1").await;
    settled(&mut wide).await;
    for topic in ["a/b/1", "a/c", "a/b/2", "a/b/1"] {
        publish(topic).await;
        assert_eq!(wide.message().await.unwrap()[0], topic.as_bytes());
    }
    for topic in ["a/b/1", "a/b/2", "a/b/1"] {
        assert_eq!(peer.message().await.unwrap()[0], topic.as_bytes());
    }
    // The shorter prefix still gets the topics that were read for the longer one.
    drop(peer);
    for at in 0..50 {
        publish(if at % 2 == 0 { "a/b/1" } else { "a/d" }).await;
        wide.message().await.unwrap();
    }
    assert!(wide.connection.cancel(b"a/", &mut wide.out));
    wide.flush().await;
    settled(&mut wide).await;
    publish("a/d").await;
    publish("a/b/1").await;
    assert_eq!(wide.message().await.unwrap()[0], b"a/b/1");
    drop(wide);
    soon(async {
        while running.stats().connections > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let read = zmtp.stats().read;
    for _ in 0..10 {
        publish("a/b/1").await;
    }
    let mut last = Peer::connect(&running, SocketType::Sub).await;
    settled(&mut last).await;
    assert_eq!(zmtp.stats().read, read, "entries without a subscriber");
}

#[tokio::test]
async fn prefixes_compare_the_content_of_messages_without_a_topic() {
    let bus = Bus::new();
    let running = start(&Zmtp::new(bus.clone())).await;
    let mut peer = Peer::connect(&running, SocketType::Sub).await;
    // Longer than any name of a topic.
    let long = vec![b'p'; 300];
    peer.subscribe(&long).await;
    peer.subscribe(b"zmq").await;
    settled(&mut peer).await;
    let mut publisher = Peer::connect(&running, SocketType::Pub).await;
    for text in [&long[..], b"other", b"zmq is the name", &[&long[..], b"!"].concat()] {
        publisher.send(&[text]).await;
    }
    for expected in [&long[..], b"zmq is the name", &[&long[..], b"!"].concat()] {
        assert_eq!(peer.message().await.unwrap(), [expected]);
    }
}

#[tokio::test]
async fn many_prefixes_are_read_together() {
    let bus = Bus::new();
    let zmtp = Zmtp::new(bus.clone());
    let running = start(&zmtp).await;
    let mut peer = Peer::connect(&running, SocketType::Sub).await;
    let names: Vec<String> = (0..500).map(|at| format!("t{at:03}")).collect();
    for name in &names {
        peer.subscribe(name.as_bytes()).await;
    }
    settled(&mut peer).await;
    for name in &names {
        bus.publish_encoded(name, raw("x")).await.unwrap();
    }
    let mut arrived = Vec::new();
    for _ in &names {
        arrived.push(String::from_utf8(peer.message().await.unwrap().swap_remove(0)).unwrap());
    }
    arrived.sort();
    assert_eq!(arrived, names, "each once");
    settled(&mut peer).await;
}

#[tokio::test]
async fn a_push_waits_for_a_topic_whose_publishers_wait() {
    let jobs = TopicOptions::new().backlog(2).slow_reader(SlowReader::Wait(Duration::from_secs(20)));
    let bus = Bus::builder().topics("jobs", jobs).unwrap().build();
    // Each counts once in the rate, also one that waits.
    let rules = TopicRules::new([TopicRule::topics("jobs").public().rate(0.001).burst(200)]).unwrap();
    let zmtp = Zmtp::new(bus.clone()).pipeline("jobs", "workers").unwrap().rules(rules);
    let running = start(&zmtp).await;
    let mut own = zmtp.member().unwrap().await.unwrap();
    let mut peer = Peer::connect(&running, SocketType::Push).await;
    for at in 0..200_u8 {
        peer.send(&[&[at]]).await;
    }
    // Others are not affected.
    let mut other = Peer::connect(&running, SocketType::Pub).await;
    assert!(matches!(other.event().await, Some(Event::Subscribe(_))));
    settled(&mut other).await;
    for at in 0..200_u8 {
        let Some(Delivery::Entry(job)) = soon(own.next()).await.unwrap() else { panic!("no job") };
        assert_eq!(job[..], [at], "none is lost");
        assert!(job.ack());
    }
    assert_eq!((zmtp.stats().refused, zmtp.stats().published), (0, 200));
}

#[tokio::test]
async fn a_group_has_a_valid_name() {
    for (name, bytes) in [(String::new(), 0), ("g".repeat(257), 257)] {
        let status = Zmtp::new(Bus::new()).pipeline("jobs", &name).unwrap_err();
        let expected = format!("the name of the group has {bytes} bytes; expected 1 to 256 (key_bytes_max)");
        assert!(status.message().contains(&expected), "{status}");
    }
}

#[tokio::test]
async fn jobs_wait_for_the_first_worker() {
    let zmtp = Zmtp::new(Bus::new()).pipeline("jobs", "workers").unwrap();
    let running = start(&zmtp).await;
    let mut pusher = Peer::connect(&running, SocketType::Push).await;
    for at in 0..100_u8 {
        pusher.send(&[&[at]]).await;
    }
    soon(async {
        while zmtp.stats().published < 100 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut worker = Peer::connect(&running, SocketType::Pull).await;
    for at in 0..100_u8 {
        assert_eq!(worker.message().await.unwrap(), [[at]]);
    }
}
