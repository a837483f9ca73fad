//! Reads requests: arrays of bulk strings, and inline commands where they are enabled.
//!
//! The heads of a request that arrived in part are kept, so no byte is examined twice. The bytes stay in the input
//! until the request is complete: a count or length of the peer reserves no memory.

use super::{
    ErrorKind, Limits, ProtocolError,
    inline::words,
    line::{Line, NUMBER_BYTES_MAX, find_line, length},
};
use crate::Input;
use bytes::Bytes;
use std::ops::Range;

/// Reader of one request after the other.
#[derive(Debug, Default)]
pub(super) struct RequestReader {
    /// Position after the heads and arguments that are read.
    at: usize,
    /// Bytes after the type of the next head that are known not to end its line.
    searched: usize,
    /// Number of arguments, once it is known.
    count: Option<u64>,
    /// Position of the next argument, once its length is known.
    argument: Option<Range<usize>>,
    /// Positions of the arguments that have arrived.
    arguments: Vec<Range<usize>>,
}

/// Rules of a connection for its next request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules<'a> {
    pub(super) limits: &'a Limits,
    pub(super) inline: bool,
    pub(super) authenticated: bool,
}

impl RequestReader {
    /// Takes the next request that is not empty, once it is complete.
    pub(super) fn read(
        &mut self,
        input: &mut Input,
        rules: Rules<'_>,
    ) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        loop {
            let Some(&first) = input.rest().first() else { return Ok(None) };
            if first != b'*' {
                let Some(words) = self.read_inline(first, input, rules)? else { return Ok(None) };
                if !words.is_empty() {
                    return Ok(Some(words));
                }
                continue;
            }
            if !self.read_array(input.rest(), rules)? {
                return Ok(None);
            }
            let arguments = std::mem::take(&mut self.arguments);
            if arguments.is_empty() {
                input.skip(self.at);
                *self = RequestReader::default();
                continue;
            }
            let whole = input.take(self.at);
            *self = RequestReader::default();
            return Ok(Some(arguments.into_iter().map(|range| whole.slice(range)).collect()));
        }
    }

    /// Reads what has arrived of an array. Returns false if it is incomplete.
    fn read_array(&mut self, rest: &[u8], rules: Rules<'_>) -> Result<bool, ProtocolError> {
        let count = match self.count {
            Some(count) => count,
            None => {
                let Some(line) = self.read_number(rest, "multibulk length")? else { return Ok(false) };
                let count = length(line).ok_or_else(|| invalid("multibulk length", line))?;
                self.check_count(count, rules)?;
                self.at = 1 + line.len() + 2;
                self.searched = 0;
                *self.count.insert(count)
            }
        };
        while (self.arguments.len() as u64) < count {
            let argument = match &self.argument {
                Some(argument) => argument.clone(),
                None => {
                    let Some(&kind) = rest.get(self.at) else { return Ok(false) };
                    if kind != b'$' {
                        let message = format!("expected '$', got '{}'", kind.escape_ascii());
                        return Err(ProtocolError::new(ErrorKind::Command, message));
                    }
                    let Some(line) = self.read_number(rest, "bulk length")? else { return Ok(false) };
                    let len = length(line).ok_or_else(|| invalid("bulk length", line))?;
                    let start = self.at + 1 + line.len() + 2;
                    let end = self.check_len(start, len, rules)?;
                    self.searched = 0;
                    self.argument.insert(start..end).clone()
                }
            };
            let Some(end) = rest.get(argument.end..argument.end + 2) else { return Ok(false) };
            if end != b"\r\n" {
                let message = format!(
                    "argument {} does not end after {} bytes, its length",
                    self.arguments.len() + 1,
                    argument.len()
                );
                return Err(ProtocolError::new(ErrorKind::Command, message));
            }
            // An HTTP request in an array is refused before its other arguments arrive.
            if self.arguments.is_empty() {
                check_http(&rest[argument.clone()])?;
            }
            self.at = argument.end + 2;
            self.argument = None;
            self.arguments.push(argument);
        }
        Ok(true)
    }

    /// Returns the line after the type at the current position; `None` if it is incomplete.
    fn read_number<'a>(&mut self, rest: &'a [u8], what: &str) -> Result<Option<&'a [u8]>, ProtocolError> {
        let Some(text) = rest.get(self.at + 1..) else { return Ok(None) };
        match find_line(text, self.searched, NUMBER_BYTES_MAX) {
            Line::Complete(len) => Ok(Some(&text[..len])),
            Line::Incomplete(searched) => {
                self.searched = searched;
                Ok(None)
            }
            Line::Endless => Err(invalid(what, &text[..NUMBER_BYTES_MAX])),
            Line::Malformed => {
                let message = format!("{what} does not end with CRLF");
                Err(ProtocolError::new(ErrorKind::Command, message))
            }
        }
    }

    fn check_count(&self, count: u64, rules: Rules<'_>) -> Result<(), ProtocolError> {
        let limits = rules.limits;
        let unauthenticated = limits.unauthenticated_arguments_max;
        let (limit, name) = if rules.authenticated || unauthenticated >= limits.arguments_max {
            (limits.arguments_max, "arguments_max")
        } else {
            (unauthenticated, "unauthenticated_arguments_max")
        };
        if count <= limit.into() {
            return Ok(());
        }
        Err(ProtocolError::over("invalid multibulk length: request", count, "arguments", limit.into(), name))
    }

    /// Checks the length of the argument at `start` and returns its end.
    fn check_len(&self, start: usize, len: u64, rules: Rules<'_>) -> Result<usize, ProtocolError> {
        let limits = rules.limits;
        let unauthenticated = limits.unauthenticated_bulk_bytes_max;
        let (limit, name) = if rules.authenticated || unauthenticated >= limits.bulk_bytes_max {
            (limits.bulk_bytes_max, "bulk_bytes_max")
        } else {
            (unauthenticated, "unauthenticated_bulk_bytes_max")
        };
        if len > limit.into() {
            let what = format!("invalid bulk length: argument {}", self.arguments.len() + 1);
            return Err(ProtocolError::over(&what, len, "bytes", limit.into(), name));
        }
        let (end, limit) = (start as u64 + len, u64::from(limits.request_bytes_max));
        if end + 2 > limit {
            let what =
                format!("invalid bulk length: request up to its argument {}", self.arguments.len() + 1);
            return Err(ProtocolError::over(&what, end + 2, "bytes", limit, "request_bytes_max"));
        }
        Ok(end as usize)
    }

    /// Takes an inline command, which is empty on an empty line; `None` if it is incomplete.
    fn read_inline(
        &mut self,
        first: u8,
        input: &mut Input,
        rules: Rules<'_>,
    ) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        if !rules.inline {
            return Ok(skip_empty_line(first, input)?.then(Vec::new));
        }
        let rest = input.rest();
        let limit = rules.limits.inline_bytes_max as usize;
        let end = rest.len().min(limit.saturating_add(1));
        let searched = self.searched.min(end);
        let found = rest[searched..end].iter().position(|byte| *byte == b'\n');
        crate::work::add(found.map_or(end - searched, |at| at + 1));
        let Some(len) = found else {
            self.searched = end;
            if end > limit {
                return Err(ProtocolError::endless("inline command", limit, "inline_bytes_max"));
            }
            return Ok(None);
        };
        let line = &rest[..searched + len];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let words = words(line, rules.limits)?;
        if let Some(word) = words.first() {
            check_http(word)?;
        }
        self.check_count(words.len() as u64, rules)?;
        input.skip(searched + len + 1);
        self.searched = 0;
        Ok(Some(words))
    }
}

