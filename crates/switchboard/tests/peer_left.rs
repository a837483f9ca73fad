//! A peer that closes its connection while the server does not read it.
#![allow(clippy::unwrap_used, reason = "what fails to be set up fails the test")]

mod support;

use std::time::Duration;
use support::{raw::soon, *};
use switchboard::Limit;
use tokio::{io::AsyncWriteExt, net::TcpStream};

/// A call of Thrift's binary protocol in a frame, with one field of `text`.
fn thrift(method: &str, id: u32, text: &[u8]) -> Vec<u8> {
    let part = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat();
    let head = [&[0x80, 1, 0, 1][..], &part(method.as_bytes()), &id.to_be_bytes()].concat();
    part(&[&head, &[11, 0, 1][..], &part(text), &[0]].concat())
}

#[tokio::test]
async fn peer_of_thrift_is_noticed_behind_replies_that_wait() {
    let (running, seen) = start(&[(Limit::OutboxBytesMax, 65_536)]).await;
    let mut peer = TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap();
    peer.write_all(&thrift("Hang", 0, b"")).await.unwrap();
    soon(seen.until(|seen| seen.hanging() == 1)).await;
    // Their replies wait behind the first call, until nothing more is read.
    let more: Vec<u8> = (1..=100).flat_map(|id| thrift("Mirror", id, &[b'x'; 1000])).collect();
    peer.write_all(&more).await.unwrap();
    drop(peer);
    soon(seen.until(|seen| seen.hanging() == 0)).await;
    assert_eq!(soon(running.drain(Duration::from_secs(60))).await.aborted, 0);
}
