//! How a server begins and ends: hooks, readiness, notice, drain, and the report of what was aborted.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use support::{raw::soon, *};
use switchboard::{Channel, Code, Running, Server, Status, StopOptions};
use tokio::sync::Notify;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);

/// A call that waits until its server ends it.
fn hang(channel: &Channel) -> tokio::task::JoinHandle<Status> {
    let channel = channel.clone();
    tokio::spawn(async move {
        let codec = channel.codec(switchboard::Codec::Postcard);
        let call = channel.unary(&HANG, codec, Ok(bytes::Bytes::new()), |_, _| Ok(()));
        call.await.map(drop).unwrap_err()
    })
}

async fn in_flight(running: &Running, calls: u64) {
    soon(async {
        while running.stats().calls_in_flight != calls {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[test]
fn servers_may_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Server>();
    shared::<Running>();
}

#[tokio::test]
async fn server_without_calls_stops_at_once_and_clean() {
    let (running, channel, _) = served("tcp://127.0.0.1:0").await;
    mirror(&channel, vec![1; 10]).await.unwrap();
    let stopped = soon(running.stop(StopOptions::new().drain(LONG).close(LONG))).await;
    assert!(stopped.is_clean(), "{stopped}");
}

#[tokio::test]
async fn calls_that_do_not_end_get_unavailable_and_are_reported() {
    let (running, channel, seen) = served("tcp://127.0.0.1:0").await;
    let calls = [hang(&channel), hang(&channel)];
    seen.until(|seen| seen.hanging() == 2).await;
    in_flight(&running, 2).await;
    let stopped = soon(running.stop(StopOptions::new().drain(SHORT).close(LONG))).await;
    let aborted: Vec<_> =
        stopped.calls.iter().map(|aborted| (aborted.method.as_str(), aborted.wire, aborted.calls)).collect();
    assert_eq!(aborted, [("test.Probe/Hang", "native", 2)]);
    // Their end was written: no connection had to be aborted.
    assert!(stopped.connections.is_empty(), "{stopped}");
    for call in calls {
        let status = soon(call).await.unwrap();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains("going away"), "{status}");
    }
    assert!(stopped.to_string().contains("aborted 2 calls of test.Probe/Hang (native)"), "{stopped}");
}

#[cfg(feature = "http")]
#[tokio::test]
async fn calls_on_http_get_unavailable_too() {
    for wire in ["grpc", "connect", "grpc-web", "jsonrpc"] {
        let (running, _, seen) = served("tcp://127.0.0.1:0").await;
        let channel = Channel::connect(&format!("{}?wire={wire}", running.url())).await.unwrap();
        let call = hang(&channel);
        soon(seen.until(|seen| seen.hanging() == 1)).await;
        in_flight(&running, 1).await;
        let stopped = soon(running.stop(StopOptions::new().drain(SHORT).close(LONG))).await;
        assert_eq!(
            stopped.calls.iter().map(|aborted| (aborted.wire, aborted.calls)).collect::<Vec<_>>(),
            [(wire, 1)]
        );
        assert!(stopped.connections.is_empty(), "{wire}: {stopped}");
        let status = soon(call).await.unwrap();
        assert_eq!(status.code(), Code::Unavailable, "{wire}: {status}");
        assert!(status.message().contains("going away"), "{wire}: {status}");
    }
}

#[tokio::test]
async fn connections_at_the_hard_limit_are_closed_and_reported() {
    let (running, channel, seen) = served("tcp://127.0.0.1:0").await;
    let call = hang(&channel);
    seen.until(|seen| seen.hanging() == 1).await;
    let stopped = soon(running.stop(StopOptions::new().drain(LONG).close(SHORT))).await;
    let aborted: Vec<_> =
        stopped.connections.iter().map(|aborted| (aborted.protocol, aborted.connections)).collect();
    assert_eq!(aborted, [("native", 1)]);
    assert_eq!(soon(call).await.unwrap().code(), Code::Unavailable);
    seen.until(|seen| seen.hanging() == 0).await;
}

#[tokio::test]
async fn during_the_notice_callers_are_served_as_before() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let left = Arc::new(Notify::new());
    let (note, deregistered) = (events.clone(), left.clone());
    let server = Server::new()
        .add(Probe::default())
        .listen("tcp://127.0.0.1:0")
        .notice(Duration::from_millis(300))
        .on_stop(move || async move {
            note.lock().unwrap().push("left");
            deregistered.notify_one();
        });
    let running = server.start().await.unwrap();
    let url = running.url();
    let stopping = tokio::spawn(running.stop(StopOptions::new().drain(LONG).close(LONG)));
    soon(left.notified()).await;
    // A new caller that has not heard of it.
    let late = Channel::connect(&url).await.unwrap();
    mirror(&late, vec![1; 10]).await.unwrap();
    assert!(soon(stopping).await.unwrap().is_clean());
    assert_eq!(*events.lock().unwrap(), ["left"]);
    assert!(Channel::connect(&url).await.is_err());
}

#[tokio::test]
async fn hook_that_never_ends_does_not_hold_the_stop() {
    let server = Server::new().add(Probe::default()).listen(memory()).on_stop(std::future::pending);
    let running = server.start().await.unwrap();
    assert!(soon(running.stop(StopOptions::new().drain(SHORT).close(SHORT))).await.is_clean());
}

#[tokio::test]
async fn hooks_run_in_order_and_their_failure_is_that_of_the_start() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let (first, second) = (events.clone(), events.clone());
    let server = Server::new()
        .add(Probe::default())
        .listen("tcp://127.0.0.1:0")
        .on_start(move |addresses| async move {
            second.lock().unwrap().push(format!("started at {} address", addresses.len()));
            Ok(())
        })
        .warm_up(move || async move {
            first.lock().unwrap().push("warm".to_owned());
            Ok(())
        });
    let _running = server.start().await.unwrap();
    assert_eq!(*events.lock().unwrap(), ["warm", "started at 1 address"]);
    let cold = Server::new()
        .add(Probe::default())
        .listen("tcp://127.0.0.1:0")
        .warm_up(|| async { Err(Status::unavailable("the cache is empty")) });
    let error = cold.start().await.err().unwrap();
    assert!(
        error.to_string().contains("warm_up") && error.to_string().contains("the cache is empty"),
        "{error}"
    );
}

