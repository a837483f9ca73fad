//! Requests that are refused, with the rule in the error.

use crate::support::{Events, WIRES, connect, publication, publish, serve, subscribe};
use std::time::Duration;
use switchboard::{Code, Status, codegen::buffa_types::google::protobuf::Timestamp};
use switchboard_bus::v1::{
    AckOptions, AckRequest, BusClient, Header, HistoryRequest, Position, PublishBatchRequest, PublishRequest,
    SubscribeRequest, TopicsRequest, subscribe_request::Start,
};
use switchboard_message::{Bus, Limits, TopicOptions};

async fn subscribe_error(client: &BusClient, request: SubscribeRequest) -> Status {
    match client.subscribe(request).await {
        Ok(mut events) => events.next().await.unwrap_err(),
        Err(status) => status,
    }
}

#[track_caller]
fn check(status: &Status, code: Code, rule: &str, wire: &str) {
    assert_eq!(status.code(), code, "{wire}: {status}");
    assert!(status.message().contains(rule), "{wire}: {rule}: {status}");
}

#[tokio::test]
async fn names_are_refused_with_their_rule_on_every_wire() {
    let server = serve(&Bus::new()).await;
    let deep = ["l"; 17].join("/");
    for wire in WIRES {
        let client = connect(&server, wire).await;
        for (name, rule) in [
            ("", "is empty"),
            (&*deep, "has 17 levels; the limit is 16"),
            ("$nodes", "begins with $, which is reserved"),
            ("a/*", "wildcard"),
        ] {
            let status = client.publish(publish(name, "")).await.unwrap_err();
            check(&status, Code::InvalidArgument, rule, wire);
        }
        for (name, rule) in [("", "is empty"), ("a/>/b", "before its last level"), ("$nodes", "reserved")] {
            let status = subscribe_error(&client, subscribe(name)).await;
            check(&status, Code::InvalidArgument, rule, wire);
        }
    }
}

#[tokio::test]
async fn publications_are_refused_with_the_name_of_the_limit() {
    let mut limits = Limits::default();
    (limits.batch_entries_max, limits.entry_bytes_max, limits.key_bytes_max) = (2, 10, 4);
    let bus = Bus::builder().limits(limits).build();
    let server = serve(&bus).await;
    let client = connect(&server, "?wire=grpc").await;
    let refused = async |change: fn(&mut PublishRequest)| {
        let mut request = publish("t", "1");
        change(&mut request);
        client.publish(request).await.unwrap_err()
    };
    let (invalid, exhausted) = (Code::InvalidArgument, Code::ResourceExhausted);
    let status = refused(|request| request.entry = None.into()).await;
    check(&status, invalid, "field entry of the request is missing", "");
    let status = refused(|request| request.entry.get_or_insert_default().codec = "xml".into()).await;
    check(&status, invalid, "codec \"xml\" of the entry is unknown; use one of proto, json", "");
    let status = refused(|request| {
        let header = Header { name: "Bad Name".into(), ..Default::default() };
        request.entry.get_or_insert_default().headers.push(header);
    })
    .await;
    check(&status, invalid, "header \"Bad Name\" of the entry", "");
    let status =
        refused(|request| request.entry.get_or_insert_default().payload = "12345678901".into()).await;
    check(&status, exhausted, "entry_bytes_max=10", "");
    let status = refused(|request| request.entry.get_or_insert_default().key = "12345".into()).await;
    check(&status, exhausted, "key_bytes_max=4", "");

    let batch = |count: usize| PublishBatchRequest {
        topic: "t".to_owned(),
        entries: vec![publication("1"); count],
        ..Default::default()
    };
    let status = client.publish_batch(batch(3)).await.unwrap_err();
    check(&status, exhausted, "batch_entries_max=2", "");
    check(&client.publish_batch(batch(0)).await.unwrap_err(), invalid, "a batch of no messages", "");
    assert_eq!(bus.stats().topics, 0);
    assert_eq!(client.publish_batch(batch(2)).await.unwrap().position.offset, 2);
}

