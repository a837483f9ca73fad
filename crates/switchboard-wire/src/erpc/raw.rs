//! The raw framing, the default of erpc.

use super::message::{Glance, Message};
use bytes::{BufMut, Bytes, BytesMut};
use std::{borrow::Cow, str};

/// Longest sequence: a sign and six digits.
const SEQUENCE_BYTES_MAX: u8 = 7;

/// Reads the payload behind length and filters.
pub(super) fn read(payload: &Bytes) -> Option<Message<'_>> {
    let mut parts = Parts(payload);
    let (sequence, kind, name) = parts.start()?;
    let (status, metadata, codec) = (parts.query()?, parts.query()?, parts.byte()?);
    Some(Message {
        sequence,
        kind,
        name: Cow::Borrowed(name),
        status: Cow::Borrowed(status),
        metadata: Cow::Borrowed(metadata),
        codec,
        body: payload.slice(payload.len() - parts.0.len()..),
    })
}

/// Reads the available fields from the first bytes of a message.
pub(super) fn glance(prefix: &[u8]) -> Option<Glance> {
    let (sequence, kind, name) = Parts(prefix).start()?;
    Some(Glance { sequence, kind, name: name.to_vec() })
}

/// Writes a message without its body, which the caller appends. Name, status and metadata are truncated to the
/// available length.
pub(super) fn put_head(message: &Message<'_>, into: &mut BytesMut) {
    put_sequence(message.sequence, into);
    into.put_u8(message.kind);
    into.put_u8(message.name.len() as u8);
    into.put_slice(&message.name);
    for query in [&message.status, &message.metadata] {
        into.put_u16(query.len() as u16);
        into.put_slice(query);
    }
    into.put_u8(message.codec);
}

fn put_sequence(sequence: i32, into: &mut BytesMut) {
    let mut text = [0; SEQUENCE_BYTES_MAX as usize];
    let (mut at, mut rest) = (text.len(), sequence.unsigned_abs());
    while rest > 0 || at == text.len() {
        at -= 1;
        text[at] = b"0123456789abcdefghijklmnopqrstuvwxyz"[(rest % 36) as usize];
        rest /= 36;
    }
    if sequence < 0 {
        at -= 1;
        text[at] = b'-';
    }
    into.put_u8((text.len() - at) as u8);
    into.put_slice(&text[at..]);
}

/// Remaining bytes; methods return `None` if they are too short.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    /// Reads sequence, kind and name.
    fn start(&mut self) -> Option<(i32, u8, &'a [u8])> {
        let len = self.byte().filter(|len| *len <= SEQUENCE_BYTES_MAX)?;
        let sequence = i32::from_str_radix(str::from_utf8(self.take(usize::from(len))?).ok()?, 36).ok()?;
        let kind = self.byte()?;
        let len = self.byte()?;
        Some((sequence, kind, self.take(usize::from(len))?))
    }

    fn query(&mut self) -> Option<&'a [u8]> {
        let len = self.take(2)?;
        self.take(usize::from(len[0]) << 8 | usize::from(len[1]))
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
}
