//! Subscribers that do not read, responses of a limited size, and the end of the server.

use crate::support::{Events, connect, publish, serve, subscribe};
use std::time::Duration;
use switchboard::{Code, Server, StopOptions};
use switchboard_bus::{
    BusServer,
    v1::{GapReason, HistoryRequest, TopicsRequest, history_request::Start, subscribe_event::Event},
};
use switchboard_message::{Bus, TopicOptions};

/// More entries of 64 KiB than the window of a stream and the buffers of sockets hold.
const PUBLICATIONS: u64 = 600;

#[tokio::test]
async fn a_subscriber_that_does_not_read_gets_a_gap_and_does_not_stop_the_others() {
    let payload = "x".repeat(64 << 10);
    // JSON-RPC has no windows: its client ends a call whose entries it does not read.
    for wire in ["", "?wire=grpc", "?wire=grpc-web", "?wire=connect"] {
        let bus = Bus::builder().topics("t", TopicOptions::new().backlog(2)).unwrap().build();
        let server = serve(&bus).await;
        let (silent, reader) = (connect(&server, wire).await, connect(&server, "").await);
        let mut slow = Events::begin(&silent, subscribe("t")).await;
        let mut fast = Events::begin(&reader, subscribe("t")).await;
        for offset in 1..=PUBLICATIONS {
            reader.publish(publish("t", &payload)).await.unwrap();
            assert_eq!(fast.entry().await.position.offset, offset, "{wire}");
            let bytes = bus.stats().bytes;
            assert!(bytes < 4 * payload.len(), "{wire}: the bus holds {bytes} bytes");
        }
        // Each entry arrives, or is in a gap.
        let (mut next, mut missing) = (1, 0);
        while next <= PUBLICATIONS {
            match slow.event().await {
                Event::Entry(entry) => {
                    assert_eq!(entry.position.offset, next, "{wire}");
                    next += 1;
                }
                Event::Gap(gap) => {
                    assert_eq!((&*gap.topic, gap.first_offset), ("t", next), "{wire}");
                    assert_eq!(gap.missing, Some(gap.end_offset - gap.first_offset), "{wire}");
                    assert_eq!(gap.reason, GapReason::GAP_REASON_LAGGED, "{wire}");
                    missing += gap.end_offset - gap.first_offset;
                    next = gap.end_offset;
                }
                event => panic!("{wire}: {event:?}"),
            }
        }
        assert!(missing > 0, "{wire}: the stream buffers without a limit");
    }
}

#[tokio::test]
async fn history_is_read_in_pages() {
    let options = TopicOptions::new().history(10, Duration::MAX);
    let bus = Bus::builder().topics("t", options).unwrap().build();
    let server = serve(&bus).await;
    let client = connect(&server, "?wire=jsonrpc").await;
    for number in 1..=12 {
        client.publish(publish("t", &number.to_string())).await.unwrap();
    }
    let request = |limit| HistoryRequest { topic: "t".to_owned(), limit, ..Default::default() };
    let offsets = |entries: &[switchboard_bus::v1::Entry]| -> Vec<u64> {
        entries.iter().map(|entry| entry.position.offset).collect()
    };
    let newest = client.history(request(4)).await.unwrap();
    assert_eq!((offsets(&newest.entries), newest.has_more), (vec![9, 10, 11, 12], false));
    let all = client.history(request(0)).await.unwrap();
    assert_eq!(offsets(&all.entries), (3..=12).collect::<Vec<_>>());

    let mut after = newest.entries[0].position.clone().unwrap();
    after.offset = 1;
    let first = HistoryRequest { start: after.into(), ..request(6) };
    let first = client.history(first).await.unwrap();
    let gap = &first.gaps[0];
    assert_eq!((gap.first_offset, gap.end_offset), (2, 3));
    assert_eq!(gap.reason, GapReason::GAP_REASON_EXPIRED);
    assert_eq!((offsets(&first.entries), first.has_more), ((3..=8).collect(), true));
    let after = first.entries[5].position.clone().unwrap();
    let rest = HistoryRequest { start: after.into(), ..request(6) };
    let rest = client.history(rest).await.unwrap();
    assert_eq!((offsets(&rest.entries), rest.has_more), ((9..=12).collect(), false));
    let since = Start::Since(Box::new(std::time::SystemTime::UNIX_EPOCH.into()));
    let since = client.history(HistoryRequest { start: Some(since), ..request(0) }).await.unwrap();
    assert_eq!(since.entries.len(), 10);

    let topics = TopicsRequest { topics: vec!["absent".into(), "t".into()], ..Default::default() };
    let topics = client.topics(topics).await.unwrap().into_inner().topics;
    assert_eq!(topics.len(), 1);
    assert_eq!(
        (&*topics[0].name, topics[0].entries, topics[0].published, topics[0].cursors),
        ("t", 10, 12, 0)
    );
}

#[tokio::test]
async fn subscriptions_end_with_unavailable_when_the_server_stops() {
    for wire in ["", "?wire=grpc", "?wire=connect", "ws?wire=jsonrpc"] {
        let server = serve(&Bus::new()).await;
        let client = connect(&server, wire).await;
        let mut events = Events::begin(&client, subscribe("t")).await;
        let stopped = server.stop(StopOptions::new().drain(Duration::ZERO)).await;
        assert_eq!(stopped.calls.iter().map(|aborted| aborted.calls).sum::<u64>(), 1, "{wire}: {stopped}");
        let status = events.error().await;
        assert_eq!(status.code(), Code::Unavailable, "{wire}: {status}");
    }
}

#[tokio::test]
async fn a_service_that_is_closed_by_its_server_lets_it_stop_at_once() {
    for wire in ["", "?wire=grpc", "?wire=connect", "ws?wire=jsonrpc"] {
        let service = BusServer::new(Bus::new());
        let closing = service.clone();
        let server = Server::new().add(service).on_stop(move || async move { closing.close() });
        let server = server.listen("tcp://127.0.0.1:0").start().await.unwrap();
        let client = connect(&server, wire).await;
        let mut events = Events::begin(&client, subscribe("t")).await;
        let stopping = tokio::spawn(server.stop(StopOptions::new().drain(Duration::from_secs(3_600))));
        let status = events.error().await;
        assert_eq!(status.code(), Code::Unavailable, "{wire}: {status}");
        assert!(status.message().contains("because the server closes"), "{wire}: {status}");
        drop((events, client));
        let stopped = stopping.await.unwrap();
        assert!(stopped.is_clean(), "{wire}: {stopped}");
    }
}
