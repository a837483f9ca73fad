//! Frames of rpcx: code for both roles.

use super::{HEARTBEAT_BYTES_MAX, MAGIC, NAME_BYTES_MAX};
use crate::{Codec, Fatal, Input, Limits, Outbox};
use bytes::{BufMut, Bytes, BytesMut};
use std::ops::Range;

/// Size of the header, including the number of bytes that follow it.
pub(super) const HEADER_LEN: usize = 16;
/// Size of the lengths of path, method, metadata and payload.
const LENGTHS: usize = 16;

/// Bits of the third byte.
pub(super) mod bit {
    pub(crate) const RESPONSE: u8 = 0x80;
    pub(crate) const HEARTBEAT: u8 = 0x40;
    pub(crate) const ONEWAY: u8 = 0x20;
    pub(crate) const COMPRESSION: u8 = 0x1C;
    pub(crate) const GZIP: u8 = 0x04;
    pub(crate) const STATUS: u8 = 0x03;
    pub(crate) const ERROR: u8 = 0x01;
}

/// The numbers of codecs.
pub(super) mod codec {
    pub(crate) const RAW: u8 = 0;
    pub(crate) const MSGPACK: u8 = 3;
    const LAST: u8 = 4;

    /// Numbers that rpcx itself assigns.
    pub(crate) const KNOWN: std::ops::RangeInclusive<u8> = RAW..=LAST;
}

/// Returns the codec with this number of rpcx.
#[inline]
pub(super) fn codec_of(number: u8) -> Option<Codec> {
    match number {
        codec::RAW => Some(Codec::Raw),
        1 => Some(Codec::Json),
        2 => Some(Codec::Proto),
        codec::MSGPACK => Some(Codec::MsgPack),
        4 => Some(Codec::ThriftStruct),
        _ => None,
    }
}

/// Returns the number that rpcx assigns to a codec, if any.
pub(super) fn codec_number(codec: Codec) -> Option<u8> {
    codec::KNOWN.into_iter().find(|number| codec_of(*number) == Some(codec))
}

/// The first twelve bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) version: u8,
    pub(super) bits: u8,
    /// Codec number in the upper half; the lower half is 0.
    pub(super) codec: u8,
    pub(super) sequence: u64,
}

impl Header {
    pub(super) fn parse(bytes: &[u8; HEADER_LEN]) -> Header {
        let [_, version, bits, codec, sequence @ .., _, _, _, _] = *bytes;
        Header { version, bits, codec, sequence: u64::from_be_bytes(sequence) }
    }

    pub(super) fn has(self, bit: u8) -> bool {
        self.bits & bit != 0
    }
}

/// A frame before its payload; ranges count from its first byte.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) header: Header,
    /// Path and method with their lengths, which the response repeats.
    pub(super) names: Range<usize>,
    /// Range of the method, after its length.
    pub(super) method: Range<usize>,
    pub(super) path: Range<usize>,
    pub(super) metadata: Range<usize>,
    pub(super) payload: Range<usize>,
}

impl Head {
    /// Reads the frame up to the length of the metadata, which determines the rest; `None` if that has not arrived.
    ///
    /// # Errors
    /// Returns an error for another magic, for names that exceed the limit, and for parts that are longer than the
    /// frame.
    fn parse(bytes: &[u8]) -> Result<Option<Head>, Fatal> {
        if let Some(first) = bytes.first()
            && *first != MAGIC
        {
            return Err(Fatal(format!("a frame of rpcx begins with {MAGIC:02x}, not {first:02x}")));
        }
        let Some(fixed) = bytes.first_chunk() else { return Ok(None) };
        let header = Header::parse(fixed);
        let end = HEADER_LEN + length(bytes, 12).unwrap_or_default();
        let short = || Fatal("a frame of rpcx is shorter than its parts".to_owned());
        if end < HEADER_LEN + LENGTHS {
            return Err(short());
        }
        let mut at = HEADER_LEN;
        let mut next = |max: usize| -> Result<Option<Range<usize>>, Fatal> {
            let Some(len) = length(bytes, at) else { return Ok(None) };
            if len > max {
                return Err(Fatal(format!(
                    "a path or method of {len} bytes is over the limit of {NAME_BYTES_MAX} bytes of rpcx"
                )));
            }
            let part = at + 4..at + 4 + len;
            at = part.end;
            // At least the length of the payload follows.
            if at + 4 > end { Err(short()) } else { Ok(Some(part)) }
        };
        let Some(path) = next(NAME_BYTES_MAX)? else { return Ok(None) };
        let Some(method) = next(NAME_BYTES_MAX)? else { return Ok(None) };
        let Some(metadata) = next(usize::MAX)? else { return Ok(None) };
        let names = HEADER_LEN..method.end;
        let payload = metadata.end + 4..end;
        Ok(Some(Head { header, names, method, path, metadata, payload }))
    }
}

