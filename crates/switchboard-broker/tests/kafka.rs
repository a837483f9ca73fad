//! A real Kafka, in the suite of all engines.
#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

#[cfg(feature = "redis")]
#[path = "kafka/bridge.rs"]
mod bridge;
#[path = "kafka/leaders.rs"]
mod leaders;
mod suite;

use std::{path::PathBuf, sync::Arc, time::Duration};
use suite::{
    Engine, Path, broker_suite,
    forwarder::{Forwarder, Target},
    kafka_node::{Node, jars, java},
};
use switchboard_broker::{Kafka, kafka::Options};
use switchboard_message::{Bus, Delivery, GapReason, Position, broker::Broker};
use switchboard_wire::{Code, Retry};
use tokio::task::block_in_place;

const PARTITIONS: u16 = 4;

/// A topic of Kafka on the node that all tests share.
struct Shared {
    node: &'static Node,
    prefix: String,
    disturbed: Forwarder,
}

impl Shared {
    fn options(&self) -> Options {
        Options::new().prefix(&self.prefix).partitions(PARTITIONS)
    }

    fn connect(&self, options: Options) -> Kafka {
        Kafka::connect(&format!("kafka://127.0.0.1:{}", self.node.port), options).unwrap()
    }
}

impl Engine for Shared {
    async fn start() -> Option<Shared> {
        let node = block_in_place(Node::shared)?;
        let prefix = format!("swb-{:x}", fastrand::u64(..));
        Some(Shared { node, prefix, disturbed: Forwarder::start(Target::Tcp(node.port)).await })
    }

    fn broker(&self) -> Arc<dyn Broker> {
        let url = format!("kafka://127.0.0.1:{}", self.disturbed.port);
        Arc::new(Kafka::connect(&url, self.options().uses_given_address()).unwrap())
    }

