//! A real Redis, in the suite of all engines.
#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod suite;

use std::{path::PathBuf, sync::Arc, time::Duration};
use suite::{
    Engine, HISTORY, Path, broker_suite,
    forwarder::{Forwarder, Target},
    process::{Server, find},
};
use switchboard_broker::{Redis, redis::Options};
use switchboard_message::{Bus, Delivery, GapReason, broker::Broker};
use switchboard_wire::Code;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    process::Command,
};

/// A server on a socket of a folder of its own: there is no port that others could take.
struct Installed {
    program: PathBuf,
    folder: Folder,
    server: Option<Server>,
    disturbed: Forwarder,
    undisturbed: Forwarder,
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Installed {
    fn socket(&self) -> PathBuf {
        self.folder.0.join("redis.sock")
    }

    async fn run(&mut self) {
        let (socket, folder) = (self.socket(), &self.folder.0);
        let _ = std::fs::remove_file(&socket);
        let mut command = Command::new(&self.program);
        command
            .args([
                "--port",
                "0",
                "--save",
                "",
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
                "--unixsocket",
            ])
            .arg(&socket);
        command.arg("--dir").arg(folder);
        let server =
            Server::start(&mut command, || async { send(&socket, "PING").await == Some("+PONG".into()) });
        self.server = Some(server.await);
    }
}

/// Sends a command; returns the first line of the response.
async fn send(socket: &PathBuf, command: &str) -> Option<String> {
    let mut stream = UnixStream::connect(socket).await.ok()?;
    stream.write_all(format!("{command}\r\n").as_bytes()).await.ok()?;
    stream.shutdown().await.ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await.ok()?;
    response.lines().next().map(ToOwned::to_owned)
}

fn connect(port: u16) -> Arc<dyn Broker> {
    let url = format!("redis://127.0.0.1:{port}/");
    Arc::new(Redis::connect(&url, Options::new().history(HISTORY as usize)).expect("a good address"))
}

impl Engine for Installed {
    async fn start() -> Option<Installed> {
        let program = find("SWITCHBOARD_REDIS", "redis-server", "apt-get install redis-server")?;
        let number = fastrand::u64(..);
        let folder = std::env::temp_dir().join(format!("swb-redis-{number:x}"));
        std::fs::create_dir(&folder).expect("a folder");
        let target = Target::Unix(folder.join("redis.sock"));
        let (disturbed, undisturbed) =
            (Forwarder::start(target.clone()).await, Forwarder::start(target).await);
        let mut engine = Installed { program, folder: Folder(folder), server: None, disturbed, undisturbed };
        engine.run().await;
        Some(engine)
    }

    fn broker(&self) -> Arc<dyn Broker> {
        connect(self.disturbed.port)
    }

    fn undisturbed(&self) -> Arc<dyn Broker> {
        connect(self.undisturbed.port)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn set(&self, path: Path) {
        self.disturbed.set(path);
    }

    async fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill().await;
        }
    }

    async fn restart(&mut self) {
        self.run().await;
    }

    async fn erase(&self) {
        assert_eq!(send(&self.socket(), "FLUSHALL").await.as_deref(), Some("+OK"));
    }
}

broker_suite!(Installed);

/// Sends a command of words, which may contain spaces and braces.
async fn words(engine: &Installed, words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
    send(&engine.socket(), &quoted.join(" ")).await.expect("a response")
}

#[tokio::test]
async fn a_head_that_goes_back_is_another_epoch() {
    let Some(engine) = Installed::start().await else { return };
    let (bus, other) = (engine.bus(), suite::other_bus(&engine));
    let mut subscription = bus.subscribe::<u64>("back").await.unwrap();
    suite::publish(&other, "back", 0..5).await;
    suite::expect(&mut subscription, 0..5).await;
    engine.set(Path::Cut);
    // As a replica that had received two of them.
    assert_eq!(words(&engine, &["HSET", "swb:{back}:m", "head", "2"]).await, ":0");
    assert_eq!(words(&engine, &["DEL", "swb:{back}:e"]).await, ":1");
    engine.set(Path::Open);
    assert_eq!(suite::next_gap(&mut subscription).await, (1..3, GapReason::Epoch));
    suite::publish(&other, "back", 5..7).await;
    suite::expect(&mut subscription, 5..7).await;
}

