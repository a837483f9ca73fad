//! Devices, rooms and publications inside the process.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};
use switchboard::{Code, Result};
use switchboard_message::{Delivery, Position, Publication};
use switchboard_push::{
    Accepts, Access, Connect, Credentials, DeviceLimit, DisconnectReason, Hub, HubLimits, Identity, Inbox,
    Item, Publishing, Rooms, Start, Tickets,
};
use switchboard_wire::Codec;

async fn open() -> Hub {
    Hub::builder().open().build().await.unwrap()
}

async fn entry(inbox: &mut Inbox) -> String {
    match inbox.next().await.unwrap() {
        Some(Item::Entry(entry)) => String::from_utf8(entry.to_vec()).unwrap(),
        other => panic!("not an entry: {other:?}"),
    }
}

async fn disconnected(inbox: &mut Inbox) -> DisconnectReason {
    loop {
        match inbox.next().await.unwrap() {
            Some(Item::Disconnected(order)) => {
                assert!(inbox.next().await.unwrap().is_none());
                return order.reason;
            }
            Some(_) => {}
            None => panic!("ended without a reason"),
        }
    }
}

#[tokio::test]
async fn a_device_gets_the_entries_of_its_rooms_its_user_its_key_and_all() -> Result<()> {
    let hub = open().await;
    let mut phone = hub.attach_with("ali", Connect::new("test").key("phone")).await?;
    let mut other = hub.attach("bob").await?;
    phone.join("live/7").await?;
    other.join("live/8").await?;
    hub.room("live/7").publish(&"room").await?;
    assert_eq!(entry(&mut phone).await, "\"room\"");
    hub.user("ali").publish(&"user").await?;
    assert_eq!(entry(&mut phone).await, "\"user\"");
    hub.key("phone").publish(&"key").await?;
    assert_eq!(entry(&mut phone).await, "\"key\"");
    assert_eq!(hub.rooms("live/*").publish(&"pattern").await?, 2);
    hub.all().publish(&"all").await?;
    for inbox in [&mut phone, &mut other] {
        let mut both = [entry(inbox).await, entry(inbox).await];
        both.sort();
        assert_eq!(both, ["\"all\"", "\"pattern\""]);
    }
    phone.leave("live/7")?;
    hub.room("live/7").publish(&"left").await?;
    hub.key("phone").publish(&"last").await?;
    assert_eq!(entry(&mut phone).await, "\"last\"");
    Ok(())
}

#[tokio::test]
async fn operations_filter_rooms_as_well() -> Result<()> {
    let hub = open().await;
    let connect = Connect::new("test").accepts(Accepts::only([1000]));
    let mut device = hub.attach_with("ali", connect).await?;
    device.join("live/7").await?;
    for operation in [999, 1000] {
        hub.room("live/7").publish(&operation).operation(operation).await?;
    }
    hub.room("live/7").publish(&0).await?;
    assert_eq!((entry(&mut device).await, entry(&mut device).await), ("1000".into(), "0".into()));
    Ok(())
}

#[tokio::test]
async fn a_newer_connection_with_the_key_replaces_the_older_one() -> Result<()> {
    let hub = open().await;
    let connect = || Connect::new("test").key("phone");
    let mut old = hub.attach_with("ali", connect()).await?;
    let mut new = hub.attach_with("ali", connect()).await?;
    // The late end of the older connection does not remove the newer one.
    assert_eq!(disconnected(&mut old).await, DisconnectReason::Replaced);
    drop(old);
    assert_eq!(hub.user("ali").devices().len(), 1);
    assert_eq!(hub.key("phone").device().unwrap().session, new.device().unwrap().session());
    hub.key("phone").publish(&1).await?;
    assert_eq!(entry(&mut new).await, "1");
    drop(new);
    assert!(hub.key("phone").device().is_none() && !hub.user("ali").is_online());
    Ok(())
}

