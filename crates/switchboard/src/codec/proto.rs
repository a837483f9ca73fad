//! Protobuf messages: their own bytes, or canonical JSON.

use super::{arena, foreign, malformed, short_name};
use crate::{Codec, Result};
use buffa::{Message, MessageView, SizeCache};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

/// What the lengths of protobuf can express.
const MESSAGE_BYTES_MAX: u32 = i32::MAX as u32;

/// Writes a message.
///
/// # Errors
/// `Internal` when it is too large for protobuf, `Unimplemented` for other codecs than protobuf and JSON.
#[inline]
pub fn encode<M: Message + Serialize>(message: &M, codec: Codec) -> Result<Bytes> {
    match codec {
        Codec::Proto => {
            let mut sizes = SizeCache::new();
            let len = message.compute_size(&mut sizes);
            check_len::<M>(len)?;
            Ok(arena::encode(len as usize, |into| message.write_to(&mut sizes, into)))
        }
        codec => encode_json(message, codec),
    }
}

/// Writes a message, or a view of one, as JSON; other codecs are refused.
pub(super) fn encode_json<T: Serialize>(message: &T, codec: Codec) -> Result<Bytes> {
    if codec != Codec::Json {
        return Err(foreign(short_name::<T>(), codec, "proto and json"));
    }
    serde_json::to_vec(message).map(Bytes::from).map_err(|error| {
        crate::Status::internal(format!("{} cannot be written as json: {error}", short_name::<T>()))
    })
}

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
        Codec::Proto => {
            // From the shared bytes, not a slice: `bytes` fields become shares of them.
            M::decode(&mut bytes).map_err(|error| malformed(short_name::<M>(), codec, &error))
        }
        Codec::Json => {
            serde_json::from_slice(&bytes).map_err(|error| malformed(short_name::<M>(), codec, &error))
        }
        Codec::Postcard => Err(foreign(short_name::<M>(), codec, "proto and json")),
    }
}

/// The bytes that a view of `M` can borrow from: those of the request if it is protobuf, else written anew.
///
/// # Errors
/// Those of [`decode`].
#[inline]
pub fn view_bytes<M: Message + DeserializeOwned>(codec: Codec, bytes: Bytes) -> Result<Bytes> {
    match codec {
        Codec::Proto => Ok(bytes),
        _ => Ok(decode::<M>(codec, bytes)?.encode_to_bytes()),
    }
}

/// Reads a view that borrows from `bytes`.
///
/// # Errors
/// `InvalidArgument` for bytes that are no such message.
#[inline]
pub fn view<'a, V: MessageView<'a>>(bytes: &'a [u8]) -> Result<V> {
    V::decode_view(bytes).map_err(|error| malformed(short_name::<V::Owned>(), Codec::Proto, &error))
}
