//! Faults between a client on HTTP and its server.

use crate::{
    client::Client,
    service::{self, text},
};
use std::time::Duration;
use switchboard::{Channel, Code, Origin, Retry, Server};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Engines of gRPC, while there are two.
const ENGINES: [&str; 2] = ["h2", "own"];

/// A server that answers every request of HTTP/1.1 with these bytes.
async fn answering(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn pages_of_proxies_become_statuses_that_name_them() {
    let page = "<html>no</html>";
    for (line, code) in [
        ("400 Bad Request", Code::Internal),
        ("401 Unauthorized", Code::Unauthenticated),
        ("403 Forbidden", Code::PermissionDenied),
        ("404 Not Found", Code::Unimplemented),
        ("429 Too Many Requests", Code::Unavailable),
        ("502 Bad Gateway", Code::Unavailable),
        ("503 Service Unavailable", Code::Unavailable),
        ("504 Gateway Timeout", Code::Unavailable),
        ("500 Internal Server Error", Code::Unknown),
        ("200 OK", Code::Unknown),
    ] {
        let answer =
            format!("HTTP/1.1 {line}\r\ncontent-type: text/html\r\ncontent-length: 15\r\n\r\n{page}");
        let url = answering(answer.leak()).await;
        for wire in ["connect", "grpc-web"] {
            let client = Client::new(Channel::connect(&format!("{url}?wire={wire}&http=1")).await.unwrap());
            let status = client.say("you").await.unwrap_err();
            assert_eq!(
                (status.code(), status.origin()),
                (code, Origin::Connection),
                "{wire} {line}: {status}"
            );
            assert!(status.message().contains("content type text/html"), "{wire} {line}: {status}");
            let mut stream = client.count("").await.unwrap();
            assert_eq!(stream.next().await.unwrap_err().code(), code, "{wire} {line}");
        }
    }
}

#[tokio::test]
async fn servers_that_die_are_found_again() {
    for wire in
        ["wire=grpc", "wire=grpc&engine=own", "wire=grpc-web&http=1", "wire=connect", "wire=connect&http=1"]
    {
        let (_, running) = service::start(&[]).await;
        let address = running.url();
        let client = Client::to(&running, &format!("{wire}&connections=1&backoff_max=20ms")).await;
        client.say("you").await.unwrap();
        let hanging = tokio::spawn(client.say("hang").into_future());
        while running.stats().calls_in_flight == 0 {
            tokio::task::yield_now().await;
        }
        running.drain(Duration::ZERO).await;
        let lost = hanging.await.unwrap().unwrap_err();
        assert_eq!((lost.code(), lost.origin()), (Code::Unavailable, Origin::Connection), "{wire}: {lost}");
        assert!(lost.message().contains(&address), "{wire}: {lost}");
        let dead = client.say("you").await.unwrap_err();
        assert_eq!((dead.code(), dead.retry()), (Code::Unavailable, Retry::Safe), "{wire}: {dead}");
        assert!(dead.message().starts_with(&format!("connect to {address}: ")), "{wire}: {dead}");

        let echo = service::echo();
        let again = Server::new().add(echo).listen(&address).start().await.unwrap();
        while client.say("you").await.is_err() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        drop(again);
    }
}

#[tokio::test]
async fn draining_servers_lose_no_call() {
    // HTTP/1.1 cannot: a server that closes an idle connection may meet a call on its way.
    for wire in ["wire=grpc", "wire=grpc&engine=own", "wire=grpc-web", "wire=connect"] {
        let (_, first) = service::start(&[]).await;
        let (_, second) = service::start(&[]).await;
        let urls = format!("{},{}?{wire}&connections=1", first.url(), second.url());
        let client = std::sync::Arc::new(Client::new(Channel::connect(&urls).await.unwrap()));
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let callers: Vec<_> = (0..8)
            .map(|_| {
                let (client, stop) = (client.clone(), stop.clone());
                tokio::spawn(async move {
                    let mut calls = 0;
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        client.say("you").await.unwrap_or_else(|status| panic!("{wire}: {status}"));
                        calls += 1;
                    }
                    calls
                })
            })
            .collect();
        for _ in 0..50 {
            client.say("you").await.unwrap();
        }
        // Every connection gets GOAWAY, or its end, while calls begin.
        first.drain(Duration::from_secs(5)).await;
        for _ in 0..50 {
            client.say("you").await.unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for caller in callers {
            assert!(caller.await.unwrap() > 0, "{wire}");
        }
    }
}

#[tokio::test]
async fn silent_servers_are_given_up() {
    for engine in ENGINES {
        silent_server_is_given_up(engine).await;
    }
}

async fn silent_server_is_given_up(engine: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "tcp://{}?wire=grpc&engine={engine}&connections=1&keepalive=20ms",
        listener.local_addr().unwrap()
    );
    // Accepts and says nothing more than its settings.
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard).await;
        heard
    });
    let client = Client::new(Channel::connect(&url).await.unwrap());
    let status = client.say("you").await.unwrap_err();
    assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::IfIdempotent), "{status}");
    assert!(status.message().contains("no data received for 40ms (keepalive)"), "{status}");
    drop(client);
    let heard = server.await.unwrap();
    // A PING of eight bytes on stream 0.
    assert!(heard.windows(9).any(|head| head == b"\0\0\x08\x06\0\0\0\0\0"), "no ping");
}

