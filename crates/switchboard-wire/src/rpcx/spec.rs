//! Descriptor of rpcx.

use super::{MAGIC, Server, options::Options};
use crate::{
    Codec,
    spec::{Capabilities, ClientSupport, Verdict, WireSpec, starts},
};

/// rpcx.
pub static RPCX: WireSpec = WireSpec {
    title: "rpcx",
    sniff: Some(sniff),
    server: Some(|setup| Box::new(Server::new(setup.limits, setup.table).with_encodings(setup.encodings))),
    client: ClientSupport::Machine(|| Box::<Options>::default()),
    capabilities: Capabilities {
        metadata: true,
        push: true,
        deadlines: true,
        http: true,
        codecs: &[Codec::MsgPack, Codec::Json, Codec::Proto, Codec::Raw, Codec::ThriftStruct],
        ..Capabilities::NONE
    },
    ..WireSpec::named("rpcx")
};

/// A frame, or the CONNECT request that precedes frames.
fn sniff(prefix: &[u8]) -> Verdict {
    match prefix.first() {
        Some(&MAGIC) => Verdict::Yes,
        _ => starts(prefix, b"CONNECT /"),
    }
}
