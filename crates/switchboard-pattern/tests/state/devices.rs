//! Queue, forwarder and streamer.

use super::*;
use switchboard_pattern::{ErrorKind, devices::Device};
use switchboard_socket::{Dealer, Pull, Push, Rep, Req, SocketOptions, Sub, Xpub};

#[tokio::test]
async fn a_queue_distributes_requests_and_returns_replies() {
    // Limits that a device does not use: nothing arrives for longer.
    let mut options = SocketOptions::default();
    options.timeouts.receive = Some(Duration::ZERO);
    let device = Device::queue().bind_frontend(ANY).bind_backend(ANY);
    let device = device.frontend_options(options.clone()).backend_options(options).start().await.unwrap();
    let worker = Rep::connect(&device.backends()[0].to_string()).await.unwrap();
    tokio::spawn(async move {
        while let Ok(request) = worker.recv().await {
            worker.send(request).await.unwrap();
        }
    });
    let clients = [
        Req::connect(&device.frontends()[0].to_string()).await.unwrap(),
        Req::connect(&device.frontends()[0].to_string()).await.unwrap(),
    ];
    for (number, client) in clients.iter().enumerate() {
        client.send(format!("{number}")).await.unwrap();
    }
    for (number, client) in clients.iter().enumerate() {
        assert_eq!(text(client).await, format!("{number}"));
    }
    assert_eq!(device.stats().frontend.peers.len(), 2);
    within(device.stop()).await.unwrap();
}

#[tokio::test]
async fn a_forwarder_passes_subscriptions_to_publishers_that_it_connects_to() {
    let publisher = Xpub::bind(ANY).await.unwrap();
    let device = Device::forwarder()
        .connect_frontend(&publisher.endpoints()[0].to_string())
        .bind_backend(ANY)
        .start()
        .await
        .unwrap();
    let subscriber = Sub::connect(&device.backends()[0].to_string()).await.unwrap();
    subscriber.subscribe("a").unwrap();
    assert_eq!(recv(&publisher).await.body(), b"\x01a");
    publisher.send("b").await.unwrap();
    publisher.send("a").await.unwrap();
    assert_eq!(text(&subscriber).await, "a");
}

#[tokio::test]
async fn a_streamer_is_captured_paused_and_ended() {
    let capture = Push::bind(ANY).await.unwrap();
    let copies = Pull::connect(&capture.endpoints()[0].to_string()).await.unwrap();
    until(|| capture.stats().peers.iter().any(|peer| peer.is_connected)).await;
    let device =
        Device::streamer().bind_frontend(ANY).bind_backend(ANY).capture(&capture).start().await.unwrap();
    let push = Push::connect(&device.frontends()[0].to_string()).await.unwrap();
    let pull = Pull::connect(&device.backends()[0].to_string()).await.unwrap();
    push.send("1").await.unwrap();
    assert_eq!((text(&pull).await, text(&copies).await), ("1".to_owned(), "1".to_owned()));
    device.pause();
    // The proxy may wait in a receive, whose message it still forwards.
    push.send("2").await.unwrap();
    push.send("3").await.unwrap();
    until(|| device.stats().frontend.peers[0].received == 3).await;
    assert_eq!(text(&pull).await, "2");
    assert_eq!(pull.try_recv().unwrap(), None);
    device.resume();
    assert_eq!(text(&pull).await, "3");
    within(device.stop()).await.unwrap();
}

#[tokio::test]
async fn settings_are_checked() {
    let without = Device::queue().bind_frontend(ANY).start().await.unwrap_err();
    assert_eq!(without.kind(), ErrorKind::InvalidInput);
    assert!(without.to_string().contains("bind_backend"), "{without}");
    let sub = Pull::new().unwrap();
    let device = Device::streamer().bind_frontend(ANY).bind_backend(ANY).capture(&sub);
    assert!(device.start().await.unwrap_err().to_string().contains("PULL cannot capture"));
    let taken = Device::streamer().bind_frontend(ANY).bind_backend(ANY).start().await.unwrap();
    let endpoint = taken.frontends()[0].to_string();
    let refused = Device::streamer().bind_frontend(&endpoint).bind_backend(ANY).start().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Socket);
}

#[tokio::test]
async fn a_worker_that_is_killed_loses_its_request_alone() {
    let device = Device::queue().bind_frontend(ANY).bind_backend(ANY).start().await.unwrap();
    let client = Dealer::connect(&device.frontends()[0].to_string()).await.unwrap();
    let killed = Rep::connect(&device.backends()[0].to_string()).await.unwrap();
    client.send(["", "lost"]).await.unwrap();
    assert_eq!(text(&killed).await, "lost");
    drop(killed);
    until(|| device.stats().backend.peers.is_empty()).await;
    let worker = Rep::connect(&device.backends()[0].to_string()).await.unwrap();
    client.send(["", "kept"]).await.unwrap();
    assert_eq!(text(&worker).await, "kept");
    worker.send("reply").await.unwrap();
    assert_eq!(text(&client).await, "reply");
}
