//! Times in option syntax: `300ms`, `1.5s`, `5min`, `1h 30min`.

use std::time::Duration;

/// Syntax of a time, for error messages.
pub(super) const EXPECTED: &str = "a number with ms, s, min or h";

/// Maximum length of a time in bytes. A sum above 2^64 seconds panics in humantime, and takes a longer text.
const TEXT_BYTES_MAX: usize = 20;

/// Parses a time; `None` if the text is not one or exceeds 2^64 ms, which clocks can still add.
pub(super) fn parse(text: &str) -> Option<Duration> {
    // Without capitals: `5M` is five months to humantime, and five mebibytes in the limits.
    let is_allowed = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'.' | b' ');
    // humantime reads `0` without a unit.
    if text.len() > TEXT_BYTES_MAX || text == "0" || !text.bytes().all(is_allowed) {
        return None;
    }
    humantime::parse_duration(text).ok().filter(|time| u64::try_from(time.as_millis()).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_with_units() {
        for (text, millis) in [
            ("300ms", 300),
            ("0s", 0),
            ("1.5s", 1500),
            ("2min", 120_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("1h 30min", 5_400_000),
            ("5 s", 5000),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(parse("250us"), Some(Duration::from_micros(250)));
    }

    #[test]
    fn other_texts_are_rejected() {
        let wrong =
            ["", "0", "5", "s", "-1s", "+1s", "NaNs", "1e400s", "1.s", ".5s", "5M", "5S", "1,5s", "5\u{b5}s"];
        for text in wrong {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn times_beyond_the_range_do_not_panic() {
        assert_eq!(parse("18446744073709551615s"), None);
        assert_eq!(parse("584542046y"), Some(Duration::from_secs(584_542_046 * 31_557_600)));
        assert_eq!(parse("584542047y"), None);
        assert_eq!(parse("18446744073709551615s1000ms"), None, "panics in humantime 2.4");
    }
}
