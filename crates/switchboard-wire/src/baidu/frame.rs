//! Frame headers, and skipping of rejected frames.

use super::{
    Layout, STREAM_MAGIC,
    layout::{Sent, Sizes},
    stream::StreamMeta,
};
use crate::{Fatal, Input, Outbox, Outgoing};
use bytes::{Bytes, BytesMut};

/// Bytes of the shorter header; `HEADER_MORE` are the additional bytes of the longer one.
const HEADER_LEN: usize = 12;
const HEADER_MORE: usize = 12;
/// Number of received bytes from which memory for the rest of the frame is reserved at once; a header alone does not
/// make the receiver allocate.
const ROOM_FROM: usize = 32 << 10;

/// Finds the frames of a connection.
#[derive(Debug, Default)]
pub(super) struct Framer {
    pub(super) layout: Layout,
    /// Bytes of a rejected frame that have not arrived.
    skip: usize,
    /// The frame at the front, whose meta was read and whose payload has not arrived completely.
    awaited: Option<Frame>,
}

/// Sizes of a frame whose meta has arrived.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Frame {
    /// The frame belongs to a stream.
    pub(super) of_stream: bool,
    header: usize,
    /// Bytes behind the header.
    pub(super) body: usize,
    pub(super) meta: usize,
}

impl Framer {
    /// Looks at the next frame once its header and meta have arrived; consumes nothing.
    ///
    /// # Errors
    /// Returns an error for bytes that do not begin a frame, and for invalid [sizes](Layout::sizes).
    #[inline]
    pub(super) fn next(&mut self, input: &mut Input) -> Result<Option<Frame>, Fatal> {
        if self.skip > 0 {
            let skipped = self.skip.min(input.len());
            input.skip(skipped);
            self.skip -= skipped;
        }
        if let Some(frame) = self.awaited {
            if !frame.is_whole(input) {
                frame.make_room(input);
                return Ok(None);
            }
            self.awaited = None;
            return Ok(Some(frame));
        }
        let rest = input.rest();
        let known = rest.len().min(4);
        let begins = |magic: [u8; 4]| magic[..known] == rest[..known];
        let of_stream = self.layout == Layout::Standard && begins(STREAM_MAGIC);
        if !of_stream && !begins(self.layout.magic()) {
            return Err(self.no_frame(input));
        }
        let Some(Sizes { header, meta, body }) = self.layout.sizes(rest)? else { return Ok(None) };
        let (body, meta) = (body as usize, meta as usize);
        Ok((input.len() >= header + meta).then_some(Frame { of_stream, header, body, meta }))
    }

    #[cold]
    fn no_frame(&self, input: &Input) -> Fatal {
        let first = &input.rest()[..input.len().min(4)];
        Fatal(format!("{first:02x?} where a frame of {} begins", self.layout.name()))
    }

    /// Waits for the rest of a frame; its meta is not read again before that has arrived.
    pub(super) fn wait(&mut self, frame: Frame, input: &mut Input) {
        frame.make_room(input);
        self.awaited = Some(frame);
    }

    /// Skips a frame, including bytes that have not arrived.
    pub(super) fn refuse(&mut self, frame: Frame, input: &mut Input) {
        let len = frame.header + frame.body;
        let here = len.min(input.len());
        input.skip(here);
        self.skip = len - here;
    }
}

impl Frame {
    /// Reserves memory for the rest of the frame.
    fn make_room(self, input: &mut Input) {
        let missing = (self.header + self.body).saturating_sub(input.len());
        let step = if input.len() < ROOM_FROM { missing.min(ROOM_FROM) } else { missing };
        input.buffer().reserve(step);
    }

    /// Returns true if the whole frame has arrived.
    #[inline]
    pub(super) fn is_whole(self, input: &Input) -> bool {
        input.len() >= self.header + self.body
    }

    /// Number of bytes behind the meta.
    #[inline]
    pub(super) fn payload(self) -> usize {
        self.body - self.meta
    }

    /// Returns the meta bytes.
    #[inline]
    pub(super) fn meta_of(self, input: &Input) -> &[u8] {
        &input.rest()[self.header..self.header + self.meta]
    }

    /// Takes a complete frame: its message, and its attachment of `attachment` bytes.
    #[inline]
    pub(super) fn take(self, attachment: usize, input: &mut Input) -> (Bytes, Bytes) {
        let message = self.skip_head(input) - attachment;
        let message = input.take(message);
        let attachment = if attachment > 0 { input.take(attachment) } else { Bytes::new() };
        (message, attachment)
    }

