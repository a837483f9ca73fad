//! A bridge between real engines: Redis and Kafka.

use super::suite::{
    expect,
    kafka_node::Node,
    process::{Server, find},
    publish,
};
use std::{path::Path, sync::Arc};
use switchboard_broker::{Kafka, Redis, kafka, redis};
use switchboard_message::{Bridge, Bus};
use tokio::{net::UnixStream, process::Command, task::block_in_place};

/// Starts Redis on a socket in a folder.
async fn start_redis(program: &Path, folder: &Path) -> Server {
    let socket = folder.join("redis.sock");
    let mut command = Command::new(program);
    command.args(["--port", "0", "--save", "", "--appendonly", "yes", "--unixsocket"]).arg(&socket);
    Server::start(command.arg("--dir").arg(folder), || async { UnixStream::connect(&socket).await.is_ok() })
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_and_kafka_have_the_same_entries() {
    let Some(program) = find("SWITCHBOARD_REDIS", "redis-server", "apt-get install redis-server") else {
        return;
    };
    let Some(node) = block_in_place(Node::shared) else { return };
    let folder = std::env::temp_dir().join(format!("swb-bridge-{:x}", fastrand::u64(..)));
    std::fs::create_dir(&folder).unwrap();
    let mut server = start_redis(&program, &folder).await;
    let url = format!("redis+unix://{}", folder.join("redis.sock").display());
    let redis = || {
        let broker = Redis::connect(&url, redis::Options::new()).unwrap();
        Bus::builder().engine(Arc::new(broker)).build()
    };
    let kafka = || {
        let options = kafka::Options::new().prefix("bridge").partitions(2);
        let broker = Kafka::connect(&format!("kafka://127.0.0.1:{}", node.port), options).unwrap();
        Bus::builder().engine(Arc::new(broker)).build()
    };
    // With buses of its own, as in a process of its own.
    let start = || async {
        Bridge::builder("redis", &redis(), "kafka", &kafka()).to("up").from("down").start().await
    };
    let (at_redis, at_kafka) = (redis(), kafka());
    let mut up = at_kafka.subscribe::<u64>("up").await.unwrap();
    let mut down = at_redis.subscribe::<u64>("down").await.unwrap();
    let mut bridge = start().await.unwrap();
    for round in (0..60).step_by(20) {
        publish(&at_redis, "up", round..round + 10).await;
        publish(&at_kafka, "down", round..round + 10).await;
        drop(bridge);
        publish(&at_redis, "up", round + 10..round + 20).await;
        publish(&at_kafka, "down", round + 10..round + 20).await;
        bridge = start().await.unwrap();
        expect(&mut up, round..round + 20).await;
        expect(&mut down, round..round + 20).await;
    }
    // Redis ends while entries are on their way, and continues with its files.
    publish(&at_kafka, "down", 60..70).await;
    server.kill().await;
    publish(&at_kafka, "down", 70..80).await;
    server = start_redis(&program, &folder).await;
    expect(&mut down, 60..80).await;
    assert_eq!((bridge.stats().gaps, bridge.stats().refused), (0, 0));
    server.kill().await;
    let _ = std::fs::remove_dir_all(&folder);
}
