//! baidu_std from end to end: Switchboard's client and server, and bytes that the test writes.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use support::{Probe, Seen, raw::soon};
use switchboard::{
    Call, Channel, ClientMethod, Code, Codec, Compression, Kind, Limit, MethodInfo, Reply, Result, Retry,
    Running, Server, Service, ServiceInfo, Status, auth::Tokens, codec::serde,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Reverses attachments, and returns the text, log id and caller of the call.
struct Files;

static FILES: ServiceInfo = ServiceInfo {
    name: "test.v1.Files",
    methods: &[MethodInfo::new("Turn", Kind::Unary), MethodInfo::new("Code", Kind::Unary)],
    descriptor: &[],
};
static TURN: ClientMethod = ClientMethod { service: &FILES, index: 0, path: "test.v1.Files/Turn" };
static CODE: ClientMethod = ClientMethod { service: &FILES, index: 1, path: "test.v1.Files/Code" };

impl Service for Files {
    fn info(&self) -> &'static ServiceInfo {
        &FILES
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let (codec, method) = (call.codec(), call.method());
        let (bytes, cx) = call.into_one()?;
        let text: String = serde::decode(codec, bytes)?;
        if method == 1 {
            let mut status = Status::unknown(format!("{text} was not to be"));
            status.metadata_mut().insert("baidu-error-code", text)?;
            return Err(status);
        }
        if let Some(attachment) = cx.attachment() {
            let turned: Vec<u8> = attachment.iter().rev().copied().collect();
            cx.reply_attachment(turned)?;
        }
        let log_id = cx.metadata().text("baidu-log-id").unwrap_or("none");
        let caller = cx.caller().map_or("anonymous", |caller| &caller.name);
        let answer = format!("{text} {log_id} {caller}");
        Ok(Reply::one(serde::encode(&answer, codec)?, cx))
    }
}

async fn start(server: Server) -> (Running, Arc<Seen>) {
    let probe = Probe::default();
    let seen = probe.seen.clone();
    (server.add(probe).add(Files).listen("tcp://127.0.0.1:0").start().await.unwrap(), seen)
}

async fn channel(running: &Running, options: &str) -> Channel {
    Channel::connect(&format!("{}?wire=baidu_std{options}", running.url())).await.unwrap()
}

fn turn(channel: &Channel, text: &str) -> switchboard::UnaryCall<String> {
    let request = serde::encode(&text, Codec::Json);
    channel.unary(&TURN, Codec::Json, request, serde::decode)
}

