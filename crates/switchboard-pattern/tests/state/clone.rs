//! Clone: snapshots and updates, with killed, split, slow and restarted peers.

mod faults;
mod wire;

use super::{forwarder::Forwarder, *};
use std::collections::BTreeMap;
use switchboard_pattern::{
    ErrorKind,
    clone::{
        CloneClient, CloneClientBuilder, CloneEndpoints, CloneEvent, CloneEvents, CloneLimits, CloneServer,
        CloneServerBuilder,
    },
};

const HEARTBEAT: Duration = Duration::from_millis(20);
/// Many heartbeats: a machine that is busy must not fail over.
const SILENCE: Duration = Duration::from_secs(2);

async fn start(builder: CloneServerBuilder) -> CloneServer {
    builder.bind(ANY).unwrap().heartbeat(HEARTBEAT).start().await.unwrap()
}

async fn server() -> CloneServer {
    start(CloneServer::builder()).await
}

fn client_of(endpoints: CloneEndpoints) -> CloneClientBuilder {
    CloneClient::builder().server_at(endpoints).silence_max(SILENCE).connect_timeout(LIMIT)
}

async fn client(server: &CloneServer) -> CloneClient {
    client_of(server.endpoints()).connect().await.unwrap()
}

fn entries(client: &CloneClient) -> BTreeMap<String, String> {
    let text = |value: bytes::Bytes| String::from_utf8(value.to_vec()).unwrap();
    client.entries().into_iter().map(|(key, value)| (key, text(value))).collect()
}

fn is_lost(event: &CloneEvent) -> bool {
    matches!(event, CloneEvent::Lost { .. })
}

