//! Limits of one method, one listener and one call: each holds where it is set, and its status names it.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use support::{raw::*, *};
use switchboard::{Channel, Code, Limit, Result, Running, Server, Status};

const SMALL: u64 = 2000;
const LARGE: u64 = 300_000;

/// 100 kB in general, less for `Mirror` and `Chat`, more for `Echo` and `Tally`.
async fn start() -> Running {
    let server = Server::new()
        .add(Probe::default())
        .limit(Limit::MessageBytesMax, 100_000)
        .method_limit("test.Probe/Mirror", Limit::MessageBytesMax, SMALL)
        .method_limit("test.Probe/Chat", Limit::MessageBytesMax, SMALL)
        .method_limit("test.Probe/Echo", Limit::MessageBytesMax, LARGE)
        .method_limit("test.Probe/Tally", Limit::MessageBytesMax, LARGE);
    server.listen("tcp://127.0.0.1:0").start().await.expect("start")
}

fn refused<T: std::fmt::Debug>(result: Result<T>, words: &[&str]) {
    let status: Status = result.expect_err("over the limit");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    for word in words {
        assert!(status.message().contains(word), "{word:?} in {status}");
    }
}

#[tokio::test]
async fn limit_of_a_method_is_below_or_above_the_general_one() {
    let running = start().await;
    let channel = Channel::connect(&running.url()).await.unwrap();
    mirror(&channel, vec![1; SMALL as usize]).await.unwrap();
    let of_method = "(message_bytes_max of the method)";
    let words = ["2001 bytes to test.Probe/Mirror", "limit of 2000 bytes", of_method];
    refused(mirror(&channel, vec![1; SMALL as usize + 1]).await, &words);
    refused(mirror(&channel, vec![1; 90_000]).await, &["test.Probe/Mirror", "2000", of_method]);
    assert_eq!(ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8; 250_000]).await.unwrap().len(), 250_000);
    let of_any = ["limit of 300000 bytes", "message_bytes_max"];
    refused(ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8; 400_000]).await, &of_any);
    // A method without a limit of its own has the general one.
    let general = ["200000 bytes", "limit of 100000 bytes", "(message_bytes_max of the receiver)"];
    refused(ask::<_, ()>(&channel, &FAIL, &"x".repeat(199_997)).await, &general);
    // Messages of streams.
    let upload = tally(&channel).await.unwrap();
    upload.send(250_000).await.unwrap();
    assert_eq!(*upload.finish().await.unwrap(), (1, 250_000));
    let (sender, mut receiver) = chat(&channel).await.unwrap();
    sender.send("a".repeat(1990)).await.unwrap();
    assert_eq!(receiver.next().await.unwrap().unwrap().len(), 1990);
    sender.send("a".repeat(3000)).await.unwrap();
    refused(receiver.next().await, &["test.Probe/Chat", "limit of 2000 bytes", of_method]);
}

#[tokio::test]
async fn message_over_the_limit_of_its_method_is_refused_before_it_is_sent() {
    let running = start().await;
    let mut raw = Raw::open(&running).await;
    raw.send(&header(90_000, CALL, WHOLE, 12, 1)).await;
    let (code, text) = raw.expect().await.status();
    assert!(code == Code::ResourceExhausted && text.contains("test.Probe/Mirror"), "{text}");
    raw.send(&[0; 90_000]).await;
    raw.echo(2).await;
}

#[cfg(feature = "http")]
#[tokio::test]
async fn limit_of_a_method_holds_over_http() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let running = start().await;
    for (method, size, expected) in [
        ("Mirror", 1500, "HTTP/1.1 200"),
        ("Mirror", 2500, "HTTP/1.1 429"),
        ("Echo", 250_000, "HTTP/1.1 200"),
        ("Echo", 310_000, "HTTP/1.1 429"),
    ] {
        let address = running.url().replace("tcp://", "");
        let mut io = tokio::net::TcpStream::connect(address).await.unwrap();
        let body = format!("[{}1]", "1,".repeat(size / 2 - 1));
        let head = format!(
            "POST /test.Probe/{method} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let mut answer = Vec::new();
        let _ = soon(io.write_all(format!("{head}{body}").as_bytes())).await;
        let _ = soon(io.read_to_end(&mut answer)).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(expected), "{method} {size}: {}", &answer[..answer.len().min(300)]);
    }
}

#[tokio::test]
async fn wrong_limits_of_methods_are_refused_at_the_start() {
    let cases = [
        (
            ("test.Probe/Nope", Limit::MessageBytesMax, 1),
            "unknown method test.Probe/Nope: test.Probe has Echo",
        ),
        (("test.Nope/Echo", Limit::MessageBytesMax, 1), "unknown service test.Nope"),
        (("test.Probe/Echo", Limit::CallsMax, 1), "calls_max cannot be set for one method"),
        (("test.Probe/Echo", Limit::MessageBytesMax, 0), "out of range"),
    ];
    for ((method, limit, value), expected) in cases {
        let server = Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0");
        let error = server.method_limit(method, limit, value).start().await.err().expect("refused");
        assert!(error.is_config() && error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn call_limits_its_replies() {
    let (_running, remote, seen) = served("tcp://127.0.0.1:0").await;
    for channel in [&remote, &Channel::local(Probe::default())] {
        let sent = vec![1u8; 1000];
        let echo = || call::<_, Vec<u8>>(channel, &ECHO, &sent);
        echo().reply_bytes_max(1002).await.unwrap();
        let words = ["a reply of 1002 bytes", "limit of 1001 bytes", "reply_bytes_max of the call"];
        refused(echo().reply_bytes_max(1001).await, &words);
        let mut stream = count(channel, 1000, 5000).reply_bytes_max(4000).await.unwrap();
        refused(stream.next().await, &["reply_bytes_max of the call"]);
        drop(stream);
        let upload = sum(channel).reply_bytes_max(0).await.unwrap();
        refused(upload.finish().await, &["reply_bytes_max of the call"]);
    }
    soon(seen.until(|seen| seen.hanging() == 0)).await;
}

#[tokio::test]
async fn old_connections_get_a_goaway() {
    let server = Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0");
    let running = server.limit(Limit::ConnectionAge, 100).start().await.unwrap();
    let mut raw = Raw::open(&running).await;
    let away = raw.expect().await;
    assert_eq!(away.kind, GO_AWAY);
    assert!(String::from_utf8_lossy(&away.body).contains("connection_age"), "{away:?}");
    assert_eq!(soon(raw.next()).await, None);
    // Callers of a channel notice nothing: the next call has a new connection.
    let channel = Channel::connect(&running.url()).await.unwrap();
    soon(async {
        while running.stats().accepted < 4 {
            call::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8; 10]).await.unwrap();
        }
    })
    .await;
}