/// A request in JSON without an answer yet, number `id`.
fn request(name: &str, id: u8, message: &str) -> Vec<u8> {
    let (service, method) = name.split_once('/').unwrap();
    let mut named = vec![0x0A, service.len() as u8];
    named.extend_from_slice(service.as_bytes());
    named.extend_from_slice(&[0x12, method.len() as u8]);
    named.extend_from_slice(method.as_bytes());
    let mut meta = vec![0x0A, named.len() as u8];
    meta.extend_from_slice(&named);
    meta.extend_from_slice(&[0x20, id, 0x50, 2]);
    let mut bytes = b"PRPC".to_vec();
    bytes.extend_from_slice(&((meta.len() + message.len()) as u32).to_be_bytes());
    bytes.extend_from_slice(&(meta.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&meta);
    bytes.extend_from_slice(message.as_bytes());
    bytes
}

async fn dial(running: &Running) -> TcpStream {
    TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap()
}

/// The meta and the message of the next frame.
async fn answer(stream: &mut TcpStream) -> (Vec<u8>, Vec<u8>) {
    let mut header = [0; 12];
    soon(stream.read_exact(&mut header)).await.unwrap();
    assert_eq!(&header[..4], b"PRPC");
    let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap()) as usize;
    let mut body = vec![0; number(4)];
    soon(stream.read_exact(&mut body)).await.unwrap();
    let message = body.split_off(number(8));
    (body, message)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn requests_come_one_byte_at_a_time_and_answers_as_handlers_end() {
    let (running, seen) = start(Server::new()).await;
    let mut stream = dial(&running).await;
    let calls = [
        request("Probe/Hang", 1, "\"\""),
        request("test.Probe/Block", 2, "\"\""),
        request("Probe/Nope", 3, "\"\""),
    ];
    for byte in calls.concat() {
        stream.write_all(&[byte]).await.unwrap();
        stream.flush().await.unwrap();
    }
    let (meta, message) = answer(&mut stream).await;
    assert_eq!((&meta[..], &message[..]), (&[0x12, 2, 8, 0, 0x20, 2, 0x50, 2][..], &b"\"baidu_std\""[..]));
    let (meta, message) = answer(&mut stream).await;
    assert!(contains(&meta, &[0x08, 0xEA, 0x07]) && message.is_empty(), "1002 in {meta:02x?}");
    seen.until(|seen| seen.hanging() == 1).await;
    drop(stream);
    seen.until(|seen| seen.hanging() == 0).await;
}

#[tokio::test]
async fn bytes_that_are_no_frames_end_the_connection() {
    let (running, _) = start(Server::new()).await;
    let good = request("Probe/Block", 1, "\"\"");
    let wrong: [&[u8]; 4] = [
        b"PRPD",
        b"STRM\0\0\0\0\0\0\0\0",
        b"PRPC\0\0\0\x02\0\0\0\x02\x0a\xff",
        b"PRPC\0\0\0\x02\0\x01\0\x01",
    ];
    for bytes in wrong {
        let mut stream = dial(&running).await;
        stream.write_all(&[&good[..], bytes].concat()).await.unwrap();
        answer(&mut stream).await;
        let mut rest = Vec::new();
        soon(stream.read_to_end(&mut rest)).await.unwrap();
        assert!(rest.is_empty(), "{rest:02x?}");
    }
    assert_eq!(running.stats().protocol_errors, 4);
    let protocols = running.stats().protocols;
    let counted = protocols.iter().find(|protocol| protocol.protocol == "baidu_std").unwrap();
    assert_eq!(counted.connections, 4);
    // Frames of streams come first on no connection.
    let mut stream = dial(&running).await;
    stream.write_all(b"STRM\0\0\0\0\0\0\0\0").await.unwrap();
    let mut rest = Vec::new();
    let _ = soon(stream.read_to_end(&mut rest)).await;
    assert!(rest.is_empty() && running.stats().unknown_protocol == 1);
}

#[tokio::test]
async fn attachments_go_to_one_of_several_servers() {
    let (running, _) = start(Server::new()).await;
    let url = format!("{}?wire=baidu_std&balance=round_robin", running.url());
    let channel = Channel::connect(&url).await.unwrap();
    let reply = turn(&channel, "file").attachment("abc").await.unwrap();
    assert_eq!(reply.attachment().unwrap(), "cba");
}

#[tokio::test]
async fn attachments_go_both_ways_and_nowhere_else() {
    let (running, _) = start(Server::new()).await;
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let turned: Vec<u8> = large.iter().rev().copied().collect();
    for options in ["", "&checksum=crc32c", "&names=short"] {
        let channel = channel(&running, options).await;
        let reply =
            turn(&channel, "file").meta("baidu-log-id", "77").attachment(large.clone()).await.unwrap();
        assert_eq!(*reply, "file 77 anonymous");
        assert!(reply.attachment().unwrap() == &turned);
        let reply = turn(&channel, "file").await.unwrap();
        assert_eq!((reply.as_str(), reply.attachment()), ("file none anonymous", None));
        let status = turn(&channel, "file").attachment(vec![0; 5_000_000]).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("message_bytes_max of the receiver"), "{status}");
    }
    // Inside a process they go along; other wires say that they do not.
    let local = Channel::local(Files);
    let reply = turn(&local, "file").attachment("abc").await.unwrap();
    assert_eq!(reply.attachment().unwrap(), "cba");
    for options in ["", "?wire=connect", "?wire=grpc"] {
        let other = Channel::connect(&format!("{}{options}", running.url())).await.unwrap();
        let status = turn(&other, "file").attachment("abc").await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        assert!(status.message().contains("use baidu_std"), "{status}");
    }
}

#[tokio::test]
async fn large_messages_are_compressed_both_ways() {
    let (running, _) = start(Server::new()).await;
    let text = "abc".repeat(100_000);
    for compression in
        [Compression::Gzip, Compression::Deflate, Compression::Snappy, Compression::Zstd, Compression::None]
    {
        let channel = channel(&running, "").await;
        let before = running.stats();
        let reply = turn(&channel, &text).compression(compression).await.unwrap();
        assert_eq!(*reply, format!("{text} none anonymous"));
        let bytes = |stats: &switchboard::ServerStats| {
            let protocol = stats.protocols.iter().find(|protocol| protocol.protocol == "baidu_std").unwrap();
            protocol.received + protocol.sent
        };
        let plain = matches!(compression, Compression::Zstd | Compression::None);
        assert_eq!(bytes(&running.stats()) - bytes(&before) > 500_000, plain, "{compression}");
    }
}