#[tokio::test]
async fn a_lost_end_that_was_replaced_is_another_epoch() {
    let Some(engine) = Installed::start().await else { return };
    let (bus, other) = (engine.bus(), suite::other_bus(&engine));
    let mut subscription = bus.subscribe::<u64>("lost").await.unwrap();
    suite::publish(&other, "lost", 0..5).await;
    suite::expect(&mut subscription, 0..5).await;
    engine.set(Path::Cut);
    // As a server that had written two of them when it crashed, and has more than before by now.
    assert_eq!(words(&engine, &["HSET", "swb:{lost}:m", "head", "2"]).await, ":0");
    assert_eq!(words(&engine, &["DEL", "swb:{lost}:e"]).await, ":1");
    suite::publish(&other, "lost", 10..16).await;
    engine.set(Path::Open);
    assert_eq!(suite::next_gap(&mut subscription).await, (1..3, GapReason::Epoch));
    suite::expect(&mut subscription, 10..16).await;
}

#[tokio::test]
async fn what_others_write_is_no_entry() {
    let Some(engine) = Installed::start().await else { return };
    let bus = engine.bus();
    let mut subscription = bus.subscribe::<u64>("foreign").await.unwrap();
    let first = bus.publish("foreign", &0_u64).await.unwrap();
    assert_eq!(words(&engine, &["PUBLISH", "swb:{foreign}", "hello"]).await, ":1");
    assert!(words(&engine, &["XADD", "swb:{foreign}:e", "2-0", "field", "junk"]).await.starts_with('$'));
    assert_eq!(words(&engine, &["HSET", "swb:{foreign}:m", "head", "2"]).await, ":0");
    bus.publish("foreign", &2_u64).await.unwrap();
    suite::expect(&mut subscription, 0..1).await;
    assert_eq!(suite::next_gap(&mut subscription).await, (2..3, GapReason::Lost));
    suite::expect(&mut subscription, 2..3).await;
    let mut late = bus.subscribe::<u64>("foreign").after(first).await.unwrap();
    assert!(matches!(suite::next(&mut late).await, Delivery::Recovered));
    assert_eq!(suite::next_gap(&mut late).await, (2..3, GapReason::Lost));
    // A key of another type is an error that an operator has to mend.
    assert_eq!(words(&engine, &["SET", "swb:{typed}:m", "1"]).await, "+OK");
    let status = bus.publish("typed", &0_u64).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
}

#[tokio::test]
async fn options_apply() {
    let Some(engine) = Installed::start().await else { return };
    let url = format!("redis://127.0.0.1:{}", engine.undisturbed.port);
    let options = Options::new().prefix("other").history(2).dedup_window(Duration::ZERO).topics_max(1);
    let broker = Redis::connect(&url, options.keep(Duration::from_secs(60))).unwrap();
    assert!(!broker.capabilities().drops_duplicates);
    let bus = Bus::builder().engine(Arc::new(broker)).build();
    let first = bus.publish("t", &0_u64).id("id").await.unwrap();
    assert_ne!(bus.publish("t", &1_u64).id("id").await.unwrap(), first);
    bus.publish("t", &2_u64).await.unwrap();
    assert_eq!(words(&engine, &["XLEN", "other:{t}:e"]).await, ":2");
    let left: i64 = words(&engine, &["PTTL", "other:{t}:m"]).await[1..].parse().unwrap();
    assert!((1..=60_000).contains(&left), "{left}");
    let _one = bus.subscribe::<u64>("t").await.unwrap();
    let status = bus.subscribe::<u64>("u").await.map(drop).unwrap_err();
    assert!(status.message().contains("topics_max=1"), "{status}");
    assert_eq!(status.code(), Code::ResourceExhausted);
    // The topics of another prefix are others.
    let status = Redis::connect(&url, Options::new().prefix("a{b}")).map(drop).unwrap_err();
    assert!(status.message().contains("has a brace"), "{status}");
    assert_eq!(words(&engine, &["EXISTS", "swb:{t}:m"]).await, ":0");
}

#[tokio::test]
async fn errors_contain_no_password() {
    let broker = switchboard_broker::connect("redis://me:secret@127.0.0.1:1/").unwrap();
    assert!(!broker.name().contains("secret"), "{broker:?}");
    let status = Bus::builder().engine(broker).build().publish("t", &0_u64).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(!status.message().contains("secret") && status.message().contains("127.0.0.1:1"), "{status}");
}
