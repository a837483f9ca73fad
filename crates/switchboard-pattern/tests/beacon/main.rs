//! Nodes that discover each other over the loopback interface.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::{
    net::{SocketAddr, SocketAddrV4, UdpSocket},
    time::Duration,
};
use switchboard_pattern::{
    ErrorKind,
    beacon::{Beacon, BeaconBuilder, BeaconEvent, BeaconFrame, LeaveReason},
};
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(20);

fn any() -> SocketAddrV4 {
    "127.0.0.1:0".parse().unwrap()
}

async fn node(port: u16, change: impl FnOnce(BeaconBuilder) -> BeaconBuilder) -> Beacon {
    let builder = Beacon::builder(port).listen(any()).interval(Duration::from_millis(20));
    change(builder).start().await.unwrap()
}

async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(LIMIT, wait).await.expect("in time");
}

#[tokio::test]
async fn nodes_that_know_one_address_find_each_other_and_notice_a_dropped_one() {
    let first = node(1, |node| node).await;
    let second = node(2, |node| node.to(first.address())).await;
    until(|| first.peers().len() == 1).await;
    assert_eq!(first.peers()[0].id, second.id());
    assert_eq!(first.stats().peers, 1);
    let mut events = first.events();
    drop(second);
    let left = timeout(LIMIT, events.next()).await.unwrap();
    assert!(
        matches!(left, Some(BeaconEvent::Left(peer, LeaveReason::Announced)) if peer.address.port() == 2)
    );
}

#[tokio::test]
async fn a_silent_peer_expires_and_returns() {
    let first = node(1, |node| node.expire_after(Duration::from_millis(100))).await;
    let mut events = first.events();
    let killed = UdpSocket::bind(any()).unwrap();
    let beacon = BeaconFrame { id: [9; 16], port: 9 }.to_bytes();
    for _ in 0..2 {
        killed.send_to(&beacon, first.address()).unwrap();
        let joined = timeout(LIMIT, events.next()).await.unwrap();
        assert!(matches!(joined, Some(BeaconEvent::Joined(peer)) if peer.id == [9; 16]));
        let left = timeout(LIMIT, events.next()).await.unwrap();
        assert!(matches!(left, Some(BeaconEvent::Left(_, LeaveReason::Silent))));
    }
}

#[tokio::test]
async fn nothing_is_sent_without_an_address_and_own_beacons_are_ignored() {
    let silent = node(1, |node| node).await;
    let own = node(2, |node| node).await;
    let echo = node(3, |node| node.id(own.id()).to(own.address())).await;
    until(|| echo.stats().sent > 2).await;
    assert_eq!((silent.stats().sent, own.stats().received, own.peers().len()), (0, 0, 0));
}

#[tokio::test]
async fn other_datagrams_and_further_peers_are_counted() {
    let first = node(1, |node| node.peers_max(1)).await;
    let socket = UdpSocket::bind(any()).unwrap();
    let valid = BeaconFrame { id: [9; 16], port: 9 }.to_bytes();
    for datagram in [&b""[..], b"ZRE", &[0; 22], &[&valid[..], b"x"].concat(), &[1; 2000]] {
        socket.send_to(datagram, first.address()).unwrap();
    }
    socket.send_to(&valid, first.address()).unwrap();
    socket.send_to(&BeaconFrame { id: [8; 16], port: 9 }.to_bytes(), first.address()).unwrap();
    until(|| first.stats().refused == 1).await;
    assert_eq!((first.stats().invalid, first.stats().received, first.stats().peers), (5, 1, 1));
}

#[tokio::test]
async fn nodes_of_a_machine_share_a_port_and_do_not_take_one_of_another_program() {
    let taken = UdpSocket::bind(any()).unwrap();
    let SocketAddr::V4(address) = taken.local_addr().unwrap() else { unreachable!() };
    let error = Beacon::builder(1).listen(address).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Socket);
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    // Another program may take a port that was free.
    let sharing = async {
        loop {
            let free = UdpSocket::bind(any()).unwrap().local_addr().unwrap();
            let SocketAddr::V4(address) = free else { unreachable!() };
            let Ok(first) = Beacon::builder(1).listen(address).start().await else { continue };
            let Ok(second) = Beacon::builder(2).listen(address).start().await else { continue };
            return (first, second);
        }
    };
    let (first, second) = timeout(LIMIT, sharing).await.unwrap();
    assert_eq!(first.address(), second.address());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_beacon_follows_the_end_of_a_node() {
    let socket = UdpSocket::bind(any()).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let address = socket.local_addr().unwrap();
    for _ in 0..50 {
        let node = node(7, |node| node.to(address).interval(Duration::from_millis(10))).await;
        until(|| node.stats().sent > 0).await;
        node.stop().await;
        socket.send_to(b"last", address).unwrap();
        let (mut buffer, mut last) = ([0; 64], None);
        loop {
            let length = socket.recv(&mut buffer).unwrap();
            let Some(frame) = BeaconFrame::from_bytes(&buffer[..length]) else { break };
            last = Some(frame.port);
        }
        assert_eq!(last, Some(0));
    }
}

#[tokio::test]
async fn settings_are_checked() {
    let error = Beacon::builder(0).listen(any()).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let many = (0..65).fold(Beacon::builder(1).listen(any()), |builder, _| builder.to(any().into()));
    let error = many.start().await.unwrap_err();
    assert!(error.to_string().contains("64"), "{error}");
}
