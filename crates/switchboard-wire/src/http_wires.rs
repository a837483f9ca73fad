//! Wires without a state machine here: those that are calls of HTTP, and labels of counters.

use crate::{
    Codec,
    spec::{Capabilities, ClientSupport, Streams, WireSpec},
};

/// Calls of HTTP express everything but pushes and attachments.
const HTTP: Capabilities = Capabilities {
    metadata: true,
    streams: Streams::All,
    deadlines: true,
    http: true,
    codecs: &[Codec::Proto, Codec::Json],
    ..Capabilities::NONE
};

/// Connect.
pub static CONNECT: WireSpec = WireSpec {
    title: "Connect",
    client: ClientSupport::BuiltIn,
    capabilities: HTTP,
    ..WireSpec::named("connect")
};

/// gRPC.
pub static GRPC: WireSpec = WireSpec {
    title: "gRPC",
    client: ClientSupport::BuiltIn,
    capabilities: Capabilities { codecs: &[Codec::Proto, Codec::Json, Codec::FlatBuffers], ..HTTP },
    ..WireSpec::named("grpc")
};

/// gRPC-Web; its text mode is the alias.
pub static GRPC_WEB: WireSpec = WireSpec {
    aliases: &["grpc-web-text"],
    title: "gRPC-Web",
    client: ClientSupport::BuiltIn,
    capabilities: HTTP,
    ..WireSpec::named("grpc-web")
};

/// JSON on the paths of the schema. Channels use Connect instead.
pub static HTTP_JSON: WireSpec = WireSpec {
    title: "HTTP/JSON",
    capabilities: Capabilities { codecs: &[Codec::Json], ..HTTP },
    ..WireSpec::named("http-json")
};

/// Label of calls inside the process.
pub static LOCAL: WireSpec = WireSpec {
    title: "calls inside the process",
    capabilities: Capabilities { attachments: true, http: false, codecs: Codec::ALL, ..HTTP },
    ..WireSpec::named("local")
};

/// Label of calls inside WebSockets, independently of their encoding.
pub static WEBSOCKET: WireSpec =
    WireSpec { title: "calls inside WebSockets", ..WireSpec::named("websocket") };
