//! Generated-style clients on every HTTP wire, against our own server.

use crate::service::{self, methods, text};
use buffa_types::google::protobuf::StringValue;
use std::time::Duration;
use switchboard::{
    BidiCall, Channel, ClientStreamCall, Code, Codec, Compression, Limit, OnewayCall, Origin, Retry, Running,
    Server, ServerStreamCall, UnaryCall,
    codec::proto::{decode, encode},
};
use tokio::{io::AsyncWriteExt, net::TcpStream};

/// Each wire in each version and codec that a channel can have.
const WIRES: [&str; 11] = [
    "wire=grpc",
    "wire=grpc&codec=json",
    "wire=grpc&engine=own",
    "wire=grpc&engine=own&codec=json",
    "wire=grpc-web",
    "wire=grpc-web&http=1",
    "wire=grpc-web&codec=json",
    "wire=connect",
    "wire=connect&http=1",
    "wire=connect&codec=json&get=true",
    "wire=connect&codec=json&http=1&get=true",
];

/// The client that generated code would be.
pub(crate) struct Client(pub(crate) Channel, Codec);

impl Client {
    pub(crate) fn new(channel: Channel) -> Client {
        let codec = channel.codec(Codec::Proto);
        Client(channel, codec)
    }

    pub(crate) async fn to(running: &Running, options: &str) -> Client {
        Client::new(Channel::connect(&format!("{}?{options}", running.url())).await.unwrap())
    }

    pub(crate) fn say(&self, value: &str) -> UnaryCall<StringValue> {
        let request = encode(&text(value), self.1);
        self.0.unary(&methods()[0], self.1, request, decode)
    }

    pub(crate) fn count(&self, value: &str) -> ServerStreamCall<StringValue> {
        self.0.server_stream(&methods()[1], self.1, encode(&text(value), self.1), decode)
    }

    pub(crate) fn join(&self) -> ClientStreamCall<StringValue, StringValue> {
        self.0.client_stream(&methods()[2], self.1, encode, decode)
    }

    pub(crate) fn chat(&self) -> BidiCall<StringValue, StringValue> {
        self.0.bidi(&methods()[3], self.1, encode, decode)
    }

    pub(crate) fn note(&self, value: &str) -> OnewayCall {
        self.0.oneway(&methods()[4], self.1, encode(&text(value), self.1))
    }

    /// A method that the server does not have.
    fn missing(&self) -> UnaryCall<StringValue> {
        self.0.unary(&methods()[6], self.1, encode(&text(""), self.1), decode)
    }
}

#[tokio::test]
async fn every_kind_of_call_on_every_wire() {
    let (echo, running) = service::start(&[]).await;
    for wire in WIRES {
        let client = Client::to(&running, wire).await;
        let said = client.say("you").await.unwrap();
        assert_eq!(said.value, "hello you", "{wire}");
        assert!(said.meta().is_empty() && said.trailers().is_empty(), "{wire}: {said:?}");

        let mut counted = client.count("").await.unwrap();
        assert_eq!(counted.metadata().await.text("x-head"), Some("first"), "{wire}");
        for number in ["1", "2", "3"] {
            assert_eq!(counted.next().await.unwrap().unwrap().value, number, "{wire}");
        }
        assert!(counted.next().await.unwrap().is_none(), "{wire}");
        assert_eq!(counted.trailers().text("x-end"), Some("bye"), "{wire}");
        assert_eq!(&counted.trailers().value("x-end-bin").unwrap()[..], b"\0", "{wire}");

        let join = client.join().await.unwrap();
        for word in ["a", "b", "c"] {
            join.send(text(word)).await.unwrap();
        }
        assert_eq!(join.finish().await.unwrap().value, "abc", "{wire}");

        let (sender, mut receiver) = client.chat().await.unwrap();
        // HTTP/1.1 carries the answers only after the requests.
        let alternate = !wire.contains("http=1");
        for word in ["x", "y"] {
            sender.send(text(word)).await.unwrap();
            if alternate {
                assert_eq!(receiver.next().await.unwrap().unwrap().value, format!("<{word}>"), "{wire}");
            }
        }
        sender.finish();
        if !alternate {
            match receiver.next().await {
                Ok(first) => assert_eq!(first.unwrap().value, "<x>", "{wire}"),
                // Connect refuses it there.
                Err(status) => assert_eq!(status.code(), Code::Unknown, "{wire}: {status}"),
            }
            continue;
        }
        assert!(receiver.next().await.unwrap().is_none(), "{wire}");
        assert_eq!(receiver.trailers().text("x-end"), Some("bye"), "{wire}");

        echo.gate.add_permits(1);
        client.note("remember").await.unwrap();
        echo.noted.acquire().await.unwrap().forget();
    }
}

