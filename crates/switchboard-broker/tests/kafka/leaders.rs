//! Leaders that lose their role after they have appended, and partitions that are added.

use super::{Shared, suite, suite::Engine};
use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use switchboard_broker::Kafka;
use switchboard_message::{Bus, Delivery, GapReason, Position};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::block_in_place,
};

/// Key of the request Produce.
const PRODUCE: [u8; 2] = [0, 0];
const NOT_LEADER_OR_FOLLOWER: i16 = 6;

/// A path to the node on which responses to appends become errors, though the node has appended.
struct LostRole {
    port: u16,
    /// Responses that become errors.
    errors: Arc<AtomicUsize>,
}

impl LostRole {
    async fn start(node: u16) -> LostRole {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (port, errors) = (listener.local_addr().unwrap().port(), Arc::<AtomicUsize>::default());
        let left = errors.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", node)).await.unwrap();
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                let appends = Arc::<Mutex<HashSet<[u8; 4]>>>::default();
                let (noted, left) = (appends.clone(), left.clone());
                tokio::spawn(forward(from_client, to_server, move |request| {
                    if request[..2] == PRODUCE {
                        noted.lock().unwrap().insert(request[4..8].try_into().unwrap());
                    }
                }));
                tokio::spawn(forward(from_server, to_client, move |response| {
                    let number: [u8; 4] = response[..4].try_into().unwrap();
                    let is_append = appends.lock().unwrap().remove(&number);
                    let less = |left: usize| left.checked_sub(1);
                    if is_append && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
                        // One topic, its name, one partition and its number.
                        let name = usize::from(u16::from_be_bytes([response[8], response[9]]));
                        let error = 10 + name + 4 + 4;
                        response[error..error + 2].copy_from_slice(&NOT_LEADER_OR_FOLLOWER.to_be_bytes());
                    }
                }));
            }
        });
        LostRole { port, errors }
    }
}

/// Forwards frames, which may be changed.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, change: impl Fn(&mut Vec<u8>)) {
    while let Ok(length) = from.read_u32().await {
        let mut frame = vec![0; length as usize];
        if from.read_exact(&mut frame).await.is_err() {
            return;
        }
        change(&mut frame);
        let written = async {
            to.write_u32(length).await?;
            to.write_all(&frame).await
        };
        if written.await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_of_a_leader_that_lost_its_role_is_neither_lost_nor_repeated() {
    let Some(engine) = Shared::start().await else { return };
    let path = LostRole::start(engine.node.port).await;
    let options = engine.options().partitions(1).uses_given_address();
    let broker = Kafka::connect(&format!("kafka://127.0.0.1:{}", path.port), options).unwrap();
    let bus = Bus::builder().engine(Arc::new(broker)).build();
    let mut subscription = bus.subscribe::<u64>("role").await.unwrap();
    // With an id and without, once and twice.
    for (entry, errors) in [(0, 0), (1, 1), (2, 0), (3, 1), (4, 2), (5, 0), (6, 2), (7, 0)] {
        path.errors.store(errors, Ordering::Relaxed);
        let publishing = bus.publish("role", &entry);
        let position = match entry % 4 {
            1 | 2 => publishing.id(entry.to_string()).await.unwrap(),
            _ => publishing.await.unwrap(),
        };
        assert_eq!(path.errors.load(Ordering::Relaxed), 0, "an error was sent");
        let Delivery::Entry(received) = suite::next(&mut subscription).await else { panic!("a gap") };
        assert_eq!((*received, received.position()), (entry, position));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_partitions_begin_a_new_epoch() {
    let Some(engine) = Shared::start().await else { return };
    let (bus, topics) = (engine.bus(), ["a", "b", "c", "d", "e", "f", "g", "h"]);
    let mut subscriptions = Vec::new();
    for topic in topics {
        let mut subscription = bus.subscribe::<u64>(topic).await.unwrap();
        suite::publish(&bus, topic, 0..1).await;
        suite::expect(&mut subscription, 0..1).await;
        subscriptions.push(subscription);
    }
    block_in_place(|| engine.node.create_partitions(&engine.prefix, 9));
    // The layout is read again after an error.
    engine.set(suite::Path::Cut);
    engine.set(suite::Path::Open);
    for subscription in &mut subscriptions {
        assert_eq!(suite::next_gap(subscription).await.1, GapReason::Epoch);
    }
    let other = suite::other_bus(&engine);
    for (topic, subscription) in topics.into_iter().zip(&mut subscriptions) {
        suite::publish(&other, topic, 1..2).await;
        loop {
            // Of the old partition as well, if it is the new one.
            match suite::next(subscription).await {
                Delivery::Entry(entry) if *entry == 1 => break,
                Delivery::Entry(entry) => assert_eq!(*entry, 0),
                other => panic!("not an entry: {other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_are_read_behind_deleted_records() {
    let Some(engine) = Shared::start().await else { return };
    let (bus, other) = (suite::other_bus(&engine), suite::other_bus(&engine));
    bus.publish("ids", &0_u64).id("0").await.unwrap();
    suite::publish(&other, "ids", 1..20).await;
    let last = other.publish("ids", &20_u64).id("20").await.unwrap();
    // The process has not read the ids of these.
    engine.trim(Position { offset: last.offset, ..last }).await;
    assert_eq!(bus.publish("ids", &20_u64).id("20").await.unwrap(), last);
    assert!(bus.publish("ids", &21_u64).id("21").await.unwrap().offset > last.offset);
}
