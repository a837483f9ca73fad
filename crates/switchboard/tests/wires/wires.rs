//! The wires: a server for each, and a client.

use crate::{
    asked::{Answer, Asked, Body, Failure, own, sorted},
    cases::MESSAGE_BYTES_MAX,
    channel, grpc_web_text, http_json,
    json_rpc::{self, Over},
    lacks::{Lack, lacks},
    probe::{INFO, Probe, Seen},
    support::{certificates::Authority, memory},
};
use std::net::SocketAddr;
use switchboard::{Channel, Code, Kind, Limit, Running, Server, proxy::Forward};

/// One wire, with the server at its end.
pub(crate) struct Wire {
    pub(crate) name: &'static str,
    pub(crate) probe: Probe,
    /// What handlers get to know it as.
    seen_as: &'static str,
    way: Way,
    place: Place,
    _served: Option<Served>,
    _authority: Option<Authority>,
}

/// Where callers find the handler.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// In the server that they call.
    Here,
    /// Behind a proxy that knows its methods.
    BehindProxy,
    /// Behind a proxy that learns the methods from its callers.
    BehindLearner,
}

/// What runs as long as it is called.
struct Served {
    front: Running,
    _behind: Option<Running>,
}

/// The client.
enum Way {
    Channel(Box<Channel>),
    GrpcWebText(SocketAddr),
    HttpJson(SocketAddr),
    JsonRpc(SocketAddr, Over),
}

/// Channels to a TCP address: name, what handlers see, and options of the address.
const CHANNELS: &[(&str, &str, &str)] = &[
    ("native over TCP", "native", ""),
    ("native over WebSocket", "native", "ws"),
    ("native over WebSocket, compressed", "native", "ws?deflate=true"),
    ("gRPC", "grpc", "?wire=grpc"),
    ("gRPC with JSON", "grpc", "?wire=grpc&codec=json"),
    ("gRPC-Web", "grpc-web", "?wire=grpc-web"),
    ("gRPC-Web on HTTP/1.1", "grpc-web", "?wire=grpc-web&http=1"),
    ("channel on gRPC-Web text", "grpc-web", "?wire=grpc-web-text"),
    ("channel on gRPC-Web text on HTTP/1.1", "grpc-web", "?wire=grpc-web-text&http=1&compression=gzip"),
    ("Connect", "connect", "?wire=connect"),
    ("Connect on HTTP/1.1", "connect", "?wire=connect&http=1"),
    ("Connect with JSON", "connect", "?wire=connect&codec=json"),
    ("channel on JSON-RPC over POST", "jsonrpc", "?wire=jsonrpc"),
    ("channel on JSON-RPC over POST on HTTP/2", "jsonrpc", "?wire=jsonrpc&http=2&path=/rpc"),
    ("channel on JSON-RPC over WebSocket", "jsonrpc", "ws?wire=jsonrpc"),
    ("Connect, compressed", "connect", "?wire=connect&compression=gzip"),
    ("baidu_std", "baidu_std", "?wire=baidu_std&checksum=crc32c"),
    ("baidu_std with JSON", "baidu_std", "?wire=baidu_std&codec=json&names=short&compression=deflate"),
    ("erpc", "erpc", "?wire=erpc&names=full"),
    ("erpc with JSON", "erpc", "?wire=erpc&names=rpc&framing=json&codec=json"),
    ("erpc with protobuf, filtered", "erpc", "?wire=erpc&names=full&framing=proto&filter=gzip"),
    ("hulu", "hulu", "?wire=hulu&names=full&index=test.v1.Wires/Say:0&index=test.v1.Wires/Missing:4"),
    ("sofa, compressed", "sofa", "?wire=sofa&compression=gzip"),
    ("rpcx", "rpcx", "?wire=rpcx"),
    ("rpcx with JSON", "rpcx", "?wire=rpcx&codec=json"),
    ("rpcx over WebSocket", "rpcx", "ws?wire=rpcx"),
    ("rpcx over WebSocket, compressed", "rpcx", "ws?wire=rpcx&codec=json&deflate=true"),
    ("rpcx over http, compressed", "rpcx", "?wire=rpcx&network=http&compression=gzip"),
    (
        "kiss-rpc, compressed",
        "kiss",
        "?wire=kiss&snappy=dynamic&function=test.v1.Wires/Say:305419896&function=test.v1.Wires/Missing:9",
    ),
];

