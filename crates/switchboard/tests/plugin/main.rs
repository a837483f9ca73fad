//! Plugins: connections that a server hands over follow its rules, are counted, and end with it.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod calls;
mod notes;
mod routes;
#[path = "../support/mod.rs"]
mod support;

use notes::{NOTES, Notes};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use support::{Probe, mirror, raw::soon};
use switchboard::{Address, Channel, Limit, Running, Runtime, Server, Status, StopOptions};
use switchboard_net::net::{Dialling, Io, dial};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

/// A subscriber, as a program of the protocol would be.
struct Subscriber(BufReader<Box<dyn Io>>);

impl Subscriber {
    async fn connect(url: &str, dialling: &Dialling) -> Subscriber {
        let address: Address = url.parse().unwrap();
        let mut io = dial(&address, dialling, Duration::from_secs(10)).await.unwrap();
        io.write_all(b"notes\n").await.unwrap();
        io.flush().await.unwrap();
        Subscriber(BufReader::new(io))
    }

    /// A subscriber that the server has welcomed.
    async fn welcome(running: &Running) -> Subscriber {
        let mut subscriber = Subscriber::connect(&running.url(), &Dialling::default()).await;
        assert_eq!(subscriber.line().await, "welcome\n");
        subscriber
    }

    /// The next line; empty at the end.
    async fn line(&mut self) -> String {
        let mut line = String::new();
        // A connection that breaks has ended, too.
        let _ = soon(self.0.read_line(&mut line)).await;
        line
    }
}

fn server(notes: &Notes) -> Server {
    Server::new().add(Probe::default()).plugin(notes.clone())
}

async fn start(notes: &Notes, address: &str) -> Running {
    server(notes).listen(address).start().await.unwrap()
}

/// Waits until the server counts so many connections.
async fn until_connections(running: &Running, wanted: u64) {
    let counted = async {
        while running.stats().connections != wanted {
            tokio::task::yield_now().await;
        }
    };
    soon(counted).await;
}

