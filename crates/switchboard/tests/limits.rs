//! Limits of a server that only show with a peer that goes over them.

mod support;

use std::time::Duration;
use support::*;
use switchboard::{Channel, Code, Limit, Result, Retry, Running};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Longer than any of these takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

async fn limited(limit: Limit, value: u64) -> (Running, std::sync::Arc<Seen>) {
    let probe = Probe::default();
    let seen = probe.seen.clone();
    let server = switchboard::Server::new().add(probe).listen("tcp://127.0.0.1:0").limit(limit, value);
    (server.start().await.expect("start"), seen)
}

async fn channel(running: &Running) -> Channel {
    Channel::builder(&running.url()).connections(1).connect().await.expect("connect")
}

fn hang(channel: &Channel) -> tokio::task::JoinHandle<Result<Vec<u8>>> {
    let channel = channel.clone();
    tokio::spawn(async move { ask::<Vec<u8>, Vec<u8>>(&channel, &HANG, &Vec::new()).await })
}

#[tokio::test]
async fn calls_over_the_limit_of_a_connection_are_refused_and_safe_to_retry() {
    let (running, seen) = limited(Limit::CallsMax, 2).await;
    let channel = channel(&running).await;
    let hanging = [hang(&channel), hang(&channel)];
    seen.until(|seen| seen.hanging.load(std::sync::atomic::Ordering::SeqCst) == 2).await;
    let refused = ask::<Vec<u8>, Vec<u8>>(&channel, &ECHO, &vec![1]).await.expect_err("refused");
    assert_eq!((refused.code(), refused.retry()), (Code::ResourceExhausted, Retry::Safe));
    assert!(refused.message().contains("calls_max"), "{refused}");
    hanging.iter().for_each(tokio::task::JoinHandle::abort);
    seen.until(|seen| seen.hanging.load(std::sync::atomic::Ordering::SeqCst) == 0).await;
    assert_eq!(ask::<Vec<u8>, Vec<u8>>(&channel, &ECHO, &vec![1]).await.expect("room again"), [1]);
}

#[tokio::test]
async fn calls_over_the_limit_of_the_server_are_refused() {
    let (running, seen) = limited(Limit::ServerCallsMax, 2).await;
    let (first, second) = (channel(&running).await, channel(&running).await);
    let _hanging = [hang(&first), hang(&second)];
    seen.until(|seen| seen.hanging.load(std::sync::atomic::Ordering::SeqCst) == 2).await;
    for channel in [&first, &second] {
        let refused = ask::<Vec<u8>, Vec<u8>>(channel, &ECHO, &vec![1]).await.expect_err("refused");
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().contains("server_calls_max"), "{refused}");
    }
}

#[tokio::test]
async fn connections_over_the_limit_are_closed() {
    let (running, _) = limited(Limit::ConnectionsMax, 1).await;
    let first = channel(&running).await;
    assert_eq!(ask::<Vec<u8>, Vec<u8>>(&first, &ECHO, &vec![1]).await.expect("first"), [1]);
    let mut second = raw(&running).await;
    assert_eq!(read_to_end(&mut second).await, b"");
    assert_eq!(ask::<Vec<u8>, Vec<u8>>(&first, &ECHO, &vec![1]).await.expect("first"), [1]);
}

#[tokio::test]
async fn silent_peers_are_pinged_and_closed() {
    let server = switchboard::Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0");
    let server = server.limit(Limit::IdleTimeout, 1000).limit(Limit::KeepaliveTimeout, 100);
    let running = server.start().await.expect("start");
    let mut silent = raw(&running).await;
    silent.write_all(b"\xF5SWB\x01\0\0\0").await.expect("preface");
    let heard = read_to_end(&mut silent).await;
    // Preface and SETTINGS, then PING.
    assert_eq!(&heard[50..], [0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
}

async fn raw(running: &Running) -> tokio::net::TcpStream {
    let url = running.url();
    let address = url.strip_prefix("tcp://").expect("a TCP address");
    tokio::net::TcpStream::connect(address).await.expect("connect")
}

async fn read_to_end(stream: &mut tokio::net::TcpStream) -> Vec<u8> {
    let mut heard = Vec::new();
    let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut heard)).await;
    // A reset is an end too.
    let _ = end.expect("never closed");
    heard
}
