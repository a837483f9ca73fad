//! Descriptor of JSON-RPC.

use super::Server;
use crate::{
    Codec,
    spec::{Capabilities, ClientSupport, PEEK_MAX, Streams, Verdict, WireSpec},
};

/// JSON-RPC: on bare bytes, in POST requests and in WebSockets. Channels use HTTP.
pub static JSON_RPC: WireSpec = WireSpec {
    title: "JSON-RPC 2.0",
    sniff: Some(sniff),
    server: Some(|setup| Box::new(Server::lines(setup.limits, setup.table))),
    client: ClientSupport::BuiltIn,
    capabilities: Capabilities {
        metadata: true,
        streams: Streams::Replies,
        deadlines: true,
        http: true,
        codecs: &[Codec::Json],
        ..Capabilities::NONE
    },
    ..WireSpec::named("jsonrpc")
};

/// The beginning of a JSON array or object, after optional whitespace. Examines at most [`PEEK_MAX`] bytes, so that the
/// verdict does not depend on how many bytes arrive at once.
fn sniff(prefix: &[u8]) -> Verdict {
    match prefix.iter().take(PEEK_MAX).find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {
        None => Verdict::More,
        Some(b'{' | b'[') => Verdict::Yes,
        Some(_) => Verdict::No,
    }
}