#[tokio::test]
async fn server_with_too_many_pings_is_pinged_half_as_often_each_time() {
    for engine in ENGINES {
        pings_are_halved(engine).await;
    }
}

async fn pings_are_halved(engine: &str) {
    const PING: u8 = 6;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "tcp://{}?wire=grpc&engine={engine}&connections=1&keepalive=20ms",
        listener.local_addr().unwrap()
    );
    // ENHANCE_YOUR_CALM, with the text that gRPC uses for too many pings; the call was accepted.
    let calm = frame(7, 0, 0, b"\0\0\0\x01\0\0\0\x0btoo_many_pings");
    let server = tokio::spawn(async move {
        for connection in 0..3 {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
            stream.read_exact(&mut [0; 24]).await.unwrap();
            let mut kind = u8::MAX;
            while connection < 2 && kind != PING {
                let mut head = [0; 9];
                stream.read_exact(&mut head).await.unwrap();
                kind = head[3];
                let mut body = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
                stream.read_exact(&mut body).await.unwrap();
            }
            if connection < 2 {
                stream.write_all(&calm).await.unwrap();
                stream.shutdown().await.unwrap();
            }
            // The third connection gets no responses.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    });
    let client = Client::new(Channel::connect(&url).await.unwrap());
    for _ in 0..2 {
        let status = client.say("you").await.unwrap_err();
        assert!(status.message().contains("too_many_pings"), "{status}");
    }
    let status = client.say("you").await.unwrap_err();
    assert!(status.message().contains("no data received for 160ms (keepalive)"), "{status}");
    drop(client);
    server.await.unwrap();
}

/// Frames of HTTP/2, for servers that break off.
fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let mut frame = (body.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(body);
    frame
}

/// Reads until the first HEADERS frame of a client has come.
async fn read_request(stream: &mut TcpStream) {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut body = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut body).await.unwrap();
        if head[3] == 1 {
            return;
        }
    }
}

#[tokio::test]
async fn resets_and_goaway_become_statuses_or_a_second_try() {
    for engine in ENGINES {
        resets_and_goaway(engine).await;
    }
}

