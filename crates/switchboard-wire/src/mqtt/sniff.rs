//! Detection by the first bytes.

use super::fields::{Varint, varint};
use crate::spec::{Verdict, starts};

/// Compares the first bytes of a connection with CONNECT: its type, a length, and the name of the protocol. At most 13
/// bytes decide.
pub fn sniff(prefix: &[u8]) -> Verdict {
    match prefix.first() {
        None => return Verdict::More,
        Some(0x10) => {}
        Some(_) => return Verdict::No,
    }
    let name = match varint(&prefix[1..]) {
        Varint::More => return Verdict::More,
        Varint::Malformed => return Verdict::No,
        Varint::Value(_, bytes) => &prefix[1 + bytes..],
    };
    match starts(name, b"\0\x04MQTT") {
        Verdict::No => starts(name, b"\0\x06MQIsdp"),
        verdict => verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_is_detected_and_other_bytes_are_not() {
        for bytes in [&b"\x10\x0c\0\x04MQTT\x04"[..], b"\x10\xff\xff\xff\x7f\0\x06MQIsdp"] {
            let decided = (0..=bytes.len()).find(|end| sniff(&bytes[..*end]) != Verdict::More);
            assert_eq!(decided.map(|end| sniff(&bytes[..end])), Some(Verdict::Yes), "{bytes:02x?}");
            assert!(decided.is_some_and(|end| end <= 13));
        }
        for bytes in
            [&b"\x10\x0c\0\x04MQTX"[..], b"\x11", b"\x10\xff\xff\xff\xff", b"\x10\x0c\0\x05", b"\x10\0\x10"]
        {
            assert_eq!(sniff(bytes), Verdict::No, "{bytes:02x?}");
        }
    }
}