#[tokio::test]
async fn callers_are_known_by_their_credentials() {
    let tokens = Tokens::default().token("s3cret", switchboard::Caller::new("ali"));
    let (running, _) = start(Server::new().auth(tokens)).await;
    let open = channel(&running, "").await;
    let status = turn(&open, "x").await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    // Per call, as on every wire.
    let reply = turn(&open, "x").meta("authorization", "Bearer s3cret").await.unwrap();
    assert_eq!(*reply, "x none ali");
    assert_eq!(turn(&open, "x").await.unwrap_err().code(), Code::Unauthenticated);
    // Per connection, as brpc has it: from the first request on.
    let known = channel(&running, "&connections=1").await;
    let reply = turn(&known, "x").meta("baidu-authentication", "s3cret").await.unwrap();
    assert_eq!(*reply, "x none ali");
    assert_eq!(*turn(&known, "x").await.unwrap(), "x none ali");
}

#[tokio::test]
async fn statuses_have_the_numbers_of_brpc() {
    let (running, seen) = start(Server::new().limit(Limit::CallsMax, 1)).await;
    let channel = channel(&running, "&connections=1").await;
    let code = |number: &'static str| {
        let request = serde::encode(&number, Codec::Json);
        channel.unary(&CODE, Codec::Json, request, serde::decode::<String>)
    };
    let status = code("-42").await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unknown, "-42 was not to be"));
    assert_eq!(status.metadata().text("baidu-error-code"), Some("-42"));
    assert!(support::call::<_, String>(&channel, &support::NOWHERE, &"").await.is_err());
    // A deadline, and a call over the limit while another hangs.
    let hang = || {
        let request = serde::encode(&"", Codec::Json);
        channel.unary(&support::HANG, Codec::Json, request, serde::decode::<String>)
    };
    let status = hang().timeout(Duration::from_millis(30)).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    seen.until(|seen| seen.hanging() == 0).await;
    let hanging = tokio::spawn(hang().into_future());
    seen.until(|seen| seen.hanging() == 1).await;
    let status = turn(&channel, "x").await.unwrap_err();
    assert_eq!((status.code(), status.retry()), (Code::ResourceExhausted, Retry::Safe));
    hanging.abort();
}

#[tokio::test]
async fn http_takes_short_names_too() {
    let (running, _) = start(Server::new()).await;
    for (path, status) in
        [("/test.v1.Files/Turn", "200 OK"), ("/Files/Turn", "200 OK"), ("/Files/Nope", "404 Not Found")]
    {
        let mut stream = dial(&running).await;
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: 3\r\n\r\n\"x\""
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        soon(stream.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        assert_eq!(answer.ends_with("\"x none anonymous\""), status == "200 OK", "{answer}");
    }
}

#[tokio::test]
async fn names_of_old_clients_are_aliases() {
    let server = Server::new().alias("fileService/turn", "test.v1.Files/Turn");
    let (running, _) = start(server).await;
    let channel = channel(&running, "").await;
    static OLD: ClientMethod = ClientMethod { service: &FILES, index: 0, path: "fileService/turn" };
    let request = serde::encode(&"x", Codec::Json);
    let reply = channel.unary(&OLD, Codec::Json, request, serde::decode::<String>).await.unwrap();
    assert_eq!(*reply, "x none anonymous");
    // Postcard is not carried: it becomes JSON.
    assert_eq!(channel.codec(Codec::Postcard), Codec::Json);
    let blob = Bytes::from_static(b"[1,2]");
    let reply = channel.unary(&support::MIRROR, Codec::Json, Ok(blob.clone()), |_, reply| Ok(reply)).await;
    assert_eq!(*reply.unwrap(), blob);
}

fn chat(channel: &Channel) -> switchboard::BidiCall<String, String> {
    channel.bidi(&support::CHAT, Codec::Json, serde::encode, serde::decode)
}

fn count(channel: &Channel, count: u32, bytes: usize) -> switchboard::ServerStreamCall<Vec<u8>> {
    let request = serde::encode(&(count, bytes), Codec::Json);
    channel.server_stream(&support::COUNT, Codec::Json, request, serde::decode)
}

#[tokio::test]
async fn streams_go_both_ways() {
    let (running, seen) = start(Server::new()).await;
    for options in ["", "&checksum=crc32c&names=short", "&compression=gzip"] {
        let channel = channel(&running, options).await;
        let (sender, mut replies) = chat(&channel).await.unwrap();
        for text in ["one", "two", ""] {
            sender.send(text.to_owned()).await.unwrap();
            assert_eq!(soon(replies.next()).await.unwrap(), Some(text.to_uppercase()));
        }
        sender.finish();
        assert_eq!(soon(replies.next()).await.unwrap(), None);
        let sum = channel
            .client_stream(&support::SUM, Codec::Json, serde::encode::<u64>, serde::decode::<u64>)
            .await
            .unwrap();
        for number in 1..=100 {
            sum.send(number).await.unwrap();
        }
        assert_eq!(*soon(sum.finish()).await.unwrap(), 5050);
        let mut replies = count(&channel, 13, 2).await.unwrap();
        for number in 0..13 {
            assert_eq!(soon(replies.next()).await.unwrap(), Some(vec![number; 2]));
        }
        let status = soon(replies.next()).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Aborted, "13 is unlucky"));
        assert_eq!(status.metadata().text("x-tail"), Some("last"));
    }
    seen.until(|seen| seen.hanging() == 0).await;
}

