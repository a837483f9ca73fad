//! Messages, and how they are written.

use super::{Headers, SendError, subject};
use crate::{Outbox, Outgoing};
use bytes::Bytes;

/// Received message. Its parts are slices of the read buffer: copy those that are kept for long.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Message {
    /// Subject. A server checked it; that of a client may have any bytes but blanks.
    pub subject: Bytes,
    /// Subject for replies.
    pub reply: Option<Bytes>,
    /// Headers.
    pub headers: Option<Headers>,
    /// Payload.
    pub payload: Bytes,
}

impl Message {
    /// Returns the message to be written.
    pub fn outgoing(&self) -> OutgoingMessage<'_> {
        OutgoingMessage {
            subject: &self.subject,
            reply: self.reply.as_deref(),
            headers: self.headers.as_ref(),
            payload: Outgoing::Shared(&self.payload),
        }
    }
}

/// Message to be written.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingMessage<'a> {
    /// Subject, without wildcards.
    pub subject: &'a [u8],
    /// Subject for replies.
    pub reply: Option<&'a [u8]>,
    /// Headers.
    pub headers: Option<&'a Headers>,
    /// Payload.
    pub payload: Outgoing<'a>,
}

impl<'a> OutgoingMessage<'a> {
    /// Creates a message without reply and headers.
    pub fn new(subject: &'a [u8], payload: impl Into<Outgoing<'a>>) -> OutgoingMessage<'a> {
        OutgoingMessage { subject, reply: None, headers: None, payload: payload.into() }
    }

    /// Returns the size of the headers and the payload.
    pub(super) fn bytes(&self) -> usize {
        self.headers.map_or(0, |headers| headers.block().len()).saturating_add(self.payload.len())
    }
}

/// Appends MSG or HMSG of a subscription to `out`.
///
/// The bytes depend on the sid and on whether the client accepts headers, and on nothing else of the connection: a
/// server can encode a message once for all clients where both are equal. Without `with_headers` the headers are
/// left out.
///
/// # Errors
/// Fails, and writes nothing, on a subject, a reply or a sid that is not valid, and if the line is longer than
/// `control_line_bytes_max`.
pub fn write_message(
    sid: &[u8],
    message: &OutgoingMessage<'_>,
    with_headers: bool,
    control_line_bytes_max: u32,
    out: &mut Outbox,
) -> Result<(), SendError> {
    if !is_word(sid) {
        return Err(SendError::InvalidSubject);
    }
    let message = OutgoingMessage { headers: message.headers.filter(|_| with_headers), ..*message };
    write(["MSG ", "HMSG "], Some(sid), &message, control_line_bytes_max, out)
}

/// Appends a message, with the first verb if it has no headers and the second one if it has.
pub(super) fn write(
    verbs: [&str; 2],
    sid: Option<&[u8]>,
    message: &OutgoingMessage<'_>,
    line_bytes_max: u32,
    out: &mut Outbox,
) -> Result<(), SendError> {
    // A blank or a line end in a field would forge the rest of the line.
    let is_valid = subject::check_subject(message.subject).is_ok()
        && message.reply.is_none_or(|reply| subject::check_subject(reply).is_ok());
    if !is_valid {
        return Err(SendError::InvalidSubject);
    }
    let mut sizes = Decimals::new();
    if let Some(headers) = message.headers {
        sizes.push(headers.block().len() as u64);
        sizes.push(message.bytes() as u64);
    } else {
        sizes.push(message.payload.len() as u64);
    }
    let verb = verbs[usize::from(message.headers.is_some())];
    let fields = [Some(message.subject), sid, message.reply];
    write_line(verb, fields.into_iter().flatten(), sizes.text(), line_bytes_max, out)?;
    if let Some(headers) = message.headers {
        out.put(headers.block());
    }
    out.put(message.payload);
    out.tail().extend_from_slice(b"\r\n");
    Ok(())
}

/// Appends a control line of a verb with its blank, fields, and a text that follows them.
pub(super) fn write_line<'a>(
    verb: &str,
    fields: impl Iterator<Item = &'a [u8]> + Clone,
    last: &[u8],
    line_bytes_max: u32,
    out: &mut Outbox,
) -> Result<(), SendError> {
    let fields_bytes: usize = fields.clone().map(|field| field.len() + 1).sum();
    let bytes = verb.len() + fields_bytes + last.len();
    if u32::try_from(bytes).map_or(true, |bytes| bytes > line_bytes_max) {
        return Err(SendError::ControlLine(bytes, line_bytes_max));
    }
    let tail = out.tail();
    tail.reserve(bytes + 2);
    tail.extend_from_slice(verb.as_bytes());
    for field in fields {
        tail.extend_from_slice(field);
        tail.extend_from_slice(b" ");
    }
    tail.extend_from_slice(last);
    tail.extend_from_slice(b"\r\n");
    Ok(())
}

/// Returns true if the bytes are one field of a control line.
pub(super) fn is_word(bytes: &[u8]) -> bool {
    !bytes.is_empty() && !bytes.iter().any(|byte| *byte <= b' ' || *byte == 0x7F)
}

/// Up to two numbers in decimal digits, with a blank between them, without an allocation.
pub(super) struct Decimals {
    text: [u8; 41],
    len: usize,
}

impl Decimals {
    pub(super) fn new() -> Decimals {
        Decimals { text: [0; 41], len: 0 }
    }

    pub(super) fn push(&mut self, number: u64) {
        if self.len > 0 {
            self.text[self.len] = b' ';
            self.len += 1;
        }
        let (start, mut rest) = (self.len, number);
        loop {
            self.text[self.len] = b'0' + (rest % 10) as u8;
            self.len += 1;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.text[start..self.len].reverse();
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let mut decimals = Decimals::new();
        decimals.push(0);
        decimals.push(u64::MAX);
        assert_eq!(decimals.text(), format!("0 {}", u64::MAX).as_bytes());
        let mut longest = Decimals::new();
        longest.push(u64::MAX);
        longest.push(u64::MAX);
        assert_eq!(longest.text(), format!("{0} {0}", u64::MAX).as_bytes());
    }
}
