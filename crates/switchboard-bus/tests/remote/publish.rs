//! Publications over killed and restarted servers.

use crate::support::{Host, entries, with_history};
use switchboard::Code;

#[tokio::test]
async fn a_publication_with_an_id_is_repeated_and_appended_once() {
    for wire in ["", "?wire=grpc"] {
        let topics = with_history(1_000);
        let mut host = Host::start(&topics).await;
        let bus = host.connect(wire).await;
        let mut all = topics.subscribe::<u32>("t").await.unwrap();
        bus.publish("t", &0_u32).id("0").await.unwrap();
        host.kill();
        let publisher = bus.clone();
        let publishing = tokio::spawn(async move {
            for number in 1..50_u32 {
                publisher.publish("t", &number).id(number.to_string()).await.unwrap();
            }
        });
        for _ in 0..3 {
            host.restart(&topics).await;
            tokio::task::yield_now().await;
            host.kill();
        }
        host.restart(&topics).await;
        publishing.await.unwrap();
        assert_eq!(entries(&mut all, 50).await, (0..50).collect::<Vec<_>>(), "{wire}");
        assert_eq!(topics.topic_stats("t").unwrap().published, 50, "{wire}");
    }
}

#[tokio::test]
async fn messages_in_the_background_are_bounded_and_in_order() {
    let topics = with_history(10_000);
    let mut host = Host::start(&topics).await;
    let bus = host.connect("").await;
    let mut all = topics.subscribe::<u32>("t/>").last(10_000).await.unwrap();
    host.kill();
    let queue = |number: u32| {
        let topic = format!("t/{}", number / 10 % 3);
        bus.publish(&topic, &number).id(number.to_string()).later()
    };
    let full = (0..).map(queue).find_map(Result::err).unwrap();
    assert_eq!(full.code(), Code::ResourceExhausted);
    assert!(full.message().contains("the queue of the connection holds 8192 messages"), "{full}");
    host.restart(&topics).await;
    let mut received: Vec<u32> = entries(&mut all, 8_192).await;
    // Topics are in several shards: the order is that of each topic.
    let mut last = [None; 3];
    for number in &received {
        let newest = &mut last[(number / 10 % 3) as usize];
        assert!(newest.is_none_or(|newest| newest < *number), "{number}");
        *newest = Some(*number);
    }
    received.sort_unstable();
    assert_eq!(received, (0..8_192).collect::<Vec<_>>());
}

#[tokio::test]
async fn large_messages_in_the_background_are_bounded_by_their_bytes() {
    let topics = with_history(1);
    let mut host = Host::start(&topics).await;
    let bus = host.connect("").await;
    host.kill();
    let large = vec![0_u8; 1 << 20];
    let full = (0..).find_map(|_| bus.publish("t", &large).later().err()).unwrap();
    assert!(full.message().contains("8388608 bytes"), "{full}");
}
