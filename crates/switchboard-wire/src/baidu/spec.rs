//! Descriptors of baidu_std and its relatives.

use super::{Layout, Server, options};
use crate::{
    Codec,
    spec::{Capabilities, ClientSupport, ServerSetup, Streams, WireSpec, starts},
    wire::ServerWire,
};

/// baidu_std.
pub static BAIDU_STD: WireSpec = WireSpec {
    title: "baidu_std of brpc",
    sniff: Some(|prefix| starts(prefix, &Layout::Standard.magic())),
    alpn: Some(b"baidu_std"),
    server: Some(|setup| server(setup, Layout::Standard)),
    client: ClientSupport::Machine(options::standard),
    capabilities: Capabilities {
        metadata: true,
        streams: Streams::All,
        deadlines: true,
        attachments: true,
        ..UNARY
    },
    ..WireSpec::named("baidu_std")
};

/// hulu_pbrpc.
pub static HULU: WireSpec = WireSpec {
    title: "hulu_pbrpc of brpc",
    sniff: Some(|prefix| starts(prefix, &Layout::Hulu.magic())),
    server: Some(|setup| server(setup, Layout::Hulu)),
    client: ClientSupport::Machine(options::hulu),
    capabilities: Capabilities { metadata: true, attachments: true, ..UNARY },
    ..WireSpec::named("hulu")
};

/// sofa_pbrpc.
pub static SOFA: WireSpec = WireSpec {
    title: "sofa_pbrpc of brpc",
    sniff: Some(|prefix| starts(prefix, &Layout::Sofa.magic())),
    server: Some(|setup| server(setup, Layout::Sofa)),
    client: ClientSupport::Machine(options::sofa),
    capabilities: UNARY,
    ..WireSpec::named("sofa")
};

/// Capabilities that all layouts have.
const UNARY: Capabilities = Capabilities { codecs: &[Codec::Proto, Codec::Json], ..Capabilities::NONE };

fn server(setup: ServerSetup, layout: Layout) -> Box<dyn ServerWire + Unpin> {
    let server = Server::new(setup.limits, setup.table).with_encodings(setup.encodings);
    Box::new(server.with_layout(layout))
}
