//! Credentials of devices.

use crate::support::{Device, auth, start};
use std::time::Duration;
use switchboard::Status;
use switchboard_push::{Heartbeat, Hub, Identity, adapter::goim::Goim, from_fn};
use switchboard_wire::goim::{Auth, operation};

/// Verifies the token `good`, after a wait.
fn verified() -> switchboard_push::HubBuilder {
    Hub::builder().auth(from_fn(|credentials| async move {
        tokio::task::yield_now().await;
        let body = credentials.metadata.value("goim-auth-bin").cloned().unwrap_or_default();
        match &*credentials.token {
            "good" if body.starts_with(b"{") => Ok(Identity::new("ali").key("phone").room("live/9")),
            _ => Err(Status::unauthenticated("no such token")),
        }
    }))
}

#[tokio::test]
async fn a_token_decides_who_a_device_is() {
    let gateway = start(verified(), |goim| goim).await;
    let sent = Auth { token: Some("good".to_owned()), ..auth(7, "chosen") };
    let mut device = gateway.device(sent).await;
    assert_eq!(device.members().await, 1);
    assert!(gateway.hub.user("ali").is_online() && !gateway.hub.user("7").is_online());
    assert!(gateway.hub.key("phone").device().is_some() && gateway.hub.key("chosen").device().is_none());
    assert_eq!((gateway.hub.room("live/1").count(), gateway.hub.room("live/9").count()), (1, 1));
}

#[tokio::test]
async fn a_key_is_taken_from_another_user_in_an_open_hub_alone() {
    let gateway = start(Hub::builder().open(), |goim| goim).await;
    let mut old = gateway.device(auth(1, "phone")).await;
    let _new = gateway.device(auth(2, "phone")).await;
    old.closed().await;
    let users =
        Hub::builder().auth(from_fn(|credentials| async move { Ok(Identity::new(credentials.token)) }));
    let gateway = start(users, |goim| goim).await;
    let mut ali = gateway.device(Auth { token: Some("ali".to_owned()), ..auth(1, "phone") }).await;
    let mut mallory = Device::new(gateway.link().await);
    let sent = Auth { token: Some("mallory".to_owned()), ..auth(1, "phone") };
    mallory.client.auth(&sent, &mut mallory.out).unwrap();
    assert_eq!(mallory.next().await, None);
    assert_eq!(ali.members().await, 1);
}

#[tokio::test]
async fn a_device_that_is_refused_is_closed_without_a_reply() {
    let gateway = start(verified(), |goim| goim).await;
    let none = start(Hub::builder(), |goim| goim).await;
    for gateway in [&gateway, &none] {
        let mut device = Device::new(gateway.link().await);
        device.client.auth(&auth(7, ""), &mut device.out).unwrap();
        assert_eq!(device.next().await, None);
        assert_eq!(gateway.goim.stats().unauthenticated, 1);
        assert_eq!(gateway.hub.stats().devices, 0);
    }
}

#[tokio::test]
async fn packets_behind_the_credentials_wait_for_them() {
    let gateway = start(verified(), |goim| goim).await;
    let mut device = Device::new(gateway.link().await);
    let sent = Auth { token: Some("good".to_owned()), ..auth(7, "") };
    device.client.auth(&sent, &mut device.out).unwrap();
    device.client.heartbeat(&mut device.out).unwrap();
    device.client.change_room(Some("live://2"), &mut device.out).unwrap();
    assert_eq!(device.reply().await.0, operation::AUTH_REPLY);
    assert_eq!(device.reply().await, (operation::HEARTBEAT_REPLY, vec![0, 0, 0, 1]));
    assert_eq!(device.reply().await, (operation::CHANGE_ROOM_REPLY, b"live://2".to_vec()));
}

fn impatient() -> Heartbeat {
    let mut heartbeat = Heartbeat::default();
    heartbeat.login = Duration::ZERO;
    heartbeat
}

#[tokio::test]
async fn a_connection_without_credentials_is_closed_in_time() {
    let gateway = start(Hub::builder().open().heartbeat(impatient()), |goim| goim).await;
    let mut silent = Device::new(gateway.link().await);
    // The first bytes of a packet select the protocol.
    silent.out.tail().extend_from_slice(b"\0\0\0\x60\0\x10\0\x01");
    let mut early = Device::new(gateway.link().await);
    early.client.heartbeat(&mut early.out).unwrap();
    silent.write().await;
    early.write().await;
    silent.closed().await;
    early.closed().await;
    let stats = gateway.goim.stats();
    assert_eq!((stats.login_timeouts, stats.skipped), (2, 1));
}

#[tokio::test]
async fn only_heartbeats_keep_a_device_connected() {
    let short = |goim: Goim| goim.heartbeat_timeout(Duration::ZERO);
    let gateway = start(Hub::builder().open(), short).await;
    let mut device = gateway.device(auth(1, "")).await;
    device.client.request(1000, b"no heartbeat", &mut device.out).unwrap();
    assert_eq!(device.reply().await.0, 1000);
    device.closed().await;
    assert_eq!(gateway.goim.stats().heartbeat_timeouts, 1);
    let gateway = start(Hub::builder().open(), |goim| goim).await;
    assert_eq!(gateway.device(auth(1, "")).await.members().await, 1);
}
