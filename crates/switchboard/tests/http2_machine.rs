//! gRPC on the HTTP/2 machine under the driver, which a listener selects; the caller is a client of another
//! implementation of HTTP/2.
#![cfg(feature = "http")]

mod support;

use std::{sync::Arc, time::Duration};
use support::{
    Blob, COUNT, ECHO, FAIL, HANG, MIRROR, NOWHERE, PANIC, Probe, Seen, UNKNOWN, echo_of, raw::soon,
};
use switchboard::{
    Channel, Code, Codec, Compression, Limit, Result, Running, Server, Status,
    codec::serde::{decode, encode, encode_payload},
};

async fn serve(limits: &[(Limit, u64)]) -> (Running, Channel, Arc<Seen>) {
    let probe = Probe::default();
    let seen = probe.seen.clone();
    let server = Server::new().add(probe).listen_with("tcp://127.0.0.1:0?http2_engine=machine", limits);
    let running = server.start().await.expect("start");
    let channel = Channel::connect(&format!("{}?wire=grpc", running.url())).await.expect("connect");
    (running, channel, seen)
}

async fn mirror(channel: &Channel, bytes: Vec<u8>) -> Result<bytes::Bytes> {
    let call = channel.unary(&MIRROR, Codec::Json, Ok(bytes), |_, reply| Ok(reply));
    call.await.map(switchboard::Response::into_inner)
}

async fn fails(channel: &Channel, method: &'static switchboard::ClientMethod) -> Status {
    let call = channel.unary(method, Codec::Json, encode_payload(&"why", Codec::Json), decode::<()>);
    soon(call).await.expect_err("it fails")
}

#[tokio::test]
async fn unary_calls_of_all_sizes() {
    let (running, channel, _) = serve(&[]).await;
    for size in [0, 1, 1000, 16_379, 16_380, 70_000, 1 << 20, 4 << 20] {
        let sent: Vec<u8> = (0..size).map(|n| (n * 7 % 251) as u8).collect();
        assert!(mirror(&channel, sent.clone()).await.unwrap() == sent, "{size}");
    }
    let calls: Vec<_> = (0..500u32)
        .map(|n| {
            let channel = channel.clone();
            tokio::spawn(async move {
                for round in 0..5 {
                    let sent = vec![(n + round) as u8; 20 * n as usize];
                    assert!(mirror(&channel, sent.clone()).await? == sent);
                }
                Ok::<_, Status>(())
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(running.stats().connections, 1);
}

#[tokio::test]
async fn metadata_trailers_and_failures() {
    let (_running, channel, _) = serve(&[]).await;
    for _ in 0..3 {
        let request = encode_payload(&Blob(vec![1]), Codec::Json);
        let call = channel.unary(&ECHO, Codec::Json, request, decode::<Blob>);
        let call = call.meta("x-head", "a").meta("x-head-bin", vec![0, 255]).meta("x-tail", "b");
        let reply = soon(call).await.unwrap();
        assert_eq!(reply.meta().text("x-head"), Some("a"));
        assert_eq!(reply.meta().value("x-head-bin").unwrap(), &[0, 255][..]);
        assert_eq!(reply.trailers().text("x-tail"), Some("b"));
    }
    let status = fails(&channel, &FAIL).await;
    assert_eq!((status.code(), status.message()), (Code::NotFound, "why"));
    assert_eq!(status.details()[0].type_name, "test.Detail");
    assert_eq!(status.metadata().text("x-why"), Some("because"));
    let status = fails(&channel, &PANIC).await;
    assert_eq!((status.code(), status.message()), (Code::Internal, "handler panicked"));
    for method in [&NOWHERE, &UNKNOWN] {
        assert_eq!(fails(&channel, method).await.code(), Code::Unimplemented);
    }
}

#[tokio::test]
async fn streams_of_all_kinds() {
    let (_running, channel, _) = serve(&[]).await;
    for (items, size) in [(0, 0u32), (1, 1), (1000, 10), (50, 5000), (3, 1 << 18)] {
        let request = encode(&(items, size), Codec::Json);
        let mut stream =
            channel.server_stream(&COUNT, Codec::Json, request, decode::<Blob>).await.expect("a stream");
        assert_eq!(stream.metadata().await.text("x-head"), Some("first"), "{items} x {size}");
        for n in 0..items {
            let Blob(item) = stream.next().await.unwrap().expect("item");
            assert!(item.len() == size as usize && item.iter().all(|byte| *byte == n as u8), "{n}");
        }
        assert!(stream.next().await.unwrap().is_none());
        assert_eq!(stream.trailers().text("x-tail"), Some("last"));
    }
    let upload = channel.client_stream::<u64, u64>(&support::SUM, Codec::Json, encode, decode).await.unwrap();
    for n in 0..10_000 {
        upload.send(n).await.unwrap();
    }
    assert_eq!(*upload.finish().await.unwrap(), 49_995_000);
    let chat = channel.bidi::<String, String>(&support::CHAT, Codec::Json, encode, decode).await.unwrap();
    let (sender, mut receiver) = chat;
    for text in ["a", "b", "c"] {
        sender.send(text.to_owned()).await.unwrap();
        assert_eq!(receiver.next().await.unwrap(), Some(text.to_uppercase()));
    }
    sender.finish();
    assert_eq!(receiver.next().await.unwrap(), None);
}

#[tokio::test]
async fn deadlines_and_cancellations_end_the_handler() {
    let (_running, channel, seen) = serve(&[]).await;
    let hang = || channel.unary(&HANG, Codec::Json, encode_payload(&"", Codec::Json), decode::<()>);
    let status = soon(hang().timeout(Duration::from_millis(30))).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    seen.until(|seen| seen.hanging() == 0).await;
    let canceled = tokio::spawn(hang().into_future());
    seen.until(|seen| seen.hanging() == 1).await;
    canceled.abort();
    seen.until(|seen| seen.hanging() == 0).await;
}

#[tokio::test]
async fn compressed_messages_go_both_ways() {
    let (running, _, _) = serve(&[]).await;
    for compression in [Compression::Gzip, Compression::Zstd, Compression::Deflate] {
        let url = format!("{}?wire=grpc", running.url());
        let channel = Channel::builder(&url).compression(compression).connect().await.unwrap();
        for size in [10, 100_000] {
            assert_eq!(echo_of(&channel, Codec::Json, size).await.unwrap(), vec![7; size]);
        }
    }
}

#[tokio::test]
async fn messages_over_the_limit_are_refused_and_others_go_on() {
    let (_running, channel, _) = serve(&[(Limit::MessageBytesMax, 1000)]).await;
    let status = mirror(&channel, vec![7; 1001]).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert_eq!(mirror(&channel, vec![7; 1000]).await.unwrap().len(), 1000);
}

#[tokio::test]
async fn a_drain_lets_calls_end() {
    let (running, channel, seen) = serve(&[]).await;
    let hang = channel.unary(&HANG, Codec::Json, encode_payload(&"", Codec::Json), decode::<()>);
    let hang = tokio::spawn(hang.timeout(Duration::from_millis(900)).into_future());
    seen.until(|seen| seen.hanging() == 1).await;
    let drained = tokio::spawn(running.drain(Duration::from_secs(60)));
    assert_eq!(soon(hang).await.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
    soon(drained).await.unwrap();
}
