//! Detection of the protocol of a connection by its first bytes.
//!
//! Each entry returns a [`Verdict`] on a prefix. The first entry that accepts is selected, and a connection that every
//! entry excludes is closed. Nothing is consumed: the selected protocol reads the same bytes.

use crate::{baidu::Layout, erpc, kiss, native, rpcx, thrift};

/// Largest number of bytes that any entry needs, except for the HTTP request line.
pub const PEEK_MAX: usize = 64;

/// Result of an entry for a prefix.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The entry needs more bytes.
    More,
    /// The prefix is not of this protocol.
    No,
    /// The prefix is of this protocol.
    Yes,
}

/// Protocols that a server detects.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Protocol {
    /// baidu_std, of brpc.
    BaiduStd,
    /// eRPC, or teleport, in any of its framings.
    Erpc,
    /// hulu_pbrpc, of brpc.
    Hulu,
    /// HTTP/1.1: Connect, gRPC-Web, JSON.
    Http1,
    /// HTTP/2 with prior knowledge: gRPC and everything that HTTP/1.1 carries.
    Http2,
    /// JSON-RPC on bare bytes.
    JsonRpc,
    /// kiss-rpc.
    Kiss,
    /// The native wire.
    Native,
    /// rpcx.
    Rpcx,
    /// sofa_pbrpc, of brpc.
    Sofa,
    /// Apache Thrift, in any of its framings.
    Thrift,
    /// TLS, with one of the others inside.
    Tls,
}

impl Protocol {
    /// Returns the name in metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::BaiduStd => "baidu_std",
            Protocol::Erpc => "erpc",
            Protocol::Hulu => "hulu",
            Protocol::Http1 => "http1",
            Protocol::Http2 => "http2",
            Protocol::JsonRpc => "jsonrpc",
            Protocol::Kiss => "kiss",
            Protocol::Native => "native",
            Protocol::Rpcx => "rpcx",
            Protocol::Sofa => "sofa",
            Protocol::Thrift => "thrift",
            Protocol::Tls => "tls",
        }
    }
}

/// Result of [`sniff`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sniffed {
    /// More bytes are needed.
    More,
    /// The detected protocol.
    Protocol(Protocol),
    /// No known protocol.
    Unknown,
}

/// Protocols with their checks, in the order in which they are tried.
const ENTRIES: &[Entry] = &[
    (Protocol::Native, is_native),
    (Protocol::Tls, is_tls),
    (Protocol::BaiduStd, |prefix| starts(prefix, &Layout::Standard.magic())),
    (Protocol::Hulu, |prefix| starts(prefix, &Layout::Hulu.magic())),
    (Protocol::Sofa, |prefix| starts(prefix, &Layout::Sofa.magic())),
    (Protocol::Http2, is_http2),
    (Protocol::Http1, is_http1),
    (Protocol::JsonRpc, is_jsonrpc),
    (Protocol::Rpcx, is_rpcx),
    (Protocol::Thrift, is_thrift),
    (Protocol::Erpc, is_erpc),
    (Protocol::Kiss, is_kiss),
];

type Entry = (Protocol, fn(&[u8]) -> Verdict);

/// Decides by the bytes that have arrived so far, which may be none.
pub fn sniff(prefix: &[u8]) -> Sniffed {
    let mut open = prefix.is_empty();
    for (protocol, entry) in ENTRIES {
        match entry(prefix) {
            Verdict::Yes => return Sniffed::Protocol(*protocol),
            Verdict::More => open = true,
            Verdict::No => {}
        }
    }
    if open && prefix.len() < PEEK_MAX { Sniffed::More } else { Sniffed::Unknown }
}

fn is_native(prefix: &[u8]) -> Verdict {
    starts(prefix, &native::MAGIC)
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

/// The beginning of a JSON array or object, after optional whitespace. Examines at most [`PEEK_MAX`] bytes, so that the
/// verdict does not depend on how many bytes arrive at once.
fn is_jsonrpc(prefix: &[u8]) -> Verdict {
    match prefix.iter().take(PEEK_MAX).find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {
        None => Verdict::More,
        Some(b'{' | b'[') => Verdict::Yes,
        Some(_) => Verdict::No,
    }
}

/// A frame, or the CONNECT request that precedes frames.
fn is_rpcx(prefix: &[u8]) -> Verdict {
    match prefix.first() {
        Some(&rpcx::MAGIC) => Verdict::Yes,
        _ => starts(prefix, b"CONNECT /"),
    }
}

/// A Thrift message, by its version and kind; or a length followed by a message, a THeader, or a method name, with
/// which the oldest writers begin.
fn is_thrift(prefix: &[u8]) -> Verdict {
    match prefix {
        [] => Verdict::More,
        [0x80 | 0x82, ..] => is_thrift_message(prefix),
        // No connection begins with a frame longer than 128 MiB.
        [0..=7, _, _, _, rest @ ..] => match is_thrift_message(rest) {
            Verdict::No => match (starts(rest, &thrift::header::MAGIC), is_thrift_name(rest)) {
                (Verdict::No, other) => other,
                (header, _) => header,
            },
            message => message,
        },
        [0..=7, ..] => Verdict::More,
        _ => Verdict::No,
    }
}

fn is_thrift_message(prefix: &[u8]) -> Verdict {
    match prefix {
        [] | [0x80 | 0x82] | [0x80, 1] | [0x80, 1, _] => Verdict::More,
        [0x80, 1, _, 1..=4, ..] => Verdict::Yes,
        [0x82, second, ..] if second & 0x1F == 1 => Verdict::Yes,
        _ => Verdict::No,
    }
}

/// A non-zero length of at most 1023, and the first letter of a name.
fn is_thrift_name(prefix: &[u8]) -> Verdict {
    match prefix {
        [] | [0] | [0, 0] | [0, 0, 0..=3] => Verdict::More,
        [0, 0, 0, 0, ..] => Verdict::No,
        [0, 0, 0..=3, _] => Verdict::More,
        [0, 0, 0..=3, _, letter, ..] if letter.is_ascii_alphabetic() || *letter == b'_' => Verdict::Yes,
        _ => Verdict::No,
    }
}

/// A length followed by the number of transfer filters and a message. A Thrift message differs from it in all bytes but
/// the first.
fn is_erpc(prefix: &[u8]) -> Verdict {
    match prefix {
        [] => Verdict::More,
        // No connection begins with a frame longer than 128 MiB.
        [0..=7, _, _, _, rest @ ..] => is_erpc_message(rest),
        [0..=7, ..] => Verdict::More,
        _ => Verdict::No,
    }
}

fn is_erpc_message(rest: &[u8]) -> Verdict {
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
        [1, filtered @ ..] => starts(filtered, &[erpc::GZIP, 0x1F, 0x8B]),
        _ => Verdict::No,
    }
}

