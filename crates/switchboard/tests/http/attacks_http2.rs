//! Attacks on HTTP/2: each ends at a bound, and another caller is served meanwhile.

use crate::{
    frames::*,
    raw::serves,
    service::{start, text},
};
use connectrpc::{CodecFormat, Protocol, client::CallOptions};
use switchboard::{Limit, Running};

const SAY: &str = "/test.v1.Echo/Say";
const JSON: &str = "application/json";

/// The setting for the window of new streams.
const INITIAL_WINDOW_SIZE: u16 = 4;

async fn until_closed(running: &Running) {
    soon(async {
        while running.stats().connections > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Writes `count` copies of `bytes` and reads nothing; ends early when the server has closed the connection.
async fn flood(peer: &mut Http2, bytes: &[u8], count: usize) {
    let many = bytes.repeat(100);
    for _ in 0..count / 100 {
        if peer.send(&many).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn rapid_resets_end_the_connection_or_their_calls() {
    let (_, running) = start(&[]).await;
    let mut peer = Http2::open(&running, &[]).await;
    let mut attack = Vec::new();
    for stream in (1..20_001).step_by(2) {
        attack.extend(whole_call(stream, SAY, JSON, b"\"hang\""));
        attack.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    attack.extend(frame(PING, 0, 0, &[1; 8]));
    // The connection may end while there is more to write.
    let _ = soon(peer.send(&attack)).await;
    // A slow machine takes the calls in small groups, in which the resets are not too many: then all of them have
    // ended when the PING is answered.
    while let Some(frame) = soon(peer.next()).await {
        match frame.kind {
            GO_AWAY => assert_eq!(frame.reason(), ENHANCE_YOUR_CALM),
            PING => break,
            _ => {}
        }
    }
    drop(peer);
    serves(&running).await;
    until_closed(&running).await;
    assert_eq!(running.stats().calls_in_flight, 0);
}

#[tokio::test]
async fn endless_continuations_end_the_connection() {
    let (_, running) = start(&[]).await;
    for block in [&b""[..], &header("x-a", "b"), &[0; 1]] {
        let mut peer = Http2::open(&running, &[]).await;
        peer.send(&frame(HEADERS, 0, 1, &call(SAY, JSON))).await.unwrap();
        soon(flood(&mut peer, &frame(CONTINUATION, 0, 1, block), 100_000)).await;
        serves(&running).await;
        soon(peer.end()).await;
    }
    until_closed(&running).await;
}

#[tokio::test]
async fn floods_of_settings_and_pings_are_answered_or_stopped() {
    let (_, running) = start(&[(Limit::PingIntervalMin, 0)]).await;
    for (kind, payload) in [(SETTINGS, &[0, INITIAL_WINDOW_SIZE as u8, 0, 0, 1, 0][..]), (PING, &[0; 8])] {
        let Http2(io) = Http2::open(&running, &[]).await;
        let (mut read, mut write) = io.into_split();
        let flood = frame(kind, 0, 0, payload).repeat(1000);
        // The peer does not read the acknowledgements: the server must stop reading, not collect them.
        let mut written = 0_usize;
        while written < 64 << 20 {
            let write = tokio::io::AsyncWriteExt::write(&mut write, &flood);
            match tokio::time::timeout(std::time::Duration::from_millis(500), write).await {
                Ok(Ok(bytes)) => written += bytes,
                Ok(Err(_)) | Err(_) => break,
            }
        }
        assert!(written < 64 << 20, "{written} bytes were taken and no answer was read");
        serves(&running).await;
        let mut buffer = vec![0; 64 << 10];
        assert!(soon(tokio::io::AsyncReadExt::read(&mut read, &mut buffer)).await.unwrap() > 0);
    }
    until_closed(&running).await;
}

#[tokio::test]
async fn pings_for_nothing_end_the_connection() {
    let (_, running) = start(&[]).await;
    let mut peer = Http2::open(&running, &[]).await;
    peer.send(&whole_call(1, SAY, JSON, b"\"x\"")).await.unwrap();
    soon(peer.next_of(DATA)).await.unwrap();
    // The first comes with a call, and two may be too soon.
    for _ in 0..3 {
        peer.send(&frame(PING, 0, 0, &[7; 8])).await.unwrap();
        let answer = soon(peer.next_of(PING)).await.unwrap();
        assert_eq!((answer.flags, &answer.payload[..]), (ACK, &[7; 8][..]));
    }
    peer.send(&frame(PING, 0, 0, &[7; 8])).await.unwrap();
    let end = soon(peer.next_of(GO_AWAY)).await.unwrap();
    let stream = u32::from_be_bytes(*end.payload.first_chunk().unwrap());
    assert_eq!((stream, end.reason(), &end.payload[8..]), (1, ENHANCE_YOUR_CALM, &b"too_many_pings"[..]));
    assert!(soon(peer.next()).await.is_none());
    serves(&running).await;
    until_closed(&running).await;
}

#[tokio::test]
async fn pings_beside_calls_and_pings_that_are_allowed_are_answered() {
    for limits in [&[][..], &[(Limit::PingIntervalMin, 0)]] {
        let (_, running) = start(limits).await;
        let mut peer = Http2::open(&running, &[]).await;
        for at in 0..20 {
            if limits.is_empty() {
                // Canceled calls count too: some clients ping with each.
                peer.send(&whole_call(2 * at + 1, SAY, JSON, b"\"hang\"")).await.unwrap();
                peer.send(&frame(RST_STREAM, 0, 2 * at + 1, &8_u32.to_be_bytes())).await.unwrap();
            }
            peer.send(&frame(PING, 0, 0, &[7; 8])).await.unwrap();
            soon(peer.next_of(PING)).await.unwrap();
        }
    }
}

#[tokio::test]
async fn small_references_to_large_headers_are_refused() {
    let (_, running) = start(&[]).await;
    let mut peer = Http2::open(&running, &[]).await;
    let mut block = call(SAY, JSON);
    // Into the table, then 10,000 times from the table: 40 MB of headers in 14 KB.
    let large = header("x-large", &"x".repeat(4000));
    block.push(0x40);
    block.extend(&large[1..]);
    block.extend(std::iter::repeat_n(0x80 | 62, 10_000));
    soon(peer.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block))).await.unwrap();
    let answer = soon(async {
        loop {
            match peer.next().await {
                Some(frame) if matches!(frame.kind, HEADERS | RST_STREAM | GO_AWAY) => return Some(frame),
                Some(_) => {}
                None => return None,
            }
        }
    })
    .await;
    // 431 is written as a literal; nothing else may look like success.
    if let Some(answer) = answer.filter(|answer| answer.kind == HEADERS) {
        assert!(!answer.payload.contains(&0x88), "a list of 40 MB was answered with 200");
    }
    serves(&running).await;
}

#[tokio::test]
async fn heads_that_never_end_are_closed() {
    let (_, running) = start(&[(Limit::IdleTimeout, 100), (Limit::KeepaliveTimeout, 100)]).await;
    let mut peer = Http2::open(&running, &[]).await;
    peer.send(&frame(HEADERS, 0, 1, &call(SAY, JSON))).await.unwrap();
    soon(peer.end()).await;
    serves(&running).await;
}

#[tokio::test]
async fn replies_wait_for_the_window_of_their_caller() {
    let (_, running) = start(&[]).await;
    let mut peer = Http2::open(&running, &[(INITIAL_WINDOW_SIZE, 0)]).await;
    for stream in (1..=199).step_by(2) {
        peer.send(&whole_call(stream, SAY, JSON, b"\"you\"")).await.unwrap();
    }
    for _ in 0..100 {
        assert!(soon(peer.next_of(HEADERS)).await.is_some());
    }
    serves(&running).await;
    // A byte at a time.
    let mut body = Vec::new();
    while body.len() < b"\"hello you\"".len() {
        peer.send(&frame(WINDOW_UPDATE, 0, 99, &1_u32.to_be_bytes())).await.unwrap();
        let data = soon(peer.next_of(DATA)).await.unwrap();
        assert_eq!((data.stream, data.payload.len()), (99, 1));
        body.extend(data.payload);
    }
    assert_eq!(body, b"\"hello you\"");
    // Windows over 2 GiB and of nothing are mistakes.
    peer.send(&frame(WINDOW_UPDATE, 0, 0, &0x7FFF_FFFF_u32.to_be_bytes())).await.unwrap();
    assert!(soon(peer.end()).await.is_some());
    drop(peer);
    until_closed(&running).await;
}

#[tokio::test]
async fn bombs_are_not_unpacked() {
    let (_, running) = start(&[]).await;
    for (protocol, encoding) in
        [(Protocol::Grpc, "gzip"), (Protocol::GrpcWeb, "zstd"), (Protocol::Connect, "gzip")]
    {
        let mut caller = crate::dialects::caller(&running, protocol, CodecFormat::Proto).await;
        caller.config = caller.config.compress_requests(encoding);
        let bomb = "x".repeat(64 << 20);
        let error = soon(caller.say(&bomb, CallOptions::default())).await.unwrap_err();
        assert_eq!(error.code, connectrpc::ErrorCode::ResourceExhausted, "{error}");
        assert_eq!(caller.say("you", CallOptions::default()).await.unwrap().1, text("hello you").value);
    }
    serves(&running).await;
}

#[tokio::test]
async fn callers_over_the_limit_of_streams_are_refused_one_by_one() {
    let (_, running) = start(&[(Limit::CallsMax, 10)]).await;
    let mut peer = Http2::open(&running, &[]).await;
    // Until the server's settings are acknowledged it may not count on them.
    let settings = soon(peer.next_of(SETTINGS)).await.unwrap();
    assert_eq!(settings.flags & ACK, 0);
    peer.send(&frame(SETTINGS, ACK, 0, &[])).await.unwrap();
    for stream in (1..=41).step_by(2) {
        peer.send(&whole_call(stream, SAY, JSON, b"\"hang\"")).await.unwrap();
    }
    for _ in 0..11 {
        let reset = soon(peer.next_of(RST_STREAM)).await.expect("the connection goes on");
        assert!(reset.stream > 20, "{reset:?}");
    }
    serves(&running).await;
}

#[tokio::test]
async fn old_connections_get_a_goaway_and_are_then_closed() {
    let (echo, running) = start(&[(Limit::ConnectionAge, 500), (Limit::DrainTimeout, 100)]).await;
    let mut peer = Http2::open(&running, &[]).await;
    peer.send(&whole_call(1, SAY, JSON, b"\"hang\"")).await.unwrap();
    assert_eq!(soon(peer.next_of(GO_AWAY)).await.unwrap().reason(), 0);
    soon(peer.end()).await;
    soon(echo.dropped.acquire()).await.unwrap().forget();
    serves(&running).await;
}
