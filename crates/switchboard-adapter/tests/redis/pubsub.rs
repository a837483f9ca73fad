//! Subscriptions, publications, and topics that clients share with the bus.

use crate::support::{Client, array, confirmation, push, raw, soon, start};
use switchboard::StopOptions;
use switchboard_adapter::Redis;
use switchboard_message::{Bus, Delivery, Pattern};
use tokio::io::AsyncReadExt;

#[tokio::test]
async fn subscribers_get_messages_by_channel_and_by_pattern() {
    let redis = Redis::new(Bus::new());
    let running = start(&redis).await;
    let (mut old, mut new) = (Client::connect(&running).await, Client::connect(&running).await);
    let mut publisher = Client::connect(&running).await;
    publisher.ask("PUBLISH news unread", ":0\r\n").await;
    old.send(&["SUBSCRIBE news other", "PSUBSCRIBE n[a-f]ws*"]).await;
    old.expect(&confirmation('*', "subscribe", "news", 1)).await;
    old.expect(&confirmation('*', "subscribe", "other", 2)).await;
    old.expect(&confirmation('*', "psubscribe", "n[a-f]ws*", 3)).await;
    // Subscribers with RESP2 have few commands.
    old.ask("PING hi", &array(&["pong", "hi"])).await;
    old.ask("ECHO hi", "-ERR Can't execute 'echo': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context\r\n").await;
    new.send(&["HELLO 3"]).await;
    new.expect("%7\r\n$6\r\nserver\r\n$11\r\nswitchboard\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:").await;
    new.0.read_u8().await.unwrap();
    new.expect(
        "\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
    )
    .await;
    new.ask("SSUBSCRIBE news", &confirmation('>', "ssubscribe", "news", 1)).await;
    new.ask("PSUBSCRIBE *", &confirmation('>', "psubscribe", "*", 1)).await;
    publisher.ask("PUBLISH news hello", ":4\r\n").await;
    publisher.ask("PUBSUB CHANNELS n*", &array(&["news"])).await;
    publisher
        .ask("PUBSUB NUMSUB news other x", "*6\r\n$4\r\nnews\r\n:2\r\n$5\r\nother\r\n:1\r\n$1\r\nx\r\n:0\r\n")
        .await;
    publisher.ask("PUBSUB NUMPAT", ":2\r\n").await;
    old.expect(&array(&["message", "news", "hello"])).await;
    old.expect(&array(&["pmessage", "n[a-f]ws*", "news", "hello"])).await;
    new.expect(&push(&["smessage", "news", "hello"])).await;
    new.expect(&push(&["pmessage", "*", "news", "hello"])).await;
    // A client with RESP3 may use any command, also to publish to itself: the reply comes first.
    new.ask("PUBLISH me own", ":1\r\n").await;
    new.expect(&push(&["pmessage", "*", "me", "own"])).await;
    old.send(&["UNSUBSCRIBE", "UNSUBSCRIBE x", "PUNSUBSCRIBE n[a-f]ws*", "PING", "UNSUBSCRIBE"]).await;
    old.expect(&confirmation('*', "unsubscribe", "news", 2)).await;
    old.expect(&confirmation('*', "unsubscribe", "other", 1)).await;
    old.expect(&confirmation('*', "unsubscribe", "x", 1)).await;
    old.expect(&confirmation('*', "punsubscribe", "n[a-f]ws*", 0)).await;
    old.expect("+PONG\r\n*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n").await;
    new.ask("RESET", "+RESET\r\n").await;
    publisher.ask("PUBLISH news again", ":0\r\n").await;
    publisher.ask("QUIT", "+OK\r\n").await;
    assert_eq!(publisher.rest().await, "");
    // RESP3 with another version again: messages follow it.
    new.send(&["HELLO 3", "SUBSCRIBE a"]).await;
    old.ask("PING", "+PONG\r\n").await;
    assert_eq!(redis.stats().published, 4);
}

#[tokio::test]
async fn topics_are_shared_with_the_bus() {
    let bus = Bus::new();
    let mut all = bus.subscribe_encoded(Pattern::prefix("")).await.unwrap();
    let running = start(&Redis::new(bus.clone())).await;
    let mut client = Client::connect(&running).await;
    client.ask("SUBSCRIBE quotes/acme", &confirmation('*', "subscribe", "quotes/acme", 1)).await;
    bus.publish_encoded("quotes/acme", raw("12.5")).await.unwrap();
    bus.publish_encoded("quotes/other", raw("1")).await.unwrap();
    client.expect(&array(&["message", "quotes/acme", "12.5"])).await;
    let mut publisher = Client::connect(&running).await;
    publisher.ask("PUBLISH orders one", ":0\r\n").await;
    let mut names = Vec::new();
    while names.len() < 3 {
        let Some(Delivery::Entry(entry)) = soon(all.next()).await.unwrap() else { panic!("no entry") };
        names.push(format!("{}={}", entry.topic(), String::from_utf8_lossy(&entry[..])));
    }
    names.sort();
    assert_eq!(names, ["orders=one", "quotes/acme=12.5", "quotes/other=1"]);
    // An entry larger than what buffers copy.
    let large = "x".repeat(100_000);
    publisher.send(&[&format!("PUBLISH quotes/acme {large}")]).await;
    client.expect(&array(&["message", "quotes/acme", &large])).await;
}

#[tokio::test]
async fn names_that_topics_cannot_have_are_refused() {
    let bus = Bus::new();
    let redis = Redis::new(bus);
    let running = start(&redis).await;
    let mut client = Client::connect(&running).await;
    let refused = "-INVALID_ARGUMENT topic name \"$own\" begins with $, which is reserved\r\n";
    client.ask("PUBLISH $own x", refused).await;
    client.ask("SUBSCRIBE $own", refused).await;
    client.ask("PUBLISH a/* x", "-INVALID_ARGUMENT topic name \"a/*\" has a wildcard as a level").await;
    let mut client = Client::connect(&running).await;
    client.write(b"*3\r\n$7\r\nPUBLISH\r\n$1\r\n\xff\r\n$1\r\nx\r\n").await;
    client.expect("-INVALID_ARGUMENT topic name \"\\xff\" is not UTF-8\r\n").await;
    // Patterns match any name.
    client.ask("PSUBSCRIBE $*", &confirmation('*', "psubscribe", "$*", 1)).await;
    assert_eq!(redis.stats().refused, 4);
}

#[tokio::test]
async fn inline_commands_are_served_where_they_are_enabled() {
    let running = start(&Redis::new(Bus::new()).inline()).await;
    let mut client = Client::connect(&running).await;
    client.write(b"ping\r\nPUBLISH t \"a b\"\r\nQUIT\r\n").await;
    assert_eq!(client.rest().await, "+PONG\r\n:0\r\n+OK\r\n");
    let mut client = Client::connect(&running).await;
    client.ask("PING", "+PONG\r\n").await;
    client.write(b"PING\r\n").await;
    client.expect("+PONG\r\n").await;
}

#[tokio::test]
async fn a_server_that_stops_writes_what_was_published_and_closes() {
    let redis = Redis::new(Bus::new());
    let running = start(&redis).await;
    let (mut client, mut idle) = (Client::connect(&running).await, Client::connect(&running).await);
    client.ask("SUBSCRIBE t", &confirmation('*', "subscribe", "t", 1)).await;
    idle.ask("PUBLISH t last", ":1\r\n").await;
    let stopped = tokio::spawn(async move { running.stop(StopOptions::new()).await });
    assert_eq!(client.rest().await, array(&["message", "t", "last"]));
    assert_eq!(idle.rest().await, "");
    soon(stopped).await.unwrap();
}
