//! Control lines and payloads, of either role.
//!
//! Bytes stay in the input until a command is complete. The position of the search for a line end, and the parsed line
//! before a payload, are kept across calls: each byte is examined once, in whatever pieces it arrives.

use super::{
    ErrorKind, Headers, Limits, Message, ProtocolError,
    verb::{Role, Verb},
};
use crate::{Input, work};
use bytes::Bytes;

/// Most fields of a line: HMSG with its verb. More are refused where they are counted.
const FIELDS_MAX: usize = 6;

/// A complete command.
#[derive(Debug)]
pub(super) enum Unit {
    /// A line, with the fields after its verb.
    Line(Verb, Line),
    /// A message of PUB, HPUB, MSG or HMSG; the last two have a sid.
    Message { sid: Option<Bytes>, message: Message },
}

/// Reader of the commands of the peer.
#[derive(Debug)]
pub(super) struct Reader {
    peer: Role,
    /// Bytes at the front of the input without a line end.
    scanned: usize,
    /// Parsed line of the message whose payload is incomplete.
    head: Option<Head>,
}

impl Reader {
    pub(super) fn new(peer: Role) -> Reader {
        Reader { peer, scanned: 0, head: None }
    }

    /// Takes the next command; `None` if more bytes are needed. `check` is called once for each command, before its
    /// arguments are read.
    pub(super) fn next(
        &mut self,
        input: &mut Input,
        limits: &Limits,
        check: impl Fn(Verb) -> Result<(), ProtocolError>,
    ) -> Result<Option<Unit>, ProtocolError> {
        loop {
            if let Some(head) = &self.head {
                let unit = head.take(input, limits)?;
                if unit.is_some() {
                    self.head = None;
                }
                return Ok(unit);
            }
            let Some((len, bytes)) = self.find_line(input.rest(), limits)? else { return Ok(None) };
            let line = &input.rest()[..len];
            let Some(field) = next_field(line, 0) else {
                input.skip(bytes);
                continue;
            };
            let verb = self.verb(field.of(line))?;
            check(verb)?;
            if matches!(verb, Verb::Pub | Verb::Hpub | Verb::Msg | Verb::Hmsg) {
                self.head = Some(Head::read(verb, field.end, line, bytes, limits)?);
                continue;
            }
            let taken = input.take(bytes).slice(..len);
            return Ok(Some(Unit::Line(verb, Line { line: taken, at: field.end })));
        }
    }

    /// Returns the length of the first line without its end and with it.
    fn find_line(&mut self, rest: &[u8], limits: &Limits) -> Result<Option<(usize, usize)>, ProtocolError> {
        self.check_first(rest)?;
        let start = &rest[..rest.len().min(4)];
        let is_info = self.peer == Role::Server && b"INFO"[..start.len()].eq_ignore_ascii_case(start);
        let (limit, name) = match is_info {
            true => (limits.info_bytes_max, "info_bytes_max"),
            false => (limits.control_line_bytes_max, "control_line_bytes_max"),
        };
        let max = usize::try_from(limit).unwrap_or(usize::MAX);
        // CR and LF follow the longest line.
        let end = rest.len().min(max.saturating_add(2));
        let from = self.scanned.min(end);
        let found = rest[from..end].iter().position(|byte| *byte == b'\n').map(|at| from + at);
        work::add(found.map_or(end, |at| at + 1) - from);
        let is_over = match found {
            Some(at) => {
                self.scanned = 0;
                let len = rest[..at].strip_suffix(b"\r").map_or(at, <[u8]>::len);
                if len <= max {
                    return Ok(Some((len, at + 1)));
                }
                true
            }
            None => {
                self.scanned = end;
                end >= max.saturating_add(2)
            }
        };
        if is_over {
            let message = format!("control line has more than {limit} bytes ({name})");
            return Err(ProtocolError::new(ErrorKind::ControlLine, message));
        }
        Ok(None)
    }

    /// Refuses a first byte that begins no command, before the line is complete.
    fn check_first(&self, rest: &[u8]) -> Result<(), ProtocolError> {
        let Some(first) = rest.first().filter(|_| self.scanned == 0) else { return Ok(()) };
        let is_first = |verb: Verb| verb.name().as_bytes()[0] == first.to_ascii_uppercase();
        if matches!(first, b' ' | b'\t' | b'\r' | b'\n') || Verb::sent_by(self.peer).into_iter().any(is_first)
        {
            return Ok(());
        }
        let message = format!("no command begins with the byte {first:#04x}");
        Err(ProtocolError::new(ErrorKind::Operation, message))
    }

    fn verb(&self, text: &[u8]) -> Result<Verb, ProtocolError> {
        let mut verbs = Verb::sent_by(self.peer).into_iter();
        verbs.find(|verb| verb.name().as_bytes().eq_ignore_ascii_case(text)).ok_or_else(|| {
            let shown = text[..text.len().min(32)].escape_ascii();
            let peer = if self.peer == Role::Client { "client" } else { "server" };
            ProtocolError::new(ErrorKind::Operation, format!("a {peer} does not send \"{shown}\""))
        })
    }
}

/// A complete line.
#[derive(Debug)]
pub(super) struct Line {
    line: Bytes,
    /// End of the verb.
    at: usize,
}

impl Line {
    /// Returns everything after the verb, without blanks around it.
    pub(super) fn argument(&self) -> &[u8] {
        self.line[self.at..].trim_ascii()
    }

    /// Returns the fields after the verb, if their number is within the range.
    pub(super) fn fields(&self, verb: Verb, least: usize, most: usize) -> Result<Fields, ProtocolError> {
        Fields::read(&self.line, self.at, verb, least, most)
    }

