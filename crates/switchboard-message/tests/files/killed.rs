//! Processes that are killed while they publish. The child is this test binary with a variable in its environment.

use crate::folder::{Folder, kept};
use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};
use switchboard_message::{Bus, Delivery, GapReason};
use switchboard_wire::Code;

const FOLDER: &str = "SWITCHBOARD_TEST_FOLDER";

/// Starts this binary with one of the tests below, which then is the child.
fn child(folder: &Folder, test: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("killed::{test}"), "--nocapture", "--ignored"]);
    command.env(FOLDER, folder.path()).stdout(Stdio::piped()).spawn().unwrap()
}

fn bus_of_child() -> Option<Bus> {
    let path = std::env::var_os(FOLDER)?;
    let options = switchboard_message::TopicOptions::new().history(1_000_000, std::time::Duration::MAX);
    let rules = Bus::builder()
        .topics("file/>", options.storage(switchboard_message::Storage::File))
        .and_then(|rules| rules.topics("synced/>", options.storage(switchboard_message::Storage::Synced)));
    let mut files = switchboard_message::FileOptions::new(path);
    files.segment_bytes = 64 << 10;
    Some(rules.unwrap().open(files).unwrap())
}

/// Publishes until it is killed, and prints each accepted number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the child of other tests"]
async fn publishing_child() {
    let Some(bus) = bus_of_child() else { return };
    let publish = |topic: &'static str| {
        let bus = bus.clone();
        tokio::spawn(async move {
            for number in 0_u64.. {
                let position = bus.publish(topic, &number).await.unwrap();
                println!("\naccepted {topic} {} {} {number}", position.epoch, position.offset);
            }
        })
    };
    let publishers = ["file/a", "file/b", "synced/c"].map(publish);
    for publisher in publishers {
        publisher.await.unwrap();
    }
}

#[tokio::test]
async fn accepted_entries_survive_a_killed_process() {
    let folder = Folder::new("killed");
    let mut epochs = std::collections::HashMap::new();
    let mut before = std::collections::HashMap::new();
    for round in 1..=3 {
        let mut process = child(&folder, "publishing_child");
        let mut accepted = std::collections::HashMap::<String, Vec<(u64, u64)>>::new();
        let mut count = 0;
        for line in BufReader::new(process.stdout.take().unwrap()).lines() {
            let line = line.unwrap_or_default();
            let words: Vec<&str> = line.split(' ').collect();
            let ["accepted", topic, epoch, offset, number] = *words.as_slice() else { continue };
            // The last line may be cut off: a whole one ends with a number that is known to follow the one before.
            let (epoch, offset) = (epoch.parse::<u64>().unwrap(), offset.parse::<u64>().unwrap());
            assert_eq!(*epochs.entry(topic.to_owned()).or_insert(epoch), epoch, "the epoch stays");
            if let Ok(number) = number.parse() {
                accepted.entry(topic.to_owned()).or_default().push((offset, number));
            }
            count += 1;
            if count == 500 * round {
                process.kill().unwrap();
            }
        }
        process.wait().unwrap();
        let bus = folder.open_with(1_000_000, |files| files.segment_bytes = 64 << 10).unwrap();
        for topic in ["file/a", "file/b", "synced/c"] {
            let accepted = accepted.remove(topic).unwrap_or_default();
            let mut entries = bus.subscribe::<u64>(topic).last(1_000_000).await.unwrap();
            let head = bus.topic_stats(topic).unwrap().head;
            let mut found = Vec::new();
            while (found.len() as u64) < head.offset {
                let Some(Delivery::Entry(entry)) = entries.next().await.unwrap() else { panic!("a gap") };
                found.push((entry.position().offset, *entry));
            }
            // In order, without holes and duplicates.
            assert!(found.iter().map(|(offset, _)| *offset).eq(1..=head.offset), "{topic}");
            let first = before.insert(topic, head.offset).unwrap_or_default();
            let new = &found[first as usize..];
            assert!(new.iter().map(|(_, number)| *number).eq(0..new.len() as u64), "{topic}");
            // The last line may have been cut off in its number.
            let whole = &accepted[..accepted.len().saturating_sub(1)];
            assert_eq!(&new[..whole.len()], whole, "{topic}");
        }
    }
}

fn cleaned(folder: &std::path::Path) -> Bus {
    let options = switchboard_message::TopicOptions::new().history(20, std::time::Duration::MAX);
    let storage = switchboard_message::Storage::File;
    let rules = Bus::builder().topics("busy/*", options.storage(storage)).unwrap();
    let rules = rules.topics("quiet/*", options.storage(storage)).unwrap();
    let rules = rules.topics("keyed", options.conflate().storage(storage)).unwrap();
    let mut files = switchboard_message::FileOptions::new(folder);
    files.segment_bytes = 4 << 10;
    files.file_bytes_max = 64 << 10;
    rules.open(files).unwrap()
}

