//! Streams that exceed their window: none stalls, with any window and size.

mod support;

use std::time::Duration;
use support::*;
use switchboard::{Channel, Limit};

/// Longer than any of these takes on a loaded machine; only a stall lasts as long.
const PATIENCE: Duration = Duration::from_secs(30);

async fn with_window(window: u64) -> (switchboard::Running, Channel) {
    let server = switchboard::Server::new().add(Probe::default()).listen(memory());
    let running = server.limit(Limit::StreamWindowBytes, window).start().await.expect("start");
    let channel = Channel::builder(&running.url()).connections(1).connect().await.expect("connect");
    (running, channel)
}

#[tokio::test]
async fn long_uploads_of_small_messages_end() {
    for window in [64 << 10, 100_000, 1 << 20, 16 << 20] {
        let (_running, channel) = with_window(window).await;
        let upload = sum(&channel).await.expect("open");
        let sent = tokio::time::timeout(PATIENCE, async {
            for n in 0..300_000 {
                upload.send(n).await?;
            }
            upload.finish().await
        });
        let sum = sent.await.unwrap_or_else(|_| panic!("stalls with a window of {window}")).expect("sum");
        assert_eq!(*sum, 300_000 * 299_999 / 2, "window {window}");
    }
}

#[tokio::test]
async fn large_messages_on_many_streams_of_one_connection_arrive() {
    for window in [64 << 10, 1 << 20] {
        let (_running, channel) = with_window(window).await;
        let chats: Vec<_> = (0..16)
            .map(|_| {
                let channel = channel.clone();
                tokio::spawn(async move {
                    let (sender, mut receiver) = chat(&channel).await?;
                    let text = "a".repeat(50_000);
                    let send = async {
                        for _ in 0..20 {
                            sender.send(text.clone()).await?;
                        }
                        sender.finish();
                        Ok::<_, switchboard::Status>(())
                    };
                    let receive = async {
                        let mut count = 0;
                        while let Some(answer) = receiver.next().await? {
                            assert_eq!(answer.len(), text.len());
                            count += 1;
                        }
                        Ok(count)
                    };
                    tokio::try_join!(send, receive).map(|(_, count)| count)
                })
            })
            .collect();
        for chat in chats {
            let count = tokio::time::timeout(PATIENCE, chat).await;
            let count = count.unwrap_or_else(|_| panic!("stalls with a window of {window}"));
            assert_eq!(count.expect("task").expect("chat"), 20, "window {window}");
        }
    }
}

#[tokio::test]
async fn calls_that_wait_for_a_full_outbox_are_answered() {
    let server = switchboard::Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0");
    let running = server.limit(Limit::OutboxBytesMax, 64 << 10).start().await.expect("start");
    let channel = Channel::builder(&running.url()).connections(1).connect().await.expect("connect");
    let echo = |size: usize| {
        let channel = channel.clone();
        tokio::spawn(async move { ask::<Vec<u8>, Vec<u8>>(&channel, &ECHO, &vec![1; size]).await })
    };
    let calls: Vec<_> = (0..3000).map(|n| (n % 7 * 4000, echo(n % 7 * 4000))).collect();
    for (size, call) in calls {
        let answer = tokio::time::timeout(PATIENCE, call).await.expect("stalls");
        assert_eq!(answer.expect("task").expect("echo").len(), size);
    }
}
