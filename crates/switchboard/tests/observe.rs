//! Counters of a server: calls, connections and callers.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use std::time::Duration;
use support::{raw::soon, *};
use switchboard::{Channel, Code, MethodStats, Running, ServerStats};

fn method<'a>(stats: &'a ServerStats, name: &str) -> &'a MethodStats {
    stats.methods.iter().find(|method| method.name == name).unwrap()
}

/// Waits until the counters say so: a call is counted after its caller has the answer.
async fn until(running: &Running, condition: impl Fn(&ServerStats) -> bool) -> ServerStats {
    soon(async {
        loop {
            let stats = running.stats();
            if condition(&stats) {
                return stats;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
}

#[tokio::test]
async fn calls_are_counted_by_method_and_wire_with_bytes_and_times() {
    let (running, channel, seen) = served("tcp://127.0.0.1:0").await;
    for _ in 0..20 {
        assert_eq!(mirror(&channel, vec![1; 100]).await.unwrap().len(), 100);
    }
    ask::<_, ()>(&channel, &FAIL, &"no").await.unwrap_err();
    let mut replies = count(&channel, 3, 1000).await.unwrap();
    while replies.next().await.unwrap().is_some() {}
    let hanging = tokio::spawn({
        let channel = channel.clone();
        async move { ask::<_, ()>(&channel, &HANG, &"").await }
    });
    seen.until(|seen| seen.hanging() == 1).await;
    let stats = until(&running, |stats| method(stats, "test.Probe/Count").ended[0] == 1).await;
    let mirrored = method(&stats, "test.Probe/Mirror");
    assert_eq!((mirrored.ended[0], mirrored.received, mirrored.sent), (20, 2000, 2000));
    assert_eq!(mirrored.times.count(), 20);
    assert!(mirrored.times.quantile(0.5) <= mirrored.times.quantile(0.99));
    assert_eq!(mirrored.latency.iter().sum::<u64>(), 20);
    assert_eq!(mirrored.wires.len(), 1);
    assert_eq!((mirrored.wires[0].wire, mirrored.wires[0].ended[0]), ("native", 20));
    let failed = method(&stats, "test.Probe/Fail");
    assert_eq!((failed.ended[0], failed.ended[usize::from(Code::NotFound.number())]), (0, 1));
    assert!(method(&stats, "test.Probe/Count").sent >= 3000);
    assert_eq!((method(&stats, "test.Probe/Hang").in_flight, stats.calls_in_flight), (1, 1));
    assert!(method(&stats, "test.Probe/Meta").wires.is_empty(), "it was not called");
    hanging.abort();
    let gone = |stats: &ServerStats| method(stats, "test.Probe/Hang").ended[1] == 1;
    let stats = until(&running, gone).await;
    assert_eq!(method(&stats, "test.Probe/Hang").in_flight, 0);
}

#[cfg(feature = "http")]
#[tokio::test]
async fn every_wire_counts_apart() {
    let (running, channel, _) = served("tcp://127.0.0.1:0").await;
    let authority = running.url().replace("tcp://", "");
    let websocket = Channel::connect(&format!("ws://{authority}/")).await.unwrap();
    mirror(&channel, vec![0; 10]).await.unwrap();
    mirror(&websocket, vec![0; 20]).await.unwrap();
    for wire in ["grpc", "grpc-web", "connect"] {
        let channel = Channel::connect(&format!("http://{authority}?wire={wire}")).await.unwrap();
        let bytes = Ok(vec![0u8; 30]);
        let call =
            channel.unary(&MIRROR, channel.codec(switchboard::Codec::Proto), bytes, |_, reply| Ok(reply));
        assert_eq!(call.await.unwrap().len(), 30, "{wire}");
    }
    let stats = until(&running, |stats| method(stats, "test.Probe/Mirror").ended[0] == 5).await;
    let found: Vec<_> = method(&stats, "test.Probe/Mirror")
        .wires
        .iter()
        .map(|wire| (wire.wire, wire.ended[0], wire.received))
        .collect();
    let expected =
        [("connect", 1, 30), ("grpc", 1, 30), ("grpc-web", 1, 30), ("native", 1, 10), ("websocket", 1, 20)];
    assert_eq!(found, expected);
    let open = |name| stats.protocols.iter().find(|protocol| protocol.protocol == name).unwrap();
    assert_eq!((open("native").open, open("websocket").open), (1, 1));
    assert!(open("http2").connections >= 1, "{:?}", stats.protocols);
    for protocol in stats.protocols.iter().filter(|protocol| protocol.open > 0) {
        assert!(protocol.received > 0 && protocol.sent > 0, "{protocol:?}");
    }
    drop((channel, websocket));
    let stats = until(&running, |stats| stats.connections == 0).await;
    assert!(stats.protocols.iter().all(|protocol| protocol.open == 0), "{:?}", stats.protocols);
    // Connections have reported their counts.
    let peers: Vec<_> =
        stats.peers.iter().map(|peer| (peer.address.as_str(), peer.calls, peer.open)).collect();
    assert_eq!(peers, [("127.0.0.1", 5, 0)]);
}

#[tokio::test]
async fn text_for_prometheus_has_every_family_once() {
    let (running, channel, _) = served(&memory()).await;
    ask::<_, ()>(&channel, &FAIL, &"no").await.unwrap_err();
    let stats = until(&running, |stats| method(stats, "test.Probe/Fail").times.count() == 1).await;
    let text = stats.prometheus();
    let labels = r#"service="test.Probe",method="Fail",wire="native",code="not_found""#;
    let sample = format!("switchboard_calls_total{{{labels}}} 1\n");
    assert!(text.contains(&sample), "{text}");
    assert!(text.contains("# TYPE switchboard_calls_total counter\n"), "{text}");
    let open = stats.open_metrics();
    assert!(open.contains(&sample) && open.ends_with("# EOF\n"), "{open}");
    for text in [text, open] {
        let mut families: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let all = families.len();
        families.sort_unstable();
        families.dedup();
        assert_eq!(families.len(), all, "{text}");
    }
}
