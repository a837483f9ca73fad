//! Frames: their header, and what is skipped of those that nobody wants.

use super::{MAGIC, META_BYTES_MAX};
use crate::{Fatal, Input, Outbox};
use bytes::Bytes;

/// Bytes of the header.
pub(super) const HEADER_LEN: usize = 12;
/// Room for the rest of a frame is made at once when this much of it has come; a header alone costs its sender nothing.
const ROOM_FROM: usize = 32 << 10;

/// Finds the frames of a connection.
#[derive(Debug, Default)]
pub(super) struct Framer {
    /// Bytes of a refused frame that are still to come.
    skip: usize,
}

/// The sizes of a frame whose meta is there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Frame {
    /// Everything behind the header.
    pub(super) body: usize,
    pub(super) meta: usize,
}

impl Framer {
    /// Looks at the next frame, of which the header and the meta are there then; nothing of it is consumed.
    ///
    /// # Errors
    /// Bytes that are no frame, or a meta that is larger than its frame or than [`META_BYTES_MAX`].
    #[inline]
    pub(super) fn next(&mut self, input: &mut Input) -> Result<Option<Frame>, Fatal> {
        if self.skip > 0 {
            let skipped = self.skip.min(input.len());
            input.skip(skipped);
            self.skip -= skipped;
        }
        let Some(header) = input.rest().first_chunk::<HEADER_LEN>() else {
            let known = input.len().min(MAGIC.len());
            return if input.rest()[..known] == MAGIC[..known] { Ok(None) } else { Err(no_frame(input)) };
        };
        if header[..4] != MAGIC {
            return Err(no_frame(input));
        }
        let body = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let meta = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        if meta > body || meta > META_BYTES_MAX {
            return Err(Fatal(format!(
                "a frame of {body} bytes with an RpcMeta of {meta}, the limit is {META_BYTES_MAX}"
            )));
        }
        let (body, meta) = (body as usize, meta as usize);
        Ok((input.len() >= HEADER_LEN + meta).then_some(Frame { body, meta }))
    }

    /// Steps over a frame, also over what has not come yet.
    pub(super) fn refuse(&mut self, frame: Frame, input: &mut Input) {
        let len = HEADER_LEN + frame.body;
        let here = len.min(input.len());
        input.skip(here);
        self.skip = len - here;
    }
}

impl Frame {
    /// Makes room for what is missing of it.
    pub(super) fn make_room(self, input: &mut Input) {
        let missing = (HEADER_LEN + self.body).saturating_sub(input.len());
        let step = if input.len() < ROOM_FROM { missing.min(ROOM_FROM) } else { missing };
        input.buffer().reserve(step);
    }

    /// Its meta.
    #[inline]
    pub(super) fn meta_of(self, input: &Input) -> &[u8] {
        &input.rest()[HEADER_LEN..HEADER_LEN + self.meta]
    }

    /// Takes a whole frame: its message and its attachment, which has this size.
    #[inline]
    pub(super) fn take(self, attachment: usize, input: &mut Input) -> (Bytes, Bytes) {
        input.skip(HEADER_LEN + self.meta);
        let message = input.take(self.body - self.meta - attachment);
        let attachment = if attachment > 0 { input.take(attachment) } else { Bytes::new() };
        (message, attachment)
    }

    /// The size of the message, if there is room for an attachment of this size behind it.
    #[inline]
    pub(super) fn message_len(self, attachment: i32) -> Option<usize> {
        (self.body - self.meta).checked_sub(usize::try_from(attachment).ok()?)
    }
}

/// Writes a frame: `meta` appends the fields of its meta.
#[inline]
pub(super) fn put(out: &mut Outbox, parts: &[&Bytes], meta: impl FnOnce(&mut bytes::BytesMut)) {
    let tail = out.tail();
    let at = tail.len();
    tail.extend_from_slice(&MAGIC);
    tail.extend_from_slice(&[0; HEADER_LEN - MAGIC.len()]);
    meta(tail);
    let meta_len = tail.len() - at - HEADER_LEN;
    let body_len = meta_len + parts.iter().map(|part| part.len()).sum::<usize>();
    tail[at + 4..at + 8].copy_from_slice(&(body_len as u32).to_be_bytes());
    tail[at + 8..at + 12].copy_from_slice(&(meta_len as u32).to_be_bytes());
    parts.iter().filter(|part| !part.is_empty()).for_each(|part| out.put(part));
}

#[cold]
fn no_frame(input: &Input) -> Fatal {
    let first = &input.rest()[..input.len().min(4)];
    let hint = if first == b"STRM" { ", a frame of a stream" } else { "" };
    Fatal(format!("{first:02x?}{hint} where a frame PRPC begins"))
}
