//! Tokens of connections and of subscriptions.

use crate::support::{command, start, subscribe, token, token_of, verified};
use std::time::Duration;
use switchboard_push::{Heartbeat, Hub};
use switchboard_wire::centrifuge::{Format, Refresh, code};

const FORMATS: [Format; 2] = [Format::Json, Format::Protobuf];

#[tokio::test]
async fn a_token_decides_who_a_client_is_and_where_it_is() {
    let gateway = start(verified(), |plugin| plugin).await;
    for format in FORMATS {
        let mut device = gateway.client(format).await;
        let claims = r#""sub":"ali","exp":4000000000,"channels":["live:1"],"subs":{"private:2":{}},"rooms":["live/3"]"#;
        let result = device.connect(&token(claims)).await.connect.unwrap();
        assert!(result.expires && result.ttl > 1_000_000 && result.pong && result.ping == 25, "{result:?}");
        assert_eq!(result.subs.keys().collect::<Vec<_>>(), ["live:1", "live:3", "private:2"]);
        assert!(result.subs["live:1"].recoverable && !result.subs["private:2"].recoverable);
        assert!(gateway.hub.user("ali").is_online());
        gateway.hub.room("live/1").publish(&"goal").await.unwrap();
        assert_eq!(device.publication().await.0, "\"goal\"");
        gateway.hub.user("ali").publish(&"own").await.unwrap();
        let push = device.push().await;
        assert_eq!((push.channel.as_str(), &push.message.unwrap().data.0[..]), ("", &b"\"own\""[..]));
    }
}

#[tokio::test]
async fn a_client_without_a_valid_token_is_closed_or_may_try_again() {
    let gateway = start(verified(), |plugin| plugin).await;
    let closed = start(Hub::builder(), |plugin| plugin).await;
    let forged = token_of("ali").replace('.', ".A");
    let subscription = token(r#""sub":"ali","exp":4000000000,"channel":"live:1""#);
    for (gateway, token) in [
        (&gateway, ""),
        (&gateway, "x"),
        (&gateway, forged.as_str()),
        (&gateway, subscription.as_str()),
        (&closed, token_of("ali").as_str()),
    ] {
        let mut device = gateway.client(Format::Json).await;
        device.text(&format!("{{\"id\":1,\"connect\":{{\"token\":\"{token}\"}}}}")).await;
        assert_eq!(device.closed().await, (code::INVALID_TOKEN, "invalid token".to_owned()), "{token}");
        assert_eq!(gateway.hub.stats().devices, 0);
    }
    let mut device = gateway.client(Format::Json).await;
    let error = device.connect(&token(r#""sub":"ali","exp":1000"#)).await.error.unwrap();
    assert_eq!(error.code, code::TOKEN_EXPIRED);
    assert!(device.connect(&token_of("ali")).await.connect.is_some());
}

#[tokio::test]
async fn a_newer_token_of_the_same_user_extends_the_connection() {
    let gateway = start(verified(), |plugin| plugin).await;
    let mut device = gateway.user(Format::Json, "ali").await;
    let refresh = |token: String| {
        let mut request = Refresh::default();
        request.token = token;
        command(|command| command.refresh = Some(Box::new(request)))
    };
    let result = device.reply(refresh(token_of("ali"))).await.refresh.unwrap();
    assert!(result.expires && !result.client.is_empty());
    assert_eq!(device.error(refresh(token(r#""sub":"ali","exp":1000"#))).await, code::EXPIRED);
    assert_eq!(device.error(refresh(token_of("bob"))).await, code::PERMISSION_DENIED);
    device.send(refresh("x".to_owned())).await;
    assert_eq!(device.closed().await.0, code::INVALID_TOKEN);
}

#[tokio::test]
async fn a_token_of_a_subscription_permits_its_channel_to_its_user() {
    let gateway = start(verified(), |plugin| plugin).await;
    let mut device = gateway.user(Format::Json, "ali").await;
    let with = |token: &str| {
        let token = token.to_owned();
        subscribe("private:1", |request| request.token = token)
    };
    let claims = |user: &str, channel: &str| {
        token(&format!("\"sub\":\"{user}\",\"exp\":4000000000,\"channel\":\"{channel}\""))
    };
    assert_eq!(device.error(subscribe("private:1", |_| {})).await, code::PERMISSION_DENIED);
    assert_eq!(device.error(with(&claims("bob", "private:1"))).await, code::PERMISSION_DENIED);
    assert_eq!(device.error(with(&claims("ali", "private:2"))).await, code::PERMISSION_DENIED);
    assert_eq!(device.error(with(&token_of("ali"))).await, code::PERMISSION_DENIED);
    let expired = token(r#""sub":"ali","exp":1000,"channel":"private:1""#);
    assert_eq!(device.error(with(&expired)).await, code::TOKEN_EXPIRED);
    let result = device.reply(with(&claims("ali", "private:1"))).await.subscribe.unwrap();
    assert!(result.expires && result.ttl > 1_000_000);
    let mut request = switchboard_wire::centrifuge::SubRefresh::default();
    (request.channel, request.token) = ("private:1".to_owned(), claims("ali", "private:1"));
    let reply = device.reply(command(|command| command.sub_refresh = Some(Box::new(request)))).await;
    assert!(reply.sub_refresh.unwrap().expires);
}

#[tokio::test]
async fn a_client_without_connect_is_closed() {
    let mut heartbeat = Heartbeat::default();
    heartbeat.login = Duration::ZERO;
    let gateway = start(verified().heartbeat(heartbeat), |plugin| plugin).await;
    let mut device = gateway.client(Format::Json).await;
    assert_eq!(device.closed().await, (code::STALE, "stale".to_owned()));
    assert_eq!(gateway.stats().login_timeouts, 1);
}

#[tokio::test]
async fn a_client_that_withholds_its_pong_is_closed() {
    let mut heartbeat = Heartbeat::default();
    heartbeat.interval = Duration::from_millis(10);
    let gateway =
        start(verified().heartbeat(heartbeat), |plugin| plugin.pong_timeout(Duration::from_millis(10))).await;
    let mut device = gateway.user(Format::Protobuf, "ali").await;
    assert_eq!(device.closed().await, (code::NO_PONG, "no pong".to_owned()));
    assert_eq!(gateway.stats().pong_timeouts, 1);
}
