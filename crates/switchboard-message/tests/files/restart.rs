//! Topics after a restart.

use crate::folder::{Folder, kept, next};
use std::time::Duration;
use switchboard_message::{
    Bus, Delivery, FileOptions, GapReason, Position, Publication, SlowReader, Storage, TopicOptions,
};
use switchboard_wire::{Code, Codec};

#[tokio::test]
async fn a_restart_keeps_entries_epochs_and_offsets() {
    let folder = Folder::new("restart");
    let bus = folder.open().unwrap();
    let mut last = Position::default();
    for number in 0..10_u64 {
        last = bus.publish("file/a", &number).await.unwrap();
        bus.publish("synced/b", &(number * 2)).await.unwrap();
        bus.publish("memory/c", &number).await.unwrap();
    }
    drop(bus);
    for round in 0..3 {
        let bus = folder.open().unwrap();
        let expected: Vec<_> = (0..10 + round).map(|number| (number + 1, number)).collect();
        assert_eq!(kept(&bus, "file/a").await, expected);
        assert_eq!(kept(&bus, "synced/b").await[9], (10, 18));
        assert!(bus.topic_stats("memory/c").is_none());
        let next = bus.publish("file/a", &(10 + round)).await.unwrap();
        assert_eq!(next, Position { epoch: last.epoch, offset: 11 + round });
    }
}

#[tokio::test]
async fn a_subscription_continues_after_its_position() {
    let folder = Folder::new("resume");
    let bus = folder.open().unwrap();
    let position = bus.publish("file/a", &1_u64).await.unwrap();
    bus.publish("file/a", &2_u64).await.unwrap();
    drop(bus);
    let bus = folder.open().unwrap();
    let mut rest = bus.subscribe::<u64>("file/a").after(position).await.unwrap();
    assert!(matches!(next(&mut rest).await, Delivery::Recovered));
    assert!(matches!(next(&mut rest).await, Delivery::Entry(second) if *second == 2));
    bus.publish("file/a", &3_u64).await.unwrap();
    assert!(
        matches!(next(&mut rest).await, Delivery::Entry(third) if *third == 3 && third.position().offset == 3)
    );
}

#[tokio::test]
async fn an_entry_keeps_its_fields() {
    let folder = Folder::new("fields");
    let bus = folder.open().unwrap();
    let header = |bus: Bus| async move {
        let published = bus.publish("file/a", &7_u64).key("key").id("id").header("source", "test");
        published.codec(Codec::Json).expires_in(Duration::from_secs(3_600)).await.unwrap();
        bus.publish("file/a", &8_u64).expires_in(Duration::ZERO).await.unwrap();
    };
    header(bus).await;
    let bus = folder.open().unwrap();
    let mut all = bus.subscribe::<u64>("file/a").last(10).await.unwrap();
    let Delivery::Entry(first) = next(&mut all).await else { panic!("a gap") };
    let entry = first.entry();
    assert_eq!((*first, entry.codec(), &entry.bytes()[..]), (7, Codec::Json, &b"7"[..]));
    assert_eq!((&entry.key().unwrap()[..], &entry.id().unwrap()[..]), (&b"key"[..], &b"id"[..]));
    assert_eq!(entry.headers().text("source"), Some("test"));
    // The second entry has expired.
    bus.publish("file/a", &9_u64).await.unwrap();
    let gap = next(&mut all).await;
    assert!(
        matches!(&gap, Delivery::Gap(gap) if gap.reason == GapReason::Expired && gap.range == (2..3)),
        "{gap:?}"
    );
}

#[tokio::test]
async fn a_publication_id_is_known_after_a_restart() {
    let folder = Folder::new("ids");
    let bus = folder.open().unwrap();
    let first = bus.publish("synced/a", &1_u64).id("order 7").await.unwrap();
    bus.publish("synced/a", &2_u64).await.unwrap();
    assert_eq!(bus.publish("synced/a", &1_u64).id("order 7").await.unwrap(), first);
    drop(bus);
    let bus = folder.open().unwrap();
    assert_eq!(bus.publish("synced/a", &1_u64).id("order 7").await.unwrap(), first);
    assert_eq!(kept(&bus, "synced/a").await.len(), 2);
    assert_eq!(bus.topic_stats("synced/a").unwrap().duplicates, 1);
}

#[tokio::test]
async fn concurrent_publications_with_an_id_are_appended_once() {
    let folder = Folder::new("same-id");
    let bus = folder.open().unwrap();
    let publish = || async { bus.publish("synced/a", &1_u64).id("x").await.unwrap() };
    let (a, b, c) = tokio::join!(publish(), publish(), publish());
    assert_eq!((a, a), (b, c));
    assert_eq!(kept(&bus, "synced/a").await, [(1, 1)]);
}

