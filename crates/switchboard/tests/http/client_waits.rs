//! Calls of the own engine of gRPC that wait for their server: for a stream, for a window, or for another connection.

use crate::{client::Client, frames::soon, service::text};
use std::time::Duration;
use switchboard::{Channel, Code};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;

/// Kind, flags, stream and payload.
type Frame = (u8, u8, u32, Vec<u8>);

fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let mut frame = (body.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(body);
    frame
}

async fn read_frame(stream: &mut TcpStream) -> Frame {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    let mut body = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    stream.read_exact(&mut body).await.unwrap();
    (head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), body)
}

/// Reads frames until one is wanted.
async fn read_until(stream: &mut TcpStream, mut is_wanted: impl FnMut(&Frame) -> bool) -> Frame {
    loop {
        let frame = read_frame(stream).await;
        if is_wanted(&frame) {
            return frame;
        }
    }
}

/// Accepts a connection and sends these settings.
async fn accept(listener: &TcpListener, settings: &[u8]) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, settings)).await.unwrap();
    stream.read_exact(&mut [0; 24]).await.unwrap();
    stream
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("tcp://{}?wire=grpc&engine=own&connections=1", listener.local_addr().unwrap());
    (listener, url)
}

#[tokio::test]
async fn a_stream_that_waited_for_a_canceled_call_sends_its_messages() {
    let (listener, url) = listen().await;
    let (begun, is_begun) = oneshot::channel();
    let server = tokio::spawn(async move {
        // One stream at a time.
        let mut stream = accept(&listener, &[0, 3, 0, 0, 0, 1]).await;
        let (mut has_head, mut has_ack) = (false, false);
        read_until(&mut stream, |(kind, flags, ..)| {
            has_head |= *kind == HEADERS;
            has_ack |= (*kind, *flags) == (SETTINGS, 1);
            has_head && has_ack
        })
        .await;
        begun.send(()).unwrap();
        read_until(&mut stream, |frame| frame.0 == RST_STREAM && frame.2 == 1).await;
        read_until(&mut stream, |frame| frame.0 == DATA && frame.2 == 3).await;
    });
    let client = Client::new(Channel::connect(&url).await.unwrap());
    let first = tokio::spawn(client.say("you").into_future());
    soon(is_begun).await.unwrap();
    let (sender, _receiver) = client.chat().await.unwrap();
    sender.send(text("later")).await.unwrap();
    // The connection finds that the stream has to wait.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    first.abort();
    soon(server).await.unwrap();
}

#[tokio::test]
async fn one_way_calls_are_sent_completely_after_their_channel() {
    let (listener, url) = listen().await;
    let (part, is_part) = oneshot::channel();
    let server = tokio::spawn(async move {
        let mut stream = accept(&listener, &[]).await;
        let mut received = 0;
        while received < 65_535 {
            received += read_until(&mut stream, |frame| frame.0 == DATA).await.3.len();
        }
        part.send(()).unwrap();
        for id in [1, 0] {
            let bytes = frame(WINDOW_UPDATE, 0, id, &(1u32 << 24).to_be_bytes());
            stream.write_all(&bytes).await.unwrap();
        }
        loop {
            let (_, flags, _, payload) = read_until(&mut stream, |frame| frame.0 == DATA).await;
            received += payload.len();
            if flags & 1 > 0 {
                return received;
            }
        }
    });
    let client = Client::new(Channel::connect(&url).await.unwrap());
    client.note(&"x".repeat(1 << 20)).await.unwrap();
    drop(client);
    soon(is_part).await.unwrap();
    assert!(soon(server).await.unwrap() > 1 << 20);
}

#[tokio::test]
async fn the_second_attempt_of_a_refused_call_has_the_time_that_is_left() {
    const HELD: Duration = Duration::from_millis(50);
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut stream = accept(&listener, &[]).await;
        let mut timeouts = Vec::new();
        for id in [1, 3] {
            let (.., block) = read_until(&mut stream, |frame| frame.0 == HEADERS).await;
            let name = block.windows(12).position(|window| window == b"grpc-timeout").unwrap();
            let (len, value) = block[name + 12..].split_first().unwrap();
            timeouts.push(String::from_utf8(value[..usize::from(*len)].to_vec()).unwrap());
            tokio::time::sleep(HELD).await;
            // REFUSED_STREAM.
            stream.write_all(&frame(RST_STREAM, 0, id, &7u32.to_be_bytes())).await.unwrap();
        }
        timeouts
    });
    let client = Client::new(Channel::connect(&url).await.unwrap());
    let status = soon(client.say("you").timeout(Duration::from_secs(60)).into_future()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let timeouts = soon(server).await.unwrap();
    let millis: Vec<u64> = timeouts
        .iter()
        .map(|timeout| {
            let (number, unit) = timeout.split_at(timeout.len() - 1);
            let number: u64 = number.parse().unwrap();
            match unit {
                "S" => 1000 * number,
                "m" => number,
                "u" => number / 1000,
                _ => number / 1_000_000,
            }
        })
        .collect();
    assert!(millis[1] + HELD.as_millis() as u64 <= millis[0] + 1, "{timeouts:?}");
}
