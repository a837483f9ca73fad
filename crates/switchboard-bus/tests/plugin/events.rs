//! Event streams: heads, topics, forms of entries.

use crate::support::{Client, bus_with_history, entry, publish, serve, soon};
use switchboard::{Codec, StopOptions};
use switchboard_message::{Bus, Publication};

#[tokio::test]
async fn entries_of_several_topics_arrive_in_one_stream() {
    let bus = Bus::new();
    let server = serve(&bus).await;
    let (mut client, _) = Client::events(&server, "topic=live/7&topic=user%2F42&topic=live/7", "").await;
    for header in ["content-type: text/event-stream", "cache-control: no-store", "x-accel-buffering: no"] {
        assert!(client.head.contains(header), "{header}: {}", client.head);
    }
    for number in 1..=3 {
        publish(&bus, "live/7", &format!(r#"{{"n":{number}}}"#)).await;
        assert_eq!(client.next().await, entry("live/7", number, &format!(r#"{{"n":{number}}}"#)));
    }
    publish(&bus, "other", "1").await;
    publish(&bus, "user/42", "[]").await;
    assert_eq!(client.next().await, entry("user/42", 1, "[]"));
    assert_eq!(bus.stats().subscriptions, 2, "a topic that is named twice is subscribed once");
    drop(client);
    soon(async {
        while bus.stats().subscriptions > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_last_entries_come_first() {
    let bus = bus_with_history();
    for number in 1..=5 {
        publish(&bus, "t", &number.to_string()).await;
    }
    let server = serve(&bus).await;
    let (mut client, _) = Client::events(&server, "topic=t&last=2", "").await;
    publish(&bus, "t", "6").await;
    for number in 4..=6 {
        assert_eq!(client.next().await, entry("t", number, &number.to_string()));
    }
}

#[tokio::test]
async fn entries_are_json_text_or_base64() {
    let bus = Bus::new();
    let server = serve(&bus).await;
    let (mut client, _) = Client::events(&server, "topic=t", "").await;
    let cases: [(Codec, &[u8], &str); 9] = [
        (Codec::Json, b" {\"a\": [1, null]} ", r#"{"a": [1, null]}"#),
        (Codec::Json, b"[1,\r2,\r\n3,\n4]", "[1,\n2,\n\n3,\n4]"),
        (Codec::Json, b"1},\"topic\":\"x\"", r#""1},\"topic\":\"x\"""#),
        (Codec::Json, b"", r#""""#),
        (Codec::Json, b"1 2", r#""1 2""#),
        (Codec::Raw, b"a\rb\nc \"d\" \0", r#""a\rb\nc \"d\" \u0000""#),
        (Codec::Raw, "\u{2028}é".as_bytes(), "\"\u{2028}é\""),
        (Codec::Raw, &[0xff, 0], r#""/wA=","base64":true"#),
        (Codec::Json, b"\"\xff\"", r#""Iv8i","base64":true"#),
    ];
    for (number, (codec, payload, data)) in (1..).zip(cases) {
        bus.publish_encoded("t", Publication::new(codec, payload.to_vec())).await.unwrap();
        assert_eq!(client.next().await, entry("t", number, data), "{payload:?}");
    }
}

#[tokio::test]
async fn streams_end_when_the_server_drains() {
    let bus = Bus::new();
    let server = serve(&bus).await;
    let (mut client, _) = Client::events(&server, "topic=t", "").await;
    let stopping = tokio::spawn(server.stop(StopOptions::new()));
    assert_eq!(client.rest().await, "");
    let stopped = soon(stopping).await.unwrap();
    assert!(stopped.is_clean(), "{stopped}");
}

#[tokio::test]
async fn a_request_counts_as_a_call_of_subscribe() {
    let bus = Bus::new();
    let server = serve(&bus).await;
    let (client, _) = Client::events(&server, "topic=t", "").await;
    let count = || {
        let stats = server.stats();
        let method = stats.methods.iter().find(|method| method.name == "switchboard.bus.v1.Bus/Subscribe");
        let method = method.unwrap();
        (method.in_flight, method.ended.iter().sum::<u64>())
    };
    assert_eq!(count(), (1, 0));
    drop(client);
    soon(async {
        while count() != (0, 1) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn streams_of_http_1_1_have_chunks() {
    let bus = bus_with_history();
    publish(&bus, "t", "7").await;
    let server = serve(&bus).await;
    let request =
        b"GET /events?topic=t&last=1 HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n";
    let mut client = Client::send(&server, request).await;
    assert!(client.head.contains("transfer-encoding: chunked"), "{}", client.head);
    let mut seen = String::new();
    while !seen.contains(r#"data: {"topic":"t","offset":1,"data":7}"#) {
        let mut line = String::new();
        soon(tokio::io::AsyncBufReadExt::read_line(&mut client.io, &mut line)).await.unwrap();
        seen.push_str(&line);
    }
}
