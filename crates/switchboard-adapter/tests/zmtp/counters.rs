//! The counters of the fan-out engines, in the metrics and on the list of a server.

use super::{raw, start};
use crate::peer::{Peer, settled, soon};
use switchboard::{
    StopOptions,
    counters::{Cell, ListRequest},
    plugin::Plugin,
};
use switchboard_adapter::Zmtp;
use switchboard_message::Bus;
use switchboard_wire::zmtp::SocketType;

#[tokio::test]
async fn a_server_shows_the_subscribers_and_buffers_of_its_engines() {
    let bus = Bus::new();
    let zmtp = Zmtp::new(bus.clone());
    let running = start(&zmtp).await;
    let value = |name: &str| {
        let stats = running.stats();
        let source = stats.sources.iter().find(|source| source.kind == "zmtp").expect("the plugin");
        source.counters.iter().find(|counter| counter.name == name).expect("the counter").value
    };
    assert_eq!((value("engines"), value("engine_turns")), (0, 0), "no connection, no engine");
    let mut peers = Vec::new();
    for prefix in ["a", "a", "b"] {
        let mut peer = Peer::connect(&running, SocketType::Sub).await;
        peer.subscribe(prefix.as_bytes()).await;
        settled(&mut peer).await;
        peers.push(peer);
    }
    // Counters are stored at the end of a turn: after the response to the last peer.
    let until = async |name: &str, expected: u64| {
        soon(async {
            while value(name) != expected {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    until("engine_subscribers", 3).await;
    // One for each set of prefixes.
    until("engine_buffers", 2).await;
    assert!(value("engines") >= 1 && value("engine_turns") > 0);
    let source = zmtp.counters().into_iter().find(|source| source.lists() == ["fanout"]).expect("the list");
    let page = source.list("fanout", ListRequest::new(10)).await.unwrap();
    let column = page.columns.iter().position(|name| *name == "subscribers").unwrap();
    let sum: f64 =
        page.rows.iter().map(|row| if let Cell::Number(number) = row[column] { number } else { 0.0 }).sum();
    assert_eq!(sum, 3.0, "{page:?}");
    source.list("topics", ListRequest::new(10)).await.unwrap_err();
    bus.publish_encoded("a", raw("x")).await.unwrap();
    assert_eq!(peers[0].message().await.unwrap()[0], b"a");
    drop(peers);
    for name in ["engine_subscribers", "engine_buffers", "engine_held_bytes"] {
        until(name, 0).await;
    }
    running.stop(StopOptions::new()).await;
    // The engines end in tasks of their own.
    soon(async {
        while !source.list("fanout", ListRequest::new(10)).await.unwrap().rows.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(source.counters().iter().any(|counter| counter.name == "engine_turns" && counter.value > 0));
}
