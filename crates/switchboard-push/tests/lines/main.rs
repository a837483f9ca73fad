//! Devices on a fan-out engine, with a protocol of lines: the seam that adapters of protocols use.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod adapter;
mod support;

use adapter::Lines;
use std::time::Duration;
use support::{Line, start};
use switchboard_message::Publication;
use switchboard_push::{Access, Hub, HubLimits, Jwt, Rooms};
use switchboard_wire::Codec;

#[tokio::test]
async fn members_of_a_room_get_each_entry_once_and_in_order() {
    let hub = Hub::builder().open().build().await.unwrap();
    let server = start(Lines::new(&hub)).await;
    let mut members = Vec::new();
    // More than a group has without a broadcast buffer.
    for number in 0..20 {
        let mut line = Line::connect(&server).await;
        line.send(&format!("CONNECT user{number} key{number}")).await;
        assert_eq!(line.next().await, "OK");
        line.send("JOIN live/7").await;
        assert_eq!(line.next().await, "JOINED room/live/7 live");
        members.push(line);
    }
    for number in 0..100 {
        hub.room("live/7").publish(&number).await.unwrap();
    }
    hub.key("key3").publish(&"own").await.unwrap();
    for (number, member) in members.iter_mut().enumerate() {
        let mut rooms = Vec::new();
        let mut own = 0;
        while rooms.len() < 100 || (number == 3 && own == 0) {
            match member.next().await.as_str() {
                "key/key3 \"own\"" => own += 1,
                line => rooms.push(line.to_owned()),
            }
        }
        let expected: Vec<_> = (0..100).map(|number| format!("room/live/7 {number}")).collect();
        assert_eq!((rooms, own), (expected, usize::from(number == 3)));
    }
    assert_eq!((hub.stats().devices, hub.room("live/7").count()), (20, 20));
    drop(members);
    support::until(|| hub.stats().devices == 0).await;
    assert_eq!((hub.stats().rooms, hub.stats().users), (0, 0));
}

