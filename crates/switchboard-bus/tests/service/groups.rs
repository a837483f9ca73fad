//! Groups, acknowledgements and durable cursors.

use crate::support::{Events, WIRES, connect, publish, serve, subscribe};
use std::time::Duration;
use switchboard_bus::v1::{AckOptions, AckRequest, RejectRequest, SubscribeRequest};
use switchboard_message::{Bus, TopicOptions};

fn worker(ack: AckOptions) -> SubscribeRequest {
    SubscribeRequest { group: "workers".to_owned(), ack: ack.into(), ..subscribe("jobs/*") }
}

fn ack(ack_id: &str) -> AckRequest {
    AckRequest { ack_ids: vec![ack_id.to_owned()], ..Default::default() }
}

#[tokio::test]
async fn unacknowledged_entries_go_to_another_member_on_every_wire() {
    let server = serve(&Bus::new()).await;
    let other = connect(&server, "?wire=grpc").await;
    for wire in WIRES {
        let client = connect(&server, wire).await;
        let mut first = Events::begin(&client, worker(AckOptions::default())).await;
        client.publish(publish("jobs/mail", wire)).await.unwrap();
        let job = first.entry().await;
        assert_eq!((job.attempt, &job.payload[..]), (1, wire.as_bytes()), "{wire}");
        let mut second = Events::begin(&other, worker(AckOptions::default())).await;
        // The connection remains: the end of the call releases the entry.
        drop(first);
        let again = second.entry().await;
        assert_eq!((again.attempt, again.position), (2, job.position), "{wire}");
        assert_ne!(again.ack_id, job.ack_id, "{wire}");
        // The first subscription has ended; its id is of no use.
        assert_eq!(client.ack(ack(&job.ack_id)).await.unwrap().unknown_ack_ids, [job.ack_id], "{wire}");
        assert!(client.ack(ack(&again.ack_id)).await.unwrap().unknown_ack_ids.is_empty(), "{wire}");
        assert_eq!(client.ack(ack(&again.ack_id)).await.unwrap().unknown_ack_ids, [again.ack_id], "{wire}");
    }
}

#[tokio::test]
async fn rejected_entries_are_delivered_again_and_dead_letters_are_published() {
    let server = serve(&Bus::new()).await;
    let client = connect(&server, "").await;
    let mut dead = Events::begin(&client, subscribe("dead")).await;
    let options =
        AckOptions { attempts_max: 3, dead_letter_topic: "dead".to_owned(), ..AckOptions::default() };
    let mut jobs = Events::begin(&client, worker(options)).await;
    client.publish(publish("jobs/mail", "letter")).await.unwrap();
    for attempt in 1..=3 {
        let job = jobs.entry().await;
        assert_eq!(job.attempt, attempt);
        let request = RejectRequest { ack_ids: vec![job.ack_id], ..Default::default() };
        assert!(client.reject(request).await.unwrap().unknown_ack_ids.is_empty());
    }
    assert_eq!(dead.entries(1).await, [(1, "letter".to_owned())]);
}

#[tokio::test]
async fn entries_are_delivered_again_after_the_period_of_the_request() {
    let server = serve(&Bus::new()).await;
    let client = connect(&server, "?wire=connect&codec=json").await;
    let mut options = AckOptions { unacknowledged_max: 1, ..AckOptions::default() };
    *options.ack_wait.get_or_insert_default() = Duration::from_millis(5).into();
    let mut jobs = Events::begin(&client, worker(options)).await;
    client.publish(publish("jobs/mail", "letter")).await.unwrap();
    let (first, second) = (jobs.entry().await, jobs.entry().await);
    assert_eq!((first.attempt, second.attempt), (1, 2));
    assert_eq!(first.position, second.position);
}

#[tokio::test]
async fn durable_groups_receive_what_was_published_while_they_were_away() {
    let options = TopicOptions::new().history(10, Duration::MAX);
    let server = serve(&Bus::builder().topics("inbox/*", options).unwrap().build()).await;
    let client = connect(&server, "?wire=grpc").await;
    let request = SubscribeRequest { group: "phone".to_owned(), durable: true, ..subscribe("inbox/7") };
    let mut phone = Events::begin(&client, request.clone()).await;
    client.publish(publish("inbox/7", "1")).await.unwrap();
    let note = phone.entry().await;
    assert!(client.ack(ack(&note.ack_id)).await.unwrap().unknown_ack_ids.is_empty());
    drop(phone);
    client.publish(publish("inbox/7", "2")).await.unwrap();
    let mut phone = Events::begin(&client, request).await;
    assert_eq!(phone.entries(1).await, [(2, "2".to_owned())]);
}