#[tokio::test]
async fn metadata_and_deadlines_travel_on_every_wire() {
    let (_, running) = service::start(&[]).await;
    for wire in WIRES {
        let client = Client::to(&running, wire).await;
        let said = client.say("you").meta("x-tag", "t").meta("x-tag-bin", &b"\0\xff"[..]).await.unwrap();
        assert_eq!(said.meta().text("x-tag"), Some("t"), "{wire}");
        assert_eq!(&said.meta().value("x-tag-bin").unwrap()[..], b"\0\xff", "{wire}");
        assert_eq!(said.trailers().text("x-end"), Some("bye"), "{wire}");
        assert_eq!(client.say("left").await.unwrap().value, "none", "{wire}");
        let left = client.say("left").timeout(Duration::from_secs(60)).await.unwrap();
        assert_eq!(left.value, "some", "{wire}");
    }
}

#[tokio::test]
async fn statuses_come_whole_on_every_wire() {
    let (_, running) = service::start(&[]).await;
    for wire in WIRES {
        let client = Client::to(&running, wire).await;
        let status = client.say("fail").await.unwrap_err();
        assert_eq!((status.code(), status.origin()), (Code::NotFound, Origin::Peer), "{wire}");
        assert_eq!(status.message(), "no such thing: \u{e9}%", "{wire}");
        assert_eq!(status.details()[0].type_name, "test.v1.Why", "{wire}");
        assert_eq!(&status.details()[0].value[..], b"\x08\x01", "{wire}");
        assert_eq!(status.metadata().text("x-why"), Some("because"), "{wire}");
        assert_eq!(&status.metadata().value("x-why-bin").unwrap()[..], b"\0\xff", "{wire}");

        let mut counted = client.count("fail").await.unwrap();
        for _ in 0..3 {
            counted.next().await.unwrap().unwrap();
        }
        let status = counted.next().await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Aborted, "enough"), "{wire}");
        assert_eq!(counted.trailers().text("x-end"), Some("bye"), "{wire}");

        let mut refused = client.count("refuse").await.unwrap();
        let status = refused.next().await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{wire}");
        assert_eq!(status.metadata().text("x-end"), Some("bye"), "{wire}");

        let status = client.missing().await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{wire}: {status}");
        client.say("").timeout(Duration::MAX).await.unwrap();
        assert_eq!(client.say("panic").await.unwrap_err().code(), Code::Internal, "{wire}");
    }
}

#[tokio::test]
async fn dropped_calls_and_deadlines_end_the_handler() {
    let (echo, running) = service::start(&[]).await;
    for wire in WIRES {
        let client = Client::to(&running, wire).await;
        echo.until_dropped(async |time| {
            let status = client.say("hang").timeout(time).await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{wire}");
        })
        .await;
        echo.until_dropped(async |time| {
            let gave_up = tokio::time::timeout(time, client.say("hang").into_future()).await;
            assert!(gave_up.is_err(), "{wire}: {gave_up:?}");
        })
        .await;
        let mut hung = client.count("hang").timeout(Duration::from_millis(30)).await.unwrap();
        assert_eq!(hung.next().await.unwrap_err().code(), Code::DeadlineExceeded, "{wire}");
        let late = client.say("you").timeout(Duration::ZERO).await.unwrap_err();
        assert_eq!(late.code(), Code::DeadlineExceeded, "{wire}");
        // Nothing of that has hurt the connection.
        assert_eq!(client.say("you").await.unwrap().value, "hello you", "{wire}");
    }
}

#[tokio::test]
async fn messages_are_compressed_both_ways_and_large_ones_refused() {
    let (_, running) = service::start(&[]).await;
    let long = "long ".repeat(100_000);
    for wire in [
        "wire=grpc",
        "wire=grpc&engine=own",
        "wire=grpc-web&http=1",
        "wire=connect",
        "wire=connect&http=1&codec=json",
    ] {
        for compression in ["none", "replies", "deflate", "gzip", "zstd"] {
            let client = Client::to(&running, &format!("{wire}&compression={compression}")).await;
            assert_eq!(client.say(&long).await.unwrap().value.len(), long.len() + 6, "{wire} {compression}");
            let join = client.join().await.unwrap();
            for _ in 0..3 {
                join.send(text(&*long)).await.unwrap();
            }
            assert_eq!(join.finish().await.unwrap().value.len(), 3 * long.len(), "{wire} {compression}");

            let small = format!("{wire}&compression={compression}&message_bytes_max=1000");
            let client = Client::to(&running, &small).await;
            let status = client.say(&long).await.unwrap_err();
            assert_eq!((status.code(), status.origin()), (Code::ResourceExhausted, Origin::Local), "{small}");
            assert!(status.message().contains("over the limit of 1000 bytes"), "{small}: {status}");
            let status = client.say("you").reply_bytes_max(4).await.unwrap_err();
            assert!(status.message().contains("reply_bytes_max"), "{small}: {status}");
            assert_eq!(client.say("you").await.unwrap().value, "hello you", "{small}");
        }
    }
}

