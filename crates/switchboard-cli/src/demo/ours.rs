//! Calls with the generated clients: on every wire that channels support, and to services in this process.
//!
//! Channels have their own code for the wires of [`built_in`]; the rows of all other wires come from the list of wires.

use super::{
    answers::{self, ALL, CACHEABLE, HALF_DUPLEX, KINDS, Method, UNARY},
    table::Row,
};
use crate::{
    services::{
        BenchService, Hello, HotPosts, kiss,
        proto::{bench::BenchClient, demo::GreeterClient, demo::PostsClient},
    },
    wires::carries_proto_services,
};
use switchboard::{
    Channel, Result, Status,
    wire::{ClientSupport, WIRES, WireSpec},
};

/// Methods for JSON-RPC in a WebSocket: streams of replies are supported.
const REPLIES: [Method; 4] = [Method::Greet, Method::Watch, Method::Query, Method::Message];

/// Calls over TCP and WebSocket to `HOST:PORT`, over a pipe of this process to `memory`, and directly.
///
/// # Errors
/// When one of them cannot be reached.
pub(super) async fn rows(address: &str, memory: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let others = WIRES.iter().flat_map(|spec| other(spec, address));
    for (wire, url, methods) in built_in(address, memory).into_iter().chain(others) {
        let channel = Channel::connect(&url).await.map_err(|status| format!("connect to {url}: {status}"))?;
        let ours = Ours {
            greeter: GreeterClient::new(channel.clone()),
            posts: PostsClient::new(channel.clone()),
            bench: BenchClient::new(channel),
        };
        ours.call(&wire, methods, &mut rows).await;
    }
    let direct = Ours {
        greeter: GreeterClient::local(Hello),
        posts: PostsClient::local(HotPosts),
        bench: BenchClient::local(BenchService),
    };
    direct.call("direct, in process", &ALL, &mut rows).await;
    Ok(rows)
}

/// The wire for people, the URL of its channel, and the called methods.
type Group = (String, String, &'static [Method]);

/// Returns the wires for which channels have their own code, over each transport and version of HTTP.
fn built_in(address: &str, memory: &str) -> Vec<Group> {
    let tcp = |options: &str| format!("tcp://{address}{options}");
    let groups: [(&str, String, &'static [Method]); 12] = [
        ("native, TCP", tcp(""), &ALL),
        ("native, WebSocket", format!("ws://{address}/"), &ALL),
        ("native, in process", memory.to_owned(), &KINDS),
        ("gRPC, HTTP/2", tcp("?wire=grpc"), &ALL),
        ("gRPC-Web, HTTP/1.1", tcp("?wire=grpc-web&http=1"), &HALF_DUPLEX),
        ("Connect proto, HTTP/1.1", tcp("?wire=connect&http=1"), &HALF_DUPLEX),
        ("Connect proto, HTTP/2", tcp("?wire=connect&http=2"), &ALL),
        ("Connect JSON, HTTP/1.1", tcp("?wire=connect&http=1&codec=json"), &HALF_DUPLEX),
        ("Connect JSON, HTTP/2", tcp("?wire=connect&http=2&codec=json"), &ALL),
        ("Connect GET, HTTP/1.1", tcp("?wire=connect&http=1&get=true"), &CACHEABLE),
        ("JSON-RPC, HTTP/1.1", tcp("?wire=jsonrpc&http=1"), &UNARY),
        ("JSON-RPC, WebSocket", format!("ws://{address}/?wire=jsonrpc"), &REPLIES),
    ];
    groups.map(|(wire, url, methods)| (wire.to_owned(), url, methods)).into()
}

/// Returns the calls over a wire whose state machine channels run. It needs nothing but its descriptor, unless its
/// channels need options.
fn other(spec: &WireSpec, address: &str) -> Vec<Group> {
    if !matches!(spec.client, ClientSupport::Machine(_)) || !carries_proto_services(spec) {
        return Vec::new();
    }
    let name = spec.name;
    let variants = match name {
        "kiss" => vec![("kiss-rpc".to_owned(), kiss::options())],
        "rpcx" => vec![
            ("rpcx proto".to_owned(), String::new()),
            ("rpcx MessagePack".to_owned(), "&codec=msgpack".to_owned()),
        ],
        name => vec![(name.to_owned(), String::new())],
    };
    let group = |(label, options)| {
        (format!("{label}, TCP"), format!("tcp://{address}?wire={name}{options}"), &UNARY[..])
    };
    variants.into_iter().map(group).collect()
}

struct Ours {
    greeter: GreeterClient,
    posts: PostsClient,
    bench: BenchClient,
}

impl Ours {
    async fn call(&self, wire: &str, methods: &[Method], rows: &mut Vec<Row>) {
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
            Method::Topic | Method::Room => {
                return Err(Status::unimplemented("a subscription is no call"));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard::{
        Codec,
        wire::{Capabilities, ERPC},
    };

    #[test]
    fn wires_of_the_list_have_their_rows_in_its_order() {
        let rows = WIRES.iter().flat_map(|spec| other(spec, "a:1"));
        let rows: Vec<_> = rows.map(|(wire, url, _)| (wire, url)).collect();
        let row = |wire: &str, url: &str| (wire.to_owned(), url.to_owned());
        assert_eq!(
            rows,
            [
                row("baidu_std, TCP", "tcp://a:1?wire=baidu_std"),
                row("erpc, TCP", "tcp://a:1?wire=erpc"),
                row("hulu, TCP", "tcp://a:1?wire=hulu"),
                (
                    "kiss-rpc, TCP".to_owned(),
                    format!("tcp://a:1?wire=kiss{}", crate::services::kiss::options()),
                ),
                row("rpcx proto, TCP", "tcp://a:1?wire=rpcx"),
                row("rpcx MessagePack, TCP", "tcp://a:1?wire=rpcx&codec=msgpack"),
                row("sofa, TCP", "tcp://a:1?wire=sofa"),
            ]
        );
    }

    #[test]
    fn a_new_wire_has_a_row_if_the_services_can_be_called_on_it() {
        let spec = |name, codecs| WireSpec {
            client: ERPC.client,
            capabilities: Capabilities { codecs, ..Capabilities::NONE },
            ..WireSpec::named(name)
        };
        let rows = other(&spec("lines", &[Codec::Json]), "a:1");
        assert_eq!(rows, [("lines, TCP".to_owned(), "tcp://a:1?wire=lines".to_owned(), &UNARY[..])]);
        assert_eq!(other(&spec("bytes", &[Codec::Raw]), "a:1"), []);
    }
}
