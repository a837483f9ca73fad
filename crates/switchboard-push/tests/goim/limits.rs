//! What the hub refuses, and the protocol cannot report.

use crate::support::{auth, start};
use switchboard_push::{Access, Hub, HubLimits, Rooms};
use switchboard_wire::goim::{Limits, operation};

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