pub(crate) async fn all(place: Place) -> Vec<Wire> {
    let mut wires = Vec::new();
    if place == Place::Here {
        wires.push(direct());
    }
    for (name, seen_as, options) in CHANNELS {
        let (probe, running) = served("tcp://127.0.0.1:0", place).await;
        let options = match place {
            // Which service has a short name, only its server knows.
            Place::BehindLearner => {
                options.replace("names=short", "names=full").replace("names=rpc", "names=full")
            }
            _ => (*options).to_owned(),
        };
        let url = match options.strip_prefix("ws") {
            Some(options) => running.front.url().replace("tcp://", "ws://") + options,
            None => format!("{}{options}", running.front.url()),
        };
        let way = Way::Channel(Box::new(Channel::connect(&url).await.unwrap()));
        wires.push(Wire { name, probe, seen_as, way, place, _served: Some(running), _authority: None });
    }
    let (probe, running) = served(&memory(), place).await;
    let way = Way::Channel(Box::new(Channel::connect(&running.front.url()).await.unwrap()));
    wires.push(Wire {
        name: "memory",
        probe,
        seen_as: "native",
        way,
        place,
        _served: Some(running),
        _authority: None,
    });
    wires.push(inside_tls("native over TLS", "native", "tls", "", place).await);
    wires.push(inside_tls("native over WebSocket over TLS", "native", "wss", "", place).await);
    wires.push(inside_tls("gRPC over TLS", "grpc", "tls", "?wire=grpc", place).await);
    for (name, seen_as, way) in [
        ("gRPC-Web text", "grpc-web", Way::GrpcWebText as fn(SocketAddr) -> Way),
        ("HTTP/JSON", "http-json", Way::HttpJson),
        ("JSON-RPC over POST", "jsonrpc", |address| Way::JsonRpc(address, Over::Post)),
        ("JSON-RPC over WebSocket", "jsonrpc", |address| Way::JsonRpc(address, Over::WebSocket)),
        ("JSON-RPC over TCP", "jsonrpc", |address| Way::JsonRpc(address, Over::Tcp)),
    ] {
        let (probe, running) = served("tcp://127.0.0.1:0", place).await;
        let way = way(running.front.url().trim_start_matches("tcp://").parse().unwrap());
        wires.push(Wire { name, probe, seen_as, way, place, _served: Some(running), _authority: None });
    }
    wires
}

/// A server of the handler, or a proxy in front of one.
async fn server(probe: &Probe, place: Place) -> (Server, Option<Running>) {
    let limited = || Server::new().websocket_deflate().limit(Limit::MessageBytesMax, MESSAGE_BYTES_MAX);
    let numbered = |server: Server| server.alias("kiss/305419896", "test.v1.Wires/Say");
    let of_handler = numbered(limited().add(probe.clone()));
    if place == Place::Here {
        return (of_handler, None);
    }
    let behind = of_handler.listen(memory()).start().await.unwrap();
    let channel = Channel::connect(&behind.url()).await.unwrap();
    let proxy = match place {
        Place::BehindLearner => limited().fallback(Forward::any(channel), ["test.v1.Wires", "kiss"]),
        _ => numbered(limited().add(Forward::service(&INFO, channel))),
    };
    (proxy, Some(behind))
}

async fn served(address: &str, place: Place) -> (Probe, Served) {
    let probe = Probe::default();
    let (server, _behind) = server(&probe, place).await;
    (probe, Served { front: server.listen(address).start().await.unwrap(), _behind })
}

fn direct() -> Wire {
    let probe = Probe::default();
    let limits = [(Limit::MessageBytesMax, MESSAGE_BYTES_MAX)];
    let way = Way::Channel(Box::new(Channel::local_with(probe.clone(), &limits).unwrap()));
    Wire { name: "direct", probe, seen_as: "local", way, place: Place::Here, _served: None, _authority: None }
}

async fn inside_tls(
    name: &'static str,
    seen_as: &'static str,
    scheme: &str,
    options: &str,
    place: Place,
) -> Wire {
    let (probe, authority) = (Probe::default(), Authority::new("test authority"));
    let tls = authority.issue("127.0.0.1").tls();
    let (server, _behind) = server(&probe, place).await;
    let front = server.listen_tls("tcp://127.0.0.1:0", tls).start().await.unwrap();
    let running = Served { front, _behind };
    let url = format!("{}{options}", running.front.url().replace("tls://", &format!("{scheme}://")));
    let channel = Channel::builder(&url).ca(authority.ca()).connect().await.unwrap();
    let way = Way::Channel(Box::new(channel));
    Wire { name, probe, seen_as, way, place, _served: Some(running), _authority: Some(authority) }
}

