//! Detection of the protocol of a connection by its first bytes.
//!
//! Each entry returns a [`Verdict`] on a prefix. The first entry that accepts is selected, and a connection that every
//! entry excludes is closed. Nothing is consumed: the selected protocol reads the same bytes.

use crate::{
    spec::{PEEK_MAX, Verdict, starts},
    wires::{WireId, WireSet},
};

/// Protocols that a server detects.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
// closed: a wire of an application is `Wire`
pub enum Protocol {
    /// HTTP/1.1: Connect, gRPC-Web, JSON.
    Http1,
    /// HTTP/2 with prior knowledge: gRPC and everything that HTTP/1.1 carries.
    Http2,
    /// TLS, with one of the others inside.
    Tls,
    /// A wire with connections of its own.
    Wire(WireId),
}

impl Protocol {
    /// Returns the name in metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Http1 => "http1",
            Protocol::Http2 => "http2",
            Protocol::Tls => "tls",
            Protocol::Wire(wire) => wire.name(),
        }
    }
}

/// Result of [`sniff`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: detection is complete, or needs more bytes
pub enum Sniffed {
    /// More bytes are needed.
    More,
    /// The detected protocol.
    Protocol(Protocol),
    /// No known protocol.
    Unknown,
}

type Entry = (Protocol, fn(&[u8]) -> Verdict);

/// Protocols that are not wires, with their checks. HTTP is last: its methods are any upper-case letters.
const OTHERS: [Entry; 3] =
    [(Protocol::Tls, is_tls), (Protocol::Http2, is_http2), (Protocol::Http1, is_http1)];

/// Decides by the bytes that have arrived so far, which may be none. Of the registered wires only those in `enabled`
/// are detected, and before all other protocols; wires of this build are detected whether they are enabled or not.
pub fn sniff(prefix: &[u8], enabled: WireSet) -> Sniffed {
    let registered = WireId::registered().filter(|wire| enabled.has(*wire));
    let wires = registered.chain(WireId::built_in_all());
    let wires = wires.filter_map(|wire| Some((Protocol::Wire(wire), wire.spec().sniff?)));
    let mut open = prefix.is_empty();
    for (protocol, check) in wires.chain(OTHERS) {
        match check(prefix) {
            Verdict::Yes => return Sniffed::Protocol(protocol),
            Verdict::More => open = true,
            Verdict::No => {}
        }
    }
    if open && prefix.len() < PEEK_MAX { Sniffed::More } else { Sniffed::Unknown }
}

/// A handshake record of any version up to 1.3; records of 1.3 contain 1.0 to 1.2, like those of its predecessors.
fn is_tls(prefix: &[u8]) -> Verdict {
    match prefix.get(2) {
        Some(minor) if *minor > 4 => Verdict::No,
        Some(_) => starts(&prefix[..2], b"\x16\x03"),
        None if prefix.len() == 2 && starts(prefix, b"\x16\x03") == Verdict::Yes => Verdict::More,
        None => starts(prefix, b"\x16\x03"),
    }
}

fn is_http2(prefix: &[u8]) -> Verdict {
    starts(prefix, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
}

/// An upper-case token of at most 16 letters and a space: the method of a request line. `PRI` belongs to HTTP/2.
fn is_http1(prefix: &[u8]) -> Verdict {
    let token = prefix.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    match prefix.get(token) {
        _ if token > 16 => Verdict::No,
        None => Verdict::More,
        // A CONNECT request to a proxy names a host; one with a path is of rpcx.
        Some(b' ') if &prefix[..token] == b"CONNECT" => match prefix.get(token + 1) {
            None => Verdict::More,
            Some(b'/') => Verdict::No,
            Some(_) => Verdict::Yes,
        },
        Some(b' ') if token > 0 && &prefix[..token] != b"PRI" => Verdict::Yes,
        Some(_) => Verdict::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_is_detected_for_any_split() {
        let cases: &[(&[u8], &str)] = &[
            (b"\xF5SWB\x01\0\0\0", "native"),
            (b"\x16\x03\x01\x02\x00\x01", "tls"),
            (b"PRPC\0\0\0\x20", "baidu_std"),
            (b"HULU\x20\0\0\0", "hulu"),
            (b"SOFA\x20\0\0\0", "sofa"),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http2"),
            (b"POST /a.B/C HTTP/1.1\r\n", "http1"),
            (b"GET / HTTP/1.1\r\n", "http1"),
            (b"{\"jsonrpc\"", "jsonrpc"),
            (b" \r\n\t[", "jsonrpc"),
            (b"\x08\0\0\x10", "rpcx"),
            (b"CONNECT /_rpcx_ HTTP/1.0\n\n", "rpcx"),
            (b"CONNECT example.org:80 HTTP/1.1\r\n", "http1"),
            (b"\x80\x01\0\x01\0\0\0\x03add", "thrift"),
            (b"\x82\x21\x07\x03add", "thrift"),
            (b"\0\0\0\x39\x80\x01\0\x01\0\0\0\x03add", "thrift"),
            (b"\0\0\0\x1d\x82\x21\x07\x03add", "thrift"),
            (b"\0\0\0\x4b\x0f\xff\0\0", "thrift"),
            (b"\0\0\0\x20\0\0\0\x03add\x01", "thrift"),
            (b"\0\0\0\x37\0\x011\x01\x0a/page/test", "erpc"),
            (b"\0\0\0\x27\0\x07-zik0zk\x03\x0a", "erpc"),
            (b"\0\0\0\x38\0\x08\x01\x10\x01", "erpc"),
            (b"\0\0\0\x60\0{\"seq\":1", "erpc"),
            (b"\0\0\0\x45\x01g\x1f\x8b\x08", "erpc"),
            (b"\xFF\xFF\x14\x01\0\x04", "kiss"),
            (b"\xAA\xBB\xCC\xDD\xAA\xAA\xAA\xFF\0", "kiss"),
        ];
        for (bytes, protocol) in cases {
            let mut verdicts = (0..=bytes.len()).map(|end| sniff(&bytes[..end], WireSet::NONE));
            let first = verdicts.find(|sniffed| *sniffed != Sniffed::More);
            let Some(Sniffed::Protocol(found)) = first else { panic!("{first:?} for {protocol}") };
            assert_eq!(found.name(), *protocol);
        }
    }

    #[test]
    fn other_first_bytes_are_unknown_at_once() {
        for bytes in [
            &b"\x16\x03\x05"[..],
            b"\x16\x04",
            b"hello ",
            b"\0\0\0\x10\xEE",
            b"\0\0\0\x10\0\x10",
            b"\0\0\0\x10\0\x01?",
            b"\0\0\0\x10\0\x011\x06",
            b"\0\0\0\x10\x01m",
            b"\0\0\0\x10\x01g\x1f\x9b",
            b"\0\0\0\x10r",
            b" POST",
            b"PRI * HTTP/1.1\r\n",
            b"\xF5SWX",
            b"STRM\0",
            b"\xFF\xFF\x10",
            // A greeting of ZMTP.
            b"\xFF\0\0",
        ] {
            assert_eq!(sniff(bytes, WireSet::NONE), Sniffed::Unknown, "{bytes:02x?}");
        }
        assert_eq!(sniff(b"AAAAAAAAAAAAAAAAAAAAAAAA", WireSet::NONE), Sniffed::Unknown);
        assert_eq!(sniff(&[b' '; PEEK_MAX], WireSet::NONE), Sniffed::Unknown);
        let late = [&[b' '; PEEK_MAX][..], b"["].concat();
        assert_eq!(sniff(&late, WireSet::NONE), Sniffed::Unknown);
    }
}
