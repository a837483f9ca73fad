//! Rules whose violation ends a connection, and errors of commands.

use crate::support::{command, start, subscribe, token_of, verified};
use switchboard_wire::{
    centrifuge::{Format, Limits, code},
    websocket::Kind,
};

#[tokio::test]
async fn a_command_that_breaks_a_rule_ends_the_connection() {
    let limits = Limits { commands_max: 2, ..Limits::default() };
    let gateway = start(verified(), |plugin| plugin.limits(limits).commands_per_message_max(3)).await;
    let connect = format!("{{\"id\":1,\"connect\":{{\"token\":\"{}\"}}}}", token_of("ali"));
    let long = format!("{{\"id\":2,\"subscribe\":{{\"channel\":\"{}\"}}}}", "x".repeat(257));
    let large = format!("{{\"id\":2,\"rpc\":{{\"data\":\"{}\"}}}}", "x".repeat(64 << 10));
    for (message, code) in [
        ("nonsense".to_owned(), code::BAD_COMMAND),
        ("[1]".to_owned(), code::BAD_COMMAND),
        (r#"{"id":1,"ping":{}}"#.to_owned(), code::BAD_COMMAND),
        ([&*connect, &connect].join("\n"), code::BAD_COMMAND),
        ([&*connect, r#"{"ping":{}}"#].join("\n"), code::BAD_COMMAND),
        ([&*connect, &long].join("\n"), code::BAD_COMMAND),
        ([&*connect, &large].join("\n"), code::BAD_COMMAND),
        ([&*connect, "{}", "{}", "{}"].join("\n"), code::BAD_COMMAND),
    ] {
        let mut device = gateway.client(Format::Json).await;
        device.text(&message).await;
        // The reply to the first command may come before.
        device.expect(1);
        let reason = device.closed().await;
        assert_eq!(reason.0, code, "{message}: {}", reason.1);
    }
    assert_eq!(gateway.stats().violations, 8);
    let mut device = gateway.client(Format::Json).await;
    device.raw(Kind::Binary, b"{}").await;
    assert_eq!(device.closed().await.0, 1003);
    let mut device = gateway.client(Format::Protobuf).await;
    device.raw(Kind::Text, b"{}").await;
    assert_eq!(device.closed().await.0, 1003);
}

#[tokio::test]
async fn errors_are_replies_until_there_are_too_many() {
    let gateway = start(verified(), |plugin| plugin.errors_max(4)).await;
    let mut device = gateway.user(Format::Json, "ali").await;
    device.join("live:1").await;
    assert_eq!(device.error(subscribe("live:1", |_| {})).await, code::ALREADY_SUBSCRIBED);
    assert_eq!(device.error(subscribe("", |_| {})).await, code::BAD_REQUEST);
    // An unknown command.
    device.text(r#"{"id":5,"map_publish":{}}"#).await;
    device.expect(5);
    assert_eq!(device.next().await.unwrap().error.unwrap().code, code::METHOD_NOT_FOUND);
    let rpc = command(|command| command.rpc = Some(Box::default()));
    device.send(rpc).await;
    assert_eq!(device.closed().await.0, code::TOO_MANY_ERRORS);
    assert_eq!(gateway.stats().errors, 4);
}

#[tokio::test]
async fn a_client_has_a_limited_number_of_channels() {
    let mut limits = switchboard_push::HubLimits::default();
    limits.rooms_per_device_max = 2;
    let gateway = start(verified().limits(limits), |plugin| plugin).await;
    let mut device = gateway.user(Format::Protobuf, "ali").await;
    device.join("live:1").await;
    device.join("live:2").await;
    assert_eq!(device.error(subscribe("live:3", |_| {})).await, code::LIMIT_EXCEEDED);
}
