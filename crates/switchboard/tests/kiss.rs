//! kiss-rpc from end to end: Switchboard's client and server, and frames that the test writes.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use std::{future::IntoFuture, sync::Arc, time::Duration};
use support::{Blob, Probe, Seen, raw::soon};
use switchboard::{Channel, ClientMethod, Code, Codec, Limit, Running, Server, codec::serde};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const ECHO: u64 = 0x1234_5678;
/// Methods of the probe with their function numbers.
const FUNCTIONS: [(&str, u64); 6] = [
    ("test.Probe/Echo", ECHO),
    ("test.Probe/Fail", 2),
    ("test.Probe/Hang", 3),
    ("test.Probe/Note", 4),
    ("test.Probe/Sum", 5),
    ("test.Probe/Block", 6),
];

async fn start(server: Server) -> (Running, Arc<Seen>) {
    let probe = Probe::default();
    let seen = probe.seen.clone();
    let server = server.add(probe).listen("tcp://127.0.0.1:0");
    let server =
        FUNCTIONS.iter().fold(server, |server, (name, id)| server.alias(format!("kiss/{id}"), *name));
    (server.start().await.unwrap(), seen)
}

async fn channel(running: &Running, options: &str) -> Channel {
    let functions: String = FUNCTIONS.iter().map(|(name, id)| format!("&function={name}:{id}")).collect();
    Channel::connect(&format!("{}?wire=kiss{functions}{options}", running.url())).await.unwrap()
}

fn call(channel: &Channel, method: &'static ClientMethod, text: &str) -> switchboard::UnaryCall<String> {
    let request = serde::encode(&text, Codec::Json);
    channel.unary(method, Codec::Json, request, serde::decode)
}

fn echo(channel: &Channel, bytes: Vec<u8>) -> switchboard::UnaryCall<Blob> {
    channel.unary(&support::ECHO, Codec::Json, serde::encode(&Blob(bytes), Codec::Json), serde::decode)
}

/// A frame in JSON.
fn frame(status: u8, function: u64, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xFF, 0xFF, 20, 1, 0, 0, status, 0, 0];
    bytes.extend_from_slice(&function.to_be_bytes());
    bytes.extend_from_slice(&sequence.to_be_bytes());
    bytes.extend_from_slice(&(body.len() as u16).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

async fn dial(running: &Running) -> TcpStream {
    TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap()
}

async fn expect(stream: &mut TcpStream, frame: &[u8]) {
    let mut answer = vec![0; frame.len()];
    soon(stream.read_exact(&mut answer)).await.unwrap();
    assert_eq!(answer, frame);
}

#[tokio::test]
async fn calls_go_both_ways_plain_and_compressed() {
    let (running, _) = start(Server::new()).await;
    for options in ["", "&snappy=dynamic", "&snappy=forced", "&compression=snappy", "&heartbeats=true"] {
        let channel = channel(&running, options).await;
        for len in [0, 1, 300, 10_000] {
            let bytes = vec![7; len];
            assert_eq!(echo(&channel, bytes.clone()).await.unwrap().0, bytes, "{options}");
        }
    }
    let protocols = running.stats().protocols;
    assert!(protocols.iter().any(|protocol| protocol.protocol == "kiss" && protocol.connections >= 5));
}

#[tokio::test]
async fn what_fits_into_no_frame_is_refused_where_it_is_known() {
    let (running, _) = start(Server::new()).await;
    let plain = channel(&running, "").await;
    let status = echo(&plain, vec![7; 40_000]).await.err().unwrap();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("a frame of kiss-rpc has room for"), "{status}");
    // Compressed it is small, also on its way back.
    let packed = channel(&running, "&snappy=dynamic").await;
    assert_eq!(echo(&packed, vec![7; 100_000]).await.unwrap().0.len(), 100_000);
}