#[tokio::test]
async fn a_member_recovers_from_a_position_among_others_without_a_hole() {
    let kept = Rooms::new().history(1_000, Duration::from_secs(60));
    let hub = Hub::builder().open().rooms("live/*", kept).build().await.unwrap();
    let server = start(Lines::new(&hub)).await;
    let mut other = Line::login(&server, "bob").await;
    other.send("JOIN live/7").await;
    let first = hub.room("live/7").publish(&0).await.unwrap();
    for number in 1..500 {
        hub.room("live/7").publish(&number).await.unwrap();
    }
    let mut line = Line::login(&server, "ali").await;
    line.send(&format!("JOIN live/7 {} {}", first.epoch, first.offset)).await;
    let publish = tokio::spawn(async move {
        for number in 500..1_000 {
            hub.room("live/7").publish(&number).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(line.next().await, "JOINED room/live/7 complete");
    for number in 1..1_000 {
        assert_eq!(line.next().await, format!("room/live/7 {number}"));
    }
    publish.await.unwrap();
}

#[tokio::test]
async fn a_gap_is_reported_with_its_reason() {
    let kept = Rooms::new().history(2, Duration::from_secs(60));
    let hub = Hub::builder().open().rooms("live/*", kept).build().await.unwrap();
    let server = start(Lines::new(&hub)).await;
    let first = hub.room("live/7").publish(&0).await.unwrap();
    for number in 1..10 {
        hub.room("live/7").publish(&number).await.unwrap();
    }
    let mut line = Line::login(&server, "ali").await;
    line.send(&format!("JOIN live/7 {} {}", first.epoch, first.offset)).await;
    assert_eq!(line.next().await, "JOINED room/live/7 gap expired 7");
    assert_eq!(line.next().await, "room/live/7 8");
    line.send("JOIN live/8 1 1").await;
    assert_eq!(line.next().await, "room/live/7 9");
    assert_eq!(line.next().await, "JOINED room/live/8 gap epoch ?");
}

#[tokio::test]
async fn orders_reach_a_device_after_the_entries_before_them() {
    let hub = Hub::builder().open().build().await.unwrap();
    let server = start(Lines::new(&hub)).await;
    let mut old = Line::connect(&server).await;
    old.send("CONNECT ali phone").await;
    assert_eq!(old.next().await, "OK");
    hub.user("ali").join("live/7").unwrap();
    assert_eq!(old.next().await, "JOINED room/live/7 live");
    let mut new = Line::connect(&server).await;
    new.send("CONNECT ali phone").await;
    assert_eq!(new.next().await, "OK");
    assert_eq!(old.next().await, "BYE replaced");
    assert_eq!(old.end().await, "");
    hub.key("phone").publish(&1).await.unwrap();
    hub.key("phone").close("later").unwrap();
    assert_eq!(new.next().await, "key/phone 1");
    assert_eq!(new.next().await, "BYE closed");
    support::until(|| hub.stats().devices == 0).await;
}

#[tokio::test]
async fn a_filter_is_part_of_the_encoding_key() {
    let hub = Hub::builder().open().build().await.unwrap();
    let server = start(Lines::new(&hub)).await;
    let mut line = Line::login(&server, "ali").await;
    line.send("ACCEPTS 7").await;
    line.send("JOIN live/7").await;
    assert_eq!(line.next().await, "JOINED room/live/7 live");
    for operation in [6, 7] {
        hub.room("live/7").publish(&operation).operation(operation).await.unwrap();
    }
    assert_eq!(line.next().await, "room/live/7 7");
    line.send("ACCEPTS 6").await;
    line.send("PING").await;
    assert_eq!(line.next().await, "PONG");
    for operation in [7, 6] {
        hub.room("live/7").publish(&operation).operation(operation).await.unwrap();
    }
    assert_eq!(line.next().await, "room/live/7 6");
}

#[tokio::test]
async fn a_merge_window_delivers_its_entries_together() {
    let merged = Rooms::new().merge(Duration::from_millis(30));
    let hub = Hub::builder().open().rooms("live/*", merged).build().await.unwrap();
    let server = start(Lines::new(&hub)).await;
    let mut line = Line::login(&server, "ali").await;
    line.send("JOIN live/7").await;
    assert_eq!(line.next().await, "JOINED room/live/7 live");
    for number in 0..3 {
        hub.room("live/7").publish(&number).await.unwrap();
    }
    for number in 0..3 {
        assert_eq!(line.next().await, format!("room/live/7 {number}"));
    }
    hub.room("live/7").publish(&3).await.unwrap();
    assert_eq!(line.next().await, "room/live/7 3");
}

#[tokio::test]
async fn tokens_are_verified_before_anything_else() {
    let hub = Hub::builder().auth(Jwt::hs256([7; 32])).build().await.unwrap();
    let server = start(Lines::new(&hub)).await;
    for bad in ["x", "a.b.c", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGkiLCJleHAiOjQwMDAwMDAwMDB9."] {
        let mut line = Line::connect(&server).await;
        line.send(&format!("TOKEN {bad}")).await;
        assert!(line.next().await.starts_with("REFUSED"), "{bad}");
        assert_eq!(line.end().await, "");
    }
    assert_eq!((hub.stats().devices, hub.stats().refused), (0, 3));
    let closed = Hub::builder().build().await.unwrap();
    let server = start(Lines::new(&closed)).await;
    let mut line = Line::connect(&server).await;
    line.send("CONNECT ali phone").await;
    assert!(line.next().await.contains("has no verifier"));
}

#[tokio::test]
async fn a_slow_member_lags_and_the_others_do_not() {
    let mut limits = HubLimits::default();
    limits.publications_per_s = f64::INFINITY;
    let rooms = Rooms::new().publish(Access::all());
    let hub = Hub::builder().open().limits(limits).rooms("live/*", rooms).build().await.unwrap();
    let server = start(Lines::new(&hub)).await;
    let mut slow = Line::login(&server, "slow").await;
    slow.send("JOIN live/7").await;
    let mut fast = Line::login(&server, "fast").await;
    fast.send("JOIN live/7").await;
    assert_eq!(slow.next().await, "JOINED room/live/7 live");
    assert_eq!(fast.next().await, "JOINED room/live/7 live");
    // `slow` reads nothing from now on.
    let text = "x".repeat(60_000);
    for number in 0..400 {
        hub.room("live/7").publish(&text).await.unwrap();
        assert_eq!(fast.next().await.len(), "room/live/7 ".len() + text.len() + 2, "{number}");
    }
    support::until(|| hub.stats().devices == 1).await;
}

/// A member that reads nothing for a while, alone in its room and among many.
async fn stalled_member(others: usize, entries: usize, kept: usize) -> (usize, bool) {
    let rooms = Rooms::new().history(kept, Duration::from_secs(60)).history_bytes(1 << 30);
    let hub = Hub::builder().open().rooms("kept/*", rooms).build().await.unwrap();
    let server = start(Lines::new(&hub)).await;
    let mut slow = Line::login(&server, "slow").await;
    slow.send("JOIN kept/7").await;
    assert_eq!(slow.next().await, "JOINED room/kept/7 live");
    let mut all = Vec::new();
    for number in 0..others {
        let mut line = Line::login(&server, &format!("other{number}")).await;
        line.send("JOIN kept/7").await;
        assert_eq!(line.next().await, "JOINED room/kept/7 live");
        all.push(line);
    }
    let text = "x".repeat(60_000);
    for number in 0..entries {
        hub.room("kept/7").publish(&format!("{number} {text}")).await.unwrap();
        for line in &mut all {
            assert!(line.next().await.starts_with(&format!("room/kept/7 \"{number} ")));
        }
        support::until(|| hub.delivered() >= ((number + 1) * (others.max(1))) as u64 || others == 0).await;
    }
    hub.room("kept/7").publish(&"end").await.unwrap();
    let (mut next, mut has_gap) = (0, false);
    loop {
        let line = slow.next().await;
        if line == "room/kept/7 \"end\"" {
            return (next, has_gap);
        }
        if line.starts_with("GAP") {
            has_gap = true;
            continue;
        }
        let number: usize = line["room/kept/7 \"".len()..].split(' ').next().unwrap().parse().unwrap();
        assert!(number == next || has_gap && number > next, "{number} after {next}");
        next = number + 1;
    }
}

#[tokio::test]
async fn a_member_that_stalls_gets_all_kept_entries_and_else_a_gap() {
    for others in [0, 9] {
        assert_eq!(stalled_member(others, 200, 1_000).await, (200, false), "{others} others");
    }
    assert_eq!(stalled_member(9, 200, 5).await, (200, true));
}

/// A device whose outbox fills up goes on with kept entries, and does not miss an order among them.
#[tokio::test]
async fn an_order_reaches_a_device_that_falls_back_to_kept_entries() {
    let hub = Hub::builder().open().user_history(1_000, Duration::from_secs(60)).build().await.unwrap();
    let server = start(Lines::new(&hub)).await;
    let mut line = Line::login(&server, "kept").await;
    let text = "x".repeat(10_000);
    for _ in 0..60 {
        let entry = Publication::new(Codec::Raw, text.clone());
        hub.user("kept").publish_encoded(entry).await.unwrap();
    }
    hub.user("kept").close("bye").unwrap();
    // The order is older than the time at which the device falls back.
    std::thread::sleep(Duration::from_millis(5));
    for _ in 0..60 {
        assert_eq!(line.next().await, format!("user/kept {text}"));
    }
    assert_eq!(support::soon(line.next()).await, "BYE closed");
}

#[tokio::test]
async fn topics_of_an_engine_are_delivered_and_recovered() {
    let kept = switchboard_message::TopicOptions::new().history(1_000, Duration::from_secs(600));
    let topics = switchboard_message::Bus::builder().topics("room/>", kept).unwrap().build();
    let engine = || std::sync::Arc::new(switchboard_message::Embedded::new(topics.clone()));
    let hub = Hub::builder().open().broker(engine()).build().await.unwrap();
    let other = Hub::builder().open().broker(engine()).build().await.unwrap();
    let server = start(Lines::new(&hub)).await;
    let first = other.room("live/7").publish(&0).await.unwrap();
    for number in 1..100 {
        other.room("live/7").publish(&number).await.unwrap();
    }
    let mut members = Vec::new();
    for number in 0..10 {
        let mut line = Line::login(&server, &format!("user{number}")).await;
        line.send(&format!("JOIN live/7 {} {}", first.epoch, first.offset)).await;
        assert_eq!(line.next().await, "JOINED room/live/7 complete");
        members.push(line);
    }
    for number in 100..200 {
        other.room("live/7").publish(&number).await.unwrap();
    }
    for member in &mut members {
        for number in 1..200 {
            assert_eq!(member.next().await, format!("room/live/7 {number}"));
        }
    }
    other.user("user3").close("bye").unwrap();
    assert_eq!(members[3].next().await, "BYE closed");
}

#[tokio::test]
async fn devices_of_one_user_get_its_entries_from_their_connection_on() {
    let hub = Hub::builder().open().build().await.unwrap();
    let server = start(Lines::new(&hub)).await;
    let mut devices = Vec::new();
    for number in 0..3 {
        // Entries before the connection, also those that no device has received.
        for _ in 0..20 {
            hub.user("ali").publish(&"early").await.unwrap();
            hub.key(format!("key{number}")).publish(&"early").await.unwrap();
        }
        let mut line = Line::connect(&server).await;
        line.send(&format!("CONNECT ali key{number}")).await;
        while line.next().await != "OK" {}
        devices.push(line);
    }
    for number in 0..100 {
        hub.user("ali").publish(&number).await.unwrap();
        hub.user("eve").publish(&number).await.unwrap();
        hub.key("key1").publish(&number).await.unwrap();
    }
    for (index, device) in devices.iter_mut().enumerate() {
        let (mut user, mut key) = (0, 0);
        while user < 100 || (index == 1 && key < 100) {
            let line = device.next().await;
            match line.split_once(' ').unwrap() {
                // The older devices of the user receive what was published before the younger ones.
                ("user/ali", "\"early\"") if index < 2 => {}
                ("user/ali", number) => {
                    assert_eq!(number, user.to_string());
                    user += 1;
                }
                ("key/key1", number) if index == 1 => {
                    assert_eq!(number, key.to_string());
                    key += 1;
                }
                _ => panic!("{index}: {line}"),
            }
        }
    }
    drop(devices);
    support::until(|| hub.bus().stats().cursors == 0).await;
}

/// Memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Prints the memory of an idle device: `cargo test -p switchboard-push --test lines memory -- --ignored --nocapture`.
#[tokio::test]
#[ignore = "a measurement"]
async fn memory_of_an_idle_device() {
    let mut limits = HubLimits::default();
    limits.devices_per_user = switchboard_push::DeviceLimit::Unlimited;
    let hub = Hub::builder().open().limits(limits).without_events().build().await.unwrap();
    let server = start(Lines::new(&hub)).await;
    let address = server.url().trim_start_matches("tcp://").to_owned();
    let mut devices = Vec::new();
    let mut before = 0;
    for round in 0..4 {
        for number in 0..2_000 {
            use std::io::Write;
            let mut device = std::net::TcpStream::connect(&address).unwrap();
            let id = round * 2_000 + number;
            device.write_all(format!("CONNECT user{id} key{id}\nJOIN live/7\n").as_bytes()).unwrap();
            devices.push(device);
            tokio::task::yield_now().await;
        }
        support::until(|| hub.room("live/7").count() == devices.len()).await;
        let now = resident();
        if round > 0 {
            println!("{} devices: {} bytes each", devices.len(), now.saturating_sub(before) / 2_000);
        }
        before = now;
    }
}
