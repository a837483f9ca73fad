//! Detection by the first bytes of a connection.

use super::HEADER_BYTES;
use crate::spec::Verdict;

/// Largest body of the first packet that is detected, in bytes.
const BODY_BYTES_MAX: u32 = 4096;

/// Detects a packet: a length from 16 to 4112, and the length of the header, which is 16.
///
/// A first packet with another length is not detected, so a listener for goim alone is needed to count it as an error
/// of goim.
pub fn sniff(prefix: &[u8]) -> Verdict {
    let length =
        prefix.get(..4).map(|length| u32::from_be_bytes([length[0], length[1], length[2], length[3]]));
    let smallest = HEADER_BYTES as u32;
    let is_possible = match length {
        Some(length) => (smallest..=smallest + BODY_BYTES_MAX).contains(&length),
        None => {
            prefix.iter().take(2).all(|byte| *byte == 0)
                && prefix.get(2).is_none_or(|byte| u32::from(*byte) <= (smallest + BODY_BYTES_MAX) >> 8)
        }
    };
    match (is_possible, prefix.get(4), prefix.get(5)) {
        (false, ..) | (_, Some(1..), _) => Verdict::No,
        (true, Some(0), Some(16)) => Verdict::Yes,
        (true, _, None) => Verdict::More,
        (true, _, Some(_)) => Verdict::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_detected_by_both_lengths() {
        for (prefix, verdict) in [
            (&b""[..], Verdict::More),
            (b"\0", Verdict::More),
            (b"\0\0\x10", Verdict::More),
            (b"\0\0\x11", Verdict::No),
            (b"\0\x01", Verdict::No),
            (b"\0\0\0\x10", Verdict::More),
            (b"\0\0\0\x0f", Verdict::No),
            (b"\0\0\x10\x10", Verdict::More),
            (b"\0\0\x10\x11", Verdict::No),
            (b"\0\0\0\x5e\0", Verdict::More),
            (b"\0\0\0\x5e\0\x10", Verdict::Yes),
            (b"\0\0\0\x5e\0\x10\0\x01\0\0\0\x07", Verdict::Yes),
            (b"\0\0\0\x5e\0\x11", Verdict::No),
            (b"\0\0\0\x5e\x01\x10", Verdict::No),
            (b"\xff\xff\xff\xff\0\x10", Verdict::No),
            (b"GET /sub", Verdict::No),
        ] {
            assert_eq!(sniff(prefix), verdict, "{}", prefix.escape_ascii());
        }
    }
}
