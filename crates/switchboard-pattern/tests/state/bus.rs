//! Nodes of a bus: killed, slow and split ones.

use super::{forwarder::Forwarder, *};
use switchboard_pattern::{ErrorKind, bus::BusNode};
use switchboard_socket::{Dealer, SocketOptions};

/// Nodes, each connected to those before it.
async fn nodes(count: usize) -> Vec<BusNode> {
    let mut nodes: Vec<BusNode> = Vec::new();
    for _ in 0..count {
        let node = BusNode::bind(ANY).await.unwrap();
        for earlier in &nodes {
            node.connect_to(&earlier.endpoints()[0].to_string()).await.unwrap();
        }
        nodes.push(node);
    }
    until(|| nodes.iter().all(|node| node.peers() == count - 1)).await;
    nodes
}

async fn received(node: &BusNode) -> String {
    String::from_utf8(within(node.recv()).await.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn every_node_sends_to_all_others_once_and_not_to_itself() {
    let nodes = nodes(4).await;
    for (number, node) in nodes.iter().enumerate() {
        node.send(format!("{number}")).await.unwrap();
    }
    for (number, node) in nodes.iter().enumerate() {
        let mut messages = Vec::new();
        for _ in 0..3 {
            messages.push(received(node).await);
        }
        messages.sort();
        let expected: Vec<_> =
            (0..4).filter(|other| *other != number).map(|other| format!("{other}")).collect();
        assert_eq!(messages, expected);
        assert_eq!((node.stats().sent, node.stats().received), (1, 3));
    }
}

#[tokio::test]
async fn a_killed_node_is_removed_and_a_restarted_one_returns() {
    let mut nodes = nodes(3).await;
    let endpoint = nodes[0].endpoints()[0].to_string();
    nodes.remove(0).close().await;
    until(|| nodes.iter().all(|node| node.peers() == 1)).await;
    nodes[0].send("without it").await.unwrap();
    assert_eq!(received(&nodes[1]).await, "without it");
    let restarted = BusNode::bind(&endpoint).await.unwrap();
    until(|| restarted.peers() == 2 && nodes.iter().all(|node| node.peers() == 2)).await;
    restarted.send("back").await.unwrap();
    for node in &nodes {
        assert_eq!(received(node).await, "back");
    }
}

#[tokio::test]
async fn a_split_network_heals() {
    let first = BusNode::bind(ANY).await.unwrap();
    let network = Forwarder::to(&first.endpoints()[0].to_string()).await;
    let second = BusNode::with_options(SocketOptions::default()).unwrap();
    second.connect_to(&network.endpoint).await.unwrap();
    let are_connected = |peers| first.peers() == peers && second.peers() == peers;
    until(|| are_connected(1)).await;
    network.cut();
    until(|| are_connected(0)).await;
    first.send("lost").await.unwrap();
    network.repair();
    until(|| are_connected(1)).await;
    first.send("received").await.unwrap();
    assert_eq!(received(&second).await, "received");
}

#[tokio::test]
async fn a_slow_node_loses_messages_that_are_counted_and_others_receive_all() {
    let mut options = SocketOptions::default();
    options.queues.send_messages_max = 2;
    options.queues.receive_messages_max = 2;
    let hub = BusNode::with_options(options.clone()).unwrap();
    let endpoint = hub.bind_to(ANY).await.unwrap().to_string();
    let (slow, fast) =
        (BusNode::with_options(options.clone()).unwrap(), BusNode::with_options(options).unwrap());
    for node in [&slow, &fast] {
        node.connect_to(&endpoint).await.unwrap();
    }
    until(|| hub.peers() == 2).await;
    let body = vec![1; 1 << 20];
    let mut sent = 0;
    while hub.stats().socket.dropped == 0 {
        hub.send(body.clone()).await.unwrap();
        assert_eq!(within(fast.recv()).await.unwrap().len(), body.len());
        sent += 1;
    }
    assert_eq!((fast.stats().received, slow.stats().received), (sent, 0));
}

#[tokio::test]
async fn messages_of_several_frames_and_settings_are_refused() {
    let node = BusNode::bind(ANY).await.unwrap();
    let dealer = Dealer::connect(&node.endpoints()[0].to_string()).await.unwrap();
    dealer.send(["two", "frames"]).await.unwrap();
    dealer.send("one").await.unwrap();
    assert_eq!(received(&node).await, "one");
    assert_eq!(node.stats().invalid, 1);
    let mut options = SocketOptions::default();
    options.routing.mandatory = true;
    assert_eq!(BusNode::with_options(options).unwrap_err().kind(), ErrorKind::InvalidInput);
}
