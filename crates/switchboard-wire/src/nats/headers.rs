//! Headers of a message: a status line, then names and values.

use super::{Limits, ProtocolError};
use bytes::Bytes;
use std::fmt;

/// First bytes of every block.
const VERSION: &[u8] = b"NATS/1.0";

/// Block of the response to a request without subscribers.
const NO_RESPONDERS: &[u8] = b"NATS/1.0 503\r\n\r\n";

/// Checked block of headers. It is sent to other connections as it was received.
#[derive(Clone, Eq, PartialEq)]
pub struct Headers {
    block: Bytes,
}

/// Rule of headers that a name, a value or a status breaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InvalidHeader(&'static str);

impl fmt::Display for InvalidHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nats: {}", self.0)
    }
}

impl std::error::Error for InvalidHeader {}

impl Headers {
    /// Builds a block of these names and values. Names keep their case and may repeat.
    ///
    /// # Errors
    /// Fails on a name that is empty or has a colon, a blank, a control or a non-ASCII character, and on a value with
    /// CR, LF or NUL.
    pub fn new<'a>(entries: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Result<Headers, InvalidHeader> {
        Headers::build(VERSION.to_vec(), entries)
    }

    /// Builds a block with a status of three digits and a text, which may be empty.
    ///
    /// # Errors
    /// Fails on a code above 999, on a text with CR, LF or NUL, and as [`new`](Self::new) does.
    pub fn with_status<'a>(
        code: u16,
        text: &str,
        entries: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Headers, InvalidHeader> {
        if code > 999 {
            return Err(InvalidHeader("status has more than three digits"));
        }
        check_value(text.as_bytes())?;
        let mut block = VERSION.to_vec();
        block.extend(format!(" {code:03}").as_bytes());
        if !text.trim_ascii().is_empty() {
            block.push(b' ');
            block.extend(text.trim_ascii().as_bytes());
        }
        Headers::build(block, entries)
    }

    fn build<'a>(
        mut block: Vec<u8>,
        entries: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Headers, InvalidHeader> {
        block.extend(b"\r\n");
        for (name, value) in entries {
            check_name(name.as_bytes())?;
            check_value(value)?;
            block.extend(name.as_bytes());
            block.extend(b": ");
            block.extend(value.trim_ascii());
            block.extend(b"\r\n");
        }
        block.extend(b"\r\n");
        Ok(Headers { block: block.into() })
    }

    /// Returns the block of the response to a request without subscribers.
    pub(super) fn no_responders() -> Headers {
        Headers { block: Bytes::from_static(NO_RESPONDERS) }
    }

    /// Checks a received block, its final blank line included.
    ///
    /// # Errors
    /// Fails on a block that does not have the form of the protocol, and on more than `headers_max` headers.
    pub fn parse(block: Bytes, limits: &Limits) -> Result<Headers, ProtocolError> {
        let invalid = |InvalidHeader(why)| ProtocolError::parser(format!("headers of a message: {why}"));
        let lines = block.strip_suffix(b"\r\n").ok_or(InvalidHeader("block does not end in a blank line"));
        let mut lines = Lines { rest: lines.map_err(invalid)? };
        let status = lines.next().ok_or(InvalidHeader("block is empty")).and_then(|line| line);
        check_status(status.map_err(invalid)?).map_err(invalid)?;
        let mut count = 0;
        for line in lines {
            let (name, value) = line.and_then(split).map_err(invalid)?;
            check_name(name).and_then(|()| check_value(value)).map_err(invalid)?;
            count += 1;
            if count > limits.headers_max {
                let message = format!(
                    "message has {count} headers or more; the limit is {} (headers_max)",
                    limits.headers_max
                );
                return Err(ProtocolError::parser(message));
            }
        }
        Ok(Headers { block })
    }

    /// Returns the block, its final blank line included.
    pub fn block(&self) -> &Bytes {
        &self.block
    }

    /// Returns the code of the status line; `None` on an ordinary message.
    pub fn status(&self) -> Option<u16> {
        let digits = self.status_line().get(1..4)?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    /// Returns the text of the status line; empty if there is none.
    pub fn status_text(&self) -> &[u8] {
        self.status_line().get(4..).unwrap_or_default().trim_ascii()
    }

    /// Returns the first value of a name, whose case counts.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Returns names and values in order. Blanks around a value are not part of it.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let lines = Lines { rest: self.block.strip_suffix(b"\r\n").unwrap_or_default() }.skip(1);
        lines.filter_map(|line| {
            let (name, value) = line.and_then(split).ok()?;
            Some((std::str::from_utf8(name).ok()?, value))
        })
    }

    /// Returns the status line after the version.
    fn status_line(&self) -> &[u8] {
        let line = Lines { rest: &self.block }.next().and_then(Result::ok);
        line.and_then(|line| line.strip_prefix(VERSION)).unwrap_or_default()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Headers(\"{}\")", self.block.escape_ascii())
    }
}

/// Lines that end in CRLF.
struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Lines<'a> {
    type Item = Result<&'a [u8], InvalidHeader>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        let line = end.and_then(|end| self.rest[..end].strip_suffix(b"\r"));
        self.rest = end.map_or(&[], |end| &self.rest[end + 1..]);
        Some(line.ok_or(InvalidHeader("a line does not end in CR and LF")))
    }
}

fn split(line: &[u8]) -> Result<(&[u8], &[u8]), InvalidHeader> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or(InvalidHeader("a line has no colon"))?;
    Ok((&line[..colon], line[colon + 1..].trim_ascii()))
}

