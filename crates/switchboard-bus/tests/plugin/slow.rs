//! Readers that stop.

use crate::support::{Client, serve, soon};
use switchboard::Codec;
use switchboard_message::{Bus, Publication, SlowReader, TopicOptions};

/// Bytes of an entry.
const ENTRY: usize = 32 << 10;
/// Many times what sockets and buffers hold.
const ENTRIES: u64 = 2_000;

fn bus(slow_reader: SlowReader) -> Bus {
    let options = TopicOptions::new().backlog(16).slow_reader(slow_reader);
    Bus::builder().topics("t", options).unwrap().build()
}

async fn flood(bus: &Bus) {
    for _ in 0..ENTRIES {
        // Other tasks write between the entries.
        tokio::task::yield_now().await;
        bus.publish_encoded("t", Publication::new(Codec::Raw, vec![b'x'; ENTRY])).await.unwrap();
    }
}

#[tokio::test]
async fn a_reader_that_stops_holds_little_and_learns_what_it_missed() {
    let bus = bus(SlowReader::Notify);
    let server = serve(&bus).await;
    let (mut client, _) = Client::events(&server, "topic=t", "").await;
    flood(&bus).await;
    let (held, kept) = (server.stats().memory.held, bus.stats().bytes as u64);
    assert!(held + kept < 8 << 20, "{held} bytes for the reader, {kept} bytes in the log");
    let (mut next, mut missed) = (1, 0);
    while next <= ENTRIES {
        let event = soon(client.event()).await;
        let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
        if event.kind == "gap" {
            assert_eq!((&data["reason"], &data["from"]), (&"lagged".into(), &next.into()), "{data}");
            let to = data["to"].as_u64().unwrap();
            missed += to + 1 - next;
            next = to + 1;
            continue;
        }
        assert_eq!(data["offset"], next);
        next += 1;
    }
    assert!(missed > ENTRIES / 2, "{missed} entries were missed");
}

#[tokio::test]
async fn a_topic_may_close_readers_that_stop() {
    let bus = bus(SlowReader::Close);
    let server = serve(&bus).await;
    let (mut client, _) = Client::events(&server, "topic=t", "").await;
    flood(&bus).await;
    let rest = client.rest().await;
    let id = rest.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    // It learns of the rest when it comes back.
    let (mut client, _) = Client::events(&server, "topic=t", &format!("last-event-id: {id}\r\n")).await;
    bus.publish_encoded("t", Publication::new(Codec::Json, "1")).await.unwrap();
    let event = client.event().await;
    assert!(["gap", "resumed"].contains(&&*event.kind), "{event:?}");
}