#[tokio::test]
async fn a_conflated_topic_has_the_newest_entry_of_each_key() {
    let folder = Folder::new("keyed");
    let bus = folder.open().unwrap();
    for number in 0..20_u64 {
        bus.publish("keyed/a", &number).key(format!("k{}", number % 3)).await.unwrap();
    }
    let before = kept(&bus, "keyed/a").await;
    drop(bus);
    let bus = folder.open().unwrap();
    assert_eq!(kept(&bus, "keyed/a").await, before);
    assert_eq!(before, [(18, 17), (19, 18), (20, 19)]);
}

#[tokio::test]
async fn a_pattern_receives_entries_of_all_topics_in_their_order() {
    let folder = Folder::new("pattern");
    let bus = folder.open().unwrap();
    for number in 0..50_u64 {
        bus.publish(&format!("file/{}", number % 7), &number).await.unwrap();
    }
    drop(bus);
    let bus = folder.open().unwrap();
    let mut all = bus.subscribe::<u64>("file/*").last(100).await.unwrap();
    let mut received = Vec::new();
    for _ in 0..50 {
        let Delivery::Entry(entry) = next(&mut all).await else { panic!("a gap") };
        received.push(*entry);
    }
    received.sort_unstable();
    assert!(received.into_iter().eq(0..50));
}

#[tokio::test]
async fn a_batch_is_kept_as_a_whole() {
    let folder = Folder::new("batch");
    let bus = folder.open().unwrap();
    assert_eq!(bus.publish_batch("file/a", &[1_u64, 2, 3]).await.unwrap().offset, 3);
    let batch = [("x", 4_u64), ("x", 5), ("y", 6)].map(|(id, number)| {
        let mut publication = Publication::new(Codec::Json, number.to_string());
        publication.id = id.into();
        publication
    });
    assert_eq!(bus.publish_batch_encoded("file/a", batch.into()).await.unwrap().offset, 5);
    drop(bus);
    let bus = folder.open().unwrap();
    assert_eq!(kept(&bus, "file/a").await, [(1, 1), (2, 2), (3, 3), (4, 4), (5, 6)]);
}

#[tokio::test]
async fn times_continue_after_a_restart() {
    let folder = Folder::new("since");
    let bus = folder.open().unwrap();
    bus.publish("file/a", &1_u64).await.unwrap();
    drop(bus);
    let bus = folder.open().unwrap();
    let mut hour = bus.subscribe::<u64>("file/a").since(Duration::from_secs(3_600)).await.unwrap();
    assert!(matches!(next(&mut hour).await, Delivery::Recovered));
    assert!(matches!(next(&mut hour).await, Delivery::Entry(first) if *first == 1));
    let mut none = bus.subscribe::<u64>("file/a").since(Duration::ZERO).await.unwrap();
    assert!(matches!(next(&mut none).await, Delivery::Recovered));
    bus.publish("file/a", &2_u64).await.unwrap();
    assert!(matches!(next(&mut none).await, Delivery::Entry(second) if *second == 2));
}

#[tokio::test]
async fn old_entries_are_not_kept_by_a_restart() {
    let folder = Folder::new("age");
    let open = |age| {
        let options = TopicOptions::new().history(10, age).storage(Storage::File);
        Bus::builder().topics("a", options).unwrap().open(FileOptions::new(folder.path())).unwrap()
    };
    let bus = open(Duration::MAX);
    let first = bus.publish("a", &1_u64).await.unwrap();
    drop(bus);
    let bus = open(Duration::ZERO);
    assert_eq!(bus.topic_stats("a").unwrap().entries, 0);
    assert_eq!(bus.topic_stats("a").unwrap().head, first);
    let mut after = bus.subscribe::<u64>("a").after(Position { offset: 0, ..first }).await.unwrap();
    let gap = next(&mut after).await;
    assert!(
        matches!(&gap, Delivery::Gap(gap) if gap.reason == GapReason::Expired && gap.range == (1..2)),
        "{gap:?}"
    );
}

