//! Servers that are killed, split off and restarted, and clients that are slow.

use super::*;
use switchboard_socket::{Dealer, SocketOptions};

async fn follower(of: &CloneServer) -> CloneServer {
    let builder = CloneServer::builder().follow(of.endpoints()).follow_silence(SILENCE);
    let follower = start(builder).await;
    until(|| follower.stats().entries == of.stats().entries).await;
    follower
}

#[tokio::test]
async fn clients_of_a_killed_server_continue_at_its_follower() {
    let primary = server().await;
    let backup = follower(&primary).await;
    let builder = client_of(primary.endpoints()).server_at(backup.endpoints()).set_timeout(LIMIT);
    let client = builder.connect().await.unwrap();
    client.set("before", "1").await.unwrap();
    until(|| backup.get("before").is_some()).await;
    let refused = backup.set("k", "v", None).unwrap_err();
    assert!(refused.to_string().contains("follows"), "{refused}");
    let mut events = client.events();
    drop(primary);
    // Set while there is no server: repeated until the follower has taken over.
    client.set("after", "2").await.unwrap();
    assert!(
        matches!(event(&mut events, is_lost).await, CloneEvent::Lost { server: 0, reason, is_silent: true, .. }
        if reason.contains("silence_max"))
    );
    assert_eq!(client.stats().server, Some(1));
    assert_eq!(backup.get("after").unwrap(), "2");
    let expected = [("after", "2"), ("before", "1")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(entries(&client), BTreeMap::from(expected));
    assert!(!backup.is_following());
    // The killed one returns as a follower, with the table.
    let restarted = follower(&backup).await;
    assert_eq!(restarted.get("after").unwrap(), "2");
}

#[tokio::test]
async fn a_follower_copies_deletions_and_refuses_updates_of_clients() {
    let primary = server().await;
    primary.set("a", "1", None).unwrap();
    let backup = follower(&primary).await;
    primary.set("b", "1", Some(Duration::from_secs(3600))).unwrap();
    primary.set("a", "", None).unwrap();
    until(|| backup.get("a").is_none() && backup.get("b").is_some()).await;
    let client = client_of(backup.endpoints()).set_timeout(HEARTBEAT * 10).connect().await.unwrap();
    assert_eq!(client.set("c", "1").await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(backup.stats().refused > 0 && backup.is_following() && backup.get("c").is_none());
}

#[tokio::test]
async fn a_restarted_server_without_a_table_empties_its_clients() {
    let first = server().await;
    let endpoints = first.endpoints();
    let client = client(&first).await;
    client.set("k", "v").await.unwrap();
    let mut events = client.events();
    within(first.stop()).await;
    event(&mut events, is_lost).await;
    assert!(client.get("k").is_some(), "the copy stays until there is a server");
    let _second = CloneServer::builder().bind_at(endpoints).heartbeat(HEARTBEAT).start().await.unwrap();
    within(client.synchronized()).await;
    until(|| client.get("k").is_none()).await;
    client.set("k", "v").await.unwrap();
}

#[tokio::test]
async fn a_client_that_was_split_off_catches_up() {
    let server = server().await;
    server.set("k", "1", None).unwrap();
    let endpoints = server.endpoints();
    let networks = [
        Forwarder::to(&endpoints.snapshot).await,
        Forwarder::to(&endpoints.updates).await,
        Forwarder::to(&endpoints.collector).await,
    ];
    let [snapshot, updates, collector] = networks.each_ref().map(|network| network.endpoint.clone());
    let builder = client_of(CloneEndpoints::new(snapshot, updates, collector)).set_timeout(LIMIT);
    let client = builder.connect().await.unwrap();
    let mut events = client.events();
    networks.iter().for_each(Forwarder::cut);
    server.set("k", "2", None).unwrap();
    let setting = client.set("own", "3");
    let repairing = async {
        event(&mut events, is_lost).await;
        networks.iter().for_each(Forwarder::repair);
    };
    let (set, ()) = tokio::join!(within(setting), repairing);
    set.unwrap();
    assert_eq!((client.get("k").unwrap(), client.get("own").unwrap()), ("2".into(), "3".into()));
    assert_eq!(server.stats().updates, 3, "the repeated update is applied once");
}

#[tokio::test]
async fn a_short_failure_of_the_connection_for_updates_loses_no_update() {
    let server = server().await;
    let endpoints = server.endpoints();
    let network = Forwarder::to(&endpoints.updates).await;
    let through = CloneEndpoints::new(endpoints.snapshot, network.endpoint.clone(), endpoints.collector);
    let client = client_of(through).silence_max(LIMIT).connect().await.unwrap();
    network.cut();
    server.set("lost", "1", None).unwrap();
    network.repair();
    // No further update: the connection itself leads to a new snapshot.
    until(|| client.get("lost").is_some()).await;
    assert_eq!(client.stats().lost, 0);
}

#[tokio::test]
async fn a_server_that_restarts_within_the_silence_limit_is_noticed() {
    let first = server().await;
    let endpoints = first.endpoints();
    let client = client_of(endpoints.clone()).silence_max(LIMIT).set_timeout(LIMIT).connect().await.unwrap();
    for value in 0..9 {
        client.set("old", format!("{value}")).await.unwrap();
    }
    within(first.stop()).await;
    let second = CloneServer::builder().bind_at(endpoints).heartbeat(HEARTBEAT).start().await.unwrap();
    // No update: the connection shows it.
    until(|| client.get("old").is_none()).await;
    client.set("new", "1").await.unwrap();
    assert_eq!((second.get("new"), client.get("new")), (Some("1".into()), Some("1".into())));
    assert_eq!((client.stats().lost, client.stats().snapshots), (0, 2));
}

#[tokio::test]
async fn a_follower_at_a_limit_does_not_take_over_from_a_live_server() {
    let primary = server().await;
    primary.set("a", "1", None).unwrap();
    let mut small = CloneLimits::default();
    small.entries_max = 1;
    let builder = CloneServer::builder().follow(primary.endpoints()).follow_silence(LIMIT).limits(small);
    let backup = start(builder).await;
    until(|| backup.get("a").is_some()).await;
    primary.set("b", "1", None).unwrap();
    // Connects again after it has left the primary.
    let snapshots = primary.stats().snapshots;
    until(|| primary.stats().snapshots > snapshots).await;
    primary.set("b", "", None).unwrap();
    primary.set("a", "2", None).unwrap();
    until(|| backup.get("a").is_some_and(|value| value == "2")).await;
    assert!(backup.is_following());
}

#[tokio::test]
async fn a_follower_does_not_take_over_after_a_pause_of_its_process() {
    let primary = server().await;
    primary.set("a", "1", None).unwrap();
    let backup = follower(&primary).await;
    // Nothing reads the messages of the primary, as in a process that is stopped.
    std::thread::sleep(SILENCE * 2);
    primary.set("a", "2", None).unwrap();
    until(|| backup.get("a").is_some_and(|value| value == "2")).await;
    assert!(backup.is_following());
}

#[tokio::test]
async fn a_snapshot_that_takes_too_long_leaves_its_slot() {
    let mut options = SocketOptions::default();
    options.queues.send_messages_max = 4;
    let limit = Duration::from_secs(2);
    let server = CloneServer::builder().options(options).snapshots_max(1).snapshot_timeout(limit);
    let server = start(server).await;
    for key in 0..30 {
        server.set(&format!("{key}"), vec![1; 1 << 20], None).unwrap();
    }
    let mut small = SocketOptions::default();
    small.queues.receive_messages_max = 1;
    let stalled = Dealer::with_options(small).unwrap();
    stalled.connect_to(&server.endpoints().snapshot).await.unwrap();
    stalled.send(["ICANHAZ?", ""]).await.unwrap();
    until(|| server.stats().snapshots == 1).await;
    // Below the limit of one entry, which would end the snapshot of the stalled client, too.
    let client = client_of(server.endpoints()).silence_max(limit).connect_timeout(limit * 4);
    assert_eq!(client.connect().await.unwrap().stats().entries, 30);
    assert!(server.stats().snapshots_refused > 0);
}

#[tokio::test]
async fn time_limits_of_sockets_end_no_server_and_no_client() {
    let mut options = SocketOptions::default();
    options.timeouts.receive = Some(Duration::ZERO);
    options.timeouts.send = Some(Duration::ZERO);
    let server = start(CloneServer::builder().options(options.clone())).await;
    let client = client_of(server.endpoints()).options(options).connect().await.unwrap();
    within(client.set("k", "v")).await.unwrap();
    assert_eq!(client.stats().lost, 0);
}

#[tokio::test]
async fn a_client_that_does_not_read_its_snapshot_delays_no_other() {
    let mut options = SocketOptions::default();
    options.queues.send_messages_max = 4;
    let server = start(CloneServer::builder().options(options.clone()).snapshots_max(2)).await;
    for key in 0..30 {
        server.set(&format!("{key}"), vec![1; 1 << 20], None).unwrap();
    }
    let mut stalled = Vec::new();
    let mut small = SocketOptions::default();
    small.queues.receive_messages_max = 1;
    for number in 1..=3 {
        let dealer = Dealer::with_options(small.clone()).unwrap();
        dealer.connect_to(&server.endpoints().snapshot).await.unwrap();
        dealer.send(["ICANHAZ?", ""]).await.unwrap();
        dealer.send(["ICANHAZ?", ""]).await.unwrap();
        until(|| server.stats().snapshots + server.stats().snapshots_refused == number * 2).await;
        stalled.push(dealer);
    }
    // One snapshot at a time for a client, and two for all.
    assert_eq!((server.stats().snapshots, server.stats().snapshots_refused), (2, 4));
    stalled.clear();
    let client =
        client_of(server.endpoints()).silence_max(LIMIT).connect_timeout(LIMIT).connect().await.unwrap();
    assert_eq!(client.stats().entries, 30);
}
