//! Clients that come back with the id of the last event.

use crate::support::{Client, bus_with_history, entry, other, publish, serve};
use std::time::Duration;
use switchboard_message::{Bus, TopicOptions};

const BOTH: &str = "topic=a&topic=b";

fn header(id: &str) -> String {
    format!("last-event-id: {id}\r\n")
}

#[tokio::test]
async fn missing_entries_arrive_once_through_kills_of_the_server() {
    let bus = bus_with_history();
    let server = serve(&bus).await;
    let (client, mut id) = Client::events(&server, BOTH, "").await;
    drop(client);
    server.kill();
    for round in 0..5 {
        // Two entries of each topic without a server, and one with it.
        for number in 1..=2 {
            publish(&bus, "a", &number.to_string()).await;
            publish(&bus, "b", &number.to_string()).await;
        }
        let server = serve(&bus).await;
        let (mut client, first) = Client::events(&server, BOTH, &header(&id)).await;
        assert_eq!(first, id, "the stream begins where the client is");
        assert_eq!(client.next().await, other("resumed", "{}"));
        publish(&bus, "a", "3").await;
        publish(&bus, "b", "3").await;
        let mut seen = Vec::new();
        for _ in 0..6 {
            let event = client.event().await;
            seen.push(event.data);
            id = event.id;
        }
        seen.sort();
        let expected = ["a", "b"].into_iter().flat_map(|topic| {
            (1..=3).map(move |number| entry(topic, 3 * round + number, &number.to_string()).1)
        });
        let mut expected: Vec<_> = expected.collect();
        expected.sort();
        assert_eq!(seen, expected, "round {round}");
        server.kill();
    }
}

#[tokio::test]
async fn a_client_may_ask_for_other_topics() {
    let bus = bus_with_history();
    let server = serve(&bus).await;
    let (_, id) = Client::events(&server, BOTH, "").await;
    for topic in ["a", "b", "c"] {
        publish(&bus, topic, "1").await;
    }
    let (mut client, _) = Client::events(&server, "topic=c&topic=b", &header(&id)).await;
    assert_eq!(client.next().await, other("resumed", "{}"));
    assert_eq!(client.next().await, entry("b", 1, "1"));
    publish(&bus, "c", "2").await;
    assert_eq!(client.next().await, entry("c", 2, "2"), "a new topic begins with the next entry");
    let (mut client, _) = Client::events(&server, &format!("topic=a&id={id}"), "").await;
    assert_eq!(client.next().await, other("resumed", "{}"), "the id may be in the query");
    assert_eq!(client.next().await, entry("a", 1, "1"));
}

#[tokio::test]
async fn missing_entries_are_reported() {
    let bus = Bus::builder().topics("t", TopicOptions::new().history(2, Duration::MAX)).unwrap().build();
    let server = serve(&bus).await;
    let (_, id) = Client::events(&server, "topic=t", "").await;
    for number in 1..=5 {
        publish(&bus, "t", &number.to_string()).await;
    }
    let (mut client, _) = Client::events(&server, "topic=t", &header(&id)).await;
    let gap = client.event().await;
    assert_eq!((&*gap.kind, &*gap.data), ("gap", r#"{"topic":"t","reason":"expired","from":1,"to":3}"#));
    assert_eq!(client.next().await, entry("t", 4, "4"));
    let (mut client, _) = Client::events(&server, "topic=t", &header(&gap.id)).await;
    assert_eq!(client.next().await, other("resumed", "{}"), "the id of a gap is behind it");
    assert_eq!(client.next().await, entry("t", 4, "4"));

    // Another process has other logs.
    let server = serve(&Bus::new()).await;
    let (mut client, _) = Client::events(&server, "topic=t", &header(&gap.id)).await;
    assert_eq!(client.next().await, other("gap", r#"{"topic":"t","reason":"epoch"}"#));
}

#[tokio::test]
async fn an_unreadable_id_begins_at_the_head() {
    let bus = bus_with_history();
    publish(&bus, "a", "1").await;
    let server = serve(&bus).await;
    let (_, good) = Client::events(&server, BOTH, "").await;
    for bad in ["?", "AAAA", &"A".repeat(513), &good[..good.len() - 4]] {
        let (mut client, _) = Client::events(&server, &format!("{BOTH}&last=1"), &header(bad)).await;
        for topic in ["a", "b"] {
            let expected = format!(r#"{{"topic":"{topic}","reason":"unreadable"}}"#);
            assert_eq!(client.next().await, other("gap", &expected), "{bad}");
        }
        publish(&bus, "b", "2").await;
        assert_eq!(client.next().await.1.split(',').next(), Some(r#"{"topic":"b""#), "{bad}");
    }
}

#[tokio::test]
async fn thirty_two_topics_have_one_id() {
    let bus = bus_with_history();
    let topics: Vec<_> = (0..32).map(|topic| format!("live/{topic}")).collect();
    for topic in &topics {
        for _ in 0..200 {
            publish(&bus, topic, "0").await;
        }
    }
    let server = serve(&bus).await;
    let query: Vec<_> = topics.iter().map(|topic| format!("topic={topic}")).collect();
    let (_, id) = Client::events(&server, &query.join("&"), "").await;
    assert!(id.len() <= 512, "{} characters", id.len());
    for topic in &topics {
        publish(&bus, topic, "1").await;
    }
    let (mut client, _) = Client::events(&server, &query.join("&"), &header(&id)).await;
    assert_eq!(client.next().await, other("resumed", "{}"));
    let mut seen = Vec::new();
    for _ in &topics {
        seen.push(client.next().await.1);
    }
    seen.sort();
    let mut expected: Vec<_> = topics.iter().map(|topic| entry(topic, 201, "1").1).collect();
    expected.sort();
    assert_eq!(seen, expected);
}