impl Wire {
    /// Makes a call; none if it cannot be sent on this wire.
    pub(crate) async fn ask(&self, asked: &Asked) -> Option<Answer> {
        if self.does_not_carry(asked.kind) {
            return None;
        }
        match &self.way {
            Way::Channel(channel) if lacks(self.name, Lack::RequestMetadata) => {
                Some(channel::ask(channel, &Asked { metadata: Vec::new(), ..asked.clone() }).await)
            }
            Way::Channel(channel) => Some(channel::ask(channel, asked).await),
            Way::GrpcWebText(address) => Some(grpc_web_text::ask(*address, asked).await),
            Way::HttpJson(address) => Some(http_json::ask(*address, asked).await),
            Way::JsonRpc(address, over) => Some(json_rpc::ask(*address, *over, asked).await),
        }
    }

    /// Whether calls of this kind cannot be made.
    pub(crate) fn does_not_carry(&self, kind: Kind) -> bool {
        let is_untold = self.place == Place::BehindLearner && lacks(self.name, Lack::WordOfStreams);
        lacks(self.name, Lack::of_kind(kind)) || kind != Kind::Unary && is_untold
    }

    /// What a handler is to see of a call.
    pub(crate) fn seen(&self, asked: &Asked) -> Seen {
        let text = |body: &Body| match body {
            Body::Text(text) => text.clone(),
            Body::Bad => String::new(),
        };
        let lacks = |lack| lacks(self.name, lack);
        Seen {
            method: asked.method,
            messages: asked.messages.iter().map(text).collect(),
            metadata: if lacks(Lack::RequestMetadata) { Vec::new() } else { asked.metadata.clone() },
            has_deadline: asked.timeout.is_some() && self.tells_deadline(asked.kind),
            wire: if self.place != Place::Here {
                "native"
            } else if asked.kind == Kind::Unary && lacks(Lack::NameOfUnary) {
                "connect"
            } else {
                self.seen_as
            },
        }
    }

    /// Whether a handler is told of the deadline of such a call.
    pub(crate) fn tells_deadline(&self, kind: Kind) -> bool {
        let lacks = |lack| lacks(self.name, lack);
        !lacks(Lack::Deadline) && (kind == Kind::Unary || !lacks(Lack::DeadlineOfStreams))
    }

    /// What is left of an answer where a wire cannot carry all of it.
    pub(crate) fn expressed(&self, asked: &Asked, mut answer: Answer) -> Answer {
        let lacks = |lack| lacks(self.name, lack);
        let streams = matches!(asked.kind, Kind::Bidi | Kind::ServerStream);
        let trailers_lost = streams && lacks(Lack::TrailersOfStreams);
        if let Some(failure) = &mut answer.failure {
            // What is known only at the end of the call comes with the status.
            let added = [std::mem::take(&mut answer.head), std::mem::take(&mut answer.trailers)].concat();
            failure.metadata = sorted([added, std::mem::take(&mut failure.metadata)].concat());
            if lacks(Lack::FailureMetadata) || trailers_lost {
                failure.metadata.clear();
            }
            if lacks(Lack::Code) {
                *failure = Failure {
                    code: Some(Code::Internal),
                    details: Vec::new(),
                    metadata: own(&[("baidu-error-code", b"2001")]),
                    ..failure.clone()
                };
            }
            if lacks(Lack::Reason) {
                let message = "function 305419896 failed; kiss-rpc carries no reason".to_owned();
                *failure = Failure { code: Some(Code::Unknown), message, ..Failure::default() };
            }
        }
        if lacks(Lack::ReplyMetadata) {
            answer.head.clear();
            answer.trailers.clear();
        }
        let is_head_late =
            asked.kind != Kind::Unary && (asked.kind != Kind::ServerStream || self.place != Place::Here);
        if lacks(Lack::HeadWhileRequests) && is_head_late {
            answer.trailers = sorted([std::mem::take(&mut answer.head), answer.trailers].concat());
        }
        let is_unary = asked.kind == Kind::Unary;
        if lacks(Lack::TrailersApart) || is_unary && lacks(Lack::TrailersOfUnaryApart) {
            answer.head.append(&mut answer.trailers);
            answer.head = sorted(answer.head);
        }
        if trailers_lost {
            answer.trailers.clear();
        }
        answer
    }
}
