//! Words of inline commands.

use super::{ErrorKind, Limits, ProtocolError};
use bytes::Bytes;

/// Splits a line at blanks. A word may have a quoted part: in `"` with the escapes `\n`, `\r`, `\t`, `\b`, `\a` and
/// `\xHH`, in `'` with the escape `\'`.
pub(super) fn words(line: &[u8], limits: &Limits) -> Result<Vec<Bytes>, ProtocolError> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        while let [first, after @ ..] = rest
            && is_blank(*first)
        {
            rest = after;
        }
        if rest.is_empty() {
            return Ok(words);
        }
        if words.len() as u64 >= limits.arguments_max.into() {
            let (count, limit) = (words.len() as u64 + 1, limits.arguments_max.into());
            return Err(ProtocolError::over("request", count, "arguments or more", limit, "arguments_max"));
        }
        let unbalanced = || ProtocolError::new(ErrorKind::Command, "unbalanced quotes in request");
        let (word, after) = word(rest).ok_or_else(unbalanced)?;
        words.push(word.into());
        rest = after;
    }
}

/// Takes the word at the start of `text`; `None` if a quote is not closed, or is closed within a word.
fn word(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (mut word, mut rest) = (Vec::new(), text);
    loop {
        match rest {
            [] => return Some((word, rest)),
            [blank, ..] if is_blank(*blank) => return Some((word, rest)),
            [quote @ (b'"' | b'\''), quoted @ ..] => {
                let after = unquote(*quote, quoted, &mut word)?;
                return after.first().is_none_or(|next| is_blank(*next)).then_some((word, after));
            }
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

/// Appends the text up to the closing quote; returns the rest after it.
fn unquote<'a>(quote: u8, text: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut rest = text;
    loop {
        let (byte, after) = match (quote, rest) {
            (b'"', [b'\\', b'x', high, low, after @ ..]) if is_hex(*high) && is_hex(*low) => {
                (hex(*high) << 4 | hex(*low), after)
            }
            (b'"', [b'\\', escape, after @ ..]) => (unescape(*escape), after),
            (b'\'', [b'\\', b'\'', after @ ..]) => (b'\'', after),
            (_, [byte, after @ ..]) if *byte == quote => return Some(after),
            (_, [byte, after @ ..]) => (*byte, after),
            (_, []) => return None,
        };
        word.push(byte);
        rest = after;
    }
}

fn unescape(escape: u8) -> u8 {
    match escape {
        b'a' => 7,
        b'b' => 8,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        other => other,
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0B | 0x0C | 0)
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_hexdigit()
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_and_unquoted_as_in_redis() {
        let table: &[(&str, &[&[u8]])] = &[
            ("", &[]),
            ("  \t ", &[]),
            ("PING", &[b"PING"]),
            (" a  b ", &[b"a", b"b"]),
            ("set k \"a b\"", &[b"set", b"k", b"a b"]),
            ("\"\" ''", &[b"", b""]),
            ("\"\\x41\\xff\\n\\r\\t\\a\\b\\\"\\q\"", &[b"A\xff\n\r\t\x07\x08\"q"]),
            ("\"\\x4\"", &[b"x4"]),
            ("'a\\'b\\n'", &[b"a'b\\n"]),
            ("a\"b c\"", &[b"ab c"]),
        ];
        for (line, expected) in table {
            assert_eq!(words(line.as_bytes(), &Limits::default()).unwrap(), *expected, "{line}");
        }
        for line in ["\"a", "'a", "\"a\"b", "'a'b", "\"a\\", "\"a\\\""] {
            let error = words(line.as_bytes(), &Limits::default()).unwrap_err();
            assert_eq!(error.message(), "unbalanced quotes in request");
        }
    }
}
