//! hulu and sofa, the older relatives of baidu_std, from end to end: our client and server, and bytes that were written
//! by hand.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use buffa_types::google::protobuf::StringValue;
use std::time::Duration;
use support::raw::soon;
use switchboard::{
    Call, Channel, ClientMethod, Code, Codec, Compression, Idempotency, Kind, MethodInfo, Reply, Result,
    Running, Server, Service, ServiceInfo, Status, UnaryCall, codec::proto,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Turns attachments round, and says what it saw.
struct Files;

const METHODS: &[MethodInfo] = &[
    MethodInfo::new("Watch", Kind::ServerStream),
    MethodInfo::new("Turn", Kind::Unary),
    MethodInfo::new("Code", Kind::Unary),
];

static FILES: ServiceInfo = ServiceInfo { name: "test.v1.Files", methods: METHODS, descriptor: &[] };
/// As generated code has it: with a descriptor, which is that of no file here.
static GENERATED: ServiceInfo =
    ServiceInfo { name: "test.v1.Files", methods: METHODS, descriptor: &[0x0A, 0x00] };
static WATCH: ClientMethod = ClientMethod { service: &GENERATED, index: 0, path: "test.v1.Files/Watch" };
static TURN: ClientMethod = ClientMethod { service: &GENERATED, index: 1, path: "test.v1.Files/Turn" };
static CODE: ClientMethod = ClientMethod { service: &GENERATED, index: 2, path: "test.v1.Files/Code" };

impl Service for Files {
    fn info(&self) -> &'static ServiceInfo {
        &FILES
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let (codec, method) = (call.codec(), call.method());
        let (bytes, cx) = call.into_one()?;
        let text = decode(codec, bytes)?;
        if method == 2 {
            let mut status = Status::unknown(format!("{text} was not to be"));
            status.metadata_mut().insert("baidu-error-code", text)?;
            return Err(status);
        }
        if let Some(attachment) = cx.attachment() {
            let turned: Vec<u8> = attachment.iter().rev().copied().collect();
            cx.reply_attachment(turned)?;
        }
        let value = |name| cx.metadata().text(name).unwrap_or("none");
        let answer = format!("{text} {} {} {}", value("baidu-log-id"), value("x-who"), cx.peer().wire());
        Ok(Reply::one(encode(&answer)?, cx))
    }
}

fn encode(text: &str) -> Result<bytes::Bytes> {
    proto::encode(&StringValue { value: text.to_owned(), ..StringValue::default() }, Codec::Proto)
}

fn decode(codec: Codec, bytes: bytes::Bytes) -> Result<String> {
    Ok(proto::decode::<StringValue>(codec, bytes)?.value)
}

async fn start() -> Running {
    Server::new().add(Files).listen("tcp://127.0.0.1:0").start().await.unwrap()
}

async fn channel(running: &Running, wire: &str) -> Channel {
    Channel::connect(&format!("{}?wire={wire}", running.url())).await.unwrap()
}

fn turn(channel: &Channel, text: &str) -> UnaryCall<String> {
    channel.unary(&TURN, Codec::Proto, encode(text), decode)
}

async fn dial(running: &Running) -> TcpStream {
    TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap()
}

/// `Turn` with the message "hi", by its place and by its name; where its correlation id is, and how long its answer.
const BY_HAND: [(&[u8], usize, usize); 2] = [
    (b"HULU\x11\0\0\0\x0d\0\0\0\x0a\x05Files\x10\x01\x18\0\x20\x01\x0a\x02hi", 24, 35),
    (
        b"SOFA\x19\0\0\0\x04\0\0\0\0\0\0\0\x1d\0\0\0\0\0\0\0\x08\0\x10\x01\xa2\x06\x12test.v1.Files.Turn\x0a\x02hi",
        27,
        53,
    ),
];