#[tokio::test]
async fn publishers_of_a_full_topic_wait_for_its_readers() {
    let folder = Folder::new("wait");
    let wait = SlowReader::Wait(Duration::from_secs(60));
    let options = TopicOptions::new().history(10, Duration::MAX).backlog(10).slow_reader(wait);
    let bus = Bus::builder().topics("jobs", options.storage(Storage::Synced)).unwrap();
    let bus = bus.open(FileOptions::new(folder.path())).unwrap();
    let mut reader = bus.subscribe::<u64>("jobs").await.unwrap();
    let publish = async {
        for number in 0..200_u64 {
            bus.publish("jobs", &number).await.unwrap();
        }
    };
    let read = async {
        for number in 0..200_u64 {
            let Delivery::Entry(entry) = next(&mut reader).await else { panic!("a gap") };
            assert_eq!((*entry, entry.position().offset), (number, number + 1));
        }
    };
    tokio::join!(publish, read);
    // At its time limit, a publisher is refused.
    let options = options.slow_reader(SlowReader::Wait(Duration::ZERO)).storage(Storage::File);
    let bus = Bus::builder().topics("jobs", options).unwrap();
    let other = Folder::new("no-wait");
    let bus = bus.open(FileOptions::new(other.path())).unwrap();
    let _reader = bus.subscribe::<u64>("jobs").await.unwrap();
    for number in 0..10_u64 {
        bus.publish("jobs", &number).await.unwrap();
    }
    assert_eq!(bus.publish("jobs", &10_u64).await.unwrap_err().code(), Code::ResourceExhausted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_of_many_publishers_is_that_of_their_offsets() {
    let folder = Folder::new("many-publishers");
    let bus = folder.open_with(10_000, |files| files.segment_bytes = 16 << 10).unwrap();
    let mut live = bus.subscribe::<u64>("synced/a").await.unwrap();
    let publisher = |publisher: u64| {
        let bus = bus.clone();
        tokio::spawn(async move {
            for number in 0..50 {
                bus.publish("synced/a", &(publisher * 1_000 + number)).await.unwrap();
                bus.publish("file/b", &number).await.unwrap();
            }
        })
    };
    let publishers: Vec<_> = (0..16).map(publisher).collect();
    for publisher in publishers {
        publisher.await.unwrap();
    }
    let mut received = Vec::new();
    for offset in 1..=800 {
        let Delivery::Entry(entry) = next(&mut live).await else { panic!("a gap") };
        assert_eq!(entry.position().offset, offset);
        received.push((offset, *entry));
    }
    drop((live, bus));
    let bus = folder.open_with(10_000, |_| {}).unwrap();
    assert_eq!(kept(&bus, "synced/a").await, received);
    for publisher in 0..16 {
        let own = received.iter().map(|(_, number)| *number).filter(|number| number / 1_000 == publisher);
        assert!(own.eq((0..50).map(|number| publisher * 1_000 + number)));
    }
}

#[tokio::test]
async fn ten_thousand_topics_are_read_back() {
    let folder = Folder::new("many");
    let bus = folder.open().unwrap();
    let mut published = Vec::new();
    for number in 0..10_000_u64 {
        published.push(bus.publish_encoded(
            &*Box::leak(format!("file/{number}").into_boxed_str()),
            Publication::new(Codec::Json, number.to_string()),
        ));
    }
    for publishing in published {
        assert_eq!(publishing.await.unwrap().offset, 1);
    }
    assert_eq!(bus.stats().topics, 10_000);
    drop(bus);
    let bus = folder.open().unwrap();
    assert_eq!((bus.stats().topics, bus.stats().entries), (10_000, 10_000));
    for number in [0, 17, 9_999] {
        assert_eq!(kept(&bus, &format!("file/{number}")).await, [(1, number)]);
    }
}

#[tokio::test]
async fn messages_without_a_wait_are_written_before_the_end() {
    let folder = Folder::new("later");
    let bus = folder.open().unwrap();
    (0..100_u64).for_each(|number| bus.publish("synced/a", &number).later().unwrap());
    assert_eq!(bus.publish("synced/a", &0_u64).now().unwrap_err().code(), Code::Unimplemented);
    drop(bus);
    let bus = folder.open().unwrap();
    assert!(kept(&bus, "synced/a").await.into_iter().eq((0..100).map(|number| (number + 1, number))));
}

/// Payload that keeps a bus alive.
struct Owner(Option<Bus>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        if self.0.is_some() { b"8" } else { b"" }
    }
}

#[tokio::test]
async fn a_bus_that_its_last_entry_owns_ends() {
    let folder = Folder::new("owner");
    let bus = folder.open_with(1, |_| {}).unwrap();
    let owner = bytes::Bytes::from_owner(Owner(Some(bus.clone())));
    bus.publish_encoded("file/a", Publication::new(Codec::Json, owner)).await.unwrap();
    // Replaces the entry on the thread that writes: the bus ends there.
    bus.publish("file/a", &9_u64).later().unwrap();
    drop(bus);
    let reopened = loop {
        match folder.open_with(1, |_| {}) {
            Ok(bus) => break bus,
            Err(status) => assert_eq!(status.code(), Code::FailedPrecondition, "{status}"),
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(kept(&reopened, "file/a").await, [(2, 9)]);
}

#[tokio::test]
async fn a_topic_whose_rule_is_in_memory_now_is_ignored() {
    let folder = Folder::new("rules");
    let bus = folder.open().unwrap();
    bus.publish("file/a", &1_u64).await.unwrap();
    drop(bus);
    let bus = Bus::builder().topics("file/>", TopicOptions::new()).unwrap();
    let bus = bus.open(switchboard_message::FileOptions::new(folder.path())).unwrap();
    assert!(bus.topic_stats("file/a").is_none());
}

#[tokio::test]
async fn a_bus_without_files_refuses_durable_topics() {
    let options = TopicOptions::new().history(1, Duration::MAX).storage(Storage::Synced);
    let bus = Bus::builder().topics("a", options).unwrap().build();
    let refused = bus.publish("a", &1).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("BusBuilder::open"), "{refused}");
}
