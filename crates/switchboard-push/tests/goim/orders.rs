//! Publications and orders of the server.

use crate::support::{auth, start};
use std::sync::{Arc, Mutex};
use switchboard_message::Publication;
use switchboard_push::Hub;
use switchboard_wire::{Codec, goim::operation};

fn raw(text: &'static str) -> Publication {
    Publication::new(Codec::Raw, text)
}

#[tokio::test]
async fn the_server_addresses_devices_of_goim_as_all_others() {
    let gateway = start(Hub::builder().open(), |goim| goim.default_operation(1234)).await;
    let hub = &gateway.hub;
    let mut device = gateway.device(auth(42, "phone")).await;
    hub.room("live/1").publish_encoded(raw("room")).operation(1000).await.unwrap();
    assert_eq!(device.push().await, (1000, "room".to_owned()));
    // Without an operation, every filter admits it.
    hub.user(42).publish_encoded(raw("user")).await.unwrap();
    assert_eq!(device.push().await, (1234, "user".to_owned()));
    hub.key("phone").publish_encoded(raw("filtered")).operation(7).await.unwrap();
    hub.key("phone").publish(&"json").await.unwrap();
    assert_eq!(device.push().await, (1234, "\"json\"".to_owned()));
    hub.all().publish_encoded(raw("all")).await.unwrap();
    assert_eq!(device.push().await, (1234, "all".to_owned()));
}

#[tokio::test]
async fn the_server_moves_and_closes_devices() {
    let gateway = start(Hub::builder().open(), |goim| goim).await;
    let hub = &gateway.hub;
    let mut device = gateway.device(auth(42, "phone")).await;
    hub.key("phone").join("news/1").unwrap();
    hub.key("phone").leave("live/1").unwrap();
    hub.key("phone").publish_encoded(raw("moved")).await.unwrap();
    assert_eq!(device.push().await.1, "moved");
    assert_eq!((hub.room("news/1").count(), hub.room("live/1").count()), (1, 0));
    hub.room("news/1").publish_encoded(raw("news")).await.unwrap();
    assert_eq!(device.push().await.1, "news");
    hub.user(42).close("bye").unwrap();
    device.closed().await;
    assert_eq!(hub.stats().devices, 0);
}

#[tokio::test]
async fn messages_of_devices_reach_the_application() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let into = received.clone();
    let gateway = start(Hub::builder().open(), |goim| {
        goim.on_message(move |message| {
            let (user, key) = (message.user.to_owned(), message.key.to_owned());
            into.lock().unwrap().push((user, key, message.operation, message.body.to_vec()));
        })
    })
    .await;
    let mut device = gateway.device(auth(42, "phone")).await;
    device.client.request(operation::MESSAGE, b"hello", &mut device.out).unwrap();
    assert_eq!(device.reply().await, (operation::MESSAGE, Vec::new()));
    let expected = ("42".to_owned(), "phone".to_owned(), operation::MESSAGE, b"hello".to_vec());
    assert_eq!(*received.lock().unwrap(), [expected]);
    assert_eq!(gateway.goim.stats().messages, 1);
}
