//! Requests that the hub refuses, which the protocol cannot report.

use crate::support::{auth, soon, start};
use switchboard_fanout::Options;
use switchboard_push::{Access, Hub, HubLimits, Rooms};
use switchboard_wire::goim::{Limits, operation};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn room_changes_have_a_rate() {
    let mut limits = HubLimits::default();
    limits.room_changes_per_s = 1.0;
    let gateway = start(Hub::builder().open().limits(limits), |goim| goim).await;
    let mut device = gateway.device(auth(1, "")).await;
    for room in 0..10_000 {
        device.client.change_room(Some(&format!("live://{room}")), &mut device.out).unwrap();
        assert_eq!(device.reply().await.0, operation::CHANGE_ROOM_REPLY);
    }
    let refused = gateway.goim.stats().rooms_refused;
    assert!((1..10_000).contains(&refused), "{refused}");
    assert_eq!((device.members().await, gateway.hub.stats().memberships), (1, 1));
}

#[tokio::test]
async fn a_room_that_does_not_admit_a_device_leaves_it_where_it_is() {
    let closed = Rooms::new().join(Access::none());
    let gateway = start(Hub::builder().open().rooms("closed/*", closed), |goim| goim).await;
    let mut device = gateway.device(auth(1, "")).await;
    for room in ["closed://1", "://", "a/*"] {
        device.client.change_room(Some(room), &mut device.out).unwrap();
        assert_eq!(device.reply().await, (operation::CHANGE_ROOM_REPLY, room.as_bytes().to_vec()));
    }
    assert!(gateway.goim.stats().rooms_refused >= 1);
    assert_eq!(gateway.hub.room("closed/1").count(), 0);
}

#[tokio::test]
async fn a_device_without_a_subscription_is_no_member() {
    let mut limits = switchboard_message::Limits::default();
    // The topics of all keys, users and devices, and one of the two rooms.
    limits.subscriptions_max = 4;
    let gateway = start(Hub::builder().open().bus_limits(limits), |goim| goim).await;
    let mut device = gateway.device(auth(1, "k")).await;
    assert_eq!(device.members().await, 1);
    device.client.change_room(Some("live://2"), &mut device.out).unwrap();
    assert_eq!(device.reply().await.0, operation::CHANGE_ROOM_REPLY);
    gateway.hub.user(1).join("live/3").unwrap();
    while gateway.goim.stats().rooms_refused < 2 {
        tokio::task::yield_now().await;
    }
    let counts = [1, 2, 3].map(|room| gateway.hub.room(format!("live/{room}")).count());
    assert_eq!((counts, device.members().await), ([1, 0, 0], 1));
}

#[tokio::test]
async fn a_device_has_a_limit_of_operations() {
    let limits = Limits { accepts_max: 3, ..Limits::default() };
    let gateway = start(Hub::builder().open(), |goim| goim.limits(limits)).await;
    let mut device = gateway.device(auth(1, "k")).await;
    for operations in [&[1001, 1002][..], &[1003], &[1, 2, 3, 4]] {
        device.client.subscribe(operations, &mut device.out).unwrap();
        assert_eq!(device.reply().await.0, operation::SUBSCRIBE_REPLY);
    }
    assert_eq!(gateway.goim.stats().refused, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_reads_its_replies_late_is_not_read_meanwhile() {
    const REQUESTS: i32 = 1_000_000;
    // A device with more than this is closed.
    let mut options = Options::default();
    options.outbox_bytes_max = 256 << 10;
    let gateway = start(Hub::builder().open(), |goim| goim.options(options)).await;
    let device = gateway.device(auth(1, "")).await;
    let (mut reader, mut writer) = device.into_link().into_split();
    let written = tokio::spawn(async move {
        for numbers in (0..REQUESTS).collect::<Vec<_>>().chunks(1_000) {
            let requests: Vec<u8> = numbers.iter().flat_map(|number| request(1000, *number)).collect();
            writer.write_all(&requests).await.unwrap();
        }
        writer
    });
    while gateway.goim.stats().messages < 100_000 {
        tokio::task::yield_now().await;
    }
    let mut replies = vec![0; 16 * 1_000];
    for first in (0..REQUESTS).step_by(1_000) {
        soon(reader.read_exact(&mut replies)).await.unwrap();
        let expected = (first..first + 1_000).flat_map(|number| request(1000, number));
        assert!(replies.iter().copied().eq(expected), "{first}");
    }
    let _writer = soon(written).await.unwrap();
    assert_eq!((gateway.hub.stats().devices, gateway.goim.stats().lagged), (1, 0));
}

/// Returns a packet without a body.
fn request(operation: i32, sequence: i32) -> Vec<u8> {
    let mut packet = b"\0\0\0\x10\0\x10\0\x01".to_vec();
    packet.extend(operation.to_be_bytes());
    packet.extend(sequence.to_be_bytes());
    packet
}
