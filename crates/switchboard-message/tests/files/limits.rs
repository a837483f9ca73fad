//! Limits of the files: segments, the folder, the queue.

use crate::folder::{Folder, kept, next};
use std::{fs, time::Duration};
use switchboard_message::{Bus, Delivery, FileOptions, Limits, Publication, Storage, TopicOptions};
use switchboard_wire::{Code, Codec};

const SEGMENT: u64 = 4 << 10;

fn small(files: &mut FileOptions) {
    files.segment_bytes = SEGMENT;
    files.file_bytes_max = 16 * SEGMENT;
}

async fn publish(bus: &Bus, topic: &str, number: u64) -> switchboard_core::Result<u64> {
    let publication = Publication::new(Codec::Json, format!("{number:>200}"));
    Ok(bus.publish_encoded(topic, publication).await?.offset)
}

#[tokio::test]
async fn segments_below_the_history_are_deleted() {
    let folder = Folder::new("trim");
    let bus = folder.open_with(20, small).unwrap();
    for number in 0..2_000_u64 {
        assert_eq!(publish(&bus, "file/a", number).await.unwrap(), number + 1);
    }
    assert!(folder.segments().len() <= 4, "{:?}", folder.segments());
    assert!(!folder.segments()[0].starts_with("00000000000000000001"));
    drop(bus);
    let bus = folder.open_with(20, small).unwrap();
    assert!(kept(&bus, "file/a").await.into_iter().eq((1_980..2_000).map(|number| (number + 1, number))));
}

#[tokio::test]
async fn a_topic_without_entries_in_the_segments_keeps_its_offset() {
    let folder = Folder::new("empty");
    let short = |bytes| switchboard_message::TopicOptions::new().history(bytes, std::time::Duration::MAX);
    let open = |kept| {
        let mut files = FileOptions::new(folder.path());
        small(&mut files);
        let file = switchboard_message::Storage::File;
        let rules = Bus::builder().topics("file/old", short(kept).storage(file)).unwrap();
        rules.topics("file/>", short(10).storage(file)).unwrap().open(files).unwrap()
    };
    let bus = open(0);
    let mut reader = bus.subscribe::<u64>("file/old").await.unwrap();
    let first = bus.publish("file/old", &1_u64).await.unwrap();
    // Without a history, the entry is gone when it is read.
    assert!(matches!(next(&mut reader).await, Delivery::Entry(_)));
    for number in 0..500 {
        publish(&bus, "file/a", number).await.unwrap();
    }
    assert!(!folder.segments()[0].starts_with("00000000000000000001"));
    drop((reader, bus));
    let bus = open(5);
    let second = bus.publish("file/old", &2_u64).await.unwrap();
    assert_eq!((second.epoch, second.offset), (first.epoch, 2));
}

#[tokio::test]
async fn entries_of_quiet_topics_are_copied_to_newer_segments() {
    let folder = Folder::new("copy");
    let bus = folder.open_with(20, small).unwrap();
    for number in 0..10 {
        publish(&bus, &format!("file/quiet/{number}"), number).await.unwrap();
        bus.publish("keyed/quiet", &number).key(format!("k{number}")).await.unwrap();
    }
    for number in 0..3_000 {
        publish(&bus, "file/busy", number).await.unwrap();
    }
    assert!(folder.bytes() <= 17 * SEGMENT, "{}", folder.bytes());
    assert!(!folder.segments()[0].starts_with("00000000000000000001"));
    for round in 0..3_u64 {
        drop(bus.clone());
        let check = |bus: Bus| async move {
            for number in 0..10 {
                assert_eq!(kept(&bus, &format!("file/quiet/{number}")).await, [(1, number)]);
            }
            assert_eq!(kept(&bus, "keyed/quiet").await.len(), 10);
            assert_eq!(kept(&bus, "file/busy").await.last(), Some(&(3_000 + round, 2_999 + round)));
        };
        check(bus.clone()).await;
        publish(&bus, "file/busy", 3_000 + round).await.unwrap();
    }
    let head = bus.topic_stats("file/quiet/3").unwrap().head;
    drop(bus);
    let bus = folder.open_with(20, small).unwrap();
    for number in 0..10 {
        assert_eq!(kept(&bus, &format!("file/quiet/{number}")).await, [(1, number)]);
    }
    assert_eq!(kept(&bus, "keyed/quiet").await.len(), 10);
    assert_eq!(bus.topic_stats("file/quiet/3").unwrap().head, head);
    assert_eq!(bus.publish("file/quiet/3", &1_u64).await.unwrap().offset, 2);
}

