//! Our client and our server, in every way that Thrift can be spoken, and the same service on other wires.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::{sync::Arc, time::Duration};
use switchboard::{Channel, Code, Codec, Limit, Running, Server, codec::thrift::Exception};
use thrift_interop::{
    Answers, Second,
    cases::{self, Served},
    test::{CrazyNesting, SecondServiceServer, ThriftTestClient, ThriftTestServer, Xception},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

async fn start() -> Running {
    let server = Server::new()
        .add(ThriftTestServer::new(Answers::default()))
        .add(SecondServiceServer::new(Second))
        .listen_with("tcp://127.0.0.1:0", [(Limit::MessageBytesMax, 1 << 20)]);
    server.start().await.unwrap()
}

/// Waits for a response of a peer, at most 60 s.
async fn soon<T>(wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("it takes too long")
}

const WAYS: [&str; 10] = [
    "protocol=binary",
    "protocol=binary&framed=false",
    "protocol=compact",
    "protocol=compact&framed=false",
    "protocol=header",
    "protocol=header-compact",
    "protocol=header&zlib=true",
    "path=/thrift",
    "protocol=compact&http=1",
    "http=2",
];

#[tokio::test]
async fn every_case_passes_in_every_way() {
    let running = start().await;
    for way in WAYS {
        for served in [Served::One, Served::Multiplexed] {
            let url = format!("{}?wire=thrift&{way}", running.url());
            let count = soon(cases::run(&url, served)).await.unwrap_or_else(|what| panic!("{way}: {what}"));
            assert!(count > 40, "{count}");
        }
    }
}

#[tokio::test]
async fn other_wires_carry_the_same_service() {
    let running = start().await;
    let http = running.url().replacen("tcp://", "http://", 1);
    for (url, codec) in [
        (running.url(), None),
        (running.url(), Some(Codec::Postcard)),
        (http.clone(), None),
        (format!("{http}?wire=jsonrpc"), None),
    ] {
        let mut client = ThriftTestClient::connect(&url).await.unwrap();
        if let Some(codec) = codec {
            client = client.with_codec(codec);
        }
        assert_eq!(
            client.test_multi_exception("success".into(), "x".into()).await.unwrap().string_thing,
            "x"
        );
        let status = client.test_exception("Xception".into()).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{url}: {status}");
        assert_eq!(
            Xception::of(&status).map(|exception| exception.error_code),
            Some(1001),
            "{url}: {status}"
        );
        assert_eq!(client.test_defaults(Default::default()).await.unwrap().number, 16);
    }
    // Fields that are left out have their defaults.
    let body = r#"{"thing":{"text":"y"}}"#;
    let answer =
        post(&running, "/thrift.test.ThriftTest/testDefaults", "application/json", body.as_bytes()).await;
    assert!(answer.contains(r#""number":16"#) && answer.contains(r#""text":"y""#), "{answer}");
}

/// Returns the whole response, with bytes that are not UTF-8 replaced.
async fn post(running: &Running, path: &str, kind: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[request.as_bytes(), body].concat()).await.unwrap();
    let mut answer = Vec::new();
    soon(stream.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn messages_come_by_post_to_any_path() {
    let running = start().await;
    let thrift = "application/x-thrift";
    let call = b"\x80\x01\0\x01\0\0\0\x04ping\0\0\0\x07\x0b\0\x01\0\0\0\x01x\0";
    let answer = post(&running, "/", thrift, call).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("content-type: application/x-thrift"),
        "{answer}"
    );
    assert!(answer.contains("pong: x"), "{answer}");
    let oneway = b"\x80\x01\0\x04\0\0\0\x0atestOneway\0\0\0\x07\x08\0\x01\0\0\0\0\0";
    let answer = post(&running, "/any", "application/vnd.apache.thrift.binary", oneway).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n"), "{answer}");
    let unknown = b"\x80\x01\0\x01\0\0\0\x04nope\0\0\0\x07\0";
    let answer = post(&running, "/", thrift, unknown).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("unknown method nope"), "{answer}");
    for (body, status) in [
        (&b""[..], "400"),
        (&call[..20], "400"),
        (b"\x80\x02\0\x01xxxxxxxx", "400"),
        (&[0x80; 2 << 20], "413"),
    ] {
        let answer = post(&running, "/", thrift, body).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
}

#[tokio::test]
async fn metadata_travels_in_headers_both_ways() {
    let running = start().await;
    let http = running.url().replacen("tcp://", "http://", 1);
    for url in [format!("{}?wire=thrift&protocol=header", running.url()), format!("{http}?wire=thrift")] {
        let client = ThriftTestClient::connect(&url).await.unwrap();
        let response = client.test_string("x".into()).meta("tenant", "a").await.unwrap();
        assert_eq!(response.meta().text("served-for"), Some("a"), "{url}");
    }
}

#[tokio::test]
async fn answers_of_http_that_are_no_thrift_are_statuses() {
    for (answer, code, text) in [
        (
            "200 OK\r\ncontent-type: text/html",
            Code::Unknown,
            "content type text/html, expected application/x-thrift",
        ),
        (
            "200 OK\r\ncontent-type: application/x-thrift",
            Code::Internal,
            "the bytes after a message do not begin another one",
        ),
        ("413 Too Large\r\ncontent-type: text/plain", Code::ResourceExhausted, "odd"),
        ("502 Bad Gateway\r\ncontent-type: text/plain", Code::Unavailable, "502 Bad Gateway"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}?wire=thrift&connections=1", listener.local_addr().unwrap());
        let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 3\r\n\r\nodd");
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let client = ThriftTestClient::connect(&url).await.unwrap();
        let status = soon(client.test_i32(5).into_future()).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{status}");
    }
}

#[tokio::test]
async fn many_callers_share_connections() {
    let running = start().await;
    for way in WAYS {
        let url = format!("{}?wire=thrift&{way}", running.url());
        let client = Arc::new(ThriftTestClient::connect(&url).await.unwrap());
        let calls = (0..200).map(|number| {
            let client = client.clone();
            tokio::spawn(async move { client.test_i32(number).await.unwrap().into_inner() == number })
        });
        for call in calls.collect::<Vec<_>>() {
            assert!(soon(call).await.unwrap());
        }
    }
}

#[tokio::test]
async fn mistakes_are_answered_with_statuses() {
    let running = start().await;
    let url = format!("{}?wire=thrift", running.url());
    let client = ThriftTestClient::connect(&url).await.unwrap();
    // A set of maps is no key in JSON, and says so.
    let json = client.clone().with_codec(Codec::Json);
    let status = json.test_i32(5).await.unwrap_err();
    assert!(status.message().contains("thrift"), "{status}");
    let large = client.test_string("x".repeat(2 << 20)).await.unwrap_err();
    assert_eq!(large.code(), Code::ResourceExhausted, "{large}");
    let other = SecondServiceServer::new(Second);
    let second = Server::new().add(other).listen("tcp://127.0.0.1:0").start().await.unwrap();
    let client = ThriftTestClient::connect(&format!("{}?wire=thrift", second.url())).await.unwrap();
    let status = client.test_nesting(CrazyNesting::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "{status}");
    assert!(status.message().contains("testNesting"), "{status}");
    for odd in [
        "protocol=json",
        "framed=maybe",
        "protocol=header&framed=false",
        "zlib=true",
        "path=/x&protocol=header",
        "http=1&framed=true",
        "http=1&codec=json",
        "path=/x&compression=gzip",
        "path=x",
    ] {
        let url = format!("{}?wire=thrift&{odd}", second.url());
        assert_eq!(Channel::connect(&url).await.unwrap_err().code(), Code::InvalidArgument, "{odd}");
    }
}

#[tokio::test]
async fn one_port_takes_thrift_between_other_callers() {
    let running = start().await;
    let address = running.url().trim_start_matches("tcp://").to_owned();
    let native = ThriftTestClient::connect(&running.url()).await.unwrap();
    let thrift = ThriftTestClient::connect(&format!("{}?wire=thrift", running.url())).await.unwrap();
    let mut slow = TcpStream::connect(&address).await.unwrap();
    slow.set_nodelay(true).unwrap();
    let call = b"\0\0\0\x15\x80\x01\0\x01\0\0\0\x08testVoid\0\0\0\x07\0";
    for byte in call {
        slow.write_all(&[*byte]).await.unwrap();
        assert_eq!(native.test_i32(1).await.unwrap().into_inner(), 1);
        assert_eq!(thrift.test_i32(2).await.unwrap().into_inner(), 2);
    }
    let mut answer = vec![0; call.len()];
    soon(slow.read_exact(&mut answer)).await.unwrap();
    assert_eq!(answer, b"\0\0\0\x15\x80\x01\0\x02\0\0\0\x08testVoid\0\0\0\x07\0");
    let stats = running.stats();
    let protocol = stats.protocols.iter().find(|protocol| protocol.protocol == "thrift").unwrap();
    assert!(protocol.connections >= 2, "{protocol:?}");
}
