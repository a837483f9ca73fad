//! A real nats-server with JetStream, in the suite of all engines.
#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod suite;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};
use suite::{
    Engine, HISTORY, Path, broker_suite,
    forwarder::{Forwarder, Target},
    process::{Server, find},
};
use switchboard_broker::{Nats, nats::Options};
use switchboard_message::{
    Bus, GapReason, Topic,
    broker::{Broker, LiveEvent, Mailbox},
};
use switchboard_wire::Code;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::Command,
};

/// A server on a port that it chooses itself.
struct Installed {
    program: PathBuf,
    folder: Folder,
    server: Option<Server>,
    port: u16,
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
    async fn run(&mut self) {
        let ports = self.folder.0.join("ports");
        let _ = std::fs::remove_dir_all(&ports);
        std::fs::create_dir(&ports).expect("a folder");
        let mut command = Command::new(&self.program);
        command.args(["-a", "127.0.0.1", "-p", "-1", "-js", "-sd"]).arg(self.folder.0.join("store"));
        command.arg("--ports_file_dir").arg(&ports);
        let server = Server::start(&mut command, || async {
            let Some(port) = port(&ports) else { return false };
            // JetStream responds as soon as it has read its files.
            request(port, "$JS.API.INFO", "").await.is_some_and(|response| response.contains("\"streams\""))
        });
        self.server = Some(server.await);
        self.port = port(&ports).expect("it was there");
        self.disturbed.retarget(Target::Tcp(self.port));
        self.undisturbed.retarget(Target::Tcp(self.port));
    }
}

/// Reads the port from the file that the server writes: `{"nats":["nats://127.0.0.1:PORT"]}`.
fn port(folder: &PathBuf) -> Option<u16> {
    let file = std::fs::read_dir(folder).ok()?.filter_map(Result::ok).next()?;
    let text = std::fs::read_to_string(file.path()).ok()?;
    let digits = text.split("127.0.0.1:").nth(1)?;
    digits.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// Sends a request as any client would; returns the response.
async fn request(port: u16, subject: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let length = body.len();
    let text = format!(
        "CONNECT {{\"verbose\":false,\"headers\":true,\"no_responders\":true}}\r\nSUB reply 1\r\n\
         PUB {subject} reply {length}\r\n{body}\r\nPING\r\n"
    );
    stream.write_all(text.as_bytes()).await.ok()?;
    let (mut response, mut bytes) = (String::new(), vec![0; 4096]);
    loop {
        let length = stream.read(&mut bytes).await.ok().filter(|length| *length > 0)?;
        response += &String::from_utf8_lossy(&bytes[..length]);
        let message = response.split("MSG reply").nth(1);
        if let Some(message) = message.filter(|message| message.matches("\r\n").count() >= 2) {
            return Some(message.to_owned());
        }
    }
}

fn connect(port: u16) -> Arc<dyn Broker> {
    let url = format!("nats://127.0.0.1:{port}");
    Arc::new(Nats::connect(&url, Options::new().history(HISTORY as usize)).expect("a good address"))
}

impl Engine for Installed {
    async fn start() -> Option<Installed> {
        let install = "go install github.com/nats-io/nats-server/v2@v2.12.2, or apt-get install nats-server";
        let program = find("SWITCHBOARD_NATS_SERVER", "nats-server", install)?;
        let folder = std::env::temp_dir().join(format!("swb-nats-{:x}", fastrand::u64(..)));
        std::fs::create_dir(&folder).expect("a folder");
        let (disturbed, undisturbed) =
            (Forwarder::start(Target::Tcp(0)).await, Forwarder::start(Target::Tcp(0)).await);
        let folder = Folder(folder);
        let mut engine = Installed { program, folder, server: None, port: 0, disturbed, undisturbed };
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
        let response = request(self.port, "$JS.API.STREAM.DELETE.swb", "").await.expect("a response");
        assert!(response.contains("\"success\":true"), "{response}");
    }
}

broker_suite!(Installed);

#[tokio::test]
async fn a_stream_of_others_is_refused() {
    let Some(engine) = Installed::start().await else { return };
    let config = r#"{"name":"swb","subjects":["swb.log.>"],"storage":"memory"}"#;
    let response = request(engine.port, "$JS.API.STREAM.CREATE.swb", config).await.unwrap();
    assert!(response.contains("\"created\""), "{response}");
    let status = engine.bus().publish("t", &0_u64).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("choose another prefix"), "{status}");
}

#[tokio::test]
async fn options_apply() {
    let Some(engine) = Installed::start().await else { return };
    let url = format!("nats://127.0.0.1:{}", engine.undisturbed.port);
    let options = || {
        let options = Options::new().prefix("other").history(2).keep(Duration::from_secs(60)).in_memory();
        options.dedup_window(Duration::from_secs(7)).topics_max(1)
    };
    let bus = Bus::builder().engine(Arc::new(Nats::connect(&url, options()).unwrap())).build();
    bus.publish("t", &0_u64).await.unwrap();
    let info = request(engine.port, "$JS.API.STREAM.INFO.other", "").await.unwrap();
    for part in [
        r#""max_msgs_per_subject":2"#,
        r#""max_age":60000000000"#,
        r#""duplicate_window":7000000000"#,
        r#""storage":"memory""#,
    ] {
        assert!(info.contains(part), "{part}: {info}");
    }
    let _one = bus.subscribe::<u64>("t").await.unwrap();
    let status = bus.subscribe::<u64>("u").await.map(drop).unwrap_err();
    assert!(status.message().contains("topics_max=1"), "{status}");
    // One server cannot have three replicas.
    let three = Nats::connect(&url, Options::new().prefix("three").replicas(3)).unwrap();
    let status = Bus::builder().engine(Arc::new(three)).build().publish("t", &0_u64).await.unwrap_err();
    assert!(status.message().contains("replicas"), "{status}");
}

