//! Text in header fields: percent-encoding, timeouts, lists of encodings.

use crate::{Encoding, Encodings};
use bytes::BytesMut;
use std::time::Duration;

/// Longer timeouts overflow clocks.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Most digits of `grpc-timeout`.
pub(crate) const TIMEOUT_DIGITS_MAX: usize = 8;

/// Parses `grpc-timeout`: 1 to 8 digits and one of `H M S m u n`. Longer than a year means a year.
pub(crate) fn timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if !(1..=TIMEOUT_DIGITS_MAX).contains(&digits.len()) {
        return None;
    }
    let mut number = 0u64;
    for digit in digits {
        number = 10 * number + u64::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
    }
    let timeout = match unit {
        b'H' => Duration::from_secs(number.saturating_mul(3600)),
        b'M' => Duration::from_secs(number.saturating_mul(60)),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    };
    Some(timeout.min(TIMEOUT_MAX))
}

/// Appends a text as `grpc-message`: bytes outside of 20 to 7E, and `%`, are written as `%` and two upper-case
/// hexadecimal digits.
pub(crate) fn percent_encode(text: &str, into: &mut BytesMut) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    into.reserve(text.len());
    for byte in text.bytes() {
        if (0x20..0x7f).contains(&byte) && byte != b'%' {
            into.extend_from_slice(&[byte]);
        } else {
            into.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

/// Returns the encoding with this name in HTTP.
pub(crate) fn encoding(name: &[u8]) -> Option<Encoding> {
    match name.trim_ascii() {
        b"" | b"identity" => Some(Encoding::Identity),
        b"gzip" => Some(Encoding::Gzip),
        b"deflate" => Some(Encoding::Deflate),
        b"zstd" => Some(Encoding::Zstd),
        b"snappy" => Some(Encoding::Snappy),
        _ => None,
    }
}

/// Returns the known encodings of a list such as `grpc-accept-encoding`.
pub(crate) fn encodings(list: &[u8]) -> Encodings {
    let known = list.split(|byte| *byte == b',').filter_map(encoding);
    Encodings(known.fold(0, |set, encoding| set | 1 << encoding as u32 & !1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_or_refused() {
        for (text, nanos) in [
            ("2S", Some(2_000_000_000)),
            ("500m", Some(500_000_000)),
            ("7u", Some(7_000)),
            ("99999999n", Some(99_999_999)),
            ("1M", Some(60_000_000_000)),
            ("0S", Some(0)),
            ("99999999H", Some(TIMEOUT_MAX.as_nanos())),
            ("", None),
            ("S", None),
            ("5", None),
            ("123456789m", None),
            ("-1S", None),
            ("1.S", None),
            ("1s", None),
        ] {
            assert_eq!(timeout(text.as_bytes()).map(|timeout| timeout.as_nanos()), nanos, "{text}");
        }
    }

    #[test]
    fn texts_are_those_of_the_specification() {
        let mut into = BytesMut::new();
        percent_encode("a % ü\n~\u{7f}", &mut into);
        assert_eq!(&into[..], b"a %25 %C3%BC%0A~%7F");
    }

    #[test]
    fn lists_may_have_blanks_and_unknown_names() {
        let set = encodings(b"identity, gzip ,br,deflate");
        assert!(set.has(Encoding::Gzip) && set.has(Encoding::Deflate) && !set.has(Encoding::Zstd));
        assert_eq!(set.0, 1 << Encoding::Gzip as u32 | 1 << Encoding::Deflate as u32);
    }
}
