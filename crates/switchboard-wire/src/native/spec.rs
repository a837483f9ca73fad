//! Descriptor of the native wire.

use super::{MAGIC, Server, frame};
use crate::{
    Codec, Encodings, Limits, Outbox, Status,
    spec::{Capabilities, ClientSupport, Streams, Verdict, WireSpec, starts},
};

/// The native wire. Servers and channels create its machines themselves, so that calls on it are static.
pub static NATIVE: WireSpec = WireSpec {
    title: "Switchboard's own",
    sniff: Some(sniff),
    alpn: Some(b"swb/1"),
    server: Some(|setup| Box::new(Server::new(setup.limits, setup.table).with_encodings(setup.encodings))),
    rejection: Some(rejection),
    client: ClientSupport::BuiltIn,
    capabilities: Capabilities {
        metadata: true,
        streams: Streams::All,
        deadlines: true,
        http: true,
        codecs: Codec::ALL,
        ..Capabilities::NONE
    },
    ..WireSpec::named("native")
};

fn sniff(prefix: &[u8]) -> Verdict {
    starts(prefix, &MAGIC)
}

/// Writes a preface and a GO_AWAY frame.
fn rejection(limits: &Limits, status: &Status) -> Vec<u8> {
    let mut out = Outbox::new();
    frame::put_preface(limits, limits.message_bytes_max, Encodings::NONE, &mut out);
    frame::put_go_away(status.code(), status.message(), &mut out);
    out.take_all()
}
