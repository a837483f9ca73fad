//! A process that is suspended for longer than its keepalive timeouts, as when its machine is stopped: bytes
//! that arrived meanwhile are read before a connection is closed.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use std::time::Duration;
use support::{raw::*, *};
use switchboard::{Channel, Limit, Server};
use tokio::net::TcpListener;

/// Far longer than every keepalive timeout of these tests.
const STILL: Duration = Duration::from_secs(10);

/// Reads the PING of a peer.
async fn expect_ping(raw: &mut Raw) {
    let ping = raw.expect().await;
    assert_eq!((ping.kind, ping.flags), (PING, 0), "{ping:?}");
}

/// Acknowledges the PING, and advances the time before the peer, in the same process, can read the
/// acknowledgement.
async fn acknowledge_and_stall(raw: &mut Raw) {
    let pong = frame(PING, 1, 0, 0, &[]);
    assert_eq!(raw.io.try_write(&pong).unwrap(), pong.len());
    tokio::time::advance(STILL).await;
}

#[tokio::test]
async fn server_reads_bytes_that_arrived_during_a_stall() {
    let server = Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0");
    let server = server.limit(Limit::IdleTimeout, 100).limit(Limit::KeepaliveTimeout, 100);
    let running = server.start().await.unwrap();
    let mut raw = Raw::open(&running).await;
    raw.echo(1).await;
    // From here on time passes as soon as nothing else happens.
    tokio::time::pause();
    expect_ping(&mut raw).await;
    acknowledge_and_stall(&mut raw).await;
    raw.echo(2).await;
    // A silent peer is still closed.
    expect_ping(&mut raw).await;
    tokio::time::advance(STILL).await;
    assert_eq!(raw.next().await, None);
}

#[tokio::test]
async fn client_reads_bytes_that_arrived_during_a_stall() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let keepalive = Duration::from_millis(100);
    let connecting = tokio::spawn(Channel::builder(&url).connections(1).keepalive(keepalive).connect());
    let mut raw = Raw::accept(&listener).await;
    let channel = connecting.await.unwrap().unwrap();
    let call = || {
        let channel = channel.clone();
        tokio::spawn(async move { ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8]).await })
    };
    let first = call();
    let id = loop {
        let frame = raw.expect().await;
        if frame.kind == CALL {
            break frame.id;
        }
    };
    // From here on time passes as soon as nothing else happens.
    tokio::time::pause();
    expect_ping(&mut raw).await;
    acknowledge_and_stall(&mut raw).await;
    raw.send(&frame(REPLY, 0, 0, id, &message(&vec![1u8]))).await;
    assert_eq!(soon(first).await.unwrap().unwrap(), [1]);
    // A silent peer is still closed.
    let second = call();
    assert_eq!(raw.expect().await.kind, CALL);
    expect_ping(&mut raw).await;
    tokio::time::advance(STILL).await;
    let status = soon(second).await.unwrap().unwrap_err();
    assert!(status.message().contains("no data received for 200ms (keepalive)"), "{status}");
}