#[tokio::test]
async fn calls_are_refused_while_other_connections_hold_all_the_memory() {
    let server = Server::new().add(service::echo()).limit(Limit::MemoryBytesMax, 64 << 10);
    let running = server.listen("tcp://127.0.0.1:0").start().await.unwrap();
    let mut native = TcpStream::connect(running.url().replace("tcp://", "")).await.unwrap();
    // Part of a CALL; the buffer that it came into is all the memory there is.
    let mut part = b"\xF5SWB\x01\0\0\0".to_vec();
    part.extend_from_slice(&60_000u32.to_le_bytes());
    part.extend_from_slice(&[2, 3, 0, 0, 1, 0, 0, 0]);
    part.resize(50_000, 0);
    native.write_all(&part).await.unwrap();
    while running.memory().held < 64 << 10 {
        tokio::task::yield_now().await;
    }
    for wire in ["wire=grpc", "wire=grpc&engine=own", "wire=connect&http=1"] {
        let client = Client::to(&running, wire).await;
        let status = client.say("you").await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{wire}");
        assert!(status.message().contains("(memory_bytes_max)"), "{status}");
    }
    drop(native);
    while running.memory().held > 0 {
        tokio::task::yield_now().await;
    }
    let client = Client::to(&running, "wire=grpc").await;
    assert_eq!(client.say("you").await.unwrap().value, "hello you");
}

#[tokio::test]
async fn compressions_of_the_native_wire_are_refused() {
    let (_, running) = service::start(&[]).await;
    for wire in ["wire=grpc", "wire=grpc&engine=own", "wire=grpc-web", "wire=connect", "wire=jsonrpc"] {
        let url = format!("{}?{wire}", running.url());
        for compression in [Compression::Lz4, Compression::Snappy] {
            let builder = || Channel::builder(&url);
            for builder in [
                builder().compression(compression),
                builder().method_compression("test.v1.Echo/Say", compression),
            ] {
                let status = builder.lazy().unwrap_err();
                assert_eq!(status.code(), Code::InvalidArgument, "{wire} {compression}");
                assert!(status.message().contains("use gzip, zstd or deflate"), "{status}");
            }
            let client = Client::to(&running, wire).await;
            let status = client.say("you").compression(compression).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{wire} {compression}");
            if wire != "wire=jsonrpc" {
                assert_eq!(client.say("you").await.unwrap().value, "hello you", "{wire} {compression}");
            }
        }
    }
}

#[tokio::test]
async fn many_callers_share_one_connection() {
    let (_, running) = service::start(&[]).await;
    for wire in ["wire=grpc", "wire=grpc&engine=own", "wire=connect", "wire=connect&http=1"] {
        let client = std::sync::Arc::new(Client::to(&running, &format!("{wire}&connections=1")).await);
        // Over the server's thousand streams: those above wait their turn.
        let callers: Vec<_> = (0..1500)
            .map(|at| {
                let client = client.clone();
                tokio::spawn(async move { client.say(&at.to_string()).await.unwrap().into_inner().value })
            })
            .collect();
        for (at, caller) in callers.into_iter().enumerate() {
            assert_eq!(caller.await.unwrap(), format!("hello {at}"), "{wire}");
        }
    }
}

#[tokio::test]
async fn wrong_options_are_named() {
    let refused = |options: &str| Channel::builder(&format!("tcp://a:1?{options}")).lazy().unwrap_err();
    assert!(refused("wire=soap").message().contains("expected one of baidu_std, connect, "));
    assert!(refused("wire=grpc&http=1").message().contains("gRPC needs HTTP/2"));
    assert!(refused("http=2").message().contains("add wire="));
    assert_eq!(refused("wire=connect&get=1").code(), Code::InvalidArgument);
    let (_, running) = service::start(&[]).await;
    let client = Client::new(Channel::connect(&running.url().replace("tcp://", "http://")).await.unwrap());
    assert_eq!(client.say("who").await.unwrap().value, "connect");
    let dead = Channel::connect("http://127.0.0.1:1").await.unwrap_err();
    assert_eq!((dead.code(), dead.retry()), (Code::Unavailable, Retry::Safe));
    assert!(dead.message().starts_with("connect to tcp://127.0.0.1:1: "), "{dead}");
}
