//! Pairs of nodes: killed, restarted and split.

use super::{forwarder::Forwarder, *};
use switchboard_pattern::{
    ErrorKind,
    binary_star::{BinaryStar, Conflict, State},
};
use switchboard_socket::Pub;

const HEARTBEAT: Duration = Duration::from_millis(20);
/// Many heartbeats: a machine that is busy must not fail over.
const FAILOVER: Duration = Duration::from_secs(2);

struct Pair {
    primary: BinaryStar,
    backup: BinaryStar,
    /// The networks from the primary to the backup, and back.
    networks: [Forwarder; 2],
}

async fn node(builder: switchboard_pattern::binary_star::BinaryStarBuilder) -> BinaryStar {
    builder.bind(ANY).heartbeat(HEARTBEAT).failover_after(FAILOVER).start().await.unwrap()
}

/// A primary that is active, and a backup that is passive.
async fn pair() -> Pair {
    let (primary, backup) = (node(BinaryStar::primary()).await, node(BinaryStar::backup()).await);
    let networks = [
        Forwarder::to(&backup.endpoints()[0].to_string()).await,
        Forwarder::to(&primary.endpoints()[0].to_string()).await,
    ];
    primary.connect(&networks[0].endpoint).await.unwrap();
    backup.connect(&networks[1].endpoint).await.unwrap();
    within(primary.until(State::Active)).await.unwrap();
    within(backup.until(State::Passive)).await.unwrap();
    Pair { primary, backup, networks }
}

#[tokio::test]
async fn the_primary_serves_and_the_backup_refuses() {
    let pair = pair().await;
    pair.primary.admit().unwrap();
    let refused = pair.backup.admit().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotActive);
    assert!(refused.to_string().contains("passive"), "{refused}");
    assert_eq!((pair.primary.stats().admitted, pair.backup.stats().refused), (1, 1));
}

#[tokio::test]
async fn the_backup_takes_over_from_a_killed_primary_which_returns_as_passive() {
    let Pair { primary, backup, networks } = pair().await;
    drop(primary);
    within(async {
        while backup.admit().is_err() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    assert_eq!(backup.state(), State::Active);
    let primary = node(BinaryStar::primary()).await;
    primary.connect(&networks[0].endpoint).await.unwrap();
    within(primary.until(State::Passive)).await.unwrap();
    backup.connect(&primary.endpoints()[0].to_string()).await.unwrap();
    assert_eq!(backup.state(), State::Active);
    // The other way round: the backup restarts, and the primary serves.
    drop(backup);
    within(async {
        while primary.admit().is_err() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_backup_alone_waits_and_a_primary_alone_serves_after_the_limit() {
    let backup = node(BinaryStar::backup()).await;
    let primary = node(BinaryStar::primary()).await;
    assert_eq!(primary.admit().unwrap_err().kind(), ErrorKind::NotActive);
    within(async {
        while primary.admit().is_err() {
            assert!(backup.admit().is_err());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    assert_eq!((primary.state(), backup.state()), (State::Active, State::Backup));
}

#[tokio::test]
async fn a_split_that_clients_see_ends_with_the_conflict_when_it_heals() {
    let pair = pair().await;
    pair.networks.iter().for_each(Forwarder::cut);
    within(async {
        while pair.backup.admit().is_err() {
            pair.primary.admit().unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    assert_eq!((pair.primary.state(), pair.backup.state()), (State::Active, State::Active));
    pair.networks.iter().for_each(Forwarder::repair);
    let (conflict, node) = within(async {
        tokio::select! {
            conflict = pair.primary.changed(State::Active) => (conflict, &pair.primary),
            conflict = pair.backup.changed(State::Active) => (conflict, &pair.backup),
        }
    })
    .await;
    assert_eq!(conflict, Err(Conflict::BothActive));
    assert_ne!(node.state(), State::Active, "a node that has ended serves no client");
    assert_eq!(node.admit().unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn a_split_without_requests_changes_nothing() {
    let pair = pair().await;
    pair.networks.iter().for_each(Forwarder::cut);
    let sent = pair.primary.stats().sent;
    until(|| pair.primary.stats().sent > sent + 40).await;
    assert_eq!((pair.primary.state(), pair.backup.state()), (State::Active, State::Passive));
    pair.networks.iter().for_each(Forwarder::repair);
    let received = pair.backup.stats().received;
    until(|| pair.backup.stats().received > received).await;
    assert_eq!((pair.primary.state(), pair.backup.state()), (State::Active, State::Passive));
}

#[tokio::test]
async fn a_paused_process_does_not_make_both_nodes_active() {
    let pair = pair().await;
    // Nothing reads the states of the peer, as in a process that is stopped.
    std::thread::sleep(FAILOVER + HEARTBEAT);
    assert_eq!(pair.backup.admit().unwrap_err().kind(), ErrorKind::NotActive);
    let received = pair.backup.stats().received;
    until(|| pair.backup.stats().received > received + 3).await;
    assert_eq!(pair.backup.admit().unwrap_err().kind(), ErrorKind::NotActive);
    pair.primary.admit().unwrap();
}

#[tokio::test]
async fn two_primaries_are_a_conflict_and_bytes_that_are_no_state_are_counted() {
    let first = node(BinaryStar::primary()).await;
    let noise = Pub::bind(ANY).await.unwrap();
    first.connect(&noise.endpoints()[0].to_string()).await.unwrap();
    until(|| noise.stats().peers.iter().any(|peer| peer.is_connected)).await;
    within(async {
        while first.stats().invalid == 0 {
            noise.send(vec![0xFF; 100]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    let second = node(BinaryStar::primary()).await;
    second.connect(&first.endpoints()[0].to_string()).await.unwrap();
    assert_eq!(within(second.changed(State::Primary)).await, Err(Conflict::SameRole));
    let closed = second.admit().unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Closed);
    assert!(closed.to_string().contains("one role"), "{closed}");
}

#[tokio::test]
async fn a_node_needs_an_endpoint() {
    let error = BinaryStar::primary().start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}