#[tokio::test]
async fn messages_of_others_are_no_entries() {
    let Some(engine) = Installed::start().await else { return };
    let bus = engine.bus();
    let mut subscription = bus.subscribe::<u64>("foreign").await.unwrap();
    bus.publish("foreign", &0_u64).await.unwrap();
    // One that was not stored, and one that was and is no record.
    let mut stream = TcpStream::connect(("127.0.0.1", engine.port)).await.unwrap();
    let text = "CONNECT {\"verbose\":false}\r\nPUB swb.live.foreign 5\r\nhello\r\nPUB swb.log.foreign 5\r\nhello\r\n";
    stream.write_all(text.as_bytes()).await.unwrap();
    suite::expect(&mut subscription, 0..1).await;
    assert_eq!(suite::next_gap(&mut subscription).await, (2..3, GapReason::Lost));
    bus.publish("foreign", &1_u64).await.unwrap();
    suite::expect(&mut subscription, 1..2).await;
}

#[tokio::test]
async fn errors_contain_no_password() {
    let broker = switchboard_broker::connect("nats://me:secret@127.0.0.1:1").unwrap();
    assert!(!broker.name().contains("secret"), "{broker:?}");
    let status = Bus::builder().engine(broker).build().publish("t", &0_u64).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(!status.message().contains("secret") && status.message().contains("127.0.0.1:1"), "{status}");
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

#[tokio::test]
async fn a_stream_that_lost_its_end_is_another_epoch() {
    let Some(mut engine) = Installed::start().await else { return };
    let (bus, other) = (engine.bus(), engine.bus());
    let mut subscription = bus.subscribe::<u64>("lost").await.unwrap();
    suite::publish(&other, "lost", 0..3).await;
    suite::expect(&mut subscription, 0..3).await;
    engine.kill().await;
    let (store, saved) = (engine.folder.0.join("store"), engine.folder.0.join("saved"));
    copy(&store, &saved);
    engine.restart().await;
    suite::publish(&engine.bus(), "lost", 3..6).await;
    suite::expect(&mut subscription, 3..6).await;
    // As a disk that had three of them when the power was lost.
    engine.kill().await;
    std::fs::remove_dir_all(&store).unwrap();
    copy(&saved, &store);
    engine.restart().await;
    assert_eq!(suite::next_gap(&mut subscription).await.1, GapReason::Epoch);
    suite::expect(&mut subscription, 0..3).await;
    suite::publish(&engine.bus(), "lost", 10..16).await;
    suite::expect(&mut subscription, 10..16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_topic_does_not_interrupt_others() {
    const ENTRIES: u64 = 3_000;
    let Some(engine) = Installed::start().await else { return };
    let (broker, other) = (engine.broker(), suite::other_bus(&engine));
    let (slow, quick) = (Topic::new("slow").unwrap(), Topic::new("quick").unwrap());
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Mutex::new(held);
    let (events, mut received) = tokio::sync::mpsc::unbounded_channel();
    let of_quick = events.clone();
    let to_quick = Mailbox::new(move |event| _ = of_quick.send(("quick", event)));
    let to_slow = Mailbox::new(move |event| {
        // Does not read before the test has published everything.
        tokio::task::block_in_place(|| _ = held.lock().unwrap().recv());
        _ = events.send(("slow", event));
    });
    broker.subscribe(&slow, None, to_slow).await.unwrap();
    broker.subscribe(&quick, None, to_quick).await.unwrap();
    suite::publish(&other, "slow", 0..ENTRIES).await;
    // It arrives after the others.
    suite::publish(&other, "quick", 0..1).await;
    assert!(matches!(received.recv().await, Some(("quick", LiveEvent::Entry(_)))));
    drop(release);
    let mut entries = 0;
    loop {
        let next = tokio::time::timeout(Duration::from_secs(30), received.recv()).await;
        match next.unwrap_or_else(|_| panic!("no end after {entries} entries")).unwrap() {
            ("slow", LiveEvent::Entry(_)) => entries += 1,
            ("slow", LiveEvent::Interrupted(_)) => break,
            (topic, event) => panic!("{topic}: {event:?}"),
        }
    }
    assert!(entries < ENTRIES, "nothing was dropped");
    suite::publish(&other, "quick", 1..2).await;
    let next = tokio::time::timeout(Duration::from_secs(30), received.recv()).await;
    assert!(matches!(next.unwrap(), Some(("quick", LiveEvent::Entry(_)))));
}
