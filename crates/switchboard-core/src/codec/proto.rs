//! Protobuf messages: binary, protobuf JSON, or the same mapping in MessagePack.

use super::{FieldNames, foreign, malformed, msgpack, read_json, read_strict_json, short_name};
use crate::{
    Result,
    payload::{PARTS_FROM, Payload, arena, segments::Segments},
};
use buffa::{
    DEFAULT_ELEMENT_MEMORY_LIMIT, DEFAULT_UNKNOWN_FIELD_LIMIT, DecodeContext, DecodeError, Message,
    MessageView, RECURSION_LIMIT, SizeCache,
    encoding::{Tag, WireType},
};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use std::cell::Cell;
use switchboard_wire::Codec;

/// Largest length that protobuf can express.
const MESSAGE_BYTES_MAX: u32 = i32::MAX as u32;

/// Encodes a message.
///
/// # Errors
/// `Internal` if it is too large for protobuf, `Unimplemented` for codecs other than protobuf (which includes raw
/// bytes), JSON and MessagePack.
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

/// Encodes a message as [`encode`] does, for messages that are sent at once: large fields of type [`Bytes`] are not
/// copied.
///
/// # Errors
/// The errors of [`encode`].
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

/// Encodes a message, or a view of one, by the names of its fields; other codecs are refused.
pub(super) fn encode_json<T: Serialize>(message: &T, codec: Codec) -> Result<Bytes> {
    let refused = |error: &dyn std::fmt::Display| {
        switchboard_wire::Status::internal(format!(
            "{} cannot be written as {codec}: {error}",
            short_name::<T>()
        ))
    };
    match codec {
        Codec::Json => serde_json::to_vec(message).map(Bytes::from).map_err(|error| refused(&error)),
        Codec::MsgPack => {
            let mut written = Vec::new();
            msgpack::write(&mut written, message).map_err(|error| refused(&error))?;
            Ok(written.into())
        }
        _ => Err(foreign(short_name::<T>(), codec, KNOWN)),
    }
}

/// Codecs of protobuf messages.
const KNOWN: &str = "proto, json and msgpack";

/// # Errors
/// `ResourceExhausted` for a message that is too large for protobuf.
#[inline]
pub(super) fn check_len<M>(len: u32) -> Result<()> {
    if len <= MESSAGE_BYTES_MAX {
        return Ok(());
    }
    let text = format!("{} of {len} bytes is over the limit of protobuf", short_name::<M>());
    Err(switchboard_wire::Status::resource_exhausted(text))
}

/// Decodes a message into a value that owns its parts.
///
/// # Errors
/// `InvalidArgument` for bytes that are not such a message, `Unimplemented` for other codecs.
#[inline]
pub fn decode<M: Message + DeserializeOwned>(codec: Codec, mut bytes: Bytes) -> Result<M> {
    match codec {
        Codec::Proto | Codec::Raw => {
            // Decoded from the shared bytes, not from a slice: `bytes` fields share the memory.
            merge(&mut bytes).map_err(|failure| malformed(short_name::<M>(), codec, &failure))
        }
        Codec::Json => read_json(&bytes, short_name::<M>(), codec),
        Codec::MsgPack => {
            let json =
                msgpack::json_of(&bytes).map_err(|error| malformed(short_name::<M>(), codec, &error))?;
            read_json(&json, short_name::<M>(), codec)
        }
        _ => Err(foreign(short_name::<M>(), codec, KNOWN)),
    }
}

/// Returns the bytes that a view of `M` can borrow from: those of the request if it is protobuf, otherwise encoded
/// again.
///
/// # Errors
/// The errors of [`decode`].
#[inline]
pub fn view_bytes<M: Message + DeserializeOwned>(codec: Codec, bytes: Bytes) -> Result<Bytes> {
    match codec {
        Codec::Proto | Codec::Raw => Ok(bytes),
        _ => Ok(decode::<M>(codec, bytes)?.encode_to_bytes()),
    }
}

/// Decodes a message of a request and refuses fields that the type does not have, where fields are written by name;
/// `names` are those of the message.
///
/// # Errors
/// Returns the errors of [`decode`], and `InvalidArgument` for such a field.
#[doc(hidden)]
pub fn decode_strict<M: Message + DeserializeOwned>(
    codec: Codec,
    bytes: Bytes,
    names: impl Into<FieldNames>,
) -> Result<M> {
    match codec {
        Codec::Json => read_strict_json(&bytes, short_name::<M>(), codec, names.into()),
        Codec::MsgPack => {
            let json =
                msgpack::json_of(&bytes).map_err(|error| malformed(short_name::<M>(), codec, &error))?;
            read_strict_json(&json, short_name::<M>(), codec, names.into())
        }
        _ => decode(codec, bytes),
    }
}

/// Does for [`view_bytes`] what [`decode_strict`] does for [`decode`].
///
/// # Errors
/// Returns the errors of [`decode_strict`].
#[doc(hidden)]
pub fn view_bytes_strict<M: Message + DeserializeOwned>(
    codec: Codec,
    bytes: Bytes,
    names: impl Into<FieldNames>,
) -> Result<Bytes> {
    match codec {
        Codec::Proto | Codec::Raw => Ok(bytes),
        _ => Ok(decode_strict::<M>(codec, bytes, names)?.encode_to_bytes()),
    }
}

