//! Reads replies: a scan that is kept across partial reads, then one pass that builds the value.
//!
//! The scan checks each head against the rules and limits as soon as it has arrived. It holds one number for each open
//! aggregate, and nothing is built before the last byte is there: a count or length of the peer reserves no memory.

use super::{
    ErrorKind, ProtocolError, ReplyLimits, Value,
    build::build,
    line::{Line, NUMBER_BYTES_MAX, double, find_line, integer, length},
};
use crate::Input;

/// Reader of one reply after the other.
#[derive(Debug, Default)]
pub(super) struct ReplyReader {
    /// Position of the next value in the input.
    at: usize,
    /// Bytes after the type of that value that are known not to end its line.
    searched: usize,
    /// Content of that value, once its length is known.
    content: Option<Content>,
    /// Values that are missing in each open aggregate, the outermost first.
    open: Vec<u64>,
    /// Values so far.
    elements: u64,
}

/// Content of a bulk string, bulk error or verbatim string.
#[derive(Clone, Copy, Debug)]
struct Content {
    kind: u8,
    start: usize,
    /// Position after the CRLF.
    end: usize,
}

impl ReplyReader {
    /// Takes the next reply once it is complete.
    pub(super) fn read(
        &mut self,
        input: &mut Input,
        limits: &ReplyLimits,
    ) -> Result<Option<Value>, ProtocolError> {
        loop {
            let is_read = match self.content {
                Some(content) => self.read_content(content, input.rest())?,
                None => self.read_head(input.rest(), limits)?,
            };
            if !is_read {
                return Ok(None);
            }
            if self.content.is_none() && self.is_complete() {
                break;
            }
        }
        let whole = input.take(self.at);
        *self = ReplyReader::default();
        build(whole).map(Some)
    }

    /// Closes the aggregates that have all of their values; returns true if none is left.
    fn is_complete(&mut self) -> bool {
        while self.open.last() == Some(&0) {
            self.open.pop();
        }
        self.open.is_empty()
    }

    /// Reads the line of a value. Returns false if it is incomplete.
    fn read_head(&mut self, rest: &[u8], limits: &ReplyLimits) -> Result<bool, ProtocolError> {
        let Some((&kind, text)) = rest.get(self.at..).and_then(<[u8]>::split_first) else { return Ok(false) };
        let Some(what) = name(kind) else {
            let message = format!("reply begins with '{}', which is no type", kind.escape_ascii());
            return Err(ProtocolError::new(ErrorKind::Reply, message));
        };
        let is_text = matches!(kind, b'+' | b'-' | b',' | b'(');
        let line_max = if is_text { limits.line_bytes_max as usize } else { NUMBER_BYTES_MAX };
        let left = (limits.reply_bytes_max as usize).saturating_sub(self.at + 1);
        let line = match find_line(text, self.searched, line_max.min(left)) {
            Line::Complete(len) => &text[..len],
            Line::Incomplete(searched) => {
                self.searched = searched;
                return Ok(false);
            }
            Line::Endless if left < line_max => return Err(too_large(limits)),
            Line::Endless if is_text => {
                return Err(ProtocolError::endless(what, line_max, "line_bytes_max"));
            }
            Line::Endless | Line::Malformed => {
                let message = format!("{what} has a line without an end");
                return Err(ProtocolError::new(ErrorKind::Reply, message));
            }
        };
        let after = self.at + 1 + line.len() + 2;
        if after > limits.reply_bytes_max as usize {
            return Err(too_large(limits));
        }
        self.elements += 1;
        if let Some(missing) = self.open.last_mut() {
            *missing -= 1;
        }
        match kind {
            b'$' | b'!' | b'=' => self.content = read_length(kind, line, after, limits)?,
            b'*' | b'%' | b'|' | b'~' | b'>' => self.open(kind, line, limits)?,
            _ => check_line(kind, line)?,
        }
        if self.elements > limits.elements_max.into() {
            return Err(too_many(self.elements, limits));
        }
        self.at = after;
        self.searched = 0;
        Ok(true)
    }