/// Skips an empty line, which clients may send between requests. Returns false if it is incomplete.
fn skip_empty_line(first: u8, input: &mut Input) -> Result<bool, ProtocolError> {
    let len = match (first, input.rest().get(1)) {
        (b'\n', _) => 1,
        (b'\r', Some(b'\n')) => 2,
        (b'\r', None) => return Ok(false),
        _ => {
            let message =
                format!("expected '*', got '{}'; inline commands are disabled", first.escape_ascii());
            return Err(ProtocolError::new(ErrorKind::Inline, message));
        }
    };
    input.skip(len);
    Ok(true)
}

fn invalid(what: &str, line: &[u8]) -> ProtocolError {
    let message = format!("invalid {what} \"{}\"", line.escape_ascii());
    ProtocolError::new(ErrorKind::Command, message)
}

/// Refuses the first words of the lines of an HTTP request, which a browser or a server can be made to send here.
fn check_http(command: &[u8]) -> Result<(), ProtocolError> {
    let is_http = [&b"POST"[..], b"Host:"].iter().any(|word| command.eq_ignore_ascii_case(word));
    if !is_http {
        return Ok(());
    }
    let message = format!("\"{}\" is of HTTP; this is the protocol of Redis", command.escape_ascii());
    Err(ProtocolError::new(ErrorKind::Http, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_request_is_examined_once() {
        let mut bytes = b"*200\r\n".to_vec();
        (0..200).for_each(|_| bytes.extend(b"$5\r\nhello\r\n"));
        let (mut input, mut reader) = (Input::default(), RequestReader::default());
        let rules = Rules { limits: &Limits::default(), inline: true, authenticated: true };
        crate::fuzzing::take_work();
        for at in 0..bytes.len() {
            input.extend(&bytes[at..=at]);
            let read = reader.read(&mut input, rules).unwrap();
            assert_eq!(read.map(|arguments| arguments.len()), (at + 1 == bytes.len()).then_some(200));
        }
        assert!(crate::fuzzing::take_work() <= 2 * bytes.len() as u64);
        let line = [&[b'x'; 8000][..], b"\r\n"].concat();
        for at in 0..line.len() {
            input.extend(&line[at..=at]);
            let read = reader.read(&mut input, rules).unwrap();
            assert_eq!(read.is_some(), at + 1 == line.len());
        }
        assert!(crate::fuzzing::take_work() <= 2 * line.len() as u64);
    }
}
