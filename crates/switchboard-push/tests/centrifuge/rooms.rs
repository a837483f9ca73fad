//! Publications, presence, joins and orders.

use crate::support::{Device, command, start, subscribe, verified};
use switchboard_wire::centrifuge::{Channel, Command, Data, Format, Publish, code};

fn named(channel: &str) -> Option<Box<Channel>> {
    let mut request = Channel::default();
    request.channel = channel.to_owned();
    Some(Box::new(request))
}

fn publish(channel: &str, data: &'static str) -> Command {
    let mut request = Publish::default();
    (request.channel, request.data) = (channel.to_owned(), Data::from(data));
    command(|command| command.publish = Some(Box::new(request)))
}

#[tokio::test]
async fn members_in_both_formats_get_publications_with_their_publisher() {
    let gateway = start(verified(), |plugin| plugin).await;
    let mut ali = gateway.user(Format::Json, "ali").await;
    let mut bob = gateway.user(Format::Protobuf, "bob").await;
    assert_eq!(ali.error(publish("live:7", "1")).await, code::PERMISSION_DENIED);
    ali.join("live:7").await;
    bob.join("live:7").await;
    assert_eq!(ali.error(publish("live:7", "")).await, code::BAD_REQUEST);
    ali.send(publish("live:7", r#"{"n":1}"#)).await;
    let publication = bob.push().await.publication.unwrap();
    assert_eq!(publication.data, Data::from(r#"{"n":1}"#));
    let info = publication.info.unwrap();
    assert_eq!((&*info.user, info.conn_info), ("ali", Data::from(r#"{"name":"ali"}"#)));
    let mut seen = (false, false);
    while seen != (true, true) {
        let reply = ali.next().await.unwrap();
        seen.0 |= reply.publish.is_some();
        seen.1 |= reply.push.is_some_and(|push| push.channel == "live:7");
    }
}

#[tokio::test]
async fn presence_joins_and_leaves() {
    let gateway = start(verified(), |plugin| plugin).await;
    let mut ali = gateway.user(Format::Json, "ali").await;
    let presence = command(|command| command.presence = named("live:7"));
    assert_eq!(ali.error(presence.clone()).await, code::PERMISSION_DENIED);
    ali.send(subscribe("live:7", |request| request.join_leave = true)).await;
    let (mut subscribed, mut joined) = (false, Vec::new());
    let mut bob = gateway.user(Format::Protobuf, "bob").await;
    bob.join("live:7").await;
    while !subscribed || !joined.contains(&"bob".to_owned()) {
        let reply = ali.next().await.unwrap();
        subscribed |= reply.subscribe.is_some();
        if let Some(join) = reply.push.and_then(|push| push.join) {
            joined.push(join.info.unwrap().user);
        }
    }
    let result = ali.reply(presence).await.presence.unwrap();
    let users: Vec<&str> = result.presence.values().map(|info| &*info.user).collect();
    assert_eq!(users, ["ali", "bob"]);
    let stats = ali.reply(command(|command| command.presence_stats = named("live:7"))).await;
    let stats = stats.presence_stats.unwrap();
    assert_eq!((stats.num_clients, stats.num_users), (2, 2));
    drop(bob);
    let push = ali.push().await;
    assert_eq!((&*push.channel, &*push.leave.unwrap().info.unwrap().user), ("live:7", "bob"));
    let left = ali.reply(command(|command| command.unsubscribe = named("live:7"))).await;
    assert!(left.unsubscribe.is_some());
    assert_eq!(gateway.hub.room("live/7").count(), 0);
}

async fn orders(mut device: Device, hub: &switchboard_push::Hub) {
    let user = hub.user("ali");
    user.join("private/1").unwrap();
    let push = device.push().await;
    assert_eq!((&*push.channel, push.subscribe.is_some()), ("private:1", true));
    hub.room("private/1").publish(&1).await.unwrap();
    assert_eq!(device.publication().await, ("1".to_owned(), 0));
    user.leave("private/1").unwrap();
    let push = device.push().await;
    assert_eq!((&*push.channel, push.unsubscribe.unwrap().code), ("private:1", code::UNSUBSCRIBED));
    user.redirect("other.example").unwrap();
    assert_eq!(device.closed().await, (code::FORCE_RECONNECT, "other.example".to_owned()));
}

#[tokio::test]
async fn orders_of_the_server_reach_clients() {
    let gateway = start(verified(), |plugin| plugin).await;
    for format in [Format::Json, Format::Protobuf] {
        orders(gateway.user(format, "ali").await, &gateway.hub).await;
    }
    let mut device = gateway.user(Format::Json, "ali").await;
    gateway.hub.user("ali").close("by an administrator").unwrap();
    assert_eq!(device.closed().await, (code::FORCE_DISCONNECT, "by an administrator".to_owned()));
}