#[tokio::test]
async fn a_chosen_key_of_another_user_is_refused() -> Result<()> {
    let hub = open().await;
    let phone = || Connect::new("test").key("phone");
    let mut ali = hub.attach_with("ali", phone()).await?;
    let refused = hub.attach_with("mallory", phone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(
        refused.message().contains("key \"phone\" is that of a connected device of another user"),
        "{refused}"
    );
    assert!(!hub.user("mallory").is_online());
    hub.key("phone").publish(&1).await?;
    assert_eq!(entry(&mut ali).await, "1");
    // The verifier may name the key of another user.
    let mut bob = hub.attach_with(Identity::new("bob").key("phone"), Connect::new("test")).await?;
    assert_eq!(disconnected(&mut ali).await, DisconnectReason::Replaced);
    hub.key("phone").publish(&2).await?;
    assert_eq!(entry(&mut bob).await, "2");
    Ok(())
}

#[tokio::test]
async fn a_key_that_is_not_verified_counts_as_chosen() -> Result<()> {
    let peer = Arc::new(switchboard::Peer::connected("tcp://127.0.0.1:1".into(), None));
    let credentials = Credentials::new("test", peer).claimed(Identity::new("ali").key("phone"));
    assert_eq!(open().await.verify(&credentials).await?.key.as_deref(), Some("phone"));
    let mixed = Hub::builder().auth(Tickets::new([[7; 32]])).open().build().await?;
    assert_eq!(mixed.verify(&credentials).await?.key, None);
    Ok(())
}

#[tokio::test]
async fn a_device_is_closed_after_what_was_published_before() -> Result<()> {
    let hub = open().await;
    let mut device = hub.attach_with("ali", Connect::new("test").key("phone")).await?;
    hub.key("phone").publish(&"last words").await?;
    hub.key("phone").close("bye")?;
    assert_eq!(entry(&mut device).await, "\"last words\"");
    let Some(Item::Disconnected(order)) = device.next().await? else { panic!("not closed") };
    assert_eq!((order.reason, &*order.text), (DisconnectReason::Closed, "bye"));
    let mut device = hub.attach("ali").await?;
    hub.user("ali").redirect("tcp://other:1")?;
    assert_eq!(disconnected(&mut device).await, DisconnectReason::Redirected);
    Ok(())
}

#[tokio::test]
async fn the_server_has_devices_join_and_leave() -> Result<()> {
    let hub = Hub::builder().open().rooms("vip", Rooms::new().join(Access::none())).build().await?;
    let mut device = hub.attach("ali").await?;
    assert_eq!(device.join("vip").await.unwrap_err().code(), Code::PermissionDenied);
    hub.user("ali").join("vip")?;
    assert!(matches!(device.next().await?, Some(Item::Joined(room)) if room == "vip"));
    hub.room("vip").publish(&1).await?;
    assert_eq!(entry(&mut device).await, "1");
    hub.user("ali").leave("vip")?;
    assert!(matches!(device.next().await?, Some(Item::Left(room)) if room == "vip"));
    assert_eq!(hub.room("vip").count(), 0);
    Ok(())
}

#[tokio::test]
async fn a_device_that_comes_back_gets_what_it_missed_or_a_gap() -> Result<()> {
    let kept = Rooms::new().history(3, Duration::from_secs(60));
    let hub = Hub::builder().open().rooms("live/*", kept).build().await?;
    let first = hub.room("live/7").publish(&1).await?;
    for number in 2..=3 {
        hub.room("live/7").publish(&number).await?;
    }
    let mut device = hub.attach("ali").await?;
    device.join_from("live/7", Start::After(first)).await?;
    assert!(matches!(device.next().await?, Some(Item::Recovered(_))));
    assert_eq!((entry(&mut device).await, entry(&mut device).await), ("2".into(), "3".into()));
    for number in 4..=9 {
        hub.room("live/7").publish(&number).await?;
    }
    let mut late = hub.attach("bob").await?;
    late.join_from("live/7", Start::After(first)).await?;
    let Some(Item::Gap(gap)) = late.next().await? else { panic!("no gap") };
    assert_eq!((gap.range.start, gap.missing), (2, Some(gap.range.end - 2)));
    let other = Position { epoch: 1, offset: 1 };
    let mut other_log = hub.attach("eve").await?;
    other_log.join_from("live/7", Start::After(other)).await?;
    let Some(Item::Gap(gap)) = other_log.next().await? else { panic!("no gap") };
    assert_eq!(gap.reason, switchboard_message::GapReason::Epoch);
    Ok(())
}

#[tokio::test]
async fn limits_are_reached() -> Result<()> {
    let mut limits = HubLimits::default();
    limits.devices_per_user = DeviceLimit::Refuse(2);
    limits.devices_max = 3;
    limits.rooms_per_device_max = 2;
    limits.room_changes_per_s = 4.0;
    limits.broadcasts_per_s = 1.0;
    limits.entry_bytes_max = 100;
    limits.rooms_per_publication_max = 1;
    let hub =
        Hub::builder().open().limits(limits).rooms("small", Rooms::new().members_max(1)).build().await?;
    let mut first = hub.attach("ali").await?;
    let mut second = hub.attach("ali").await?;
    let full = hub.attach("ali").await.unwrap_err();
    assert!(full.message().contains("has 2 devices; the limit is devices_per_user=2"), "{full}");
    let _third = hub.attach("bob").await?;
    let full = hub.attach("eve").await.unwrap_err();
    assert!(full.message().contains("devices_max=3"), "{full}");
    first.join("small").await?;
    let full = second.join("small").await.unwrap_err();
    assert!(full.message().contains("room \"small\" has 1 members; the limit is members_max=1"), "{full}");
    first.join("b").await?;
    let full = first.join("c").await.unwrap_err();
    assert!(full.message().contains("rooms_per_device_max=2"), "{full}");
    first.leave("b")?;
    let full = first.join("b").await.unwrap_err();
    assert!(full.message().contains("room_changes_per_s=4"), "{full}");
    hub.all().publish(&1).await?;
    let full = hub.all().publish(&2).await.unwrap_err();
    assert!(full.message().contains("broadcasts_per_s=1"), "{full}");
    let full = hub.room("b").publish(&"x".repeat(100)).await.unwrap_err();
    assert!(full.message().contains("entry_bytes_max=100"), "{full}");
    second.join("b").await?;
    let full = hub.rooms(">").publish(&1).await.unwrap_err();
    assert!(full.message().contains("rooms_per_publication_max=1"), "{full}");
    Ok(())
}

#[tokio::test]
async fn the_oldest_device_of_a_user_is_replaced() -> Result<()> {
    let mut limits = HubLimits::default();
    limits.devices_per_user = DeviceLimit::ReplaceOldest(2);
    let hub = Hub::builder().open().limits(limits).build().await?;
    let mut oldest = hub.attach("ali").await?;
    let _rest = [hub.attach("ali").await?, hub.attach("ali").await?];
    assert_eq!(disconnected(&mut oldest).await, DisconnectReason::Replaced);
    drop(oldest);
    assert_eq!(hub.user("ali").devices().len(), 2);
    Ok(())
}

#[tokio::test]
async fn devices_publish_within_their_rights_and_rates() -> Result<()> {
    let chat = Rooms::new().publish(Access::members()).entry_bytes_max(10).rate(3.0);
    let mut limits = HubLimits::default();
    limits.publications_per_s = 5.0;
    let hub = Hub::builder().open().limits(limits).rooms("chat/*", chat).build().await?;
    let mut ali = hub.attach("ali").await?;
    let mut bob = hub.attach("bob").await?;
    let text = |text: &str| Publication::new(Codec::Raw, text.to_owned());
    let denied = ali.device().unwrap().publish("chat/1", text("x")).unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    ali.join("chat/1").await?;
    bob.join("chat/1").await?;
    let device = ali.device().unwrap();
    assert!(matches!(device.publish("chat/1", text("hello"))?, Publishing::Done(_)));
    let large = device.publish("chat/1", text("hello hello")).unwrap_err();
    assert!(
        large.message().contains("has 11 bytes; the limit of room \"chat/1\" is entry_bytes_max=10"),
        "{large}"
    );
    let mut forged = text("{}");
    forged.headers.insert("push-control", "1").unwrap();
    let refused = device.publish("chat/1", forged).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    device.publish("chat/1", text("2"))?;
    device.publish("chat/1", text("3"))?;
    let over = device.publish("chat/1", text("4")).unwrap_err();
    assert!(over.message().contains("the rate of room \"chat/1\"=3"), "{over}");
    ali.join("chat/2").await?;
    let over = ali
        .device()
        .unwrap()
        .publish("chat/2", text("5"))
        .and(ali.device().unwrap().publish("chat/2", text("6")));
    assert!(over.unwrap_err().message().contains("publications_per_s=5"));
    assert_eq!(entry(&mut bob).await, "hello");
    Ok(())
}

#[tokio::test]
async fn members_are_listed_in_pages() -> Result<()> {
    let hub = Hub::builder().open().rooms("live/*", Rooms::new().presence()).build().await?;
    let mut devices = Vec::new();
    for number in 0..5 {
        let mut device = hub.attach_with(&*format!("user{number}"), Connect::new("test").info("x")).await?;
        device.join("live/7").await?;
        devices.push(device);
    }
    let (mut after, mut users) = (None, Vec::new());
    loop {
        let page = hub.room("live/7").members(after, 2);
        assert_eq!(page.count, 5);
        users.extend(page.members.into_iter().map(|member| member.user));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(users, ["user0", "user1", "user2", "user3", "user4"]);
    assert!(devices[0].device().unwrap().may_list("live/7").is_ok());
    assert!(devices[0].device().unwrap().may_list("live/8").is_err());
    assert_eq!(hub.stats().memberships, 5);
    drop(devices);
    assert_eq!((hub.room("live/7").count(), hub.stats().devices, hub.stats().rooms), (0, 0, 0));
    Ok(())
}

#[tokio::test]
async fn lifecycle_events_have_numbers_without_holes() -> Result<()> {
    let hub = Hub::builder().open().rooms("live/*", Rooms::new().presence()).build().await?;
    let mut events = hub.events().await?;
    let mut device = hub.attach_with("ali", Connect::new("test").key("phone")).await?;
    device.join("live/7").await?;
    device.disconnect(DisconnectReason::TimedOut);
    let mut names = Vec::new();
    for seq in 1..=6 {
        let Some(Delivery::Entry(event)) = events.next().await? else { panic!("no event") };
        assert_eq!((event.seq, event.node), (seq, event.node));
        names.push((event.event.clone(), event.room.clone(), event.key.clone(), event.reason.clone()));
    }
    let of = |event: &str, room: &str, key: &str, reason: &str| {
        (event.to_owned(), room.to_owned(), key.to_owned(), reason.to_owned())
    };
    assert_eq!(
        names,
        [
            of("connected", "", "phone", ""),
            of("occupied", "live/7", "", ""),
            of("joined", "live/7", "phone", ""),
            of("left", "live/7", "phone", ""),
            of("empty", "live/7", "", ""),
            of("disconnected", "", "phone", "timed_out"),
        ]
    );
    Ok(())
}

#[tokio::test]
async fn rooms_of_the_token_are_joined_at_once() -> Result<()> {
    let hub = Hub::builder().open().rooms("private/*", Rooms::new().join(Access::token())).build().await?;
    let identity = Identity::new("ali").room("private/1").room("private/a*").room("extra/*");
    let mut device = hub.attach(identity).await?;
    hub.room("private/1").publish(&1).await?;
    assert_eq!(entry(&mut device).await, "1");
    assert_eq!(device.join("private/2").await.unwrap_err().code(), Code::PermissionDenied);
    Ok(())
}

#[tokio::test]
async fn a_resume_token_has_the_owner_the_rooms_and_the_positions() -> Result<()> {
    let kept = Rooms::new().history(10, Duration::from_secs(60)).join(Access::token());
    let hub = |keys: &[[u8; 32]]| {
        Hub::builder().open().rooms("live/*", kept.clone()).resume_keys(keys.to_vec()).build()
    };
    let (one, rotated, other) =
        (hub(&[[1; 32]]).await?, hub(&[[2; 32], [1; 32]]).await?, hub(&[[3; 32]]).await?);
    let mut device = one.attach(Identity::new("ali").room("live/7").room("live/*")).await?;
    one.room("live/7").publish(&1).await?;
    assert_eq!(entry(&mut device).await, "1");
    let positions: Vec<_> =
        device.positions().map(|(topic, position)| (topic.clone(), position.unwrap())).collect();
    let known = positions.iter().map(|(topic, position)| (topic, *position));
    let token = one.resume_token(device.device().unwrap(), known)?;
    let resumed = rotated.resume(&token)?;
    assert_eq!(
        (&*resumed.identity.user, &resumed.identity.rooms[..]),
        ("ali", &["live/7".into(), "live/*".into()][..])
    );
    assert_eq!(resumed.identity.key.as_deref(), Some(device.device().unwrap().key()));
    let topic = one.room("live/7").topic()?;
    assert_eq!(resumed.position(&topic), Some(positions[3].1));
    assert_eq!(other.resume(&token).unwrap_err().code(), Code::Unauthenticated);
    let mut changed = token.into_bytes();
    changed[5] ^= 1;
    assert!(one.resume(&String::from_utf8(changed).unwrap()).is_err());
    drop(device);
    one.room("live/7").publish(&2).await?;
    let mut back = one.attach(Identity::new("ali")).await?;
    back.device().unwrap().join_by_server("live/8")?;
    assert!(
        back.join_from("live/7", Start::After(resumed.position(&topic).unwrap())).await.is_err(),
        "no right"
    );
    Ok(())
}

#[tokio::test]
async fn entries_of_a_user_are_kept_for_devices_that_come_back() -> Result<()> {
    let hub = Hub::builder().open().user_history(10, Duration::from_secs(60)).build().await?;
    let seen = hub.user("ali").publish(&1).await?;
    hub.user("ali").publish(&2).await?;
    let mut device = hub.attach_with("ali", Connect::new("test").user_start(Start::After(seen))).await?;
    assert!(matches!(device.next().await?, Some(Item::Recovered(_))));
    assert_eq!(entry(&mut device).await, "2");
    Ok(())
}

#[tokio::test]
async fn a_device_whose_credentials_expire_is_disconnected_unless_it_refreshes_them() -> Result<()> {
    let hub = open().await;
    let in_ms = |ms| SystemTime::now() + Duration::from_millis(ms);
    let past = SystemTime::now() - Duration::from_secs(1);
    assert_eq!(
        hub.attach(Identity::new("ali").expires_at(past)).await.unwrap_err().code(),
        Code::Unauthenticated
    );
    let mut expiring = hub.attach(Identity::new("ali").expires_at(in_ms(30))).await?;
    let mut refreshed = hub.attach(Identity::new("ali").expires_at(in_ms(30))).await?;
    let device = refreshed.device().unwrap();
    assert_eq!(device.refresh(Identity::new("bob")).unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(
        device.refresh(Identity::new("ali").expires_at(past)).unwrap_err().code(),
        Code::Unauthenticated
    );
    device.refresh(Identity::new("ali").expires_at(in_ms(600_000)))?;
    assert_eq!(disconnected(&mut expiring).await, DisconnectReason::Expired);
    hub.user("ali").publish(&1).await?;
    assert_eq!(entry(&mut refreshed).await, "1");
    Ok(())
}

#[tokio::test]
async fn further_limits_are_reached() -> Result<()> {
    let mut limits = HubLimits::default();
    limits.user_publications_per_s = 2.0;
    limits.page_max = 1;
    let chat = Rooms::new().publish(Access::all()).presence();
    let hub = Hub::builder().open().limits(limits).rooms("chat", chat).build().await?;
    let mut devices = [hub.attach("ali").await?, hub.attach("ali").await?];
    for device in &mut devices {
        device.join("chat").await?;
        device.device().unwrap().publish("chat", Publication::new(Codec::Raw, "x"))?;
    }
    let over = devices[0].device().unwrap().publish("chat", Publication::new(Codec::Raw, "x")).unwrap_err();
    assert!(over.message().contains("user_publications_per_s=2"), "{over}");
    let page = hub.room("chat").members(None, 100);
    assert_eq!((page.members.len(), page.count, page.next.is_some()), (1, 2, true));
    let large = hub.attach_with("eve", Connect::new("test").info(vec![0; 1025])).await.unwrap_err();
    assert!(large.message().contains("has 1025 bytes; the limit is 1024"), "{large}");
    let long = hub.attach_with("eve", Connect::new("test").key("k".repeat(300))).await.unwrap_err();
    assert_eq!(long.code(), Code::InvalidArgument);
    assert!(!hub.user("eve").is_online());
    let short = Hub::builder().open().resume_window(Duration::ZERO).build().await?;
    let mut device = short.attach("ali").await?;
    let token = short.resume_token(device.device().unwrap(), [])?;
    assert!(short.resume(&token).unwrap_err().message().contains("has expired"));
    let keys = Hub::builder().open().resume_keys([[0; 31]]).build().await.unwrap_err();
    assert!(keys.message().contains("at least 32 bytes"), "{keys}");
    let jwt = Hub::builder().auth(switchboard_push::Jwt::hs256("short")).build().await.unwrap_err();
    assert!(jwt.message().contains("keys of JSON Web Tokens"), "{jwt}");
    let pattern = Hub::builder().rooms(">/x", Rooms::new()).build().await.unwrap_err();
    assert_eq!(pattern.code(), Code::InvalidArgument);
    let engine = Hub::builder().engine("kafka://h:1").build().await.unwrap_err();
    assert!(engine.message().contains("is not built in"), "{engine}");
    Ok(())
}

/// A gateway may send its own credentials.
#[tokio::test]
async fn the_token_of_a_device_precedes_a_header() -> Result<()> {
    let tokens = switchboard::auth::Tokens::default().token("t1", switchboard::auth::Caller::new("ali"));
    let tokens = tokens.token("t2", switchboard::auth::Caller::new("gateway"));
    let hub = Hub::builder().auth_of_calls(tokens).build().await?;
    let peer = Arc::new(switchboard::Peer::connected("tcp://127.0.0.1:1".into(), None));
    for header in ["Bearer t2", "Basic dDI6", ""] {
        let mut metadata = switchboard_wire::Metadata::new();
        metadata.insert("authorization", header).unwrap();
        let credentials = Credentials::new("test", peer.clone()).token("t1").metadata(metadata);
        assert_eq!(hub.verify(&credentials).await?.user, "ali", "{header}");
    }
    Ok(())
}

#[tokio::test]
async fn a_ticket_is_a_credential() -> Result<()> {
    let tickets = Tickets::new([[7; 32]]);
    let hub = Hub::builder().auth(tickets.clone()).build().await?;
    let ticket = tickets.issue(&Identity::new("ali").room("live/7"), Duration::from_secs(60))?;
    let verify = async |token: &str| {
        let peer = Arc::new(switchboard::Peer::connected("tcp://127.0.0.1:1".into(), None));
        hub.verify(&Credentials::new("test", peer).token(token)).await
    };
    let identity = verify(&ticket).await?;
    assert_eq!((&*identity.user, &identity.rooms[..]), ("ali", &["live/7".to_owned()][..]));
    for bad in ["", "x", "x.y", "x.y.z", &ticket[1..]] {
        assert_eq!(verify(bad).await.unwrap_err().code(), Code::Unauthenticated, "{bad}");
    }
    Ok(())
}
