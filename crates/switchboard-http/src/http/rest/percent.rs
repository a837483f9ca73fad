//! Percent-encoding in paths and queries.

use switchboard_core::Result;
use switchboard_wire::Status;

/// Most parameters of one query; a query with more is malformed or an attack.
const PARAMETERS_MAX: usize = 256;

/// Decodes text of a path; `keep_slash` leaves `%2F` encoded, for text of several segments.
///
/// # Errors
/// `InvalidArgument` for invalid escapes and for bytes that are not UTF-8.
pub(super) fn decode(text: &str, keep_slash: bool) -> Result<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let escaped = after.get(..2).and_then(|digits| Some(digit(digits[0])? << 4 | digit(digits[1])?));
        let Some(escaped) = escaped else {
            return Err(Status::invalid_argument(format!("`{text}` has a % without two hex digits")));
        };
        if keep_slash && escaped == b'/' {
            decoded.extend([b'%', after[0], after[1]]);
        } else {
            decoded.push(escaped);
        }
        rest = &after[2..];
    }
    String::from_utf8(decoded).map_err(|_| Status::invalid_argument(format!("`{text}` is not UTF-8")))
}

/// Returns the parameters of a query, in order.
///
/// # Errors
/// `InvalidArgument` for invalid escapes, text that is not UTF-8, and too many parameters.
pub(in crate::http) fn query(query: &str) -> Result<Vec<(String, String)>> {
    let mut parameters = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        if parameters.len() == PARAMETERS_MAX {
            let text = format!("the query has more than {PARAMETERS_MAX} parameters");
            return Err(Status::invalid_argument(text));
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let read = |text: &str| decode(&text.replace('+', " "), false);
        parameters.push((read(name)?, read(value)?));
    }
    Ok(parameters)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard_wire::Code;

    #[test]
    fn escapes_are_decoded_once() {
        assert_eq!(decode("a%20b%2Fc%252F+", false).unwrap(), "a b/c%2F+");
        assert_eq!(decode("a%20b%2Fc%2f%C3%A9", true).unwrap(), "a b%2Fc%2f\u{e9}");
        for wrong in ["%", "%2", "%zz", "%+1", "%ff"] {
            assert_eq!(decode(wrong, false).unwrap_err().code(), Code::InvalidArgument, "{wrong}");
        }
    }

    #[test]
    fn queries_are_split_before_they_are_decoded() {
        let read = query("a=1&b=x%26y%3Dz+w&&c&a=2=3").unwrap();
        let pairs: Vec<_> = read.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("a", "1"), ("b", "x&y=z w"), ("c", ""), ("a", "2=3")]);
        assert!(query(&"a&".repeat(256)).is_ok());
        assert!(query(&"a&".repeat(257)).unwrap_err().message().contains("256"));
    }
}
