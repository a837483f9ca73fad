//! Lines that end with CRLF, and the numbers in them.

/// Result of a search for the end of a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Line {
    /// Size of the line in bytes without its CRLF.
    Complete(usize),
    /// A CR without an LF, or an LF without a CR before it.
    Malformed,
    /// The CRLF has not arrived; the search continues after this many bytes.
    Incomplete(usize),
    /// The line is longer than the limit.
    Endless,
}

/// Searches the end of the line at the start of `bytes`, from the position `searched` on: no byte is examined twice.
/// The result does not depend on how many bytes beyond the line have arrived.
pub(super) fn find_line(bytes: &[u8], searched: usize, bytes_max: usize) -> Line {
    let end = bytes.len().min(bytes_max.saturating_add(1));
    let from = searched.min(end);
    let found = bytes[from..end].iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    crate::work::add(found.map_or(end - from, |at| at + 1));
    match found {
        None if end > bytes_max => Line::Endless,
        None => Line::Incomplete(end),
        Some(at) if bytes[from + at] == b'\n' => Line::Malformed,
        Some(at) => match bytes.get(from + at + 1) {
            None => Line::Incomplete(from + at),
            Some(b'\n') => Line::Complete(from + at),
            Some(_) => Line::Malformed,
        },
    }
}

/// Longest decimal number with its sign, and the longest head of an aggregate or a bulk string without its type.
pub(super) const NUMBER_BYTES_MAX: usize = 20;

/// Parses a length or count: decimal digits without a sign or leading zeros.
pub(super) fn length(digits: &[u8]) -> Option<u64> {
    match digits {
        [b'0'] => Some(0),
        [b'1'..=b'9', ..] => integer(digits)?.try_into().ok(),
        _ => None,
    }
}

/// Parses a signed decimal number.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

/// Parses a floating-point number.
pub(super) fn double(text: &[u8]) -> Option<f64> {
    let is_digits = |text: &[u8]| text.iter().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(byte));
    let is_number = is_digits(text) || matches!(text, b"inf" | b"-inf" | b"nan" | b"-nan");
    is_number.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_do_not_depend_on_the_split() {
        for (bytes, expected) in [
            (&b"12\r\nrest"[..], Line::Complete(2)),
            (b"\r\n", Line::Complete(0)),
            (b"1234\r\n", Line::Complete(4)),
            (b"12345\r\n", Line::Endless),
            (b"12\rx", Line::Malformed),
            (b"12\nx", Line::Malformed),
            (b"123", Line::Incomplete(3)),
            (b"123\r", Line::Incomplete(3)),
        ] {
            let mut searched = 0;
            let mut found = Line::Incomplete(0);
            for end in 0..=bytes.len() {
                found = find_line(&bytes[..end], searched, 4);
                let Line::Incomplete(at) = found else { break };
                searched = at;
            }
            assert_eq!(found, expected, "{}", bytes.escape_ascii());
            assert_eq!(find_line(bytes, 0, 4), expected);
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(integer(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!((integer(b"+5"), integer(b"007")), (Some(5), Some(7)));
        for wrong in [&b""[..], b"-", b"1 ", b"0x1", b"9223372036854775808", b"--1", b"\xFF"] {
            assert_eq!(integer(wrong), None);
        }
        assert_eq!((double(b"-1.5e3"), double(b"-inf")), (Some(-1500.0), Some(f64::NEG_INFINITY)));
        for wrong in [&b""[..], b"infinity", b"1,5", b"e", b" 1", b"INF"] {
            assert_eq!(double(wrong), None);
        }
        assert_eq!((length(b"0"), length(b"120")), (Some(0), Some(120)));
        for wrong in [&b"-1"[..], b"+1", b"01", b"00", b"", b"1a"] {
            assert_eq!(length(wrong), None);
        }
    }
}