#[cfg(feature = "handover")]
#[tokio::test]
async fn successor_takes_over_the_listeners_and_no_connection_is_refused() {
    let path = std::env::temp_dir().join(format!("switchboard-handover-{}", std::process::id()));
    let server = || Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0").handover(&path);
    let first = soon(server().start()).await.unwrap();
    let url = first.url();
    let old = Channel::connect(&url).await.unwrap();
    mirror(&old, vec![1; 10]).await.unwrap();
    // One that fails on its way changes nothing.
    let failing = server().warm_up(|| async { Err(Status::unavailable("no")) });
    assert!(soon(failing.start()).await.is_err());
    mirror(&Channel::connect(&url).await.unwrap(), vec![1; 10]).await.unwrap();

    let second = soon(server().start()).await.unwrap();
    assert_eq!(second.url(), url);
    soon(first.handed_over()).await;
    let stopping = tokio::spawn(first.stop(StopOptions::new().drain(LONG).close(LONG)));
    for _ in 0..50 {
        mirror(&Channel::connect(&url).await.unwrap(), vec![1; 10]).await.unwrap();
    }
    // A channel of before moves on.
    mirror(&old, vec![1; 10]).await.unwrap();
    assert!(soon(stopping).await.unwrap().is_clean());
    mirror(&old, vec![1; 10]).await.unwrap();

    // And on to the next.
    let third = soon(server().start()).await.unwrap();
    soon(second.handed_over()).await;
    soon(second.stop(StopOptions::new().drain(LONG).close(LONG))).await;
    assert_eq!(third.url(), url);
    mirror(&old, vec![1; 10]).await.unwrap();
    soon(third.stop(StopOptions::new().drain(LONG).close(LONG))).await;
    soon(async {
        while Channel::connect(&url).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let _ = std::fs::remove_file(path);
}

#[cfg(feature = "http")]
mod health {
    use super::*;
    use switchboard::Address;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn status_of(address: &Address, path: &str) -> u16 {
        let Address::Tcp(host, port) = address else { panic!("{address}") };
        let mut stream = tokio::net::TcpStream::connect((host.as_str(), *port)).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        soon(stream.read_to_string(&mut answer)).await.unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }

    #[tokio::test]
    async fn probes_follow_the_server_from_warm_up_to_stop() {
        // A free port of this moment; the warm-up needs to know where to ask.
        let path = std::env::temp_dir().join(format!("switchboard-admin-{}", std::process::id()));
        let socket = path.display().to_string();
        let ask = |path: &'static str| {
            let socket = socket.clone();
            async move {
                let mut stream = tokio::net::UnixStream::connect(socket).await.unwrap();
                let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
                let head = head.replace("host: x", "host: localhost");
                stream.write_all(head.as_bytes()).await.unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.unwrap();
                answer.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
            }
        };
        let seen = Arc::new(Mutex::new(Vec::new()));
        let warm = seen.clone();
        let (live, started, ready) = (ask("/health/live"), ask("/health/started"), ask("/health/ready"));
        let server = Server::new()
            .add(Probe::default())
            .listen("tcp://127.0.0.1:0")
            .admin(format!("unix:{socket}"))
            .notice(Duration::from_millis(300))
            .warm_up(move || async move {
                let found = [live.await, started.await, ready.await];
                warm.lock().unwrap().push(found);
                Ok(())
            });
        let running = soon(server.start()).await.unwrap();
        assert_eq!(*seen.lock().unwrap(), [[200, 503, 503]]);
        assert_eq!((ask("/health").await, ask("/health/ready").await), (200, 200));
        let stopping = tokio::spawn(running.stop(StopOptions::new().drain(LONG).close(LONG)));
        soon(async { while ask("/health/ready").await != 503 {} }).await;
        assert_eq!(ask("/health/live").await, 200);
        soon(stopping).await.unwrap();
    }

    #[tokio::test]
    async fn admin_listener_ends_with_its_server() {
        let server =
            Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0").admin("tcp://127.0.0.1:0");
        let running = server.start().await.unwrap();
        let address = running.admin().unwrap().clone();
        assert_eq!(status_of(&address, "/health").await, 200);
        drop(running);
        let Address::Tcp(host, port) = address else { panic!("not a TCP address") };
        soon(async {
            while tokio::net::TcpStream::connect((host.as_str(), port)).await.is_ok() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}
