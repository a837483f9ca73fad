//! Labels of counters: the wire of a call, and the protocol of a connection.

/// Wire of a call. All calls inside WebSockets have the label `WebSocket`, independently of their encoding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wire {
    BaiduStd,
    Connect,
    Erpc,
    Grpc,
    GrpcWeb,
    HttpJson,
    Hulu,
    JsonRpc,
    Kiss,
    Native,
    Rpcx,
    Sofa,
    Thrift,
    WebSocket,
}

impl Wire {
    pub(crate) const ALL: [Wire; 14] = [
        Wire::BaiduStd,
        Wire::Connect,
        Wire::Erpc,
        Wire::Grpc,
        Wire::GrpcWeb,
        Wire::HttpJson,
        Wire::Hulu,
        Wire::JsonRpc,
        Wire::Kiss,
        Wire::Native,
        Wire::Rpcx,
        Wire::Sofa,
        Wire::Thrift,
        Wire::WebSocket,
    ];

    /// Returns the name in stats, labels and pages; equal to [`Peer::wire`](crate::Peer::wire) except for
    /// WebSockets.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Wire::BaiduStd => "baidu_std",
            Wire::Connect => "connect",
            Wire::Erpc => "erpc",
            Wire::Grpc => "grpc",
            Wire::GrpcWeb => "grpc-web",
            Wire::HttpJson => "http-json",
            Wire::Hulu => "hulu",
            Wire::JsonRpc => "jsonrpc",
            Wire::Kiss => "kiss",
            Wire::Native => "native",
            Wire::Rpcx => "rpcx",
            Wire::Sofa => "sofa",
            Wire::Thrift => "thrift",
            Wire::WebSocket => "websocket",
        }
    }

    /// Returns the label for the wire name of a peer.
    pub(crate) fn of(name: &str) -> Wire {
        Wire::ALL.into_iter().find(|wire| wire.name() == name).unwrap_or(Wire::Native)
    }
}

/// Protocol of a connection. An HTTP connection carries calls of several wires.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Carrier {
    BaiduStd,
    Erpc,
    Http1,
    Http2,
    Hulu,
    JsonRpc,
    Kiss,
    Native,
    Rpcx,
    Sofa,
    Thrift,
    /// An HTTP connection after its upgrade.
    WebSocket,
}

impl Carrier {
    pub(crate) const ALL: [Carrier; 12] = [
        Carrier::BaiduStd,
        Carrier::Erpc,
        Carrier::Http1,
        Carrier::Http2,
        Carrier::Hulu,
        Carrier::JsonRpc,
        Carrier::Kiss,
        Carrier::Native,
        Carrier::Rpcx,
        Carrier::Sofa,
        Carrier::Thrift,
        Carrier::WebSocket,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Carrier::BaiduStd => "baidu_std",
            Carrier::Erpc => "erpc",
            Carrier::Http1 => "http1",
            Carrier::Http2 => "http2",
            Carrier::Hulu => "hulu",
            Carrier::JsonRpc => "jsonrpc",
            Carrier::Kiss => "kiss",
            Carrier::Native => "native",
            Carrier::Rpcx => "rpcx",
            Carrier::Sofa => "sofa",
            Carrier::Thrift => "thrift",
            Carrier::WebSocket => "websocket",
        }
    }
}