    /// Opens an aggregate.
    fn open(&mut self, kind: u8, line: &[u8], limits: &ReplyLimits) -> Result<(), ProtocolError> {
        if kind == b'*' && line == b"-1" {
            return Ok(());
        }
        let count = length(line).ok_or_else(|| not_a_number(kind, line))?;
        let missing = match kind {
            b'%' => count.saturating_mul(2),
            b'|' => count.saturating_mul(2).saturating_add(1),
            _ => count,
        };
        if kind == b'>' && !self.open.is_empty() {
            return Err(ProtocolError::new(ErrorKind::Reply, "push is inside another value"));
        }
        if self.open.len() >= limits.depth_max.into() {
            let message = format!("reply is nested deeper than {} (depth_max)", limits.depth_max);
            return Err(ProtocolError::new(ErrorKind::Limit, message));
        }
        // All that the open aggregates miss will have to arrive, so an excess is known now.
        let expected = self.open.iter().fold(missing, |sum, more| sum.saturating_add(*more));
        let elements = self.elements.saturating_add(expected);
        if elements > limits.elements_max.into() {
            return Err(too_many(elements, limits));
        }
        self.open.push(missing);
        Ok(())
    }

    /// Reads the content of a value. Returns false if it is incomplete.
    fn read_content(&mut self, content: Content, rest: &[u8]) -> Result<bool, ProtocolError> {
        let Content { kind, start, end } = content;
        if rest.len() < end {
            return Ok(false);
        }
        let malformed = |why: &str| {
            let what = name(kind).unwrap_or_default();
            Err(ProtocolError::new(ErrorKind::Reply, format!("{what} {why}")))
        };
        if rest[end - 2..end] != *b"\r\n" {
            return malformed("does not end where its length says");
        }
        if kind == b'=' && rest[start..end - 2].get(3) != Some(&b':') {
            return malformed("does not begin with a format of three characters and ':'");
        }
        self.at = end;
        self.content = None;
        Ok(true)
    }
}

/// Reads the length of a content that starts at `after`; `None` if the value is null.
fn read_length(
    kind: u8,
    line: &[u8],
    after: usize,
    limits: &ReplyLimits,
) -> Result<Option<Content>, ProtocolError> {
    if kind == b'$' && line == b"-1" {
        return Ok(None);
    }
    let len = length(line).ok_or_else(|| not_a_number(kind, line))?;
    if len > limits.bulk_bytes_max.into() {
        let (what, limit) = (name(kind).unwrap_or_default(), limits.bulk_bytes_max.into());
        return Err(ProtocolError::over(what, len, "bytes", limit, "bulk_bytes_max"));
    }
    let end = after as u64 + len + 2;
    if end > limits.reply_bytes_max.into() {
        return Err(too_large(limits));
    }
    Ok(Some(Content { kind, start: after, end: end as usize }))
}

/// Checks the line of a value that has no content and no elements.
fn check_line(kind: u8, line: &[u8]) -> Result<(), ProtocolError> {
    let is_valid = match kind {
        b'_' => line.is_empty(),
        b'#' => matches!(line, b"t" | b"f"),
        b':' => integer(line).is_some(),
        b',' => double(line).is_some(),
        b'(' => {
            let digits = line.strip_prefix(b"-").or_else(|| line.strip_prefix(b"+")).unwrap_or(line);
            !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
        }
        _ => true,
    };
    if is_valid {
        return Ok(());
    }
    let what = name(kind).unwrap_or_default();
    let shown = &line[..line.len().min(40)];
    let message = format!("{what} is malformed: \"{}\"", shown.escape_ascii());
    Err(ProtocolError::new(ErrorKind::Reply, message))
}

/// Returns the name of a type.
fn name(kind: u8) -> Option<&'static str> {
    Some(match kind {
        b'_' => "null",
        b'-' => "error",
        b',' => "double",
        b':' => "integer",
        b'!' => "bulk error",
        b'(' => "big number",
        b'*' => "array",
        b'#' => "boolean",
        b'%' => "map",
        b'+' => "simple string",
        b'=' => "verbatim string",
        b'>' => "push",
        b'|' => "attributes",
        b'~' => "set",
        b'$' => "bulk string",
        _ => return None,
    })
}

fn not_a_number(kind: u8, line: &[u8]) -> ProtocolError {
    let (what, line) = (name(kind).unwrap_or_default(), line.escape_ascii());
    ProtocolError::new(ErrorKind::Reply, format!("{what} has the size \"{line}\", which is not a number"))
}

fn too_large(limits: &ReplyLimits) -> ProtocolError {
    ProtocolError::endless("reply", limits.reply_bytes_max as usize, "reply_bytes_max")
}

fn too_many(elements: u64, limits: &ReplyLimits) -> ProtocolError {
    let limit = limits.elements_max.into();
    ProtocolError::over("reply", elements, "values or more", limit, "elements_max")
}
