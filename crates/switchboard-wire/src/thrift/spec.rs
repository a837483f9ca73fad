//! Descriptor of Apache Thrift.

use super::{Server, header, options::Options};
use crate::{
    Codec,
    spec::{Capabilities, ClientSupport, Verdict, WireSpec, starts},
};

/// Apache Thrift, in any of its framings. Metadata and deadlines need THeader, or HTTP.
pub static THRIFT: WireSpec = WireSpec {
    title: "Apache Thrift",
    sniff: Some(sniff),
    server: Some(|setup| Box::new(Server::new(setup.limits, setup.table))),
    client: ClientSupport::Machine(|| Box::<Options>::default()),
    capabilities: Capabilities {
        metadata: true,
        deadlines: true,
        http: true,
        codecs: &[Codec::Thrift],
        ..Capabilities::NONE
    },
    ..WireSpec::named("thrift")
};

/// A Thrift message, by its version and kind; or a length followed by a message, a THeader, or a method name, with
/// which the oldest writers begin.
fn sniff(prefix: &[u8]) -> Verdict {
    match prefix {
        [] => Verdict::More,
        [0x80 | 0x82, ..] => is_message(prefix),
        // No connection begins with a frame longer than 128 MiB.
        [0..=7, _, _, _, rest @ ..] => match is_message(rest) {
            Verdict::No => match (starts(rest, &header::MAGIC), is_name(rest)) {
                (Verdict::No, other) => other,
                (header, _) => header,
            },
            message => message,
        },
        [0..=7, ..] => Verdict::More,
        _ => Verdict::No,
    }
}

fn is_message(prefix: &[u8]) -> Verdict {
    match prefix {
        [] | [0x80 | 0x82] | [0x80, 1] | [0x80, 1, _] => Verdict::More,
        [0x80, 1, _, 1..=4, ..] => Verdict::Yes,
        [0x82, second, ..] if second & 0x1F == 1 => Verdict::Yes,
        _ => Verdict::No,
    }
}

/// A non-zero length of at most 1023, and the first letter of a name.
fn is_name(prefix: &[u8]) -> Verdict {
    match prefix {
        [] | [0] | [0, 0] | [0, 0, 0..=3] => Verdict::More,
        [0, 0, 0, 0, ..] => Verdict::No,
        [0, 0, 0..=3, _] => Verdict::More,
        [0, 0, 0..=3, _, letter, ..] if letter.is_ascii_alphabetic() || *letter == b'_' => Verdict::Yes,
        _ => Verdict::No,
    }
}
