//! The wires: a server for each, and a client.

use crate::{
    capability_matrix::{Capability, lacks},
    cases::MESSAGE_BYTES_MAX,
    channel, grpc_web_text, http_json,
    json_rpc::{self, Over},
    probe::{INFO, Probe, Seen},
    spec::{Body, CallSpec, Failure, Outcome, own, sorted},
    support::{certificates::Authority, memory},
};
use std::net::SocketAddr;
use switchboard::{Channel, Code, Kind, Limit, Running, Server, proxy::Forward};

/// One wire, with the server at its end.
pub(crate) struct Wire {
    pub(crate) name: &'static str,
    pub(crate) probe: Probe,
    /// Name of the wire that handlers see.
    seen_as: &'static str,
    client: TestClient,
    topology: Topology,
    _served: Option<Served>,
    _authority: Option<Authority>,
}

/// Position of the handler behind the server that callers connect to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Topology {
    /// In the server that they call.
    Here,
    /// Behind a proxy that knows its methods.
    BehindProxy,
    /// Behind a proxy that learns the methods from its callers.
    BehindLearningProxy,
}

/// The running servers of a wire.
struct Served {
    front: Running,
    _behind: Option<Running>,
}

/// The client.
enum TestClient {
    Channel(Box<Channel>),
    GrpcWebText(SocketAddr),
    HttpJson(SocketAddr),
    JsonRpc(SocketAddr, Over),
}