#[tokio::test]
async fn a_full_folder_refuses_durable_topics_alone() {
    let folder = Folder::new("full");
    let bus = folder.open_with(1_000_000, small).unwrap();
    let mut accepted = 0;
    let refused = loop {
        match publish(&bus, "file/a", accepted).await {
            Ok(offset) => accepted = offset,
            Err(status) => break status,
        }
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("file_bytes_max=65536"), "{refused}");
    assert!(accepted > 100);
    assert_eq!(publish(&bus, "synced/a", 1).await.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(publish(&bus, "memory/a", 1).await.unwrap(), 1);
    assert_eq!(bus.topic_stats("file/a").unwrap().head.offset, accepted);
    drop(bus);
    let bus = folder.open_with(1_000_000, small).unwrap();
    assert_eq!(bus.topic_stats("file/a").unwrap().entries as u64, accepted);
    drop(bus);
    // A larger limit, and it continues.
    let bus = folder.open_with(1_000_000, |files| files.segment_bytes = SEGMENT).unwrap();
    assert_eq!(publish(&bus, "file/a", 1).await.unwrap(), accepted + 1);
}

#[tokio::test]
async fn a_refused_publication_with_an_id_can_be_repeated() {
    let folder = Folder::new("full-id");
    let bus = folder.open_with(1_000_000, small).unwrap();
    let mut number = 0;
    while publish(&bus, "file/a", number).await.is_ok() {
        number += 1;
    }
    let large = vec![7_u64; 1_000];
    assert!(bus.publish("file/b", &large).id("x").await.is_err());
    drop(bus);
    let bus = folder.open_with(10, small).unwrap();
    assert_eq!(bus.publish("file/b", &large).id("x").await.unwrap().offset, 1);
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_is_refused() {
    let folder = Folder::new("file");
    fs::write(folder.path(), "a file, not a folder").unwrap();
    let refused = folder.open().unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("check the disk and the permissions"), "{refused}");
    fs::remove_file(folder.path()).unwrap();
}

#[tokio::test]
async fn a_removed_folder_fails_publications_when_a_segment_is_full() {
    let folder = Folder::new("gone");
    let bus = folder.open_with(1_000, small).unwrap();
    publish(&bus, "file/a", 0).await.unwrap();
    fs::remove_dir_all(folder.path()).unwrap();
    let mut number = 1;
    let refused = loop {
        match publish(&bus, "file/a", number).await {
            Ok(_) => number += 1,
            Err(status) => break status,
        }
        assert!(number < 100, "a segment has room for 20 entries");
    };
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(bus.topic_stats("file/a").unwrap().head.offset, number);
    assert_eq!(publish(&bus, "memory/a", 1).await.unwrap(), 1);
}

#[tokio::test]
async fn limits_that_contradict_each_other_are_refused() {
    let folder = Folder::new("invalid");
    let refused = folder.open_with(1, |files| files.segment_bytes = 1).unwrap_err();
    assert!(refused.message().contains("segment_bytes is 1; the minimum is 4096"), "{refused}");
    let refused = folder.open_with(1, |files| files.file_bytes_max = 64 << 20).unwrap_err();
    assert!(refused.message().contains("the minimum is 4 segments"), "{refused}");
}

#[tokio::test]
async fn a_full_queue_refuses_messages() {
    let folder = Folder::new("queue");
    let bus = folder.open_with(100_000, |files| files.queue_bytes_max = 1_000).unwrap();
    let refused = loop {
        if let Err(status) = bus.publish("synced/a", &1_u64).later() {
            break status;
        }
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("queue_bytes_max=1000"), "{refused}");
}

#[tokio::test]
async fn unused_topics_of_the_segments_do_not_count_at_the_limit() {
    let folder = Folder::new("topics-max");
    let open = |topics_max| {
        let mut limits = Limits::default();
        limits.topics_max = topics_max;
        // Entries are not kept for longer than they need to be read.
        let options = TopicOptions::new().history(5, Duration::from_nanos(1)).storage(Storage::File);
        let builder = Bus::builder().limits(limits).topics("file/>", options).unwrap();
        builder.open(FileOptions::new(folder.path()))
    };
    let bus = open(100).unwrap();
    for number in 0..20_u64 {
        bus.publish(&format!("file/{number}"), &number).await.unwrap();
    }
    let known = bus.publish("file/id", &1_u64).id("id").await.unwrap();
    let durable = bus.subscribe::<u64>("file/cursor").durable("device").await.unwrap();
    bus.publish("file/cursor", &1_u64).await.unwrap();
    drop((durable, bus));
    // A running bus would have removed the others at its limit.
    let bus = open(5).unwrap();
    assert_eq!(bus.publish("file/id", &1_u64).id("id").await.unwrap(), known);
    assert_eq!(bus.stats().topics, 2);
    bus.publish("file/cursor", &2_u64).await.unwrap();
    drop(bus);
    // Topics that are in use count.
    let refused = open(1).unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("topics_max=1"), "{refused}");
}