/// Publishes in a folder whose segments are deleted and copied all the time.
#[tokio::test]
#[ignore = "the child of other tests"]
async fn cleaning_child() {
    let Some(path) = std::env::var_os(FOLDER) else { return };
    let bus = cleaned(path.as_ref());
    for number in 0_u64.. {
        let topic = match number % 50 {
            0 => format!("quiet/{}", number / 50 % 10),
            1 => "keyed".to_owned(),
            _ => format!("busy/{}", number % 3),
        };
        let key = format!("k{}", number / 50 % 7);
        let position = bus.publish(&topic, &number).key(key).await.unwrap();
        println!("\naccepted {topic} {} {} {number} .", position.epoch, position.offset);
    }
}

#[tokio::test]
async fn deleted_and_copied_segments_survive_a_killed_process() {
    let folder = Folder::new("cleaned");
    let mut accepted = std::collections::HashMap::<String, Vec<(u64, u64, u64)>>::new();
    for round in 1..=6_u64 {
        let mut process = child(&folder, "cleaning_child");
        let mut count = 0;
        for line in BufReader::new(process.stdout.take().unwrap()).lines() {
            let line = line.unwrap_or_default();
            let words: Vec<&str> = line.split(' ').collect();
            let ["accepted", topic, epoch, offset, number, "."] = *words.as_slice() else { continue };
            let [epoch, offset, number] = [epoch, offset, number].map(|word| word.parse::<u64>().unwrap());
            accepted.entry(topic.to_owned()).or_default().push((epoch, offset, number));
            count += 1;
            if count == 1_000 + 377 * round {
                process.kill().unwrap();
            }
        }
        process.wait().unwrap();
        assert!(count >= 1_000 + 377 * round, "the folder has space: {count}");
        let bus = cleaned(folder.path());
        assert!(folder.bytes() <= (64 + 8) << 10, "{}", folder.bytes());
        for (topic, accepted) in &accepted {
            let last = accepted.last().unwrap();
            let head = bus.topic_stats(topic).unwrap().head;
            assert_eq!(head.epoch, last.0, "{topic}: the epoch stays");
            assert!(head.offset >= last.1, "{topic}");
            let found = kept(&bus, topic).await;
            assert_eq!(found.last().map(|(offset, _)| *offset), Some(head.offset), "{topic}");
            if topic != "keyed" {
                let first = head.offset.saturating_sub(19).max(1);
                assert!(
                    found.iter().map(|(offset, _)| *offset).eq(first..=head.offset),
                    "{topic}: {found:?}"
                );
            }
            for (_, offset, number) in accepted {
                let known = found.iter().find(|(known, _)| known == offset);
                assert!(known.is_none_or(|(_, known)| known == number), "{topic} {offset}");
            }
        }
    }
    assert!(accepted.len() >= 14, "{}", accepted.len());
}

/// Holds a folder until its input ends.
#[tokio::test]
#[ignore = "the child of other tests"]
async fn holding_child() {
    let Some(bus) = bus_of_child() else { return };
    bus.publish("file/a", &7_u64).await.unwrap();
    println!("\nopen");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_folder_is_of_one_process() {
    let folder = Folder::new("two");
    let mut process = child(&folder, "holding_child");
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "open"));
    let refused = folder.open().unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("in use by another bus"), "{refused}");
    process.kill().unwrap();
    process.wait().unwrap();
    let bus = folder.open().unwrap();
    assert_eq!(kept(&bus, "file/a").await, [(1, 7)]);
    assert_eq!(folder.open().unwrap_err().code(), Code::FailedPrecondition, "of one bus in the process, too");
}

#[tokio::test]
async fn a_crash_of_the_machine_begins_new_epochs_of_file_topics_alone() {
    let folder = Folder::new("crash");
    let bus = folder.open().unwrap();
    let file = bus.publish("file/a", &1_u64).await.unwrap();
    let synced = bus.publish("synced/a", &1_u64).await.unwrap();
    drop(bus);
    // The mark of another start of the machine.
    std::fs::write(folder.path().join("mark"), "open 00000000-0000-0000-0000-000000000000\n").unwrap();
    for _ in 0..2 {
        let bus = folder.open().unwrap();
        assert_eq!(kept(&bus, "file/a").await, [(1, 1)]);
        assert_eq!(bus.topic_stats("synced/a").unwrap().head, synced);
        let head = bus.topic_stats("file/a").unwrap().head;
        assert_ne!(head.epoch, file.epoch);
        let mut entries = bus.subscribe::<u64>("file/a").after(file).await.unwrap();
        let gap = entries.next().await.unwrap().unwrap();
        assert!(
            matches!(&gap, Delivery::Gap(gap) if gap.reason == GapReason::Epoch && gap.epoch == head.epoch),
            "{gap:?}"
        );
        assert!(matches!(entries.next().await.unwrap().unwrap(), Delivery::Entry(first) if *first == 1));
    }
}
