//! Protobuf messages: their own bytes, canonical JSON, or the same mapping in MessagePack.

use super::{PARTS_FROM, Payload, arena, foreign, malformed, msgpack, segments::Segments, short_name};
use crate::{Codec, Result};
use buffa::{
    DEFAULT_ELEMENT_MEMORY_LIMIT, DEFAULT_UNKNOWN_FIELD_LIMIT, DecodeContext, DecodeError, Message,
    MessageView, RECURSION_LIMIT, SizeCache,
    encoding::{Tag, WireType},
};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use std::cell::Cell;

/// What the lengths of protobuf can express.
const MESSAGE_BYTES_MAX: u32 = i32::MAX as u32;

/// Writes a message.
///
/// # Errors
/// `Internal` when it is too large for protobuf, `Unimplemented` for other codecs than protobuf, which raw bytes are
/// too, JSON and MessagePack.
#[inline]
pub fn encode<M: Message + Serialize>(message: &M, codec: Codec) -> Result<Bytes> {
    match codec {
        Codec::Proto | Codec::Raw => {
            let mut sizes = SizeCache::new();
            let len = message.compute_size(&mut sizes);
            check_len::<M>(len)?;
            Ok(arena::encode(len as usize, |into| message.write_to(&mut sizes, into)))
        }
        codec => encode_json(message, codec),
    }
}

/// As [`encode`], for messages that are sent at once: large fields of type [`Bytes`] are not copied.
///
/// # Errors
/// Those of [`encode`].
#[inline]
pub fn encode_payload<M: Message + Serialize>(message: &M, codec: Codec) -> Result<Payload> {
    if !matches!(codec, Codec::Proto | Codec::Raw) {
        return Ok(encode_json(message, codec)?.into());
    }
    let mut sizes = SizeCache::new();
    let len = message.compute_size(&mut sizes);
    check_len::<M>(len)?;
    if len as usize >= PARTS_FROM {
        return Ok(gather(len, None, |into| message.write_to(&mut sizes, into)));
    }
    Ok(Payload::encode(len as usize, |into| message.write_to(&mut sizes, into)))
}

#[cold]
pub(super) fn gather(len: u32, backing: Option<Bytes>, write: impl FnOnce(&mut Segments)) -> Payload {
    let mut segments = Segments::new(len as usize, backing);
    write(&mut segments);
    segments.finish()
}

/// Writes a message, or a view of one, by the names of its fields; other codecs are refused.
pub(super) fn encode_json<T: Serialize>(message: &T, codec: Codec) -> Result<Bytes> {
    let refused = |error: &dyn std::fmt::Display| {
        crate::Status::internal(format!("{} cannot be written as {codec}: {error}", short_name::<T>()))
    };
    match codec {
        Codec::Json => serde_json::to_vec(message).map(Bytes::from).map_err(|error| refused(&error)),
        Codec::MsgPack => {
            let mut written = Vec::new();
            msgpack::write(&mut written, message).map_err(|error| refused(&error))?;
            Ok(written.into())
        }
        Codec::FlatBuffers
        | Codec::Postcard
        | Codec::Proto
        | Codec::Raw
        | Codec::Thrift
        | Codec::ThriftStruct => Err(foreign(short_name::<T>(), codec, KNOWN)),
    }
}

/// What protobuf messages are written as.
const KNOWN: &str = "proto, json and msgpack";

/// # Errors
/// `ResourceExhausted` for a message that is too large for protobuf.
#[inline]
pub(super) fn check_len<M>(len: u32) -> Result<()> {
    if len <= MESSAGE_BYTES_MAX {
        return Ok(());
    }
    let text = format!("{} of {len} bytes is over the limit of protobuf", short_name::<M>());
    Err(crate::Status::resource_exhausted(text))
}