fn check_name(name: &[u8]) -> Result<(), InvalidHeader> {
    let is_valid = !name.is_empty() && name.iter().all(|byte| byte.is_ascii_graphic() && *byte != b':');
    if is_valid { Ok(()) } else { Err(InvalidHeader("a name is empty or has an invalid character")) }
}

fn check_value(value: &[u8]) -> Result<(), InvalidHeader> {
    let is_valid = !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    if is_valid { Ok(()) } else { Err(InvalidHeader("a value has CR, LF or NUL")) }
}

/// Checks `NATS/1.0`, `NATS/1.0 503` or `NATS/1.0 503 text`.
fn check_status(line: &[u8]) -> Result<(), InvalidHeader> {
    let status = line.strip_prefix(VERSION).ok_or(InvalidHeader("block does not begin with NATS/1.0"))?;
    check_value(status)?;
    let is_valid = match status.trim_ascii() {
        [] => true,
        _ => {
            matches!(status, [b' ', a, b, c, rest @ ..] if [a, b, c].iter().all(|digit| digit.is_ascii_digit())
                && rest.first().is_none_or(|byte| *byte == b' '))
        }
    };
    if is_valid { Ok(()) } else { Err(InvalidHeader("status is not three digits and a text")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(block: &[u8]) -> Result<Headers, ProtocolError> {
        Headers::parse(Bytes::copy_from_slice(block), &Limits { headers_max: 3, ..Limits::server() })
    }

    #[test]
    fn blocks_are_read() {
        type Case<'a> = (&'a [u8], Option<u16>, &'a [u8], &'a [(&'a str, &'a [u8])]);
        let cases: &[Case<'_>] = &[
            (b"NATS/1.0\r\n\r\n", None, b"", &[]),
            (b"NATS/1.0 503\r\n\r\n", Some(503), b"", &[]),
            (b"NATS/1.0 404 No Messages\r\n\r\n", Some(404), b"No Messages", &[]),
            (
                b"NATS/1.0\r\nA: 1\r\na:2\r\nA:  3 \r\n\r\n",
                None,
                b"",
                &[("A", b"1"), ("a", b"2"), ("A", b"3")],
            ),
            (b"NATS/1.0\r\nX-Y: a: b\r\nE:\r\n\r\n", None, b"", &[("X-Y", b"a: b"), ("E", b"")]),
            (b"NATS/1.0\r\nB: \xff\r\n\r\n", None, b"", &[("B", b"\xff")]),
        ];
        for (block, status, text, entries) in cases {
            let headers = parse(block).unwrap();
            assert_eq!(headers.status(), *status, "{headers:?}");
            assert_eq!(headers.status_text(), *text, "{headers:?}");
            assert_eq!(headers.iter().collect::<Vec<_>>(), *entries, "{headers:?}");
            assert_eq!(headers.block(), block);
        }
        let headers = parse(b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n").unwrap();
        assert_eq!((headers.get("A"), headers.get("a")), (Some(&b"1"[..]), None));
    }

    #[test]
    fn malformed_blocks_are_refused() {
        let cases: &[(&[u8], &str)] = &[
            (b"", "block does not end in a blank line"),
            (b"\r\n", "block is empty"),
            (b"NATS/1.0", "block does not end in a blank line"),
            (b"NATS/1.0\r\n", "a line does not end in CR and LF"),
            (b"NATS/1.0\n\r\n", "a line does not end in CR and LF"),
            (b"NATS/1.1\r\n\r\n", "block does not begin with NATS/1.0"),
            (b"NATS/1.0x\r\n\r\n", "status is not three digits and a text"),
            (b"NATS/1.0 50\r\n\r\n", "status is not three digits and a text"),
            (b"NATS/1.0 5033\r\n\r\n", "status is not three digits and a text"),
            (b"NATS/1.0\r\nA\r\n\r\n", "a line has no colon"),
            (b"NATS/1.0\r\n\r\nA: b\r\n\r\n", "a line has no colon"),
            (b"NATS/1.0\r\n: b\r\n\r\n", "a name is empty or has an invalid character"),
            (b"NATS/1.0\r\nA b: c\r\n\r\n", "a name is empty or has an invalid character"),
            (b"NATS/1.0\r\nA: b\rc\r\n\r\n", "a value has CR, LF or NUL"),
            (b"NATS/1.0\r\nA: b\nC: d\r\n\r\n", "a line does not end in CR and LF"),
        ];
        for (block, why) in cases {
            let error = parse(block).unwrap_err();
            assert_eq!(error.message(), format!("headers of a message: {why}"), "{}", block.escape_ascii());
        }
        let error = parse(b"NATS/1.0\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\n\r\n").unwrap_err();
        assert_eq!(error.message(), "message has 4 headers or more; the limit is 3 (headers_max)");
    }

    #[test]
    fn built_blocks_are_read_back() {
        let entries: &[(&str, &[u8])] = &[("A", b"1"), ("A", b" x y "), ("b", b"")];
        let headers = Headers::with_status(100, "Flow", entries.iter().copied()).unwrap();
        assert_eq!(parse(headers.block()).unwrap(), headers);
        assert_eq!(&headers.block()[..], b"NATS/1.0 100 Flow\r\nA: 1\r\nA: x y\r\nb: \r\n\r\n");
        assert_eq!(Headers::with_status(503, "", []).unwrap().block(), NO_RESPONDERS);
        for (name, value) in
            [("", "x"), ("a:", "x"), ("a b", "x"), ("é", "x"), ("a", "x\r\ny: z"), ("a", "\0")]
        {
            assert!(Headers::new([(name, value.as_bytes())]).is_err(), "{name:?} {value:?}");
        }
        assert!(Headers::with_status(1000, "", []).is_err());
        assert!(Headers::with_status(100, "a\nb", []).is_err());
    }
}