#[tokio::test]
async fn streams_wait_for_their_readers_and_not_for_those_who_left() {
    let (running, seen) = start(Server::new()).await;
    let channel = channel(&running, "&connections=1").await;
    // Ten times the window of brpc, of which nothing is read at first.
    let mut slow = count(&channel, 50, 200_000).await.unwrap();
    assert_eq!(soon(slow.next()).await.unwrap().map(|bytes| bytes.len()), Some(200_000));
    let (sender, mut replies) = chat(&channel).await.unwrap();
    sender.send("meanwhile".to_owned()).await.unwrap();
    assert_eq!(soon(replies.next()).await.unwrap().as_deref(), Some("MEANWHILE"));
    seen.until(|seen| seen.hanging() == 2).await;
    drop((sender, replies));
    seen.until(|seen| seen.hanging() == 1).await;
    for _ in 1..50 {
        assert_eq!(soon(slow.next()).await.unwrap().map(|bytes| bytes.len()), Some(200_000));
    }
    assert_eq!(soon(slow.next()).await.unwrap(), None);
    // The other direction: the reader starts after all are sent.
    let text = "x".repeat(300_000);
    let (sender, mut replies) = chat(&channel).await.unwrap();
    let sending = tokio::spawn(async move {
        for _ in 0..40 {
            sender.send(text.clone()).await?;
        }
        sender.finish();
        Ok::<(), Status>(())
    });
    for _ in 0..40 {
        assert_eq!(soon(replies.next()).await.unwrap().map(|text| text.len()), Some(300_000));
    }
    assert_eq!(soon(replies.next()).await.unwrap(), None);
    sending.await.unwrap().unwrap();
    // A connection that ends takes its streams along.
    let hanging = count(&channel, 50, 200_000).await.unwrap();
    seen.until(|seen| seen.hanging() == 1).await;
    drop((hanging, channel));
    seen.until(|seen| seen.hanging() == 0).await;
}

#[tokio::test]
async fn a_stream_is_opened_by_hand() {
    let (running, seen) = start(Server::new()).await;
    let mut stream = dial(&running).await;
    let mut opens = request("Probe/Chat", 1, "");
    // Behind the request: stream 7, which is writable.
    opens.extend_from_slice(&[0x42, 4, 8, 7, 0x18, 1]);
    for at in [7, 11] {
        opens[at] += 6;
    }
    for byte in opens {
        stream.write_all(&[byte]).await.unwrap();
    }
    let mut answer = [0; 24];
    soon(stream.read_exact(&mut answer)).await.unwrap();
    assert_eq!((&answer[..4], &answer[12..14]), (&b"STRM"[..], &[0x08, 7][..]), "{answer:02x?}");
    let mut rest = vec![0; usize::from(answer[7]) - 12];
    soon(stream.read_exact(&mut rest)).await.unwrap();
    assert!(contains(&rest, &[0x12, 2, 8, 0]), "{rest:02x?}");
    // To its end, 1 << 32 and the place of the call.
    let to = |kind: u8, payload: &[u8]| {
        let meta = [0x08, 0x80, 0x80, 0x80, 0x80, 0x10, 0x10, 7, 0x18, kind];
        let sizes = [0, 0, 0, (meta.len() + payload.len()) as u8, 0, 0, 0, meta.len() as u8];
        [&b"STRM"[..], &sizes, &meta, payload].concat()
    };
    stream.write_all(&[to(3, b"\"abc\""), to(2, b"")].concat()).await.unwrap();
    let mut replies = vec![0; 12 + 10 + 5 + 12 + 10];
    soon(stream.read_exact(&mut replies)).await.unwrap();
    assert!(contains(&replies, b"\x18\x03\"ABC\"STRM"), "{replies:02x?}");
    assert_eq!(replies[replies.len() - 2..], [0x18, 2]);
    seen.until(|seen| seen.hanging() == 0).await;
}
