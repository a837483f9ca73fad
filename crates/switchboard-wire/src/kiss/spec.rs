//! Descriptor of kiss-rpc.

use super::{MAGIC, MESSAGE_BYTES_MAX, Server, UNRELEASED_MAGIC, options::Options};
use crate::{
    Codec,
    spec::{Capabilities, ClientSupport, Verdict, WireSpec, starts},
};

/// kiss-rpc.
pub static KISS: WireSpec = WireSpec {
    title: "kiss-rpc",
    sniff: Some(sniff),
    server: Some(|setup| Box::new(Server::new(setup.limits, setup.table).with_encodings(setup.encodings))),
    client: ClientSupport::Machine(|| Box::<Options>::default()),
    capabilities: Capabilities {
        codecs: &[Codec::FlatBuffers, Codec::Proto, Codec::Json],
        message_bytes_max: Some(MESSAGE_BYTES_MAX as u32),
        ..Capabilities::NONE
    },
    ..WireSpec::named("kiss")
};

/// A frame, or one from before the first release, which the state machine rejects with an explanation.
fn sniff(prefix: &[u8]) -> Verdict {
    match starts(prefix, &MAGIC) {
        Verdict::No => starts(prefix, &UNRELEASED_MAGIC),
        verdict => verdict,
    }
}
