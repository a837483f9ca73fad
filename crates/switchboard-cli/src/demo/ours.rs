//! Calls with the generated clients: on every wire that channels support, and to services in this process.

use super::{
    answers::{self, ALL, CACHEABLE, HALF_DUPLEX, KINDS, Method, UNARY},
    kiss,
    table::Row,
};
use crate::services::{
    BenchService, Hello, HotPosts,
    proto::{bench::BenchClient, demo::GreeterClient, demo::PostsClient},
};
use switchboard::{Channel, Result};

/// Methods for JSON-RPC in a WebSocket: streams of replies are supported.
const REPLIES: [Method; 4] = [Method::Greet, Method::Watch, Method::Query, Method::Message];

/// Calls over TCP and WebSocket to `HOST:PORT`, over a pipe of this process to `memory`, and directly.
///
/// # Errors
/// When one of them cannot be reached.
pub(super) async fn rows(address: &str, memory: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (wire, url, methods) in [
        ("native, TCP", format!("tcp://{address}"), &ALL[..]),
        ("native, WebSocket", format!("ws://{address}/"), &ALL[..]),
        ("native, in process", memory.to_owned(), &KINDS[..]),
        ("gRPC, HTTP/2", format!("tcp://{address}?wire=grpc"), &ALL[..]),
        ("gRPC-Web, HTTP/1.1", format!("tcp://{address}?wire=grpc-web&http=1"), &HALF_DUPLEX[..]),
        ("Connect proto, HTTP/1.1", format!("tcp://{address}?wire=connect&http=1"), &HALF_DUPLEX[..]),
        ("Connect proto, HTTP/2", format!("tcp://{address}?wire=connect&http=2"), &ALL[..]),
        (
            "Connect JSON, HTTP/1.1",
            format!("tcp://{address}?wire=connect&http=1&codec=json"),
            &HALF_DUPLEX[..],
        ),
        ("Connect JSON, HTTP/2", format!("tcp://{address}?wire=connect&http=2&codec=json"), &ALL[..]),
        ("Connect GET, HTTP/1.1", format!("tcp://{address}?wire=connect&http=1&get=true"), &CACHEABLE[..]),
        ("JSON-RPC, HTTP/1.1", format!("tcp://{address}?wire=jsonrpc&http=1"), &UNARY[..]),
        ("JSON-RPC, WebSocket", format!("ws://{address}/?wire=jsonrpc"), &REPLIES[..]),
        ("baidu_std, TCP", format!("tcp://{address}?wire=baidu_std"), &UNARY[..]),
        ("erpc, TCP", format!("tcp://{address}?wire=erpc"), &UNARY[..]),
        ("hulu, TCP", format!("tcp://{address}?wire=hulu"), &UNARY[..]),
        ("kiss-rpc, TCP", kiss::url(address), &UNARY[..]),
        ("rpcx proto, TCP", format!("tcp://{address}?wire=rpcx"), &UNARY[..]),
        ("rpcx MessagePack, TCP", format!("tcp://{address}?wire=rpcx&codec=msgpack"), &UNARY[..]),
        ("sofa, TCP", format!("tcp://{address}?wire=sofa"), &UNARY[..]),
    ] {
        let channel = Channel::connect(&url).await.map_err(|status| format!("connect to {url}: {status}"))?;
        let ours = Ours {
            greeter: GreeterClient::new(channel.clone()),
            posts: PostsClient::new(channel.clone()),
            bench: BenchClient::new(channel),
        };
        ours.call(wire, methods, &mut rows).await;
    }
    let direct = Ours {
        greeter: GreeterClient::local(Hello),
        posts: PostsClient::local(HotPosts),
        bench: BenchClient::local(BenchService),
    };
    direct.call("direct, in process", &ALL, &mut rows).await;
    Ok(rows)
}

struct Ours {
    greeter: GreeterClient,
    posts: PostsClient,
    bench: BenchClient,
}

impl Ours {
    async fn call(&self, wire: &'static str, methods: &[Method], rows: &mut Vec<Row>) {
        for &method in methods {
            let call = async || self.answer(method).await.map_err(|status| status.to_string());
            rows.push(Row::measure(wire, method, call).await);
        }
    }

    async fn answer(&self, method: Method) -> Result<String> {
        Ok(match method {
            Method::Greet => answers::greet(self.greeter.greet(answers::greet_request()).await?.into_inner()),
            Method::Watch => {
                let mut stream = self.greeter.watch(answers::watch_request()).await?;
                let mut ticks = Vec::new();
                while let Some(tick) = stream.next().await? {
                    ticks.push(tick);
                }
                answers::watch(&ticks)
            }
            Method::Sum => {
                let upload = self.greeter.sum().await?;
                for number in answers::numbers() {
                    upload.send(number).await?;
                }
                answers::sum(&*upload.finish().await?)
            }
            Method::Chat => {
                let (sender, mut receiver) = self.greeter.chat().await?;
                let mut notes = Vec::new();
                // Each note gets its reply before the next is sent: both directions are open.
                for note in answers::notes() {
                    sender.send(note).await?;
                    notes.extend(receiver.next().await?);
                }
                sender.finish();
                notes.extend(receiver.next().await?);
                answers::chat(&notes)
            }
            Method::Query => answers::query(&*self.posts.query(answers::query_request()).await?),
            Method::Message => answers::message(&*self.bench.message(answers::message_request()).await?),
        })
    }
}