    /// Consumes header and meta, and returns the number of bytes that follow.
    #[inline]
    pub(super) fn skip_head(self, input: &mut Input) -> usize {
        input.skip(self.header + self.meta);
        self.body - self.meta
    }

    /// Returns the size of the message, or `None` if an attachment of this size does not fit behind it.
    #[inline]
    pub(super) fn message_len(self, attachment: i32) -> Option<usize> {
        (self.body - self.meta).checked_sub(usize::try_from(attachment).ok()?)
    }
}

/// Payload of a frame: a message in parts, and an attachment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Payload<'a> {
    pub(super) first: Option<Outgoing<'a>>,
    pub(super) rest: &'a [Bytes],
    pub(super) attachment: Option<&'a Bytes>,
}

impl<'a> Payload<'a> {
    /// A message in one piece.
    #[inline]
    pub(super) fn one(message: impl Into<Outgoing<'a>>) -> Payload<'a> {
        Payload { first: Some(message.into()), ..Payload::default() }
    }

    /// The parts of the message.
    #[inline]
    pub(super) fn message(self) -> impl Iterator<Item = Outgoing<'a>> {
        self.first.into_iter().chain(self.rest.iter().map(Outgoing::from))
    }

    /// The message, and the attachment behind it.
    #[inline]
    pub(super) fn parts(self) -> impl Iterator<Item = Outgoing<'a>> {
        self.message().chain(self.attachment.map(Outgoing::from))
    }

    /// Returns the sizes that the meta declares.
    pub(super) fn sizes(self) -> Sent {
        let attachment = self.attachment.map_or(0, Bytes::len);
        Sent { message: self.len() - attachment, attachment, ..Sent::default() }
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        self.parts().map(|part| part.len()).sum()
    }

    #[inline]
    fn put(self, out: &mut Outbox) {
        self.parts().filter(|part| !part.is_empty()).for_each(|part| out.put(part));
    }
}

/// Writes a frame, inside a stream frame if `stream` is set; `meta` appends the fields of its meta.
#[inline]
pub(super) fn put(
    layout: Layout,
    out: &mut Outbox,
    inside: Option<&StreamMeta>,
    payload: &Payload<'_>,
    meta: impl FnOnce(&mut BytesMut),
) {
    let payload_len = payload.len();
    let tail = out.tail();
    tail.reserve(HEADER_LEN + HEADER_MORE + META_USUAL + payload_len.min(PAYLOAD_USUAL));
    let around = tail.len();
    let around_len = inside.map(|stream| put_stream_head(tail, stream));
    let at = tail.len();
    put_magic(tail, layout.magic());
    if layout == Layout::Sofa {
        tail.extend_from_slice(&[0; HEADER_MORE]);
    }
    let meta_at = tail.len();
    meta(tail);
    let meta_len = tail.len() - meta_at;
    layout.set_sizes(&mut tail[at..], meta_len, payload_len);
    if let Some(around_len) = around_len {
        let inside_len = tail.len() - at + payload_len;
        Layout::Standard.set_sizes(&mut tail[around..], around_len, inside_len);
    }
    payload.put(out);
}

/// Writes a frame of a stream.
pub(super) fn put_stream(out: &mut Outbox, meta: &StreamMeta, payload: &Payload<'_>) {
    let tail = out.tail();
    let at = tail.len();
    let meta_len = put_stream_head(tail, meta);
    Layout::Standard.set_sizes(&mut tail[at..], meta_len, payload.len());
    payload.put(out);
}

/// Usual sizes of a meta and of a copied payload; room for both is reserved at once.
const META_USUAL: usize = 128;
const PAYLOAD_USUAL: usize = 8 << 10;

/// Writes the shorter header with zero sizes.
#[inline]
fn put_magic(tail: &mut BytesMut, magic: [u8; 4]) {
    let mut header = [0; HEADER_LEN];
    header[..4].copy_from_slice(&magic);
    tail.extend_from_slice(&header);
}

/// Writes the header and the meta of a stream frame; returns the size of the meta.
fn put_stream_head(tail: &mut BytesMut, meta: &StreamMeta) -> usize {
    put_magic(tail, STREAM_MAGIC);
    let at = tail.len();
    meta.put(tail);
    tail.len() - at
}
