//! Topics with callers on every wire.

use crate::support::{Events, WIRES, connect, publish, serve, subscribe};
use switchboard_bus::v1::{Header, SubscribeRequest, subscribe_event::Event, subscribe_request::Start};
use switchboard_message::{Bus, TopicOptions};

#[tokio::test]
async fn all_wires_receive_the_entries_of_all_wires_in_one_order() {
    let server = serve(&Bus::new()).await;
    let (mut clients, mut subscriptions) = (Vec::new(), Vec::new());
    for wire in WIRES {
        let client = connect(&server, wire).await;
        subscriptions.push(Events::begin(&client, subscribe("quotes/>")).await);
        clients.push(client);
    }
    let mut expected = Vec::new();
    for (client, wire) in clients.iter().zip(WIRES) {
        for number in 0..3 {
            let payload = format!("{wire} {number}");
            let response = client.publish(publish("quotes/acme", &payload)).await.unwrap();
            expected.push((response.position.offset, payload));
        }
    }
    for (events, wire) in subscriptions.iter_mut().zip(WIRES) {
        assert_eq!(events.entries(expected.len()).await, expected, "{wire}");
    }
}

#[tokio::test]
async fn an_entry_keeps_all_its_fields_on_every_wire() {
    let server = serve(&Bus::new()).await;
    for wire in WIRES {
        let client = connect(&server, wire).await;
        let mut events = Events::begin(&client, subscribe("t")).await;
        let mut request = publish("t", "\0\u{ff}");
        let header = |name: &str, value: &'static [u8]| Header {
            name: name.into(),
            value: value.into(),
            ..Default::default()
        };
        let entry = request.entry.get_or_insert_default();
        entry.codec = "msgpack".to_owned();
        entry.headers = vec![header("a", b"1"), header("b-bin", b"\xff\0")];
        entry.key = "key".into();
        entry.id = format!("id of {wire}").into();
        let sent = entry.clone();
        let position = client.publish(request.clone()).await.unwrap().into_inner().position;
        let received = events.entry().await;
        assert_eq!(received.topic, "t", "{wire}");
        assert_eq!(received.position, position, "{wire}");
        assert_eq!((received.payload, received.codec), (sent.payload, sent.codec), "{wire}");
        assert_eq!(
            (received.headers, received.key, received.id),
            (sent.headers, sent.key, sent.id),
            "{wire}"
        );
        assert_eq!((received.attempt, &*received.ack_id), (1, ""), "{wire}");
        // The id is known: the entry is not appended again.
        assert_eq!(client.publish(request).await.unwrap().into_inner().position, position, "{wire}");
    }
}

#[tokio::test]
async fn history_is_followed_by_live_entries_without_a_hole() {
    let options = TopicOptions::new().history(10, std::time::Duration::MAX);
    let bus = Bus::builder().topics("t", options).unwrap().build();
    let server = serve(&bus).await;
    let publisher = connect(&server, "").await;
    let first = publisher.publish(publish("t", "1")).await.unwrap().into_inner().position;
    publisher.publish(publish("t", "2")).await.unwrap();
    for (number, wire) in (3..).zip(WIRES) {
        let client = connect(&server, wire).await;
        let request = |start: Start| SubscribeRequest { start: Some(start), ..subscribe("t") };
        let mut last = Events::begin(&client, request(Start::Last(1))).await;
        let mut after = Events::begin(&client, request(first.clone().unwrap().into())).await;
        let event = after.event().await;
        assert!(matches!(event, Event::Recovered(_)), "{wire}: {event:?}");
        publisher.publish(publish("t", &number.to_string())).await.unwrap();
        let expected: Vec<_> = (2..=number).map(|number| (number, number.to_string())).collect();
        assert_eq!(last.entries(2).await, expected[expected.len() - 2..], "{wire}");
        assert_eq!(after.entries(expected.len()).await, expected, "{wire}");
    }
}
