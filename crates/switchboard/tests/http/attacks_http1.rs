//! Attacks on HTTP/1.1: each ends at a bound, and another caller is served meanwhile.

use crate::{frames::soon, raw::*, service::start};
use switchboard::Limit;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const HEAD: &str = "POST /test.v1.Echo/Say HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";

/// All that comes until the server closes the connection.
async fn rest(stream: &mut tokio::net::TcpStream) -> String {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    // A reset is an end too.
    while let Ok(count @ 1..) = soon(stream.read(&mut buffer)).await {
        all.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8_lossy(&all).to_lowercase()
}

#[tokio::test]
async fn requests_of_two_lengths_hide_no_second_request() {
    let (_, running) = start(&[]).await;
    let hidden = "POST /test.v1.Echo/Say HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                  content-length: 8\r\n\r\n\"hidden\"";
    for request in [
        // By its length the body has the hidden request, by its chunks it is empty.
        format!(
            "{HEAD}content-length: {}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
            5 + hidden.len()
        ),
        format!(
            "{HEAD}transfer-encoding: chunked\r\ncontent-length: {}\r\n\r\n0\r\n\r\n{hidden}",
            5 + hidden.len()
        ),
        format!("{HEAD}content-length: 5\r\ncontent-length: {}\r\n\r\n\"you\"{hidden}", 5 + hidden.len()),
        format!("{HEAD}content-length: 5, 6\r\n\r\n\"you\"{hidden}"),
        format!("{HEAD}content-length: +5\r\n\r\n\"you\"{hidden}"),
        format!("{HEAD}content-length: -1\r\n\r\n\"you\"{hidden}"),
        format!("{HEAD}content-length : 5\r\n\r\n\"you\"{hidden}"),
        format!("{HEAD}transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{HEAD}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{HEAD}transfer-encoding: chunked\r\n\r\n0x0\r\n\r\n{hidden}"),
        format!("{HEAD}transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\n{hidden}"),
        format!("{HEAD}transfer-encoding: chunked\r\n\r\n-1\r\n\r\n{hidden}"),
    ] {
        let mut stream = dial(&running).await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let all = rest(&mut stream).await;
        assert!(!all.contains("hello hidden"), "{request}\n---\n{all}");
        serves(&running).await;
    }
}

#[tokio::test]
async fn odd_ends_of_lines_do_not_split_a_request() {
    let (_, running) = start(&[]).await;
    for request in [
        format!("{HEAD}x-a: b\rcontent-length: 5\r\n\r\n\"you\""),
        format!("{HEAD}x-a: b\0c\r\ncontent-length: 5\r\n\r\n\"you\""),
        format!("{HEAD}x-a: b\r\n c\r\ncontent-length: 5\r\n\r\n\"you\""),
        format!("{HEAD}: empty\r\ncontent-length: 5\r\n\r\n\"you\""),
        "POST /test.v1.Echo/Say\r\n\r\n".to_owned(),
        "POST  /test.v1.Echo/Say HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
    ] {
        let mut stream = dial(&running).await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let all = rest(&mut stream).await;
        assert!(all.starts_with("http/1.1 400") || all.is_empty(), "{request}\n---\n{all}");
        serves(&running).await;
    }
    // Lines that end in LF alone are lines; there is nothing between us and the peer that could see it otherwise.
    let mut stream = dial(&running).await;
    let request = format!("{HEAD}content-length: 5\r\n\r\n\"you\"").replace("\r\n", "\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let (head, body) = soon(answer(&mut stream)).await;
    assert!(head.starts_with("http/1.1 200") && body == b"\"hello you\"", "{head}");
}

#[tokio::test]
async fn oversized_parts_of_a_request_are_refused() {
    let (_, running) = start(&[(Limit::MessageBytesMax, 1000)]).await;
    let long = "x".repeat(100_000);
    let many: String = (0..1000).map(|number| format!("x-{number}: y\r\n")).collect();
    for (request, status) in [
        (format!("POST /{long} HTTP/1.1\r\nhost: x\r\n\r\n"), "431"),
        (format!("{HEAD}x-long: {long}\r\n\r\n"), "431"),
        (format!("{HEAD}{many}\r\n"), "431"),
        (format!("{HEAD}content-length: 4000000000\r\n\r\n\"{long}"), "429"),
    ] {
        let mut stream = dial(&running).await;
        // The answer may come, and the connection end, while there is more to write.
        let _ = soon(stream.write_all(request.as_bytes())).await;
        let mut first = [0; 12];
        if soon(stream.read_exact(&mut first)).await.is_ok() {
            assert_eq!(&first[9..], status.as_bytes(), "{}", &request[..200]);
        }
        serves(&running).await;
    }
}

#[tokio::test]
async fn chunk_extensions_and_trailers_without_end_are_refused() {
    let (_, running) = start(&[]).await;
    for (start, more) in [("1;", "x=y;"), ("1\r\nx\r\n0\r\n", "x-t: y\r\n")] {
        let mut stream = dial(&running).await;
        let head = format!("{HEAD}transfer-encoding: chunked\r\n\r\n{start}");
        stream.write_all(head.as_bytes()).await.unwrap();
        let more = more.repeat(1000);
        let mut written = 0_usize;
        let ended = soon(async {
            while written < 8 << 20 {
                if stream.write_all(more.as_bytes()).await.is_err() {
                    return true;
                }
                written += more.len();
                tokio::task::yield_now().await;
            }
            false
        })
        .await;
        assert!(ended, "{start:?}: {written} bytes were taken");
        serves(&running).await;
    }
}

#[tokio::test]
async fn heads_and_bodies_that_stop_are_closed() {
    let (_, running) = start(&[(Limit::IdleTimeout, 200)]).await;
    for part in [
        HEAD.to_owned(),
        format!("{HEAD}content-length: 100\r\n\r\n\"y"),
        format!("{HEAD}transfer-encoding: chunked\r\n\r\n5\r\n\"y"),
        format!("{HEAD}transfer-encoding: chunked\r\n\r\n")
            .replace("Say", "Join")
            .replace("json", "connect+json"),
        // To an unknown method too.
        format!("{HEAD}content-length: 100\r\n\r\n\"y").replace("Say", "Nope"),
    ] {
        let mut stream = dial(&running).await;
        stream.write_all(part.as_bytes()).await.unwrap();
        serves(&running).await;
        rest(&mut stream).await;
    }
}

#[tokio::test]
async fn heads_that_dribble_are_closed() {
    let (_, running) = start(&[(Limit::IdleTimeout, 200)]).await;
    let mut stream = dial(&running).await;
    stream.write_all(HEAD.as_bytes()).await.unwrap();
    // Each byte comes in time, the head does not.
    let (mut read, mut write) = stream.split();
    let ended = async {
        let mut buffer = [0; 1024];
        while matches!(read.read(&mut buffer).await, Ok(1..)) {}
    };
    let dribble = async {
        while write.write_all(b"x").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        std::future::pending::<()>().await;
    };
    soon(async {
        tokio::select! {
            () = ended => {}
            () = dribble => {}
        }
    })
    .await;
    serves(&running).await;
}
