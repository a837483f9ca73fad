//! Frames: their header, and what is skipped of those that nobody wants.

use super::{MAGIC, META_BYTES_MAX, STREAM_MAGIC, stream::StreamMeta};
use crate::{Fatal, Input, Outbox};
use bytes::{Bytes, BytesMut};

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
    /// It belongs to a stream.
    pub(super) of_stream: bool,
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
            let rest = input.rest();
            let known = rest.len().min(MAGIC.len());
            let begins = [MAGIC, STREAM_MAGIC].iter().any(|magic| magic[..known] == rest[..known]);
            return if begins { Ok(None) } else { Err(no_frame(input)) };
        };
        let of_stream = header[..4] == STREAM_MAGIC;
        if !of_stream && header[..4] != MAGIC {
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
        Ok((input.len() >= HEADER_LEN + meta).then_some(Frame { of_stream, body, meta }))
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

    /// Whether all of it is there.
    #[inline]
    pub(super) fn is_whole(self, input: &Input) -> bool {
        input.len() >= HEADER_LEN + self.body
    }

    /// Bytes of what is behind the meta.
    #[inline]
    pub(super) fn payload(self) -> usize {
        self.body - self.meta
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

/// What is behind the meta of a frame: a message in parts, and an attachment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Payload<'a> {
    pub(super) first: Option<&'a Bytes>,
    pub(super) rest: &'a [Bytes],
    pub(super) attachment: Option<&'a Bytes>,
}

impl<'a> Payload<'a> {
    /// A message in one piece.
    #[inline]
    pub(super) fn one(message: &'a Bytes) -> Payload<'a> {
        Payload { first: Some(message), ..Payload::default() }
    }

    /// The parts of the message.
    #[inline]
    pub(super) fn message(self) -> impl Iterator<Item = &'a Bytes> {
        self.first.into_iter().chain(self.rest)
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        self.message().chain(self.attachment).map(Bytes::len).sum()
    }

    #[inline]
    fn put(self, out: &mut Outbox) {
        self.message().chain(self.attachment).filter(|part| !part.is_empty()).for_each(|part| out.put(part));
    }
}

/// Writes a frame, inside a frame of a stream if there is one: `meta` appends the fields of its meta.
#[inline]
pub(super) fn put(
    out: &mut Outbox,
    inside: Option<&StreamMeta>,
    payload: &Payload<'_>,
    meta: impl FnOnce(&mut BytesMut),
) {
    let payload_len = payload.len();
    let tail = out.tail();
    tail.reserve(HEADER_LEN + META_USUAL + payload_len.min(PAYLOAD_USUAL));
    let around = tail.len();
    if let Some(stream) = inside {
        put_head(tail, STREAM_MAGIC, |tail| stream.put(tail));
    }
    let at = tail.len();
    let meta_len = put_head(tail, MAGIC, meta);
    set_body(tail, at, meta_len + payload_len);
    if inside.is_some() {
        let body_len = tail.len() - around - HEADER_LEN + payload_len;
        set_body(tail, around, body_len);
    }
    payload.put(out);
}

/// Writes a frame of a stream.
pub(super) fn put_stream(out: &mut Outbox, meta: &StreamMeta, payload: &Payload<'_>) {
    let tail = out.tail();
    let at = tail.len();
    let meta_len = put_head(tail, STREAM_MAGIC, |tail| meta.put(tail));
    set_body(tail, at, meta_len + payload.len());
    payload.put(out);
}

/// Room for a meta that says nothing unusual, and for a payload that is copied behind it, is made once for all of it.
const META_USUAL: usize = 128;
const PAYLOAD_USUAL: usize = 8 << 10;

/// Writes a header, in which the size of the body is still missing, and a meta; its size.
#[inline]
fn put_head(tail: &mut BytesMut, magic: [u8; 4], meta: impl FnOnce(&mut BytesMut)) -> usize {
    let at = tail.len();
    let mut header = [0; HEADER_LEN];
    header[..4].copy_from_slice(&magic);
    tail.extend_from_slice(&header);
    meta(tail);
    let meta_len = tail.len() - at - HEADER_LEN;
    tail[at + 8..at + HEADER_LEN].copy_from_slice(&(meta_len as u32).to_be_bytes());
    meta_len
}

#[inline]
fn set_body(tail: &mut BytesMut, at: usize, body_len: usize) {
    tail[at + 4..at + 8].copy_from_slice(&(body_len as u32).to_be_bytes());
}

#[cold]
fn no_frame(input: &Input) -> Fatal {
    let first = &input.rest()[..input.len().min(4)];
    Fatal(format!("{first:02x?} where a frame PRPC or STRM begins"))
}
