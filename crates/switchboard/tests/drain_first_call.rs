//! A connection that the server accepts just before a drain begins: its first call gets a reply, or did not begin.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use std::time::Duration;
use support::{
    gate::{Gate, PASS, WIRES, message},
    raw::soon,
};
use switchboard::{Channel, Code, Codec, Retry, Running, Server};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

async fn start() -> Running {
    let server = Server::new().add(Gate::default()).alias("kiss/1", PASS.path);
    server.listen("tcp://127.0.0.1:0").start().await.unwrap()
}

/// Waits until the server has accepted a connection, and begins the drain.
async fn drain(running: Running) -> tokio::task::JoinHandle<switchboard::Drained> {
    soon(async {
        while running.stats().connections == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let address = running.url().trim_start_matches("tcp://").to_owned();
    let drained = tokio::spawn(running.drain(Duration::from_secs(60)));
    soon(async {
        while TcpStream::connect(&address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drained
}

#[tokio::test]
async fn first_calls_are_answered_or_did_not_begin() {
    for wire in WIRES {
        let running = start().await;
        let server = running.url().trim_start_matches("tcp://").to_owned();
        let link = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = link.local_addr().unwrap();
        let (go_on, held) = oneshot::channel::<()>();
        let forwarded = tokio::spawn(async move {
            let mut far = TcpStream::connect(server).await.unwrap();
            let (mut near, _) = link.accept().await.unwrap();
            // A caller that connects again finds no server.
            drop(link);
            held.await.unwrap();
            let _ = copy_bidirectional(&mut near, &mut far).await;
        });
        let url = format!("{}&connections=1", wire.replace("ADDRESS", &address.to_string()));
        let channel = Channel::builder(&url).lazy().unwrap();
        let called = tokio::spawn(async move {
            let codec = channel.codec(Codec::Proto);
            let sent = message(7, codec);
            let call = channel.unary(&PASS, codec, Ok(sent.clone()), |_, bytes| Ok(bytes));
            (sent, call.await.map(switchboard::client::Response::into_inner))
        });
        let drained = drain(running).await;
        go_on.send(()).unwrap();
        match soon(called).await.unwrap() {
            (sent, Ok(reply)) => assert_eq!(reply, sent, "{wire}"),
            (_, Err(status)) => {
                assert_eq!(
                    (status.code(), status.retry()),
                    (Code::Unavailable, Retry::Safe),
                    "{wire}: {status}"
                );
            }
        }
        soon(forwarded).await.unwrap();
        assert_eq!(soon(drained).await.unwrap().aborted, 0, "{wire}");
    }
}

#[tokio::test]
async fn connections_without_bytes_do_not_hold_the_drain() {
    let running = start().await;
    let mut silent = TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap();
    let drained = drain(running).await;
    assert_eq!(soon(drained).await.unwrap().aborted, 0);
    assert_eq!(soon(silent.read(&mut [0])).await.unwrap_or(0), 0);
    // The socket is closed.
    let _ = silent.write_all(b"late").await;
}

/// The server has not accepted any of these connections when it stops.
#[tokio::test]
async fn calls_of_connections_that_wait_in_the_kernel_get_a_response() {
    use std::io::Write;

    let running = start().await;
    let address = running.url().trim_start_matches("tcp://").to_owned();
    // Nothing here waits, so the task that accepts, on this thread, does not run.
    let callers: Vec<_> = (0..20)
        .map(|_| {
            let mut caller = std::net::TcpStream::connect(&address).unwrap();
            let head = format!("POST /{} HTTP/1.1\r\nhost: {address}\r\ncontent-type: ", PASS.path);
            caller
                .write_all(format!("{head}application/json\r\ncontent-length: 2\r\n\r\n{{}}").as_bytes())
                .unwrap();
            caller
        })
        .collect();
    assert_eq!(running.stats().connections, 0);
    let drained = running.drain(Duration::from_secs(60)).await;
    assert_eq!(drained.aborted, 0);
    for caller in callers {
        caller.set_nonblocking(true).unwrap();
        let mut caller = TcpStream::from_std(caller).unwrap();
        let mut response = Vec::new();
        soon(caller.read_to_end(&mut response)).await.unwrap();
        let response = String::from_utf8_lossy(&response);
        assert!(response.starts_with("HTTP/1.1 200") || response.starts_with("HTTP/1.1 503"), "{response:?}");
    }
    assert!(TcpStream::connect(&address).await.is_err(), "the listener is closed");
}
