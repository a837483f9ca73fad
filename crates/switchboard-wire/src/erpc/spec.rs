//! Descriptor of eRPC.

use super::{GZIP, Server, options::Options};
use crate::{
    Codec,
    spec::{Capabilities, ClientSupport, Verdict, WireSpec, starts},
};

/// eRPC, in any of its framings.
pub static ERPC: WireSpec = WireSpec {
    title: "eRPC, or teleport",
    sniff: Some(sniff),
    server: Some(|setup| Box::new(Server::new(setup.limits, setup.table))),
    client: ClientSupport::Machine(|| Box::<Options>::default()),
    capabilities: Capabilities {
        metadata: true,
        push: true,
        deadlines: true,
        codecs: &[Codec::Proto, Codec::Json],
        ..Capabilities::NONE
    },
    ..WireSpec::named("erpc")
};

/// A length followed by the number of transfer filters and a message. A Thrift message differs from it in all bytes but
/// the first.
fn sniff(prefix: &[u8]) -> Verdict {
    match prefix {
        [] => Verdict::More,
        // No connection begins with a frame longer than 128 MiB.
        [0..=7, _, _, _, rest @ ..] => is_message(rest),
        [0..=7, ..] => Verdict::More,
        _ => Verdict::No,
    }
}

fn is_message(rest: &[u8]) -> Verdict {
    match rest {
        [] | [0] => Verdict::More,
        // A JSON object; or the first field of protobuf, which every first message has.
        [0, b'{' | 0x08, ..] => Verdict::Yes,
        // A sequence in base 36, and a kind.
        [0, len @ 1..=7, behind @ ..] => {
            let digits = behind.iter().take(usize::from(*len));
            let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'-');
            match behind.get(usize::from(*len)) {
                _ if !digits.clone().all(is_digit) => Verdict::No,
                None => Verdict::More,
                Some(1..=5) => Verdict::Yes,
                Some(_) => Verdict::No,
            }
        }
        // Any framing through the supported filter.
        [1, filtered @ ..] => starts(filtered, &[GZIP, 0x1F, 0x8B]),
        _ => Verdict::No,
    }
}
