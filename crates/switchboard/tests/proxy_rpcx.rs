//! Pushes, files and streams of rpcx through a proxy: pushes end there, files and streams go around it.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};
use support::raw::soon;
use switchboard::{
    Channel, Code, Cx, Push, Pusher, Pushes, Result, Running, Server,
    proxy::Forward,
    rpcx::{Meta, Pipe, StreamService, Streams, stream},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[switchboard::service(name = "test.News")]
trait News {
    async fn subscribe(&self, cx: &Cx) -> Result<()>;
}

/// The connections to push to.
#[derive(Clone, Default)]
struct Readers(Arc<Mutex<Vec<Pusher>>>);

impl News for Readers {
    async fn subscribe(&self, cx: &Cx) -> Result<()> {
        let pusher = cx.pusher()?;
        pusher.push(Push::new("test.News/Flash", "welcome"))?;
        self.0.lock().unwrap().push(pusher);
        Ok(())
    }
}

struct Echo;

impl Streams for Echo {
    async fn stream(&self, _meta: Meta, mut pipe: Pipe) -> io::Result<()> {
        let mut bytes = [0; 4];
        pipe.read_exact(&mut bytes).await?;
        pipe.write_all(&bytes).await
    }
}

async fn proxy_to(behind: &Running, options: &str) -> Running {
    let channel = Channel::connect(&format!("{}{options}", behind.url())).await.unwrap();
    let server = Server::new().fallback(Forward::any(channel), [""; 0]);
    server.listen("tcp://127.0.0.1:0").start().await.unwrap()
}

#[tokio::test]
async fn pushes_of_a_server_behind_end_at_the_proxy() {
    let readers = Readers::default();
    let server = Server::new().add(NewsServer::new(readers.clone())).listen("tcp://127.0.0.1:0");
    let behind = server.start().await.unwrap();
    let front = proxy_to(&behind, "?wire=rpcx&connections=1").await;
    let pushes = Pushes::new();
    let url = format!("{}?wire=rpcx", front.url());
    let news = NewsClient::new(Channel::builder(&url).pushes(&pushes).connect().await.unwrap());
    soon(news.subscribe()).await.unwrap();
    // The server behind is not refused: the proxy reads what it gets.
    for _ in 0..100 {
        let large = Push::new("test.News/Flash", vec![b'n'; 100_000]);
        let reader = readers.0.lock().unwrap()[0].clone();
        soon(async {
            while let Err(status) = reader.push(large.clone()) {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    // Answered behind them on the same connection.
    soon(news.subscribe()).await.unwrap();
    assert!(tokio::time::timeout(Duration::ZERO, pushes.next()).await.is_err());
    assert_eq!(pushes.lost(), 0);
    // The target server does not see that the caller has disconnected: the connection is the proxy's.
    drop(news);
    soon(async {
        while front.stats().connections > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(readers.0.lock().unwrap().iter().all(|reader| !reader.is_closed()));

    // Another wire to the same server does not support pushes, and handlers get an error.
    let front = proxy_to(&behind, "").await;
    let news = NewsClient::connect(&format!("{}?wire=rpcx", front.url())).await.unwrap();
    let status = soon(news.subscribe()).await.err().unwrap();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("not supported on native"), "{status}");
}

#[tokio::test]
async fn streams_go_around_the_proxy_to_where_the_server_behind_says() {
    let streams = StreamService::listen("127.0.0.1:0", Echo).await.unwrap();
    let behind = Server::new().add(streams).listen("tcp://127.0.0.1:0").start().await.unwrap();
    let front = proxy_to(&behind, "?wire=rpcx").await;
    let channel = Channel::connect(&format!("{}?wire=rpcx", front.url())).await.unwrap();
    let mut pipe = soon(stream(&channel, &Meta::new())).await.unwrap();
    let proxy = front.addresses()[0].to_string();
    assert!(!proxy.ends_with(&pipe.peer_addr().unwrap().port().to_string()), "{proxy}");
    pipe.write_all(b"ping").await.unwrap();
    let mut said = String::new();
    soon(pipe.read_to_string(&mut said)).await.unwrap();
    assert_eq!(said, "ping");
}