    fn undisturbed(&self) -> Arc<dyn Broker> {
        Arc::new(self.connect(self.options()))
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn set(&self, path: Path) {
        self.disturbed.set(path);
    }

    async fn erase(&self) {
        block_in_place(|| self.node.delete_topic(&self.prefix));
    }

    async fn trim(&self, before: Position) {
        // The offset of a record is that of the entry without 1.
        let before = before.offset as i64 - 1;
        block_in_place(|| self.node.delete_records(&self.prefix, PARTITIONS.into(), before));
    }
}

broker_suite!(Shared:
    order_with_many_publishers, every_start_position, holes_are_filled, duplicates_are_dropped,
    history_is_trimmed_below_a_reader, a_slow_reader_catches_up, many_topics, drain,
    unsupported_operations_name_the_engine, partitions, another_epoch, a_cut_during_publications,
    a_bridge_copies_both_ways);

/// A node of its own, which is killed.
struct Own {
    jars: PathBuf,
    folder: PathBuf,
    node: Option<Node>,
    disturbed: Forwarder,
}

impl Own {
    fn run(&mut self) {
        let node = block_in_place(|| Node::start(&self.jars, &self.folder));
        self.disturbed.retarget(Target::Tcp(node.port));
        self.node = Some(node);
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            block_in_place(|| node.kill());
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Engine for Own {
    async fn start() -> Option<Own> {
        let jars = jars()?;
        let folder = std::env::temp_dir().join(format!("swb-kafka-{:x}", fastrand::u64(..)));
        let mut own = Own { jars, folder, node: None, disturbed: Forwarder::start(Target::Tcp(0)).await };
        own.run();
        Some(own)
    }

    fn broker(&self) -> Arc<dyn Broker> {
        let url = format!("kafka://127.0.0.1:{}", self.disturbed.port);
        let options = Options::new().partitions(PARTITIONS).uses_given_address();
        Arc::new(Kafka::connect(&url, options).unwrap())
    }

    fn is_remote(&self) -> bool {
        true
    }

    async fn kill(&mut self) {
        if let Some(node) = self.node.take() {
            block_in_place(|| node.kill());
        }
    }

    async fn restart(&mut self) {
        self.run();
    }
}

broker_suite!(Own: killed_and_restarted);

/// Publishes until the engine accepts it, under one id.
async fn publish_until_accepted(bus: &Bus, topic: &str, entry: u64, id: &str) -> Position {
    loop {
        match bus.publish(topic, &entry).id(id.to_owned()).await {
            Ok(position) => return position,
            Err(status) => {
                assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe), "{status}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_without_a_response_is_appended_once() {
    let Some(engine) = Shared::start().await else { return };
    let (bus, other) = (engine.bus(), suite::other_bus(&engine));
    let mut subscription = other.subscribe::<u64>("once").await.unwrap();
    publish_until_accepted(&bus, "once", 0, "0").await;
    suite::expect(&mut subscription, 0..1).await;
    // Appended without a response; then appended when the path opens, unless the next attempt prevents it.
    for (entry, path) in [(1, Path::StalledToClients), (2, Path::StalledToServer)] {
        let id = entry.to_string();
        engine.set(path);
        let status = bus.publish("once", &entry).id(id.clone()).await.unwrap_err();
        assert_eq!(status.retry(), Retry::Safe, "{status}");
        engine.set(Path::Open);
        let position = publish_until_accepted(&bus, "once", entry, &id).await;
        assert_eq!(publish_until_accepted(&other, "once", entry, &id).await, position);
        let Delivery::Entry(received) = suite::next(&mut subscription).await else { panic!("a gap") };
        assert_eq!((*received, received.position()), (entry, position));
    }
    publish_until_accepted(&bus, "once", 3, "3").await;
    suite::expect(&mut subscription, 3..4).await;
}

/// Copies a folder; files that are there are replaced.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match from.is_dir() {
            true => copy(&from, &to),
            false => _ = std::fs::copy(from, to).unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_lost_its_end_is_another_epoch() {
    let Some(mut engine) = Own::start().await else { return };
    let (bus, other) = (engine.bus(), engine.bus());
    let mut subscription = bus.subscribe::<u64>("lost").await.unwrap();
    suite::publish(&other, "lost", 0..3).await;
    suite::expect(&mut subscription, 0..3).await;
    engine.kill().await;
    let (data, saved) = (engine.folder.join("data"), engine.folder.join("saved"));
    copy(&data, &saved);
    engine.restart().await;
    for entry in 3..6 {
        publish_until_accepted(&other, "lost", entry, &entry.to_string()).await;
    }
    suite::expect(&mut subscription, 3..6).await;
    // As a disk that had three of them when the power was lost.
    engine.kill().await;
    std::fs::remove_dir_all(&data).unwrap();
    copy(&saved, &data);
    engine.restart().await;
    assert_eq!(suite::next_gap(&mut subscription).await.1, GapReason::Epoch);
    suite::expect(&mut subscription, 0..3).await;
    for entry in 10..13 {
        publish_until_accepted(&other, "lost", entry, &entry.to_string()).await;
    }
    suite::expect(&mut subscription, 10..13).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_other_programs_are_in_the_partition_of_their_key() {
    let Some(engine) = Shared::start().await else { return };
    let bus = suite::other_bus(&engine);
    let mut subscription = bus.subscribe::<u64>("foreign/7").await.unwrap();
    let first = bus.publish("foreign/7", &0_u64).await.unwrap();
    // Compressed, which the topic's settings undo.
    let mut command = java(&jars().unwrap(), &[]);
    let server = format!("127.0.0.1:{}", engine.node.port);
    command
        .extend(["kafka.tools.ConsoleProducer", "--bootstrap-server", &server, "--topic"].map(String::from));
    command.push(engine.prefix.clone());
    let options = [
        "--compression-codec",
        "gzip",
        "--property",
        "parse.key=true",
        "--property",
        "key.separator==",
        "--sync",
    ];
    command.extend(options.map(String::from));
    let mut producer = tokio::process::Command::new(&command[0]);
    producer.args(&command[1..]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
    let mut producer = producer.stderr(std::process::Stdio::null()).kill_on_drop(true).spawn().unwrap();
    let mut input = producer.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut input, b"foreign/7=hello\nother=x\n").await.unwrap();
    drop(input);
    assert!(producer.wait().await.unwrap().success());
    suite::expect(&mut subscription, 0..1).await;
    // It is no record of this engine, but of this topic.
    let next = first.offset + 1;
    assert_eq!(suite::next_gap(&mut subscription).await, (next..next + 1, GapReason::Lost));
    bus.publish("foreign/7", &1_u64).await.unwrap();
    suite::expect(&mut subscription, 1..2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_authenticate() {
    let Some(engine) = Shared::start().await else { return };
    let bus = |credentials: &str| {
        let url = format!("kafka://{credentials}127.0.0.1:{}", engine.node.sasl_port);
        let broker = Kafka::connect(&url, engine.options()).unwrap();
        assert!(!broker.name().contains("secret"), "{broker:?}");
        Bus::builder().engine(Arc::new(broker)).build()
    };
    let mut subscription = bus("me:secret@").subscribe::<u64>("sasl").await.unwrap();
    suite::publish(&bus("me:secret@"), "sasl", 0..3).await;
    suite::expect(&mut subscription, 0..3).await;
    let status = bus("me:secret2@").publish("sasl", &0_u64).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    assert!(!status.message().contains("secret"), "{status}");
    // The server closes a connection without credentials.
    let status = bus("").publish("sasl", &0_u64).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_apply() {
    let Some(engine) = Shared::start().await else { return };
    let bus = |options: Options| Bus::builder().engine(Arc::new(engine.connect(options))).build();
    let options = || engine.options().partitions(1);
    let one = bus(options().topics_max(1));
    let _subscription = one.subscribe::<u64>("t").await.unwrap();
    let status = one.subscribe::<u64>("u").await.map(drop).unwrap_err();
    assert!(status.message().contains("topics_max=1"), "{status}");
    // Of two ids, one is remembered.
    let few = bus(options().dedup_ids_max(1));
    let first = few.publish("ids", &0_u64).id("a").await.unwrap();
    assert_eq!(few.publish("ids", &0_u64).id("a").await.unwrap(), first);
    few.publish("ids", &1_u64).id("b").await.unwrap();
    assert_ne!(few.publish("ids", &0_u64).id("a").await.unwrap(), first);
    let never = bus(options().dedup_window(Duration::ZERO));
    let first = never.publish("never", &0_u64).id("a").await.unwrap();
    assert_ne!(never.publish("never", &0_u64).id("a").await.unwrap(), first);
    // The oldest of three is behind the records that are searched.
    suite::publish(&one, "search", 0..3).await;
    let mut subscription =
        bus(options().scan_records_max(2)).subscribe::<u64>("search").last(9).await.unwrap();
    suite::expect(&mut subscription, 1..3).await;
    // One server cannot have three replicas.
    let three = bus(Options::new().prefix(format!("{}-3", engine.prefix)).replicas(3));
    let status = three.publish("t", &0_u64).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("eplication factor"), "{status}");
    let forgets = engine.options().prefix(format!("{}-f", engine.prefix)).keep(Duration::from_millis(1));
    bus(forgets).publish("t", &0_u64).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_are_too_large_are_refused() {
    let Some(engine) = Shared::start().await else { return };
    let bus = suite::other_bus(&engine);
    let mut subscription = bus.subscribe::<String>("large").await.unwrap();
    // An entry at the limit of a bus, and five of them.
    let large = "x".repeat((1 << 20) - 16);
    bus.publish("large", &large).await.unwrap();
    let Some(Delivery::Entry(received)) = subscription.next().await.unwrap() else { panic!("a gap") };
    assert_eq!(*received, large);
    let status = bus.publish_batch("large", &vec![large; 5]).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("max.message.bytes"), "{status}");
    bus.publish("large", &"small".to_owned()).await.unwrap();
    let Some(Delivery::Entry(received)) = subscription.next().await.unwrap() else { panic!("a gap") };
    assert_eq!(*received, "small");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_found_among_others() {
    let Some(engine) = Shared::start().await else { return };
    let bus = Bus::builder().engine(Arc::new(engine.connect(engine.options().partitions(1)))).build();
    suite::publish(&bus, "rare", 0..2).await;
    let mut batch: Vec<u64> = Vec::new();
    batch.resize(1_000, 7);
    // More than one page skips, and than the first part of a search from the end.
    for _ in 0..60 {
        bus.publish_batch("common", &batch).await.unwrap();
    }
    let mut last = bus.subscribe::<u64>("rare").last(1).await.unwrap();
    let begin = Position { offset: 0, ..last.begins_after().unwrap() };
    let mut all = bus.subscribe::<u64>("rare").after(begin).await.unwrap();
    suite::publish(&bus, "rare", 2..3).await;
    suite::expect(&mut last, 1..3).await;
    assert!(matches!(suite::next(&mut all).await, Delivery::Recovered));
    suite::expect(&mut all, 0..3).await;
    let page = bus.history::<u64>("rare").limit(2).await.unwrap();
    assert!(page.deliveries.len() == 2 && !page.has_more, "{page:?}");
}
