//! Defects of goim that a hub must not have. Each test fails on an implementation with the defect.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::time::Duration;
use switchboard_message::{SlowReader, TopicOptions};
use switchboard_push::{Connect, DropReason, Hub, Inbox, Item, Rooms, Start};

async fn text(inbox: &mut Inbox) -> String {
    match inbox.next().await.unwrap() {
        Some(Item::Entry(entry)) => String::from_utf8(entry.to_vec()).unwrap(),
        other => panic!("not an entry: {other:?}"),
    }
}

/// D1: entries of a room and of a user have one order for all members.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d1_all_members_see_one_order() {
    let hub = Hub::builder().open().build().await.unwrap();
    let mut members = Vec::new();
    for _ in 0..3 {
        let mut member = hub.attach("ali").await.unwrap();
        member.join("live/7").await.unwrap();
        members.push(member);
    }
    let publishers = (0..4).map(|publisher| {
        let hub = hub.clone();
        tokio::spawn(async move {
            for number in 0..50 {
                hub.room("live/7").publish(&(publisher, number)).await.unwrap();
            }
        })
    });
    for publisher in publishers.collect::<Vec<_>>() {
        publisher.await.unwrap();
    }
    let mut orders = Vec::new();
    for member in &mut members {
        let mut order = Vec::new();
        for _ in 0..200 {
            order.push(text(member).await);
        }
        orders.push(order);
    }
    assert_eq!((&orders[0], &orders[1]), (&orders[1], &orders[2]));
}

/// D3 and D8: a member that is too slow for its topic gets a gap, and the entries are counted.
#[tokio::test]
async fn d3_d8_drops_have_a_reason() {
    let short = Rooms::new().options(TopicOptions::new().backlog(10).slow_reader(SlowReader::Notify));
    let hub = Hub::builder().open().rooms("short", short).build().await.unwrap();
    let (mut slow, mut burst) = (hub.attach("slow").await.unwrap(), hub.attach("burst").await.unwrap());
    slow.join("short").await.unwrap();
    burst.join("room").await.unwrap();
    for number in 0..1_000 {
        hub.room("short").publish(&number).await.unwrap();
        hub.room("room").publish(&number).await.unwrap();
    }
    // More than 40 at once.
    for number in 0..1_000 {
        assert_eq!(text(&mut burst).await, number.to_string());
    }
    let (mut entries, mut missing) = (0, 0);
    while entries + missing < 1_000 {
        match slow.next().await.unwrap() {
            Some(Item::Entry(_)) => entries += 1,
            Some(Item::Gap(gap)) => missing += gap.missing.unwrap(),
            other => panic!("{other:?}"),
        }
    }
    assert!(missing > 900, "{missing}");
    assert_eq!(hub.dropped(DropReason::Lagged), missing);
}

/// D4: the late end of an older connection leaves the newer one reachable.
#[tokio::test]
async fn d4_a_late_disconnect_keeps_the_newer_connection() {
    let hub = Hub::builder().open().build().await.unwrap();
    let connect = || Connect::new("test").key("phone");
    let mut old = hub.attach_with("ali", connect()).await.unwrap();
    old.join("live/7").await.unwrap();
    let mut new = hub.attach_with("ali", connect()).await.unwrap();
    new.join("live/7").await.unwrap();
    drop(old);
    hub.key("phone").publish(&"key").await.unwrap();
    hub.user("ali").publish(&"user").await.unwrap();
    hub.room("live/7").publish(&"room").await.unwrap();
    let mut all = [text(&mut new).await, text(&mut new).await, text(&mut new).await];
    all.sort();
    assert_eq!(all, ["\"key\"", "\"room\"", "\"user\""]);
    assert_eq!((hub.room("live/7").count(), hub.user("ali").devices().len()), (1, 1));
}

/// D5: a device is reachable as long as it is connected, without a refresh.
#[tokio::test(start_paused = true)]
async fn d5_a_device_is_reachable_for_as_long_as_it_is_connected() {
    let hub = Hub::builder().open().build().await.unwrap();
    let mut device = hub.attach_with("ali", Connect::new("test").key("phone")).await.unwrap();
    tokio::time::advance(Duration::from_secs(90 * 86_400)).await;
    hub.bus().remove_unused();
    assert!(hub.user("ali").is_online() && hub.key("phone").device().is_some());
    hub.key("phone").publish(&1).await.unwrap();
    assert_eq!(text(&mut device).await, "1");
}

/// D12: what rooms, users and keys held is released.
#[tokio::test]
async fn d12_nothing_is_held_for_those_who_left() {
    let hub = Hub::builder().open().without_events().build().await.unwrap();
    for round in 0..2_000 {
        let mut device = hub.attach(&*format!("user{round}")).await.unwrap();
        device.join(&format!("live/{round}")).await.unwrap();
        hub.room(format!("live/{round}")).publish(&"x".repeat(1_000)).await.unwrap();
    }
    hub.bus().remove_unused();
    let (stats, bus) = (hub.stats(), hub.bus().stats());
    assert_eq!((stats.devices, stats.users, stats.rooms, stats.memberships), (0, 0, 0, 0));
    assert_eq!((bus.topics, bus.entries, bus.bytes, bus.subscriptions), (0, 0, 0, 0));
}

/// An order that a topic of a user keeps is not executed again by a device that comes back.
#[tokio::test]
async fn kept_orders_are_for_the_connections_of_their_time() {
    let hub = Hub::builder().open().user_history(100, Duration::from_secs(600)).build().await.unwrap();
    let seen = hub.user("ali").publish(&1).await.unwrap();
    hub.user("ali").close("bye").unwrap();
    hub.user("ali").publish(&2).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    let connect = Connect::new("test").user_start(Start::After(seen));
    let mut device = hub.attach_with("ali", connect).await.unwrap();
    assert!(matches!(device.next().await.unwrap(), Some(Item::Recovered(_))));
    assert_eq!(text(&mut device).await, "2");
    hub.user("ali").close("now").unwrap();
    assert!(matches!(device.next().await.unwrap(), Some(Item::Disconnected(order)) if order.text == "now"));
}