/// Reads the length at this position.
#[inline]
pub(super) fn length(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes) as usize)
}

/// Part of a frame that exceeds its limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Part {
    Metadata,
    Payload,
}

pub(super) enum Next {
    /// More bytes are needed.
    Wait,
    /// The whole frame is at the front of the input, and nothing was taken.
    Frame(Head),
    /// A part is too large. Path and method have arrived and nothing was taken; call [`Framer::step_over`] next.
    TooLarge(Head, Part),
}

/// Splits the input into frames; skips rejected frames without buffering them.
#[derive(Debug, Default)]
pub(super) struct Framer {
    skip: usize,
    /// The head at the front is within the limits, and its payload has not arrived completely.
    passed: bool,
}

/// Number of received bytes of a frame from which memory for the whole frame is reserved.
const ROOM_FROM: usize = 32 << 10;

impl Framer {
    /// Takes the next frame; `payload_max` returns the largest payload of a frame with this head.
    ///
    /// # Errors
    /// Returns an error for bytes that are not a frame.
    pub(super) fn next(
        &mut self,
        input: &mut Input,
        limits: &Limits,
        payload_max: impl FnOnce(&Head, &[u8]) -> u32,
    ) -> Result<Next, Fatal> {
        let step = input.len().min(self.skip);
        input.skip(step);
        self.skip -= step;
        if self.skip > 0 {
            return Ok(Next::Wait);
        }
        let Some(head) = Head::parse(input.rest())? else { return Ok(Next::Wait) };
        let end = head.payload.end;
        if head.header.has(bit::HEARTBEAT) {
            if end > HEARTBEAT_BYTES_MAX {
                return Err(Fatal(format!(
                    "a heartbeat of {end} bytes is over the limit of {HEARTBEAT_BYTES_MAX} bytes"
                )));
            }
        } else if self.passed {
            // The rest of the frame is awaited.
        } else if head.metadata.len() > limits.metadata_bytes_max as usize {
            return Ok(Next::TooLarge(head, Part::Metadata));
        } else if head.payload.len() > payload_max(&head, input.rest()) as usize {
            return Ok(Next::TooLarge(head, Part::Payload));
        }
        if input.len() < end {
            // Memory for the rest is reserved at once, but only when a large part of a buffer has arrived: a header
            // alone does not make the receiver allocate.
            let missing = end - input.len();
            let step = if input.len() < ROOM_FROM { missing.min(ROOM_FROM) } else { missing };
            input.buffer().reserve(step);
            self.passed = true;
            return Ok(Next::Wait);
        }
        self.passed = false;
        match length(input.rest(), head.metadata.end) {
            Some(len) if len == head.payload.len() => Ok(Next::Frame(head)),
            _ => Err(Fatal("the payload of a frame of rpcx is not the rest of it".to_owned())),
        }
    }

    /// Drops a frame, including bytes that have not arrived.
    pub(super) fn step_over(&mut self, head: &Head, input: &mut Input) {
        let step = input.len().min(head.payload.end);
        input.skip(step);
        self.skip = head.payload.end - step;
    }

    /// Returns true if the next bytes continue a frame whose head was already read: only [`next`](Self::next) continues
    /// it.
    #[inline]
    pub(super) fn is_within(&self) -> bool {
        self.skip > 0 || self.passed
    }
}

/// Writes a frame without its payload, which has `payload_len` bytes. A function writes the `metadata_len` bytes of
/// metadata, which come from several sources.
#[inline]
pub(super) fn put_head(
    header: Header,
    names: &[u8],
    metadata_len: usize,
    metadata: impl FnOnce(&mut BytesMut),
    payload_len: usize,
    out: &mut Outbox,
) {
    let tail = out.tail();
    tail.reserve(HEADER_LEN + names.len() + 8 + metadata_len + payload_len.min(8 << 10));
    let total = names.len() + 4 + metadata_len + 4 + payload_len;
    let mut fixed = [0u8; HEADER_LEN];
    fixed[..4].copy_from_slice(&[MAGIC, header.version, header.bits, header.codec]);
    fixed[4..12].copy_from_slice(&header.sequence.to_be_bytes());
    fixed[12..].copy_from_slice(&(total as u32).to_be_bytes());
    tail.extend_from_slice(&fixed);
    tail.extend_from_slice(names);
    tail.put_u32(metadata_len as u32);
    let before = tail.len();
    metadata(tail);
    debug_assert_eq!(tail.len() - before, metadata_len, "the metadata has metadata_len bytes");
    tail.put_u32(payload_len as u32);
}

/// Encodes path and method as in a frame.
pub(super) fn names(path: &str, method: &str) -> Bytes {
    let mut names = BytesMut::with_capacity(8 + path.len() + method.len());
    for name in [path, method] {
        names.put_u32(name.len() as u32);
        names.put_slice(name.as_bytes());
    }
    names.freeze()
}
