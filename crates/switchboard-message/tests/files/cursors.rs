//! Durable cursors after a restart.

use crate::folder::{Folder, next};
use switchboard_message::{Bus, Delivery};

async fn receive(bus: &Bus, topics: &str, entries: usize, acks: usize) -> Vec<u64> {
    let mut subscription = bus.subscribe::<u64>(topics).durable("worker").await.unwrap();
    let mut received = Vec::new();
    for at in 0..entries {
        let delivery = next(&mut subscription).await;
        let Delivery::Entry(entry) = delivery else { panic!("{delivery:?}") };
        received.push(*entry);
        if at < acks {
            assert!(entry.ack());
        }
    }
    received
}

#[tokio::test]
async fn a_durable_cursor_continues_after_a_restart() {
    let folder = Folder::new("cursor");
    let bus = folder.open().unwrap();
    drop(bus.subscribe::<u64>("file/a").durable("worker").await.unwrap());
    for number in 0..6_u64 {
        bus.publish("file/a", &number).await.unwrap();
    }
    // Two are acknowledged, one is delivered and not acknowledged.
    assert_eq!(receive(&bus, "file/a", 3, 2).await, [0, 1, 2]);
    drop(bus);
    let bus = folder.open().unwrap();
    assert_eq!(bus.stats().durable_cursors, 1);
    bus.publish("file/a", &6_u64).await.unwrap();
    assert_eq!(receive(&bus, "file/a", 5, 5).await, [2, 3, 4, 5, 6]);
    drop(bus);
    let bus = folder.open().unwrap();
    bus.publish("file/a", &7_u64).await.unwrap();
    assert_eq!(receive(&bus, "file/a", 1, 1).await, [7]);
}

#[tokio::test]
async fn a_connected_cursor_continues_as_well() {
    let folder = Folder::new("connected");
    let bus = folder.open().unwrap();
    let mut subscription = bus.subscribe::<u64>("synced/*").durable("worker").await.unwrap();
    for number in 0..8_u64 {
        bus.publish(&format!("synced/{}", number % 4), &number).await.unwrap();
    }
    let first = match next(&mut subscription).await {
        Delivery::Entry(first) if first.ack() => *first,
        other => panic!("{other:?}"),
    };
    drop((subscription, bus));
    let bus = folder.open().unwrap();
    let mut rest = receive(&bus, "synced/*", 7, 7).await;
    rest.push(first);
    rest.sort_unstable();
    assert!(rest.into_iter().eq(0..8));
}

#[tokio::test]
async fn a_removed_cursor_stays_removed() {
    let folder = Folder::new("removed");
    let bus = folder.open().unwrap();
    drop(bus.subscribe::<u64>("file/a").durable("worker").await.unwrap());
    drop(bus.subscribe::<u64>("file/b").durable("worker").await.unwrap());
    assert!(bus.remove_durable("file/a", "worker").unwrap());
    drop(bus);
    let bus = folder.open().unwrap();
    assert_eq!(bus.stats().durable_cursors, 1);
    assert!(!bus.remove_durable("file/a", "worker").unwrap());
}

#[tokio::test]
async fn damaged_positions_are_refused() {
    let folder = Folder::new("damaged-cursors");
    let bus = folder.open().unwrap();
    drop(bus.subscribe::<u64>("file/a").durable("worker").await.unwrap());
    drop(bus);
    let path = folder.path().join("cursors");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let refused = folder.open().unwrap_err();
    assert_eq!(refused.code(), switchboard_wire::Code::DataLoss);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(folder.open().unwrap().stats().durable_cursors, 0);
}

/// Copies a folder that is in use: what a killed process would leave.
fn copied(folder: &Folder) -> Folder {
    let copy = Folder::new("copy");
    std::fs::create_dir(copy.path()).unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        // A file that is being replaced may be gone.
        drop(std::fs::copy(entry.path(), copy.path().join(entry.file_name())));
    }
    copy
}

#[tokio::test]
async fn the_position_of_a_cursor_is_saved_while_the_bus_is_used() {
    let folder = Folder::new("saved");
    let bus = folder.open().unwrap();
    drop(bus.subscribe::<u64>("file/a").durable("worker").await.unwrap());
    for number in 0..4_u64 {
        bus.publish("file/a", &number).await.unwrap();
    }
    assert_eq!(receive(&bus, "file/a", 3, 3).await, [0, 1, 2]);
    // Saved within about a second: until then, acknowledged entries are delivered again, and none is lost.
    loop {
        let copy = copied(&folder);
        let bus = copy.open().unwrap();
        if bus.stats().durable_cursors == 0 {
            continue;
        }
        let received = receive(&bus, "file/a", 1, 0).await;
        assert!(received[0] <= 3, "{received:?}");
        if received == [3] {
            break;
        }
    }
}