#[tokio::test]
async fn failures_have_no_reason_and_streams_no_place() {
    let (running, seen) = start(Server::new().limit(Limit::CallsMax, 1)).await;
    let channel = channel(&running, "&connections=1").await;
    let status = call(&channel, &support::FAIL, "gone").await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    assert!(status.message().contains("kiss-rpc carries no reason"), "{status}");
    let status = support::sum(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let status = call(&channel, &support::NOWHERE, "").await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("function=test.Nowhere/Echo:NUMBER"), "{status}");
    // The caller's own clock, and a limit.
    let status = call(&channel, &support::HANG, "").timeout(Duration::from_millis(30)).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    seen.until(|seen| seen.hanging() == 1).await;
    let hanging = tokio::spawn(call(&channel, &support::HANG, "").into_future());
    let status = hanging.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unknown, "a second call is over the limit");
}

#[tokio::test]
async fn one_way_calls_are_not_answered() {
    let (running, seen) = start(Server::new()).await;
    let channel = channel(&running, "").await;
    let note = || channel.oneway(&support::NOTE, Codec::Json, serde::encode(&3u64, Codec::Json));
    note().await.unwrap();
    note().await.unwrap();
    seen.until(|seen| seen.notes.load(std::sync::atomic::Ordering::SeqCst) == 6).await;
    assert_eq!(echo(&channel, vec![1]).await.unwrap().0, [1]);
}

#[tokio::test]
async fn frames_come_one_byte_at_a_time_and_answers_as_handlers_end() {
    let (running, seen) = start(Server::new()).await;
    let mut stream = dial(&running).await;
    let calls = [
        frame(0, 3, 1, b"\"\""),
        frame(0, 0, 9, b""),
        frame(0x20, 6, 2, b"\"\""),
        frame(0, 99, 3, b""),
        frame(0x80, 99, 4, b""),
        frame(0, ECHO, 5, b"[1]"),
    ];
    for byte in calls.concat() {
        stream.write_all(&[byte]).await.unwrap();
    }
    expect(&mut stream, &frame(0, 0, 9, b"")).await;
    expect(&mut stream, &frame(0x20, 6, 2, b"\"kiss\"")).await;
    expect(&mut stream, &frame(1, 99, 3, b"")).await;
    expect(&mut stream, &frame(0, ECHO, 5, b"[1]")).await;
    seen.until(|seen| seen.hanging() == 1).await;
    drop(stream);
    seen.until(|seen| seen.hanging() == 0).await;
}

#[tokio::test]
async fn bytes_that_are_no_frames_end_the_connection() {
    let (running, _) = start(Server::new()).await;
    for bytes in [&b"\xFF\xFF\x14\x02"[..], b"hello"] {
        let mut stream = dial(&running).await;
        stream.write_all(&[&frame(0, ECHO, 1, b"[1]"), bytes].concat()).await.unwrap();
        expect(&mut stream, &frame(0, ECHO, 1, b"[1]")).await;
        let mut rest = Vec::new();
        let _ = soon(stream.read_to_end(&mut rest)).await;
        assert!(rest.is_empty(), "{rest:02x?}");
    }
    // What was spoken before the first release has another form.
    let mut stream = dial(&running).await;
    stream.write_all(b"\xAA\xBB\xCC\xDD\xAA\xAA\xAA\xFF").await.unwrap();
    let mut rest = Vec::new();
    let _ = soon(stream.read_to_end(&mut rest)).await;
    assert_eq!(running.stats().protocol_errors, 3);
    // A server that has not enabled the wire closes the connection before it reads a frame.
    let (closed, _) = start(Server::new().wires(["native"])).await;
    let mut stream = dial(&closed).await;
    stream.write_all(&frame(0, ECHO, 1, b"[1]")).await.unwrap();
    let mut rest = Vec::new();
    let _ = soon(stream.read_to_end(&mut rest)).await;
    let stats = closed.stats();
    assert_eq!((rest.len(), stats.disabled_wires, stats.protocol_errors), (0, 1, 0));
}