/// Reads a message into a value that owns its parts.
///
/// # Errors
/// `InvalidArgument` for bytes that are no such message, `Unimplemented` for other codecs.
#[inline]
pub fn decode<M: Message + DeserializeOwned>(codec: Codec, mut bytes: Bytes) -> Result<M> {
    match codec {
        Codec::Proto | Codec::Raw => {
            // From the shared bytes, not a slice: `bytes` fields become shares of them.
            M::decode(&mut bytes).map_err(|error| malformed(short_name::<M>(), codec, &error))
        }
        Codec::Json => {
            serde_json::from_slice(&bytes).map_err(|error| malformed(short_name::<M>(), codec, &error))
        }
        Codec::MsgPack => {
            let json =
                msgpack::json_of(&bytes).map_err(|error| malformed(short_name::<M>(), codec, &error))?;
            serde_json::from_slice(&json).map_err(|error| malformed(short_name::<M>(), codec, &error))
        }
        Codec::FlatBuffers | Codec::Postcard | Codec::Thrift | Codec::ThriftStruct => {
            Err(foreign(short_name::<M>(), codec, KNOWN))
        }
    }
}

/// The bytes that a view of `M` can borrow from: those of the request if it is protobuf, else written anew.
///
/// # Errors
/// Those of [`decode`].
#[inline]
pub fn view_bytes<M: Message + DeserializeOwned>(codec: Codec, bytes: Bytes) -> Result<Bytes> {
    match codec {
        Codec::Proto | Codec::Raw => Ok(bytes),
        _ => Ok(decode::<M>(codec, bytes)?.encode_to_bytes()),
    }
}

/// Reads a view that borrows from `bytes`.
///
/// # Errors
/// `InvalidArgument` for bytes that are no such message.
#[inline]
pub fn view<'a, V: MessageView<'a> + Default>(bytes: &'a [u8]) -> Result<V> {
    let mut view = V::default();
    read_view(&mut view, bytes)?;
    Ok(view)
}

/// Reads into a view that stays where it is; for generated code. A view of many fields is large, and is moved by each
/// result that it goes through.
///
/// # Errors
/// Those of [`view`].
#[doc(hidden)]
#[inline]
pub fn read_view<'a, V: MessageView<'a>>(view: &mut V, bytes: &'a [u8]) -> Result<()> {
    fields(view, bytes).map_err(|error| malformed(short_name::<V::Owned>(), Codec::Proto, &error))
}

/// What [`MessageView::decode_view`] does, with tags of two bytes read in place: those of every field above the 15th.
fn fields<'a, V: MessageView<'a>>(view: &mut V, mut rest: &'a [u8]) -> std::result::Result<(), DecodeError> {
    let unknown_fields = Cell::new(DEFAULT_UNKNOWN_FIELD_LIMIT);
    let elements = Cell::new(DEFAULT_ELEMENT_MEMORY_LIMIT);
    let limits = DecodeContext::new(RECURSION_LIMIT, &unknown_fields).with_element_memory(&elements);
    while !rest.is_empty() {
        let from_tag = rest;
        let tag = take_tag(&mut rest)?;
        rest = view.merge_view_field(tag, rest, from_tag, limits)?;
    }
    Ok(())
}

/// Takes the tag of a field.
#[inline(always)]
fn take_tag(from: &mut &[u8]) -> std::result::Result<Tag, DecodeError> {
    let (number, after) = match **from {
        [one, ref after @ ..] if one < 0x80 => (u32::from(one), after),
        [one, two, ref after @ ..] if two < 0x80 => (u32::from(one & 0x7f) | u32::from(two) << 7, after),
        _ => return Tag::decode(from),
    };
    let wire_type = match number & 7 {
        0 => WireType::Varint,
        1 => WireType::Fixed64,
        2 => WireType::LengthDelimited,
        5 => WireType::Fixed32,
        _ => return Tag::decode(from),
    };
    if number < 8 {
        // No field has the number 0.
        return Tag::decode(from);
    }
    *from = after;
    Ok(Tag::new(number >> 3, wire_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use buffa::bytes::Buf;

    #[test]
    fn every_tag_is_read_as_the_library_reads_it() {
        let short = (0..=u8::MAX).map(|one| vec![one]);
        let two = (0..=u16::MAX).map(|two| two.to_le_bytes().to_vec());
        let long = (0..=u16::MAX).map(|two| [&two.to_le_bytes()[..], &[0x81, 0x01]].concat());
        for bytes in short.chain(two).chain(long).chain([vec![]]) {
            let (mut ours, mut theirs) = (&bytes[..], &bytes[..]);
            let both = (take_tag(&mut ours).ok(), Tag::decode(&mut theirs).ok());
            assert_eq!(both.0, both.1, "{bytes:02x?}");
            assert!(both.0.is_none() || ours.remaining() == theirs.remaining(), "{bytes:02x?}");
        }
    }
}