async fn resets_and_goaway(engine: &str) {
    // REFUSED_STREAM, or a GOAWAY whose last stream is an older one: the call goes to the next connection.
    let refused = frame(3, 0, 1, &7u32.to_be_bytes());
    let goaway = frame(7, 0, 0, &[0; 8]);
    // CANCEL, ENHANCE_YOUR_CALM, INTERNAL_ERROR.
    let reset = |reason: u32| frame(3, 0, 1, &reason.to_be_bytes());
    for (breaks, wanted) in [
        (refused, None),
        (goaway, None),
        (reset(8), Some(Code::Canceled)),
        (reset(11), Some(Code::ResourceExhausted)),
        (reset(2), Some(Code::Internal)),
    ] {
        let (_, running) = service::start(&[]).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("tcp://{}?wire=grpc&engine={engine}&connections=1", listener.local_addr().unwrap());
        let target = running.url().replace("tcp://", "");
        let is_goaway = breaks[3] == 7;
        tokio::spawn(async move {
            let (mut first, _) = listener.accept().await.unwrap();
            first.write_all(&frame(4, 0, 0, &[])).await.unwrap();
            read_request(&mut first).await;
            first.write_all(&breaks).await.unwrap();
            if is_goaway {
                let (mut near, _) = listener.accept().await.unwrap();
                let mut far = TcpStream::connect(target).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            } else {
                // The same connection has a second chance, and refuses it the same way.
                let mut rest = [0; 4096];
                let mut again = frame(3, 0, 3, &7u32.to_be_bytes());
                while first.read(&mut rest).await.is_ok_and(|read| read > 0) {
                    let _ = first.write_all(&std::mem::take(&mut again)).await;
                }
            }
        });
        let client = Client::new(Channel::connect(&url).await.unwrap());
        let said = client.say("you").await;
        match (wanted, is_goaway) {
            (None, true) => assert_eq!(said.unwrap().value, "hello you"),
            (None, false) => {
                let status = said.unwrap_err();
                assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe), "{status}");
            }
            (Some(code), _) => assert_eq!(said.unwrap_err().code(), code),
        }
    }
}

#[tokio::test]
async fn streams_wait_for_their_readers_and_end_with_them() {
    let (_, running) = service::start(&[]).await;
    for wire in ["wire=grpc", "wire=grpc&engine=own", "wire=grpc-web", "wire=connect"] {
        let client = Client::to(&running, &format!("{wire}&connections=1")).await;
        let (sender, mut receiver) = client.chat().await.unwrap();
        let word = "w".repeat(100_000);
        // More than all windows and queues hold: the sender has to wait for the reader.
        let pushing = tokio::spawn({
            let word = word.clone();
            async move {
                for _ in 0..50 {
                    sender.send(text(&*word)).await.unwrap();
                }
            }
        });
        // Another call succeeds although this stream is stalled.
        assert_eq!(client.say("you").await.unwrap().value, "hello you", "{wire}");
        for _ in 0..50 {
            assert_eq!(receiver.next().await.unwrap().unwrap().value.len(), word.len() + 2, "{wire}");
        }
        pushing.await.unwrap();
        assert!(receiver.next().await.unwrap().is_none(), "{wire}");

        let (sender, receiver) = client.chat().await.unwrap();
        drop(receiver);
        let mut sent = sender.send(text("x")).await;
        while sent.is_ok() {
            tokio::task::yield_now().await;
            sent = sender.send(text("x")).await;
        }
        assert_eq!(sent.unwrap_err().code(), Code::Canceled, "{wire}");
        assert_eq!(client.say("you").await.unwrap().value, "hello you", "{wire}");
    }
}

#[test]
fn calls_end_with_the_runtime_that_drove_them() {
    let runtime = |threads| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(threads).enable_all().build().unwrap()
    };
    let serving = runtime(1);
    let (_, running) = serving.block_on(service::start(&[]));
    for wire in ["wire=grpc", "wire=grpc&engine=own", "wire=connect&http=1"] {
        let driving = runtime(1);
        let client = driving.block_on(Client::to(&running, wire));
        let mut stream = driving.block_on(client.count("hang").into_future()).unwrap();
        let mut unary = Box::pin(client.say("hang").into_future());
        driving.block_on(async {
            // A call that was not sent would go out once more, from here.
            while running.stats().calls_in_flight < 2 {
                assert!(is_pending(&mut unary).await, "{wire}");
                tokio::task::yield_now().await;
            }
        });
        driving.shutdown_background();
        let lost = serving.block_on(stream.next()).unwrap_err();
        assert_eq!(lost.code(), Code::Unavailable, "{wire}: {lost}");
        let lost = serving.block_on(unary).unwrap_err();
        assert_eq!(lost.code(), Code::Unavailable, "{wire}: {lost}");
        while running.stats().calls_in_flight > 0 {
            std::thread::yield_now();
        }
    }
}

/// Polls once.
pub(crate) async fn is_pending<F: Future + Unpin>(call: &mut F) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut *call).poll(cx).is_pending()))
        .await
}