    /// Returns a field; it shares the memory of the line.
    pub(super) fn slice(&self, field: Field) -> Bytes {
        self.line.slice(field.start..field.end)
    }
}

/// Position of a field in its line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Field {
    start: usize,
    end: usize,
}

impl Field {
    fn of(self, line: &[u8]) -> &[u8] {
        &line[self.start..self.end]
    }
}

/// Fields of a line after its verb.
#[derive(Debug)]
pub(super) struct Fields {
    fields: [Field; FIELDS_MAX],
    len: usize,
}

impl Fields {
    fn read(line: &[u8], at: usize, verb: Verb, least: usize, most: usize) -> Result<Fields, ProtocolError> {
        let mut fields = Fields { fields: Default::default(), len: 0 };
        let mut at = at;
        while let Some(field) = next_field(line, at) {
            if fields.len == most {
                let message = format!("{} has more than {most} arguments", verb.name());
                return Err(ProtocolError::parser(message));
            }
            fields.fields[fields.len] = field;
            fields.len += 1;
            at = field.end;
        }
        if fields.len < least {
            let message = format!("{} has {} arguments, fewer than {least}", verb.name(), fields.len);
            return Err(ProtocolError::parser(message));
        }
        Ok(fields)
    }

    pub(super) fn get(&self) -> &[Field] {
        &self.fields[..self.len]
    }
}

fn next_field(line: &[u8], at: usize) -> Option<Field> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = at + line[at..].iter().position(|byte| !is_blank(byte))?;
    let end = line[start..].iter().position(is_blank).map_or(line.len(), |len| start + len);
    Some(Field { start, end })
}

/// Reads a number; one that is too large is the largest.
pub(super) fn number(verb: Verb, what: &str, digits: &[u8]) -> Result<u64, ProtocolError> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(ProtocolError::parser(format!("{what} of {} is not a number", verb.name())));
    }
    let add = |number: u64, digit: &u8| number.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Ok(digits.iter().fold(0, add))
}

/// Checks a sid of a client.
pub(super) fn check_sid(verb: Verb, sid: &[u8], limits: &Limits) -> Result<(), ProtocolError> {
    let limit = limits.sid_bytes_max;
    if u32::try_from(sid.len()).is_ok_and(|len| len <= limit) {
        return Ok(());
    }
    let message =
        format!("sid of {} has {} bytes; the limit is {limit} (sid_bytes_max)", verb.name(), sid.len());
    Err(ProtocolError::parser(message))
}

/// Parsed line of a message. Its positions are those in the input, where the line stays.
#[derive(Debug)]
struct Head {
    verb: Verb,
    /// Size of the line with its end.
    line: usize,
    subject: Field,
    sid: Option<Field>,
    reply: Option<Field>,
    headers: Option<usize>,
    /// Size of the headers and the payload.
    total: usize,
}

impl Head {
    fn read(
        verb: Verb,
        at: usize,
        line: &[u8],
        bytes: usize,
        limits: &Limits,
    ) -> Result<Head, ProtocolError> {
        let has_sid = matches!(verb, Verb::Msg | Verb::Hmsg);
        let has_headers = matches!(verb, Verb::Hpub | Verb::Hmsg);
        let least = 2 + usize::from(has_sid) + usize::from(has_headers);
        let fields = Fields::read(line, at, verb, least, least + 1)?;
        let fields = fields.get();
        let subject = fields[0];
        let sid = has_sid.then(|| fields[1]);
        let reply = (fields.len() > least).then(|| fields[1 + usize::from(has_sid)]);
        let total = number(verb, "size", fields[fields.len() - 1].of(line))?;
        let headers = match has_headers {
            true => Some(number(verb, "size of the headers", fields[fields.len() - 2].of(line))?),
            false => None,
        };
        let over = |what: &str, size: u64, limit: u32, name: &str| {
            let message =
                format!("{what} of {} has {size} bytes; the limit is {limit} ({name})", verb.name());
            Err(ProtocolError::new(ErrorKind::Payload, message))
        };
        if total > u64::from(limits.payload_bytes_max) {
            return over("payload", total, limits.payload_bytes_max, "payload_bytes_max");
        }
        if let Some(headers) = headers.filter(|headers| *headers > total) {
            let message = format!("{} has {headers} bytes of headers in a total of {total}", verb.name());
            return Err(ProtocolError::parser(message));
        }
        if let Some(headers) = headers.filter(|headers| *headers > u64::from(limits.headers_bytes_max)) {
            return over("block of headers", headers, limits.headers_bytes_max, "headers_bytes_max");
        }
        let size = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        Ok(Head { verb, line: bytes, subject, sid, reply, headers: headers.map(size), total: size(total) })
    }

    /// Takes the message once its payload and the line end after it are complete.
    fn take(&self, input: &mut Input, limits: &Limits) -> Result<Option<Unit>, ProtocolError> {
        let bytes = self.line.saturating_add(self.total);
        let end = match input.rest().get(bytes..).unwrap_or_default() {
            [] | [b'\r'] => return Ok(None),
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => {
                let message = format!("payload of {} has no line end after its size", self.verb.name());
                return Err(ProtocolError::parser(message));
            }
        };
        let whole = input.take(bytes);
        input.skip(end);
        let field = |field: Field| whole.slice(field.start..field.end);
        let payload = self.line.saturating_add(self.headers.unwrap_or_default());
        let headers = match self.headers {
            Some(_) => Some(Headers::parse(whole.slice(self.line..payload), limits)?),
            None => None,
        };
        let message = Message {
            subject: field(self.subject),
            reply: self.reply.map(field),
            headers,
            payload: whole.slice(payload..),
        };
        Ok(Some(Unit::Message { sid: self.sid.map(field), message }))
    }
}