#[tokio::test]
async fn calls_go_both_ways_on_the_port_of_all() {
    let running = start().await;
    for (wire, options) in [("hulu", ""), ("hulu", "&names=full"), ("sofa", ""), ("sofa", "&names=short")] {
        let channel = channel(&running, &format!("{wire}{options}")).await;
        assert_eq!(*turn(&channel, "file").await.unwrap(), format!("file none none {wire}"));
        let large = "abc".repeat(100_000);
        for compression in [
            Compression::Snappy,
            Compression::Gzip,
            Compression::Deflate,
            Compression::Zstd,
            Compression::None,
        ] {
            let reply = turn(&channel, &large).compression(compression).await.unwrap();
            assert_eq!(*reply, format!("{large} none none {wire}"), "{compression}");
        }
        let calls = (0..100).map(|call| tokio::spawn(turn(&channel, &call.to_string()).into_future()));
        for (call, reply) in calls.collect::<Vec<_>>().into_iter().enumerate() {
            assert_eq!(*reply.await.unwrap().unwrap(), format!("{call} none none {wire}"));
        }
        let protocols = running.stats().protocols;
        let counted = protocols.iter().find(|protocol| protocol.protocol == wire).unwrap();
        assert!(counted.connections > 0);
    }
}

#[tokio::test]
async fn hulu_carries_more_than_sofa_beside_a_message() {
    let running = start().await;
    let (hulu, sofa) = (channel(&running, "hulu").await, channel(&running, "sofa").await);
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let turned: Vec<u8> = large.iter().rev().copied().collect();
    let call = turn(&hulu, "file").meta("baidu-log-id", "77").meta("x-who", "bob");
    let reply = call.attachment(large).await.unwrap();
    assert_eq!(*reply, "file 77 bob hulu");
    assert!(reply.attachment().unwrap() == &turned);
    assert_eq!(*turn(&sofa, "file").meta("x-who", "bob").await.unwrap(), "file none none sofa");
    let status = turn(&sofa, "file").attachment("abc").await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    for channel in [hulu, sofa] {
        let watched = channel.server_stream(&WATCH, Codec::Proto, encode("x"), decode);
        let status = match watched.await {
            Ok(mut replies) => replies.next().await.unwrap_err(),
            Err(status) => status,
        };
        assert!(status.message().contains("carries no streams"), "{status}");
    }
}

#[tokio::test]
async fn a_place_is_known_from_a_file_or_said() {
    let running = start().await;
    let named = ClientMethod::intern("test.v1.Files/Turn", Kind::Unary, Idempotency::Unknown).unwrap();
    let call = |channel: &Channel| channel.unary(named, Codec::Proto, encode("x"), decode);
    let hulu = channel(&running, "hulu").await;
    let status = call(&hulu).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("index=test.v1.Files/Turn:INDEX"), "{status}");
    let indexed = channel(&running, "hulu&index=test.v1.Files/Turn:1").await;
    assert_eq!(*call(&indexed).await.unwrap(), "x none none hulu");
    assert_eq!(*call(&channel(&running, "sofa").await).await.unwrap(), "x none none sofa");
}

#[tokio::test]
async fn statuses_have_the_numbers_of_brpc() {
    let running = start().await;
    for wire in ["hulu", "sofa"] {
        let channel = channel(&running, wire).await;
        let status = channel.unary(&CODE, Codec::Proto, encode("-42"), decode).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unknown, "-42 was not to be"));
        assert_eq!(status.metadata().text("baidu-error-code"), Some("-42"));
        // A message over a limit gets an error that names the limit, and the connection stays open.
        let status = turn(&channel, &"x".repeat(5_000_000)).await.unwrap_err();
        assert!(status.message().contains("message_bytes_max"), "{status}");
        let status = turn(&channel, "x").timeout(Duration::ZERO).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert_eq!(*turn(&channel, "x").await.unwrap(), format!("x none none {wire}"));
    }
}

#[tokio::test]
async fn bytes_come_one_at_a_time_and_wrong_ones_end_the_connection() {
    let running = start().await;
    for (request, id, len) in BY_HAND {
        let mut stream = dial(&running).await;
        for call in 1..3 {
            let mut request = request.to_vec();
            request[id] = call;
            for byte in request {
                stream.write_all(&[byte]).await.unwrap();
                stream.flush().await.unwrap();
            }
            let mut answer = vec![0; len];
            soon(stream.read_exact(&mut answer)).await.unwrap();
            let wire = String::from_utf8_lossy(&answer[..4]).to_lowercase();
            assert!(answer.ends_with(format!("hi none none {wire}").as_bytes()), "{answer:02x?}");
        }
        // Sizes that no frame has.
        stream.write_all(&[&request[..4], &[0; 4], &[0xFF; 16]].concat()).await.unwrap();
        let mut rest = Vec::new();
        soon(stream.read_to_end(&mut rest)).await.unwrap();
        assert!(rest.is_empty(), "{rest:02x?}");
    }
    assert_eq!(running.stats().protocol_errors, 2);
}