#[tokio::test]
async fn subscriptions_and_ids_are_refused_with_the_rule() {
    let bus = Bus::new();
    let server = serve(&bus).await;
    let client = connect(&server, "").await;
    let invalid = Code::InvalidArgument;
    let request = SubscribeRequest { durable: true, ..subscribe("t") };
    check(&subscribe_error(&client, request).await, invalid, "set the field group", "");
    let request = SubscribeRequest { ack: AckOptions::default().into(), ..subscribe("t") };
    check(&subscribe_error(&client, request).await, invalid, "add `group`", "");
    let request = SubscribeRequest { start: Position::default().into(), ..subscribe("t/*") };
    check(&subscribe_error(&client, request).await, invalid, "a position belongs to one topic", "");
    let ack = |ids: &[&str]| AckRequest {
        ack_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        ..Default::default()
    };
    check(&client.ack(ack(&["7"])).await.unwrap_err(), invalid, "ack_id \"7\" is not one", "");
    check(
        &client.ack(ack(&["1-1"; 1_025])).await.unwrap_err(),
        Code::ResourceExhausted,
        "the limit is 1024",
        "",
    );
    let history = HistoryRequest { topic: "t".to_owned(), ..Default::default() };
    check(&client.history(history).await.unwrap_err(), Code::NotFound, "topic \"t\" not found", "");
    let topics = TopicsRequest { topics: vec!["t".to_owned()], ..Default::default() };
    assert!(client.topics(topics).await.unwrap().topics.is_empty());
    assert_eq!((bus.stats().topics, bus.stats().subscriptions), (0, 0));
}

#[tokio::test]
async fn a_request_with_a_malformed_id_acknowledges_nothing() {
    let server = serve(&Bus::new()).await;
    let client = connect(&server, "").await;
    let request =
        SubscribeRequest { group: "g".to_owned(), ack: AckOptions::default().into(), ..subscribe("t") };
    let mut jobs = Events::begin(&client, request).await;
    client.publish(publish("t", "")).await.unwrap();
    let id = jobs.entry().await.ack_id;
    let ack = |ack_ids: &[&str]| AckRequest {
        ack_ids: ack_ids.iter().map(|id| (*id).to_owned()).collect(),
        ..Default::default()
    };
    check(&client.ack(ack(&[&id, "7"])).await.unwrap_err(), Code::InvalidArgument, "ack_id \"7\"", "");
    assert!(client.ack(ack(&[&id])).await.unwrap().unknown_ack_ids.is_empty());
}

#[tokio::test]
async fn extreme_values_are_accepted_or_refused() {
    let options = TopicOptions::new().history(10, Duration::MAX);
    let server = serve(&Bus::builder().topics("t", options).unwrap().build()).await;
    let client = connect(&server, "?wire=grpc").await;
    let mut request = publish("t", "1");
    request.entry.get_or_insert_default().expires_in.get_or_insert_default().seconds = i64::MAX;
    client.publish(request).await.unwrap();
    let mut request = publish("t", "2");
    request.entry.get_or_insert_default().expires_in.get_or_insert_default().seconds = -1;
    check(&client.publish(request).await.unwrap_err(), Code::InvalidArgument, "field expires_in", "");

    let since = |seconds: i64| Start::from(Timestamp { seconds, ..Default::default() });
    let after = |epoch: u64, offset: u64| Start::from(Position { epoch, offset, ..Default::default() });
    for start in [
        Start::Last(u32::MAX),
        since(i64::MIN),
        since(i64::MAX),
        since(-1),
        after(0, u64::MAX),
        after(u64::MAX, 0),
    ] {
        let mut ack =
            AckOptions { attempts_max: u32::MAX, unacknowledged_max: u32::MAX, ..Default::default() };
        ack.ack_wait.get_or_insert_default().seconds = i64::MAX;
        let group = format!("{start:?}");
        let request = SubscribeRequest { start: Some(start), group, ack: ack.into(), ..subscribe("t") };
        let mut events = client.subscribe(request.clone()).await.unwrap();
        match events.next().await {
            Ok(started) => assert!(started.is_some(), "{request:?}"),
            Err(status) => check(&status, Code::InvalidArgument, "field since is not a time", ""),
        }
    }
}