#[tokio::test]
async fn subscribers_and_callers_share_a_port() {
    let folder = std::env::temp_dir().join(format!("switchboard-plugin-{}", std::process::id()));
    for address in ["tcp://127.0.0.1:0", &format!("unix:{}", folder.display()), "memory://plugin"] {
        let notes = Notes::default();
        let running = start(&notes, address).await;
        let channel = Channel::connect(&running.url()).await.unwrap();
        let mut subscribers = Vec::new();
        for _ in 0..3 {
            subscribers.push(Subscriber::welcome(&running).await);
        }
        assert_eq!(mirror(&channel, vec![1; 10]).await.unwrap(), vec![1; 10]);
        for at in 0..3 {
            notes.publish(&format!("note {at}"));
        }
        for subscriber in &mut subscribers {
            for at in 0..3 {
                assert_eq!(subscriber.line().await, format!("> note {at}\n"), "{address}");
            }
        }
        assert_eq!(notes.engines(), 1, "the test has one worker");
        until_connections(&running, 4).await;
        let stats = running.stats();
        let counted = stats.protocols.iter().find(|protocol| protocol.protocol == "notes").unwrap();
        assert_eq!((counted.open, counted.connections), (3, 3), "{counted:?}");
        drop(subscribers);
        until_connections(&running, 1).await;
        assert_eq!(mirror(&channel, vec![2; 10]).await.unwrap(), vec![2; 10]);
        drop(channel);
        assert!(running.stop(StopOptions::new()).await.is_clean());
    }
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn subscribers_inside_tls() {
    use switchboard_net::net::tls::{Connector, TlsOptions};

    let authority = support::certificates::Authority::new("plugin authority");
    let notes = Notes::default();
    let tls = authority.issue("127.0.0.1").tls();
    let running = server(&notes).listen_tls("tcp://127.0.0.1:0", tls).start().await.unwrap();
    let options = TlsOptions { ca: Some(authority.ca()), ..TlsOptions::default() };
    let tls = Some(Arc::new(Connector::new(options, &[]).unwrap()));
    let dialling = Dialling { tls, ..Dialling::default() };
    let mut subscriber = Subscriber::connect(&running.url(), &dialling).await;
    assert_eq!(subscriber.line().await, "welcome\n");
    let long = "x".repeat(300_000);
    notes.publish(&long);
    assert_eq!(subscriber.line().await, format!("> {long}\n"));
    let stopping = tokio::spawn(running.stop(StopOptions::new()));
    assert_eq!(subscriber.line().await, "bye\n");
    assert_eq!(subscriber.line().await, "");
    drop(subscriber);
    assert!(soon(stopping).await.unwrap().is_clean());
}

#[test]
fn each_worker_has_an_engine() {
    Runtime::new().workers(3).run(async {
        let notes = Notes::default();
        let running = start(&notes, "tcp://127.0.0.1:0").await;
        let mut subscribers = Vec::new();
        for _ in 0..9 {
            subscribers.push(Subscriber::welcome(&running).await);
        }
        // Subscribers count as connections of their worker.
        assert_eq!(notes.engines(), 3);
        notes.publish("all");
        for subscriber in &mut subscribers {
            assert_eq!(subscriber.line().await, "> all\n");
        }
        drop(subscribers);
        assert!(running.stop(StopOptions::new()).await.is_clean());
    });
}

#[tokio::test]
async fn rules_for_connections_apply() {
    let ended = Arc::new(AtomicUsize::new(0));
    let (notes, ends) = (Notes::default(), ended.clone());
    let server = server(&notes).limit(Limit::ConnectionsMax, 2).on_disconnect(move |peer| {
        assert!(peer.address.starts_with("tcp://127.0.0.1"), "{peer:?}");
        ends.fetch_add(1, Ordering::Relaxed);
    });
    let running = server.listen("tcp://127.0.0.1:0").start().await.unwrap();
    let (first, _second) = (Subscriber::welcome(&running).await, Subscriber::welcome(&running).await);
    until_connections(&running, 2).await;
    let mut third = Subscriber::connect(&running.url(), &Dialling::default()).await;
    assert_eq!(third.line().await, "", "connections_max is 2");
    drop(first);
    until_connections(&running, 1).await;
    assert_eq!(ended.load(Ordering::Relaxed), 1);
    Subscriber::welcome(&running).await;

    let refusing = Server::new().plugin(notes.clone()).on_connect(|_| Err(Status::permission_denied("no")));
    let denying = Server::new().plugin(notes.clone()).deny_addresses(["127.0.0.0/8"]);
    let elsewhere = Server::new().plugin(notes.clone()).wires(["native"]);
    for server in [refusing, denying, elsewhere] {
        let running = server.add(Probe::default()).listen("tcp://127.0.0.1:0").start().await.unwrap();
        let mut subscriber = Subscriber::connect(&running.url(), &Dialling::default()).await;
        assert_eq!(subscriber.line().await, "");
    }
}

#[tokio::test]
async fn subscribers_end_with_the_server() {
    let notes = Notes::default();
    let running = start(&notes, "tcp://127.0.0.1:0").await;
    let mut subscriber = Subscriber::welcome(&running).await;
    running.kill();
    assert_eq!(subscriber.line().await, "");

    // One that reads nothing is closed in the end.
    let running = start(&notes, "tcp://127.0.0.1:0").await;
    let mut subscriber = Subscriber::welcome(&running).await;
    let options = StopOptions::new().drain(Duration::ZERO).close(Duration::ZERO);
    let stopped = soon(running.stop(options)).await;
    let left: Vec<_> = stopped.connections.iter().map(|left| (left.protocol, left.connections)).collect();
    assert!(left.is_empty() || left == [("notes", 1)], "{left:?}");
    while !subscriber.line().await.is_empty() {}
}

#[tokio::test]
async fn a_page_lists_subscribers() {
    let notes = Notes::default();
    let server = server(&notes).admin("tcp://127.0.0.1:0").listen("tcp://127.0.0.1:0");
    let running = server.start().await.unwrap();
    let _subscriber = Subscriber::welcome(&running).await;
    let page = async |path: &str| {
        let Some(Address::Tcp(host, port)) = running.admin() else { panic!("an admin listener on TCP") };
        let mut stream = tokio::net::TcpStream::connect((host.as_str(), *port)).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        soon(stream.read_to_string(&mut response)).await.unwrap();
        response
    };
    let response = page("/subscribers?format=json").await;
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["wires"][0]["connections"], 1, "{body}");
    assert_eq!(body["subscribers"][0]["sources"], 1, "{body}");
    assert!(body["subscribers"][0]["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{body}");
    assert!(page("/subscribers?plugin=bus").await.contains("it has: notes"));
    assert!(page("/subscribers?from=x").await.contains("expected WORKER.RECORD"));
}

#[tokio::test]
async fn a_wire_has_one_server() {
    let twice = server(&Notes::default()).plugin(Notes::default()).listen("tcp://127.0.0.1:0");
    let text = twice.start().await.err().unwrap().to_string();
    assert!(text.contains("cannot serve the wire notes: another plugin does"), "{text}");
    assert_eq!(NOTES.name, "notes");
}
