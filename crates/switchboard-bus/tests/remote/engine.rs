//! Servers whose buses share an engine.

use crate::support::Host;
use std::{sync::Arc, time::Duration};
use switchboard::Code;
use switchboard_message::{Bus, Delivery, Embedded, Subscription, TopicOptions};

/// A bus of a process: its own, on topics that outlive it.
fn process(topics: &Bus) -> Bus {
    Bus::builder().engine(Arc::new(Embedded::new(topics.clone()))).build()
}

async fn expect(subscription: &mut Subscription<u64>, entries: std::ops::Range<u64>) {
    for expected in entries {
        loop {
            match subscription.next().await.unwrap().unwrap() {
                Delivery::Entry(entry) => break assert_eq!(*entry, expected),
                Delivery::Recovered => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_subscription_continues_at_another_process() {
    let kept = TopicOptions::new().history(1_000, Duration::MAX);
    let topics = Bus::builder().topics(">", kept).unwrap().build();
    let (mut host, other) = (Host::start(&process(&topics)).await, Host::start(&process(&topics)).await);
    let (client, publisher) = (host.connect("").await, other.connect("?wire=grpc").await);
    let mut quotes = client.subscribe::<u64>("quotes/acme").await.unwrap();
    let first = publisher.publish("quotes/acme", &0_u64).await.unwrap();
    expect(&mut quotes, 0..1).await;
    host.kill();
    for entry in 1..5_u64 {
        publisher.publish("quotes/acme", &entry).await.unwrap();
    }
    // The new process has never had the topic.
    host.restart(&process(&topics)).await;
    expect(&mut quotes, 1..5).await;
    let mut late = other.connect("ws").await.subscribe::<u64>("quotes/acme").after(first).await.unwrap();
    expect(&mut late, 1..5).await;
    let page = client.history::<u64>("quotes/acme").limit(2).await.unwrap();
    assert!(matches!(&page.deliveries[..], [_, Delivery::Entry(last)] if **last == 4), "{page:?}");
    let status = client.subscribe::<u64>("jobs").group("workers").ack().await.map(drop).unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("not supported by the engine embedded"), "{status}");
}