async fn event(events: &mut CloneEvents, matches: impl Fn(&CloneEvent) -> bool) -> CloneEvent {
    within(async {
        loop {
            let event = events.next().await.expect("the client runs");
            if matches(&event) {
                return event;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_client_has_the_snapshot_and_then_each_update() {
    let server = server().await;
    server.set("/a/1", "one", None).unwrap();
    server.set("/b/1", "other", None).unwrap();
    let (first, second) = (client(&server).await, client(&server).await);
    let mut events = second.events();
    assert_eq!(first.set("/a/2", "two").await.unwrap(), 3);
    assert_eq!(first.delete("/a/1").await.unwrap(), 4);
    let expected = [("/a/2", "two"), ("/b/1", "other")];
    let expected: BTreeMap<_, _> =
        expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    until(|| second.stats().sequence == 4).await;
    assert_eq!((entries(&first), entries(&second)), (expected.clone(), expected));
    assert!(matches!(events.next().await.unwrap(), CloneEvent::Updated { key, value, .. }
        if key == "/a/2" && value == "two"));
    assert!(matches!(events.next().await.unwrap(), CloneEvent::Deleted { key, .. } if key == "/a/1"));
    assert_eq!((server.get("/a/1"), server.get("/a/2")), (None, Some("two".into())));
    let stats = second.stats();
    assert_eq!(
        (stats.entries, stats.bytes, stats.snapshots, stats.gaps, stats.server),
        (2, 16, 1, 0, Some(0))
    );
}

#[tokio::test]
async fn a_client_of_a_subtree_has_its_keys_only() {
    let server = server().await;
    server.set("/a/1", "one", None).unwrap();
    server.set("/b/1", "other", None).unwrap();
    let part = client_of(server.endpoints()).subtree("/a/").connect().await.unwrap();
    server.set("/b/2", "other", None).unwrap();
    server.set("/a/2", "two", None).unwrap();
    until(|| part.stats().entries == 2).await;
    assert_eq!(entries(&part).into_keys().collect::<Vec<_>>(), ["/a/1", "/a/2"]);
    let outside = part.set("/b/3", "x").await.unwrap_err();
    assert_eq!(outside.kind(), ErrorKind::InvalidInput);
    assert!(outside.to_string().contains("subtree \"/a/\""), "{outside}");
}

#[tokio::test]
async fn values_with_a_time_to_live_end_everywhere() {
    let server = server().await;
    let (setting, watching) = (client(&server).await, client(&server).await);
    let mut events = watching.events();
    setting.set("kept", "x").await.unwrap();
    setting.set_for("ephemeral", "x", Duration::from_millis(200)).await.unwrap();
    let ttl = |event: &CloneEvent| matches!(event, CloneEvent::Updated { ttl: Some(_), .. });
    let CloneEvent::Updated { key, ttl, .. } = event(&mut events, ttl).await else { unreachable!() };
    assert_eq!((&*key, ttl), ("ephemeral", Some(Duration::from_secs(1))), "whole seconds, rounded up");
    let deleted = event(&mut events, |event| matches!(event, CloneEvent::Deleted { .. })).await;
    assert!(matches!(deleted, CloneEvent::Deleted { key, .. } if key == "ephemeral"));
    until(|| setting.get("ephemeral").is_none()).await;
    assert_eq!((server.stats().expired, server.get("kept").is_some()), (1, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_write_at_the_same_time_have_one_table_in_the_end() {
    const CLIENTS: u64 = 4;
    const UPDATES: u64 = 100;
    let server = server().await;
    let mut writers = Vec::new();
    for number in 0..CLIENTS {
        let client = client(&server).await;
        writers.push(tokio::spawn(async move {
            for update in 0..UPDATES {
                let key = format!("/shared/{}", (update + number) % 7);
                client.set(&key, format!("{number}.{update}")).await.unwrap();
            }
            client
        }));
    }
    let mut clients = Vec::new();
    for writer in writers {
        clients.push(within(writer).await.unwrap());
    }
    let late = client(&server).await;
    until(|| clients.iter().all(|client| client.stats().sequence == server.stats().sequence)).await;
    for client in &clients {
        assert_eq!((entries(client), client.stats().gaps), (entries(&late), 0));
    }
    let stats = server.stats();
    assert_eq!((stats.updates, stats.entries), (CLIENTS * UPDATES, 7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_joins_during_updates_misses_none() {
    let server = std::sync::Arc::new(server().await);
    for key in 0..2000 {
        server.set(&format!("/{key:04}"), "old", None).unwrap();
    }
    let writer = {
        let server = server.clone();
        tokio::spawn(async move {
            for key in 0..2000 {
                server.set(&format!("/{key:04}"), "new", None).unwrap();
                tokio::task::yield_now().await;
            }
        })
    };
    let joined = client(&server).await;
    within(writer).await.unwrap();
    until(|| joined.stats().sequence == 4000).await;
    assert!(joined.entries().values().all(|value| value == "new"));
    assert_eq!(joined.stats().entries, 2000);
}

#[tokio::test]
async fn limits_are_named() {
    let limits = CloneLimits::default();
    let mut small = limits;
    (small.entries_max, small.value_bytes_max, small.key_bytes_max) = (1, 8, 8);
    let server = start(CloneServer::builder().limits(small)).await;
    server.set("k", "v", None).unwrap();
    let error = server.set("second", "v", None).unwrap_err();
    assert!(error.kind() == ErrorKind::Limit && error.to_string().contains("entries_max"), "{error}");
    for (key, value, word) in
        [("", "v", "empty"), ("123456789", "v", "key_bytes_max"), ("k", "123456789", "value_bytes_max=8")]
    {
        let error = server.set(key, value, None).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains(word), "{error}");
    }
    let client = client_of(server.endpoints()).set_timeout(HEARTBEAT * 10).connect().await.unwrap();
    let refused = client.set("second", "v").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TimedOut);
    assert!(server.stats().refused > 1 && client.get("second").is_none());
    assert_eq!(client.set("k", "").await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn a_client_leaves_a_server_with_more_than_its_limits() {
    let server = server().await;
    for key in ["a", "b"] {
        server.set(key, "v", None).unwrap();
    }
    let mut small = CloneLimits::default();
    small.entries_max = 1;
    let refused =
        client_of(server.endpoints()).limits(small).connect_timeout(SILENCE).connect().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TimedOut);
    assert!(refused.to_string().contains("entries_max=1"), "{refused}");
}

#[tokio::test]
async fn a_slow_receiver_of_events_learns_that_it_missed_some() {
    let server = server().await;
    let client = client_of(server.endpoints()).events_max(2).connect().await.unwrap();
    let mut events = client.events();
    for value in 0..9 {
        server.set("k", format!("{value}"), None).unwrap();
    }
    until(|| client.stats().sequence == 9).await;
    assert_eq!(events.next().await.unwrap(), CloneEvent::Lagged { count: 7 });
}

#[tokio::test]
async fn settings_are_checked() {
    let mut waiting = switchboard_socket::SocketOptions::default();
    waiting.queues.when_full = switchboard_socket::options::QueueFullPolicy::Wait;
    let error = CloneServer::builder().bind(ANY).unwrap().options(waiting).start().await.unwrap_err();
    assert!(error.to_string().contains("when_full"), "{error}");
    let error = CloneServer::builder().start().await.unwrap_err();
    assert!(error.to_string().contains("bind"), "{error}");
    let error = CloneClient::builder().start().unwrap_err();
    assert!(error.to_string().contains("server"), "{error}");
    let error = client_of(server().await.endpoints()).subtree("a").start().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}
