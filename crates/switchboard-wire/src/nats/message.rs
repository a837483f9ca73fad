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

/// Message to many subscriptions, encoded once but for the sid.
#[derive(Debug)]
pub struct EncodedMessage<'a> {
    /// MSG, for clients without headers and messages without.
    plain: Frame,
    /// HMSG.
    with_headers: Option<(Frame, &'a Headers)>,
    payload: Outgoing<'a>,
}

/// Control line before and after the sid.
#[derive(Debug)]
struct Frame {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl<'a> EncodedMessage<'a> {
    /// Encodes a message.
    ///
    /// # Errors
    /// Fails on a subject or a reply that is not valid.
    pub fn new(message: &OutgoingMessage<'a>) -> Result<EncodedMessage<'a>, SendError> {
        check(message)?;
        let frame = |verb: &str, sizes: [Option<usize>; 2]| {
            let before = [verb.as_bytes(), message.subject, b" "].concat();
            let mut decimals = Decimals::new();
            sizes.into_iter().flatten().for_each(|size| decimals.push(size as u64));
            let (reply, blank): (&[u8], &[u8]) = message.reply.map_or((b"", b""), |reply| (reply, b" "));
            Frame { before, after: [b" ", reply, blank, decimals.text(), b"\r\n"].concat() }
        };
        let plain = frame("MSG ", [None, Some(message.payload.len())]);
        let with_headers = message
            .headers
            .map(|headers| (frame("HMSG ", [Some(headers.block().len()), Some(message.bytes())]), headers));
        Ok(EncodedMessage { plain, with_headers, payload: message.payload })
    }

    /// Appends the message of a subscription to `out`; without `accepts_headers` the headers are left out.
    ///
    /// # Errors
    /// Fails, and writes nothing, if the line is longer than `control_line_bytes_max`, and on an invalid sid.
    pub(super) fn write(
        &self,
        sid: &[u8],
        accepts_headers: bool,
        control_line_bytes_max: u32,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        let with_headers = self.with_headers.as_ref().filter(|_| accepts_headers);
        let (frame, block) = match with_headers {
            Some((frame, headers)) => (frame, &headers.block()[..]),
            None => (&self.plain, &[][..]),
        };
        let (before, after) = (&frame.before, &frame.after);
        let line = (before.len() + after.len()).saturating_add(sid.len()).saturating_sub(2);
        if u32::try_from(line).map_or(true, |line| line > control_line_bytes_max) {
            return Err(SendError::ControlLine(line, control_line_bytes_max));
        }
        if !is_word(sid) {
            return Err(SendError::InvalidSubject);
        }
        let tail = out.tail();
        for part in [before, sid, after, block] {
            tail.extend_from_slice(part);
        }
        out.put(self.payload);
        out.tail().extend_from_slice(b"\r\n");
        Ok(())
    }
}

/// Checks that no field forges the rest of its line: no blank and no line end.
fn check(message: &OutgoingMessage<'_>) -> Result<(), SendError> {
    let is_valid = subject::check_subject(message.subject).is_ok()
        && message.reply.is_none_or(|reply| subject::check_subject(reply).is_ok());
    if is_valid { Ok(()) } else { Err(SendError::InvalidSubject) }
}

/// Appends a message, with the first verb if it has no headers and the second one if it has.
pub(super) fn write(
    verbs: [&str; 2],
    sid: Option<&[u8]>,
    message: &OutgoingMessage<'_>,
    line_bytes_max: u32,
    out: &mut Outbox,
) -> Result<(), SendError> {
    check(message)?;
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
    fn messages_for_many_have_the_bytes_of_each() {
        let headers = Headers::new([("A", &b"1"[..])]).unwrap();
        let payload = Bytes::from_static(b"hello");
        for reply in [None, Some(&b"_INBOX.1"[..])] {
            for headers in [None, Some(&headers)] {
                let message = OutgoingMessage { subject: b"a.b", reply, headers, payload: (&payload).into() };
                let encoded = EncodedMessage::new(&message).unwrap();
                for (sid, accepts) in [(&b"1"[..], true), (b"22", false)] {
                    let (mut one, mut other) = (Outbox::new(), Outbox::new());
                    write_message(sid, &message, accepts, 4096, &mut one).unwrap();
                    encoded.write(sid, accepts, 4096, &mut other).unwrap();
                    let expected = one.take_all();
                    assert_eq!(expected, other.take_all());
                    let line = expected.iter().position(|byte| *byte == b'\n').unwrap() as u32 - 1;
                    assert!(encoded.write(sid, accepts, line, &mut other).is_ok());
                    let over = encoded.write(sid, accepts, line - 1, &mut other);
                    assert_eq!(over, Err(SendError::ControlLine(line as usize, line - 1)));
                }
                assert_eq!(
                    encoded.write(b"a b", true, 4096, &mut Outbox::new()),
                    Err(SendError::InvalidSubject)
                );
            }
        }
        let forged = OutgoingMessage::new(b"a\r\nb", &payload);
        assert!(EncodedMessage::new(&forged).is_err());
    }

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
