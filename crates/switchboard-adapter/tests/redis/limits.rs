//! Slow clients, and bad input.

use crate::support::{Client, array, confirmation, soon, start};
use switchboard_adapter::Redis;
use switchboard_message::Bus;
use tokio::io::AsyncReadExt;

#[tokio::test]
async fn a_subscriber_that_does_not_read_is_closed_and_others_are_not() {
    let bus = Bus::new();
    let redis = Redis::new(bus.clone());
    let running = start(&redis).await;
    let (mut slow, mut fast) = (Client::connect(&running).await, Client::connect(&running).await);
    for client in [&mut slow, &mut fast] {
        client.ask("SUBSCRIBE t", &confirmation('*', "subscribe", "t", 1)).await;
    }
    // More than a buffer and the sockets have room for.
    let text = "x".repeat(64 << 10);
    let mut publisher = Client::connect(&running).await;
    let message = array(&["message", "t", &text]);
    for _ in 0..400 {
        publisher.send(&[&format!("PUBLISH t {text}")]).await;
        publisher.expect(":").await;
        publisher.0.read_exact(&mut [0; 3]).await.unwrap();
        fast.expect(&message).await;
    }
    // It is closed before it reads.
    assert_eq!((redis.stats().lagged, redis.stats().missed), (1, 0));
    let rest = slow.rest().await;
    assert!(rest.len() < 400 * message.len());
    publisher.ask("PUBSUB NUMSUB t", "*2\r\n$1\r\nt\r\n:1\r\n").await;
}

/// Replies of a client that sends and does not read are bounded, and all arrive when it reads.
#[tokio::test]
async fn replies_that_are_not_read_make_the_client_wait() {
    const COUNT: usize = 1000;
    let running = start(&Redis::new(Bus::new())).await;
    let mut subscriber = Client::connect(&running).await;
    let names: Vec<String> = (0..100).map(|at| format!("{}{at}", "n".repeat(200))).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    subscriber.send(&[&format!("SUBSCRIBE {}", names.join(" "))]).await;
    for (at, name) in names.iter().enumerate() {
        subscriber.expect(&confirmation('*', "subscribe", name, at as u32 + 1)).await;
    }
    // Each reply has 20 KB: all together 20 MB.
    let mut client = Client::connect(&running).await;
    let commands = array(&["PUBSUB", "CHANNELS"]).repeat(COUNT);
    client.write(commands.as_bytes()).await;
    let mut other = Client::connect(&running).await;
    other.ask("PING", "+PONG\r\n").await;
    let expected: usize = array(&names).len() * COUNT;
    let mut read = 0;
    let mut buffer = vec![0; 64 << 10];
    while read < expected {
        let n = soon(client.0.read(&mut buffer)).await.unwrap();
        assert!(n > 0, "closed after {read} of {expected}");
        read += n;
    }
    client.ask("PING", "+PONG\r\n").await;
}

#[tokio::test]
async fn bad_input_is_answered_and_closes_the_connection() {
    let redis = Redis::new(Bus::new());
    let running = start(&redis).await;
    let cases = [
        ("*-5\r\n", "invalid multibulk length \"-5\""),
        ("*99999999999999999999\r\n", "invalid multibulk length"),
        (
            "*1025\r\n",
            "invalid multibulk length: request has 1025 arguments; the limit is 1024 (arguments_max)",
        ),
        ("*1\r\n$99999999\r\n", "invalid bulk length: argument 1 has 99999999 bytes; the limit is "),
        ("*1\r\n$3\r\nPING\r\n", "argument 1 does not end after 3 bytes, its length"),
        ("*1\r\n:1\r\n", "expected '$', got ':'"),
        ("*1\r\n$4\r\nPOST\r\n", "\"POST\" is of HTTP"),
        ("*1\r\n$5\r\nHost:\r\n", "\"Host:\" is of HTTP"),
        ("*1\r\n$4\r\nPING\r\nPING\r\n", "expected '*', got 'P'; inline commands are disabled"),
    ];
    for (bytes, error) in &cases {
        let mut client = Client::connect(&running).await;
        client.write(bytes.as_bytes()).await;
        let rest = client.rest().await;
        let rest = rest.trim_start_matches("+PONG\r\n");
        assert!(rest.starts_with(&format!("-ERR Protocol error: {error}")), "{bytes:?}: {rest:?}");
        assert!(rest.ends_with("\r\n"), "{rest:?}");
    }
    assert_eq!(redis.stats().protocol_errors, cases.len() as u64);
    // The server shows the counters, and those of the bus.
    let text = running.stats().prometheus();
    for line in [
        format!("switchboard_redis_protocol_errors_total{{source=\"redis\"}} {}", cases.len()),
        "switchboard_bus_published_total{source=\"bus\"} 0".to_owned(),
    ] {
        assert!(text.lines().any(|known| known == line), "{line} in {text}");
    }
    assert!(text.contains("# HELP switchboard_redis_calls_total Calls of methods\n"), "{text}");
}
