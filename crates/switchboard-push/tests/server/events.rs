//! Devices that read server-sent events.

use crate::support::{Client, builder, entry, other, soon, start, token, until};
use std::process::Stdio;
use switchboard_push::{Access, DropReason, Hub, Rooms};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

#[tokio::test]
async fn a_device_gets_the_entries_of_its_rooms_and_its_user() {
    let hub = builder().build().await.unwrap();
    let server = start(&hub).await;
    let query = format!("room=live/7&token={}", token("ali", ""));
    let (mut client, _) = Client::events(&server, &query, "").await;
    assert_eq!((hub.room("live/7").count(), hub.user("ali").devices()[0].protocol), (1, "sse"));
    hub.room("live/7").publish(&1).await.unwrap();
    assert_eq!(client.next().await, entry("room/live/7", 1, "1"));
    hub.user("ali").publish(&"own").await.unwrap();
    assert_eq!(client.next().await, entry("user/ali", 1, "\"own\""));
    hub.user("ali").join("live/8").unwrap();
    assert_eq!(client.next().await, other("joined", r#"{"room":"live/8"}"#));
    hub.user("ali").close("bye").unwrap();
    assert_eq!(client.next().await, other("disconnected", r#"{"reason":"closed","text":"bye"}"#));
    assert_eq!(client.rest().await, "");
    until(|| hub.stats().devices == 0).await;
    let (client, _) = Client::events(&server, &query, "").await;
    drop(client);
    until(|| hub.stats().devices == 0).await;
}

#[tokio::test]
async fn a_device_that_comes_back_gets_what_it_missed_or_a_gap() {
    let hub = builder().build().await.unwrap();
    let server = start(&hub).await;
    let query = format!("room=live/7&token={}", token("ali", ",\"key\":\"phone\""));
    let (mut client, _) = Client::events(&server, &query, "").await;
    hub.room("live/7").publish(&1).await.unwrap();
    let (_, id, _) = client.event().await;
    drop(client);
    until(|| hub.stats().devices == 0).await;
    hub.room("live/7").publish(&2).await.unwrap();
    let header = format!("last-event-id: {id}\r\n");
    let (mut client, first) = Client::events(&server, &query, &header).await;
    assert_eq!(first, id);
    let mut events = [client.next().await, client.next().await];
    events.sort();
    assert_eq!(events, [entry("room/live/7", 2, "2"), other("resumed", "{}")]);
    drop(client);
    until(|| hub.stats().devices == 0).await;
    for number in 3..200 {
        hub.room("live/7").publish(&number).await.unwrap();
    }
    let (mut client, _) = Client::events(&server, &query, &header).await;
    let (kind, data) = client.next().await;
    assert_eq!(kind, "gap");
    assert!(data.contains(r#""topic":"room/live/7","reason":"expired","from":2"#), "{data}");
    assert!(hub.dropped(DropReason::Expired) >= 98);
    let (mut client, _) = Client::events(&server, &query, "last-event-id: rubbish\r\n").await;
    assert_eq!(client.next().await.0, "gap");
}

#[tokio::test]
async fn devices_without_rights_are_refused() {
    let hub = builder().rooms("vip", Rooms::new().join(Access::roles(["vip"]))).build().await.unwrap();
    let server = start(&hub).await;
    let ali = token("ali", "");
    let mut forged = token("ali", "");
    forged.pop();
    for (query, headers, status, text) in [
        ("room=live/7".to_owned(), String::new(), 401, "no credentials"),
        (format!("room=live/7&token={forged}"), String::new(), 401, ""),
        (format!("room=vip&token={ali}"), String::new(), 403, "may not join room \\\"vip\\\""),
        (format!("room=&token={ali}"), String::new(), 400, "is empty"),
        (format!("room=a&last=x&token={ali}"), String::new(), 400, "is not a number"),
        ("room=vip".to_owned(), format!("authorization: Bearer {ali}\r\n"), 403, "vip"),
    ] {
        let mut client = Client::get(&server, &format!("/events?{query}"), &headers).await;
        let body = client.rest().await;
        assert_eq!(client.status, status, "{query}: {body}");
        assert!(body.contains(text), "{query}: {body}");
    }
    let many: String = (0..32).map(|room| format!("room={room}&")).collect();
    assert_eq!(Client::get(&server, &format!("/events?{many}token={ali}"), "").await.status, 400);
    assert_eq!(hub.stats().devices, 0);
    let roles = token("eve", ",\"roles\":[\"vip\"]");
    let (_client, _) =
        Client::events(&server, "room=vip", &format!("authorization: Bearer {roles}\r\n")).await;
    assert_eq!(hub.room("vip").count(), 1);
}

#[tokio::test]
async fn streams_end_when_the_server_stops() {
    let hub = Hub::builder().open().build().await.unwrap();
    let server = start(&hub).await;
    let (mut client, _) = Client::events(&server, "room=a&user=ali", "").await;
    let stopping = tokio::spawn(server.stop(switchboard::StopOptions::default()));
    assert_eq!(client.next().await.0, "disconnected");
    client.rest().await;
    soon(stopping).await.unwrap();
    assert_eq!(hub.stats().devices, 0);
}

#[tokio::test]
async fn a_hub_has_streams_on_a_server_that_starts_after_another_has_stopped() {
    let hub = Hub::builder().open().build().await.unwrap();
    let first = start(&hub).await;
    soon(first.stop(switchboard::StopOptions::default())).await;
    let second = start(&hub).await;
    let (mut client, _) = Client::events(&second, "room=a&user=ali", "").await;
    hub.room("a").publish(&1).await.unwrap();
    assert_eq!(client.next().await, entry("room/a", 1, "1"));
    let stopping = tokio::spawn(second.stop(switchboard::StopOptions::default()));
    assert_eq!(client.next().await.0, "disconnected");
    soon(stopping).await.unwrap();
}

#[tokio::test]
async fn curl_is_a_member_of_a_room() {
    let hub = builder().build().await.unwrap();
    let server = start(&hub).await;
    let url = format!("{}/events?room=live/7&last=5", server.url().replacen("tcp", "http", 1));
    hub.room("live/7").publish(&"before").await.unwrap();
    let header = format!("authorization: Bearer {}", token("ali", ""));
    let mut curl = Command::new("curl")
        .args(["-sN", "-H", &header, &url])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("curl is installed");
    let mut lines = BufReader::new(curl.stdout.take().unwrap()).lines();
    let mut data = async || loop {
        let line = soon(lines.next_line()).await.unwrap().expect("a line");
        if let Some(data) = line.strip_prefix("data: ") {
            return data.to_owned();
        }
    };
    assert_eq!(data().await, r#"{"topic":"room/live/7","offset":1,"data":"before"}"#);
    hub.room("live/7").publish(&"now").await.unwrap();
    assert_eq!(data().await, r#"{"topic":"room/live/7","offset":2,"data":"now"}"#);
}