/// Channels to a TCP address: name, the wire that handlers see, and options of the address.
pub(crate) const CHANNELS: &[(&str, &str, &str)] = &[
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

pub(crate) async fn all(topology: Topology) -> Vec<Wire> {
    let mut wires = Vec::new();
    if topology == Topology::Here {
        wires.push(direct());
    }
    for (name, seen_as, options) in CHANNELS {
        let (probe, running) = served("tcp://127.0.0.1:0", topology).await;
        let options = match topology {
            // Only its server can map a short name to a service.
            Topology::BehindLearningProxy => {
                options.replace("names=short", "names=full").replace("names=rpc", "names=full")
            }
            _ => (*options).to_owned(),
        };
        let url = match options.strip_prefix("ws") {
            Some(options) => running.front.url().replace("tcp://", "ws://") + options,
            None => format!("{}{options}", running.front.url()),
        };
        let client = TestClient::Channel(Box::new(Channel::connect(&url).await.unwrap()));
        wires.push(Wire { name, probe, seen_as, client, topology, _served: Some(running), _authority: None });
    }
    let (probe, running) = served(&memory(), topology).await;
    let client = TestClient::Channel(Box::new(Channel::connect(&running.front.url()).await.unwrap()));
    wires.push(Wire {
        name: "memory",
        probe,
        seen_as: "native",
        client,
        topology,
        _served: Some(running),
        _authority: None,
    });
    wires.push(inside_tls("native over TLS", "native", "tls", "", topology).await);
    wires.push(inside_tls("native over WebSocket over TLS", "native", "wss", "", topology).await);
    wires.push(inside_tls("gRPC over TLS", "grpc", "tls", "?wire=grpc", topology).await);
    for (name, seen_as, client) in [
        ("gRPC-Web text", "grpc-web", TestClient::GrpcWebText as fn(SocketAddr) -> TestClient),
        ("HTTP/JSON", "http-json", TestClient::HttpJson),
        ("JSON-RPC over POST", "jsonrpc", |address| TestClient::JsonRpc(address, Over::Post)),
        ("JSON-RPC over WebSocket", "jsonrpc", |address| TestClient::JsonRpc(address, Over::WebSocket)),
        ("JSON-RPC over TCP", "jsonrpc", |address| TestClient::JsonRpc(address, Over::Tcp)),
    ] {
        let (probe, running) = served("tcp://127.0.0.1:0", topology).await;
        let client = client(running.front.url().trim_start_matches("tcp://").parse().unwrap());
        wires.push(Wire { name, probe, seen_as, client, topology, _served: Some(running), _authority: None });
    }
    wires
}

/// A server of the handler, or a proxy in front of one.
async fn server(probe: &Probe, topology: Topology) -> (Server, Option<Running>) {
    let limited = || Server::new().websocket_deflate().limit(Limit::MessageBytesMax, MESSAGE_BYTES_MAX);
    let numbered = |server: Server| server.alias("kiss/305419896", "test.v1.Wires/Say");
    let of_handler = numbered(limited().add(probe.clone()));
    if topology == Topology::Here {
        return (of_handler, None);
    }
    let behind = of_handler.listen(memory()).start().await.unwrap();
    let channel = Channel::connect(&behind.url()).await.unwrap();
    let proxy = match topology {
        Topology::BehindLearningProxy => limited().fallback(Forward::any(channel), ["test.v1.Wires", "kiss"]),
        _ => numbered(limited().add(Forward::service(&INFO, channel))),
    };
    (proxy, Some(behind))
}

async fn served(address: &str, topology: Topology) -> (Probe, Served) {
    let probe = Probe::default();
    let (server, _behind) = server(&probe, topology).await;
    (probe, Served { front: server.listen(address).start().await.unwrap(), _behind })
}

fn direct() -> Wire {
    let probe = Probe::default();
    let limits = [(Limit::MessageBytesMax, MESSAGE_BYTES_MAX)];
    let client = TestClient::Channel(Box::new(Channel::local_with(probe.clone(), &limits).unwrap()));
    Wire {
        name: "direct",
        probe,
        seen_as: "local",
        client,
        topology: Topology::Here,
        _served: None,
        _authority: None,
    }
}

async fn inside_tls(
    name: &'static str,
    seen_as: &'static str,
    scheme: &str,
    options: &str,
    topology: Topology,
) -> Wire {
    let (probe, authority) = (Probe::default(), Authority::new("test authority"));
    let tls = authority.issue("127.0.0.1").tls();
    let (server, _behind) = server(&probe, topology).await;
    let front = server.listen_tls("tcp://127.0.0.1:0", tls).start().await.unwrap();
    let running = Served { front, _behind };
    let url = format!("{}{options}", running.front.url().replace("tls://", &format!("{scheme}://")));
    let channel = Channel::builder(&url).ca(authority.ca()).connect().await.unwrap();
    let client = TestClient::Channel(Box::new(channel));
    Wire { name, probe, seen_as, client, topology, _served: Some(running), _authority: Some(authority) }
}

impl Wire {
    /// Makes a call; none if it cannot be sent on this wire.
    pub(crate) async fn run(&self, spec: &CallSpec) -> Option<Outcome> {
        if self.does_not_carry(spec.kind) {
            return None;
        }
        match &self.client {
            TestClient::Channel(channel) if lacks(self.name, Capability::RequestMetadata) => {
                Some(channel::run(channel, &CallSpec { metadata: Vec::new(), ..spec.clone() }).await)
            }
            TestClient::Channel(channel) => Some(channel::run(channel, spec).await),
            TestClient::GrpcWebText(address) => Some(grpc_web_text::run(*address, spec).await),
            TestClient::HttpJson(address) => Some(http_json::run(*address, spec).await),
            TestClient::JsonRpc(address, over) => Some(json_rpc::run(*address, *over, spec).await),
        }
    }

    /// Returns whether calls of this kind cannot be made.
    pub(crate) fn does_not_carry(&self, kind: Kind) -> bool {
        let is_ambiguous =
            self.topology == Topology::BehindLearningProxy && lacks(self.name, Capability::KindOfCall);
        lacks(self.name, Capability::of_kind(kind)) || kind != Kind::Unary && is_ambiguous
    }

    /// Returns the call as a handler should see it.
    pub(crate) fn seen(&self, spec: &CallSpec) -> Seen {
        let text = |body: &Body| match body {
            Body::Text(text) => text.clone(),
            Body::Bad => String::new(),
        };
        let lacks = |capability| lacks(self.name, capability);
        Seen {
            method: spec.method,
            messages: spec.messages.iter().map(text).collect(),
            metadata: if lacks(Capability::RequestMetadata) { Vec::new() } else { spec.metadata.clone() },
            has_deadline: spec.timeout.is_some() && self.carries_deadline(spec.kind),
            wire: if self.topology != Topology::Here {
                "native"
            } else if spec.kind == Kind::Unary && lacks(Capability::NameOfUnary) {
                "connect"
            } else {
                self.seen_as
            },
        }
    }

    /// Returns whether a handler sees the deadline of a call of this kind.
    pub(crate) fn carries_deadline(&self, kind: Kind) -> bool {
        let lacks = |capability| lacks(self.name, capability);
        !lacks(Capability::Deadline) && (kind == Kind::Unary || !lacks(Capability::DeadlineOfStreams))
    }

    /// Removes the parts of an outcome that the wire cannot carry.
    pub(crate) fn expressed(&self, spec: &CallSpec, answer: Outcome, seen: &Outcome) -> Outcome {
        let mut answer = answer;
        let lacks = |capability| lacks(self.name, capability);
        let streams = matches!(spec.kind, Kind::Bidi | Kind::ServerStream);
        let trailers_lost = streams && lacks(Capability::TrailersOfStreams);
        if let Some(failure) = &mut answer.failure {
            // Metadata that is known only at the end of the call arrives with the status.
            let added = [std::mem::take(&mut answer.head), std::mem::take(&mut answer.trailers)].concat();
            failure.metadata = sorted([added, std::mem::take(&mut failure.metadata)].concat());
            if lacks(Capability::FailureMetadata) || trailers_lost {
                failure.metadata.clear();
            }
            if lacks(Capability::Code) {
                *failure = Failure {
                    code: Some(Code::Internal),
                    details: Vec::new(),
                    metadata: own(&[("baidu-error-code", b"2001")]),
                    ..failure.clone()
                };
            }
            if lacks(Capability::Reason) {
                let message = "function 305419896 failed; kiss-rpc carries no reason".to_owned();
                *failure = Failure { code: Some(Code::Unknown), message, ..Failure::default() };
            }
        }
        if lacks(Capability::ReplyMetadata) {
            answer.head.clear();
            answer.trailers.clear();
        }
        let is_head_late = match spec.kind {
            Kind::Unary => false,
            // The handler has mostly set it before the response goes out. On a busy machine the turn of the connection
            // may end first; the head then arrives at the end, which is as good.
            Kind::Bidi | Kind::ServerStream => self.topology != Topology::Here || seen.head.is_empty(),
            Kind::ClientStream => true,
        };
        if lacks(Capability::HeadWhileRequests) && is_head_late {
            answer.trailers = sorted([std::mem::take(&mut answer.head), answer.trailers].concat());
        }
        let is_unary = spec.kind == Kind::Unary;
        if lacks(Capability::TrailersApart) || is_unary && lacks(Capability::TrailersOfUnaryApart) {
            answer.head.append(&mut answer.trailers);
            answer.head = sorted(answer.head);
        }
        if trailers_lost {
            answer.trailers.clear();
        }
        answer
    }
}
