//! Entries of a topic, from a publisher of ZeroMQ to its subscribers: what one delivered entry costs.

use std::time::Duration;
use switchboard::{Running, Server};
use switchboard_adapter::Zmtp;
use switchboard_message::Bus;
use switchboard_socket::{Error, Message, Sub, Xpub};

/// Entries that are under way at once.
const BATCH: u64 = 10;
/// As in the benchmark of fan-out.
const BYTES: usize = 128;
const TOPIC: &str = "t";
/// Content of the entry before the counted ones.
const START: &[u8] = b"start";
/// Pause in which a subscription arrives, also under valgrind; each further probe would be counted.
const PAUSE: Duration = Duration::from_millis(300);

/// Starts a server of topics on a free port.
///
/// # Errors
/// When it cannot listen.
pub(crate) async fn serve(server: Server) -> Result<Running, String> {
    let server = server.plugin(Zmtp::new(Bus::new()));
    server.listen("tcp://127.0.0.1:0").start().await.map_err(|error| error.to_string())
}

/// Publishes, and receives at each of the subscribers, until `deliveries` entries were delivered.
///
/// # Errors
/// When a connection ends, or an entry is missing.
pub(crate) async fn deliver(deliveries: u64, subscribers: u64, address: &str) -> Result<(), String> {
    let rounds = deliveries / (BATCH * subscribers);
    run(rounds, subscribers, &format!("tcp://{address}")).await.map_err(|error| error.to_string())
}

async fn run(rounds: u64, subscribers: u64, endpoint: &str) -> Result<(), Error> {
    let publisher = Xpub::connect(endpoint).await?;
    // The subscription of the server.
    publisher.recv().await?;
    let mut all = Vec::new();
    for _ in 0..subscribers {
        let sub = Sub::connect(endpoint).await?;
        sub.subscribe(TOPIC)?;
        all.push(sub);
    }
    let mut waiting: Vec<&Sub> = all.iter().collect();
    while !waiting.is_empty() {
        publisher.send([TOPIC, "probe"]).await?;
        tokio::time::sleep(PAUSE).await;
        waiting.retain(|sub| !matches!(sub.try_recv(), Ok(Some(_))));
    }
    publisher.send(Message::new([TOPIC.as_bytes(), START])).await?;
    for sub in &all {
        while sub.recv().await?.body() != START {}
    }
    for round in 0..rounds {
        for number in 0..BATCH {
            let body = [(round * BATCH + number) as u8; BYTES];
            publisher
                .send(Message::from([TOPIC.as_bytes(), &body[..]].map(bytes::Bytes::copy_from_slice)))
                .await?;
        }
        for sub in &all {
            for number in 0..BATCH {
                let entry = sub.recv().await?;
                assert_eq!(entry.body(), [(round * BATCH + number) as u8; BYTES], "an entry is missing");
            }
        }
    }
    Ok(())
}
