//! The timeout of a call, from an HTTP header.

use ::http::HeaderMap;
use std::time::Duration;
use switchboard_core::Result;
use switchboard_wire::Status;

/// Reads `Grpc-Timeout: 500m`, or else `Connect-Timeout-Ms: 500`; a year at most.
///
/// # Errors
/// `InvalidArgument` for a header that is malformed.
pub(super) fn read(headers: &HeaderMap) -> Result<Option<Duration>> {
    /// Longer timeouts overflow clocks.
    const MOST: Duration = Duration::from_secs(365 * 24 * 3600);
    let (value, is_grpc) = match (headers.get("grpc-timeout"), headers.get("connect-timeout-ms")) {
        (Some(value), _) => (value, true),
        (None, Some(value)) => (value, false),
        (None, None) => return Ok(None),
    };
    let text = value.to_str().unwrap_or_default();
    let (digits, unit) = if is_grpc { text.split_at(text.len().saturating_sub(1)) } else { (text, "m") };
    let number = digits.parse::<u64>().ok().filter(|_| digits.len() <= 10 && !digits.starts_with('+'));
    let timeout = number.and_then(|number| {
        Some(match unit {
            "H" => Duration::from_secs(number.saturating_mul(3600)),
            "M" => Duration::from_secs(number.saturating_mul(60)),
            "S" => Duration::from_secs(number),
            "m" => Duration::from_millis(number),
            "u" => Duration::from_micros(number),
            "n" => Duration::from_nanos(number),
            _ => return None,
        })
    });
    let wrong =
        || format!("`{text}` is not a timeout: write 500m in grpc-timeout, 500 in connect-timeout-ms");
    timeout.map(|timeout| Some(timeout.min(MOST))).ok_or_else(|| Status::invalid_argument(wrong()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::http::{HeaderName, HeaderValue};

    #[test]
    fn timeouts_are_read_in_both_spellings() {
        for (name, text, millis) in [
            ("grpc-timeout", "2S", Some(2000)),
            ("grpc-timeout", "500m", Some(500)),
            ("grpc-timeout", "1H", Some(3_600_000)),
            ("grpc-timeout", "9999999999H", Some(365 * 24 * 3_600_000)),
            ("connect-timeout-ms", "250", Some(250)),
            ("grpc-timeout", "5", None),
            ("grpc-timeout", "", None),
            ("grpc-timeout", "+5S", None),
            ("grpc-timeout", "12345678901S", None),
            ("connect-timeout-ms", "5m", None),
        ] {
            let pair = (HeaderName::from_static(name), HeaderValue::from_static(text));
            let read = read(&HeaderMap::from_iter([pair])).ok().flatten();
            assert_eq!(read.map(|read| read.as_millis()), millis, "{name}: {text}");
        }
        assert!(read(&HeaderMap::new()).is_ok_and(|none| none.is_none()));
    }
}