/// A frame, or one from before the first release, which the state machine rejects with an explanation.
fn is_kiss(prefix: &[u8]) -> Verdict {
    match starts(prefix, &kiss::MAGIC) {
        Verdict::No => starts(prefix, &kiss::UNRELEASED_MAGIC),
        verdict => verdict,
    }
}

fn starts(prefix: &[u8], wanted: &[u8]) -> Verdict {
    let known = prefix.len().min(wanted.len());
    match prefix[..known] == wanted[..known] {
        true if known == wanted.len() => Verdict::Yes,
        true => Verdict::More,
        false => Verdict::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_is_detected_for_any_split() {
        let cases: &[(&[u8], Protocol)] = &[
            (b"\xF5SWB\x01\0\0\0", Protocol::Native),
            (b"\x16\x03\x01\x02\x00\x01", Protocol::Tls),
            (b"PRPC\0\0\0\x20", Protocol::BaiduStd),
            (b"HULU\x20\0\0\0", Protocol::Hulu),
            (b"SOFA\x20\0\0\0", Protocol::Sofa),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Protocol::Http2),
            (b"POST /a.B/C HTTP/1.1\r\n", Protocol::Http1),
            (b"GET / HTTP/1.1\r\n", Protocol::Http1),
            (b"{\"jsonrpc\"", Protocol::JsonRpc),
            (b" \r\n\t[", Protocol::JsonRpc),
            (b"\x08\0\0\x10", Protocol::Rpcx),
            (b"CONNECT /_rpcx_ HTTP/1.0\n\n", Protocol::Rpcx),
            (b"CONNECT example.org:80 HTTP/1.1\r\n", Protocol::Http1),
            (b"\x80\x01\0\x01\0\0\0\x03add", Protocol::Thrift),
            (b"\x82\x21\x07\x03add", Protocol::Thrift),
            (b"\0\0\0\x39\x80\x01\0\x01\0\0\0\x03add", Protocol::Thrift),
            (b"\0\0\0\x1d\x82\x21\x07\x03add", Protocol::Thrift),
            (b"\0\0\0\x4b\x0f\xff\0\0", Protocol::Thrift),
            (b"\0\0\0\x20\0\0\0\x03add\x01", Protocol::Thrift),
            (b"\0\0\0\x37\0\x011\x01\x0a/page/test", Protocol::Erpc),
            (b"\0\0\0\x27\0\x07-zik0zk\x03\x0a", Protocol::Erpc),
            (b"\0\0\0\x38\0\x08\x01\x10\x01", Protocol::Erpc),
            (b"\0\0\0\x60\0{\"seq\":1", Protocol::Erpc),
            (b"\0\0\0\x45\x01g\x1f\x8b\x08", Protocol::Erpc),
            (b"\xFF\xFF\x14\x01\0\x04", Protocol::Kiss),
            (b"\xAA\xBB\xCC\xDD\xAA\xAA\xAA\xFF\0", Protocol::Kiss),
        ];
        for (bytes, protocol) in cases {
            let first =
                (0..=bytes.len()).map(|end| sniff(&bytes[..end])).find(|sniffed| *sniffed != Sniffed::More);
            assert_eq!(first, Some(Sniffed::Protocol(*protocol)));
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
            assert_eq!(sniff(bytes), Sniffed::Unknown, "{bytes:02x?}");
        }
        assert_eq!(sniff(b"AAAAAAAAAAAAAAAAAAAAAAAA"), Sniffed::Unknown);
        assert_eq!(sniff(&[b' '; PEEK_MAX]), Sniffed::Unknown);
        let late = [&[b' '; PEEK_MAX][..], b"["].concat();
        assert_eq!(sniff(&late), Sniffed::Unknown);
    }
}
