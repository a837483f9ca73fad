//! The framing in which a message is a Protocol Buffers message.

use super::message::{Glance, Message};
use crate::proto::{self, Fields};
use bytes::{Bytes, BytesMut};
use std::borrow::Cow;

/// Reads the payload behind length and filters.
pub(super) fn read(payload: &Bytes) -> Option<Message<'_>> {
    let mut message = Message::default();
    let mut fields = Fields(payload);
    while let Some((field, value)) = fields.next().ok()? {
        match field {
            1 => message.sequence = value.number() as i32,
            2 => message.kind = u8::try_from(value.number()).ok()?,
            3 => message.name = Cow::Borrowed(value.bytes()),
            4 => message.status = Cow::Borrowed(value.bytes()),
            5 => message.metadata = Cow::Borrowed(value.bytes()),
            6 => message.codec = u8::try_from(value.number()).ok()?,
            7 if !value.bytes().is_empty() => message.body = payload.slice_ref(value.bytes()),
            _ => {}
        }
    }
    Some(message)
}

/// Reads the available fields from the first bytes of a message.
pub(super) fn glance(prefix: &[u8]) -> Option<Glance> {
    let (mut sequence, mut kind, mut name) = (0, None, Vec::new());
    let mut fields = Fields(prefix);
    // The prefix may end within a field.
    while let Ok(Some((field, value))) = fields.next() {
        match field {
            1 => sequence = value.number() as i32,
            2 => kind = u8::try_from(value.number()).ok(),
            3 => name = value.bytes().to_vec(),
            _ => {}
        }
    }
    Some(Glance { sequence, kind: kind?, name })
}

/// Writes a message up to the bytes of its body, which the caller appends.
pub(super) fn put_head(message: &Message<'_>, into: &mut BytesMut) {
    // Written even if it is 0: a server detects the framing by this field.
    proto::put_number(into, 1, i64::from(message.sequence) as u64);
    proto::put_number(into, 2, u64::from(message.kind));
    for (field, text) in (3..).zip([&message.name, &message.status, &message.metadata]) {
        if !text.is_empty() {
            proto::put_bytes(into, field, text);
        }
    }
    proto::put_number(into, 6, u64::from(message.codec));
    proto::put_len(into, 7, message.body.len());
}