/// Decodes a view that borrows from `bytes`.
///
/// # Errors
/// `InvalidArgument` for bytes that are not such a message.
#[inline]
pub fn view<'a, V: MessageView<'a> + Default>(bytes: &'a [u8]) -> Result<V> {
    let mut view = V::default();
    read_view(&mut view, bytes)?;
    Ok(view)
}

/// Decodes into a view in place; for generated code. A view of many fields is large, and each function that returns it
/// moves it.
///
/// # Errors
/// The errors of [`view`].
#[doc(hidden)]
#[inline]
pub fn read_view<'a, V: MessageView<'a>>(view: &mut V, bytes: &'a [u8]) -> Result<()> {
    fields(view, bytes).map_err(|failure| malformed(short_name::<V::Owned>(), Codec::Proto, &failure))
}

/// Bytes that are no message.
struct Failure {
    /// The field of the outermost message, if its tag could be read.
    field: Option<u32>,
    /// Where that begins.
    at: usize,
    error: DecodeError,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(number) = self.field {
            write!(f, "field {number} ")?;
        }
        write!(f, "at byte {}: {}", self.at, self.error)
    }
}

/// Does what [`Message::decode`] does, and knows the field at which it fails.
#[inline]
fn merge<M: Message>(bytes: &mut Bytes) -> std::result::Result<M, Failure> {
    let unknown_fields = Cell::new(DEFAULT_UNKNOWN_FIELD_LIMIT);
    let elements = Cell::new(DEFAULT_ELEMENT_MEMORY_LIMIT);
    let limits = DecodeContext::new(RECURSION_LIMIT, &unknown_fields).with_element_memory(&elements);
    let (mut message, len) = (M::default(), bytes.len());
    while !bytes.is_empty() {
        let at = len - bytes.len();
        let tag = Tag::decode(bytes).map_err(|error| Failure { field: None, at, error })?;
        let merged = message.merge_field(tag, bytes, limits);
        merged.map_err(|error| Failure { field: Some(tag.field_number()), at, error })?;
    }
    Ok(message)
}

/// Decodes like [`MessageView::decode_view`], and knows the field at which it fails.
#[inline]
fn fields<'a, V: MessageView<'a>>(view: &mut V, bytes: &'a [u8]) -> std::result::Result<(), Failure> {
    let unknown_fields = Cell::new(DEFAULT_UNKNOWN_FIELD_LIMIT);
    let elements = Cell::new(DEFAULT_ELEMENT_MEMORY_LIMIT);
    let limits = DecodeContext::new(RECURSION_LIMIT, &unknown_fields).with_element_memory(&elements);
    view.merge_into_view(bytes, limits).map_err(|error| failure(view, bytes, error))
}

/// Reads a message again to find the field at which it fails.
#[cold]
fn failure<'a, V: MessageView<'a>>(view: &mut V, bytes: &'a [u8], error: DecodeError) -> Failure {
    match field_by_field(view, bytes) {
        Err(failure) => failure,
        Ok(()) => Failure { field: None, at: 0, error },
    }
}

fn field_by_field<'a, V: MessageView<'a>>(view: &mut V, bytes: &'a [u8]) -> std::result::Result<(), Failure> {
    let mut rest = bytes;
    let unknown_fields = Cell::new(DEFAULT_UNKNOWN_FIELD_LIMIT);
    let elements = Cell::new(DEFAULT_ELEMENT_MEMORY_LIMIT);
    let limits = DecodeContext::new(RECURSION_LIMIT, &unknown_fields).with_element_memory(&elements);
    while !rest.is_empty() {
        let from_tag = rest;
        let failed = |field, error| Failure { field, at: bytes.len() - from_tag.len(), error };
        let tag = take_tag(&mut rest).map_err(|error| failed(None, error))?;
        let merged = view.merge_view_field(tag, rest, from_tag, limits);
        rest = merged.map_err(|error| failed(Some(tag.field_number()), error))?;
    }
    Ok(())
}

/// Takes the tag of a field. One of two bytes is read in place: those of every field above the 15th.
#[inline(always)]
pub(super) fn take_tag(from: &mut &[u8]) -> std::result::Result<Tag, DecodeError> {
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
        // The field number 0 is invalid.
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
    fn errors_name_the_field_and_the_byte() {
        use buffa_types::google::protobuf::{FieldMask, StringValue};
        for (bytes, place) in [
            (&b"\x0a\x01a\x0a\x05b"[..], "field 1 at byte 3: "),
            (b"\x0a\x01\xff", "field 1 at byte 0: "),
            (b"\x0a\x01a\xff", "at byte 3: "),
        ] {
            let wanted = format!("the proto message is no FieldMask: {place}");
            let owned = decode::<FieldMask>(Codec::Proto, Bytes::from_static(bytes)).unwrap_err();
            assert!(owned.message().starts_with(&wanted), "{owned}");
            let viewed = view::<buffa_types::google::protobuf::FieldMaskView<'_>>(bytes);
            let Err(viewed) = viewed else { panic!("{bytes:?} was read") };
            assert_eq!(viewed.message(), owned.message());
        }
        let status = decode::<StringValue>(Codec::Proto, Bytes::from_static(b"\xff")).unwrap_err();
        assert!(status.message().contains("no StringValue: at byte 0: "), "{status}");
    }

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
