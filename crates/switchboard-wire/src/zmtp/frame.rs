//! Frames: a byte of flags, the size, the body.

use super::{ErrorKind, ProtocolError};
use crate::{Outbox, Outgoing};
use bytes::BytesMut;

const MORE: u8 = 1;
const LONG: u8 = 2;
pub(super) const COMMAND: u8 = 4;

/// Size in bytes of the header of a short frame, and of a long one.
const SHORT_BYTES: usize = 2;
const LONG_BYTES: usize = 9;

/// A frame before its body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Header {
    /// Another frame of the same message follows.
    pub(super) more: bool,
    pub(super) command: bool,
    /// Size of the body in bytes.
    pub(super) len: u64,
    /// Size of the header in bytes.
    pub(super) bytes: usize,
}

impl Header {
    /// Reads a header; `None` if more bytes are needed. An error is returned as soon as its byte has arrived.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<Header>, ProtocolError> {
        let Some(&flags) = bytes.first() else { return Ok(None) };
        let invalid = |why: &str| {
            let message = format!("frame has the flags {flags:#04x}: {why}");
            Err(ProtocolError::new(ErrorKind::Frame, message))
        };
        if flags & !(MORE | LONG | COMMAND) != 0 {
            return invalid("a reserved bit is set");
        }
        let (more, command) = (flags & MORE != 0, flags & COMMAND != 0);
        if more && command {
            return invalid("a command has one frame");
        }
        let (len, bytes) = if flags & LONG == 0 {
            let Some(&len) = bytes.get(1) else { return Ok(None) };
            (u64::from(len), SHORT_BYTES)
        } else {
            let Some(len) = bytes.get(1..).and_then(|rest| rest.first_chunk::<8>()) else { return Ok(None) };
            (u64::from_be_bytes(*len), LONG_BYTES)
        };
        Ok(Some(Header { more, command, len, bytes }))
    }

    /// Size of the header and the body; `None` if no buffer can have it.
    pub(super) fn frame_bytes(&self) -> Option<usize> {
        usize::try_from(self.len).ok()?.checked_add(self.bytes)
    }
}

/// Returns the size of a frame with a body of `len` bytes.
pub fn frame_bytes(len: usize) -> usize {
    let header = if u8::try_from(len).is_ok() { SHORT_BYTES } else { LONG_BYTES };
    header.saturating_add(len)
}

/// Appends one frame of a message; `more` if another follows.
///
/// The bytes do not depend on the peer once the handshake of NULL or PLAIN is complete, so a publisher can encode a
/// message once and send it on many connections.
pub fn write_frame<'a>(body: impl Into<Outgoing<'a>>, more: bool, out: &mut Outbox) {
    write(u8::from(more), body.into(), out);
}

/// Appends the header of a frame with a body of `len` bytes; `more` if another follows. The body is written after it.
pub fn write_frame_header(len: usize, more: bool, into: &mut BytesMut) {
    match u8::try_from(len) {
        Ok(len) => into.extend_from_slice(&[u8::from(more), len]),
        Err(_) => {
            into.extend_from_slice(&[u8::from(more) | LONG]);
            into.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
}

/// Appends a message of these frames; nothing if there are none.
pub fn write_message<'a, I>(frames: I, out: &mut Outbox)
where
    I: IntoIterator,
    I::Item: Into<Outgoing<'a>>,
{
    let mut frames = frames.into_iter().peekable();
    while let Some(body) = frames.next() {
        write_frame(body, frames.peek().is_some(), out);
    }
}

/// Appends a command whose name and data are `body`.
pub(super) fn write_command(body: &[u8], out: &mut Outbox) {
    write(COMMAND, Outgoing::Lent(body), out);
}

fn write(flags: u8, body: Outgoing<'_>, out: &mut Outbox) {
    match u8::try_from(body.len()) {
        Ok(len) => out.put_with(&[flags, len], body),
        Err(_) => {
            let mut header = [0; LONG_BYTES];
            header[0] = flags | LONG;
            header[1..].copy_from_slice(&(body.len() as u64).to_be_bytes());
            out.put_with(&header, body);
        }
    }
}
