//! Two hubs on one engine, as two processes are.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::{future::Future, sync::Arc, time::Duration};
use switchboard_message::{Bus, Embedded, TopicOptions};
use switchboard_push::{Connect, DisconnectReason, Hub, Inbox, Item, Rooms, Start};

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it ends")
}

async fn two() -> [Hub; 2] {
    let kept = TopicOptions::new().history(1_000, Duration::from_secs(600));
    let topics = Bus::builder().topics("room/>", kept).unwrap().build();
    let hub = || {
        Hub::builder().open().rooms("live/*", Rooms::new()).broker(Arc::new(Embedded::new(topics.clone())))
    };
    [hub().build().await.unwrap(), hub().build().await.unwrap()]
}

async fn text(inbox: &mut Inbox) -> String {
    match soon(inbox.next()).await.unwrap() {
        Some(Item::Entry(entry)) => String::from_utf8(entry.to_vec()).unwrap(),
        other => panic!("not an entry: {other:?}"),
    }
}

#[tokio::test]
async fn publications_and_orders_reach_the_other_process() {
    let [one, two] = two().await;
    let mut device = one.attach_with("ali", Connect::new("test").key("phone")).await.unwrap();
    device.join("live/7").await.unwrap();
    two.room("live/7").publish(&"room").await.unwrap();
    assert_eq!(text(&mut device).await, "\"room\"");
    two.user("ali").publish(&"user").await.unwrap();
    assert_eq!(text(&mut device).await, "\"user\"");
    two.all().publish(&"all").await.unwrap();
    assert_eq!(text(&mut device).await, "\"all\"");
    two.user("ali").join("live/8").unwrap();
    assert!(matches!(soon(device.next()).await.unwrap(), Some(Item::Joined(room)) if room == "live/8"));
    two.key("phone").close("bye").unwrap();
    let Some(Item::Disconnected(order)) = soon(device.next()).await.unwrap() else { panic!("not closed") };
    assert_eq!((order.reason, &*order.text), (DisconnectReason::Closed, "bye"));
}

#[tokio::test]
async fn a_newer_connection_on_another_process_replaces_the_older_one() {
    let [one, two] = two().await;
    let mut old = one.attach_with("ali", Connect::new("test").key("phone")).await.unwrap();
    let mut new = two.attach_with("ali", Connect::new("test").key("phone")).await.unwrap();
    let Some(Item::Disconnected(order)) = soon(old.next()).await.unwrap() else { panic!("not closed") };
    assert_eq!(order.reason, DisconnectReason::Replaced);
    one.key("phone").publish(&1).await.unwrap();
    assert_eq!(text(&mut new).await, "1");
}

#[tokio::test]
async fn a_chosen_key_closes_no_connection_of_another_user_on_another_process() {
    let [one, two] = two().await;
    let mut ali = one.attach_with("ali", Connect::new("test").key("phone")).await.unwrap();
    let _mallory = two.attach_with("mallory", Connect::new("test").key("phone")).await.unwrap();
    // Its order precedes the entry.
    two.key("phone").close("later").unwrap();
    let Some(Item::Disconnected(order)) = soon(ali.next()).await.unwrap() else { panic!("not closed") };
    assert_eq!(order.text, "later");
}

#[tokio::test]
async fn a_device_resumes_on_the_other_process() {
    let [one, two] = two().await;
    let mut device = one.attach("ali").await.unwrap();
    device.join("live/7").await.unwrap();
    let seen = two.room("live/7").publish(&1).await.unwrap();
    assert_eq!(text(&mut device).await, "1");
    drop(device);
    for number in 2..50 {
        one.room("live/7").publish(&number).await.unwrap();
    }
    let mut device = two.attach("ali").await.unwrap();
    device.join_from("live/7", Start::After(seen)).await.unwrap();
    assert!(matches!(soon(device.next()).await.unwrap(), Some(Item::Recovered(_))));
    for number in 2..50 {
        assert_eq!(text(&mut device).await, number.to_string());
    }
}

#[tokio::test]
async fn events_of_all_processes_are_one_topic() {
    let [one, two] = two().await;
    let mut events = two.events().await.unwrap();
    let device = one.attach("ali").await.unwrap();
    let Some(switchboard_message::Delivery::Entry(event)) = soon(events.next()).await.unwrap() else {
        panic!("no event")
    };
    assert_eq!((&*event.event, event.session, event.seq), ("connected", session(device), 1));
}

fn session(mut inbox: Inbox) -> u64 {
    inbox.device().unwrap().session()
}
