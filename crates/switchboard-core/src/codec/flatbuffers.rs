//! Types of `.fbs` files: FlatBuffers, JSON and MessagePack.
//!
//! gRPC without a subtype means protobuf, and the generated code of FlatBuffers uses it: for these types protobuf means
//! FlatBuffers.

use super::{FieldNames, foreign, malformed, serde, short_name};
use crate::{Payload, Result};
use ::serde::{Serialize, de::DeserializeOwned};
use bytes::Bytes;
pub use switchboard_wire::flatbuffers::{Inline, Malformed, Position, Referred, Slot, Table, Union, Writer};
use switchboard_wire::{
    Codec, Status,
    flatbuffers::{read, write},
};

/// Codecs of these types.
const KNOWN: &str = "flatbuffers, json and msgpack";

/// Encodes a message.
///
/// # Errors
/// `Internal` if the type cannot be serialized, `ResourceExhausted` for a message too large for FlatBuffers,
/// `Unimplemented` for other codecs.
pub fn encode<T: Serialize + Referred>(message: &T, codec: Codec) -> Result<Bytes> {
    match codec {
        Codec::FlatBuffers | Codec::Proto => {
            let bytes = write(message);
            if bytes.len() > i32::MAX as usize {
                let text = format!(
                    "{} of {} bytes is over the limit of FlatBuffers",
                    short_name::<T>(),
                    bytes.len()
                );
                return Err(Status::resource_exhausted(text));
            }
            Ok(bytes.into())
        }
        Codec::Json | Codec::MsgPack => serde::encode(message, codec),
        _ => Err(foreign(short_name::<T>(), codec, KNOWN)),
    }
}

/// Encodes a message as [`encode`] does, with the signature that generated code needs.
///
/// # Errors
/// The errors of [`encode`].
pub fn encode_payload<T: Serialize + Referred>(message: &T, codec: Codec) -> Result<Payload> {
    encode(message, codec).map(Payload::from)
}

/// Decodes a message.
///
/// # Errors
/// `InvalidArgument` for bytes that are not such a message, `Unimplemented` for other codecs.
pub fn decode<T: DeserializeOwned + Referred>(codec: Codec, bytes: Bytes) -> Result<T> {
    match codec {
        Codec::FlatBuffers | Codec::Proto => {
            read(&bytes).map_err(|error| malformed(short_name::<T>(), Codec::FlatBuffers, &error))
        }
        Codec::Json | Codec::MsgPack => serde::decode(codec, bytes),
        _ => Err(foreign(short_name::<T>(), codec, KNOWN)),
    }
}

/// Reads a message of a request and refuses fields that the type does not have, where fields are written by name;
/// `names` are those of the message.
///
/// # Errors
/// Returns the errors of [`decode`], and `InvalidArgument` for such a field.
#[doc(hidden)]
pub fn decode_strict<T: DeserializeOwned + Referred>(
    codec: Codec,
    bytes: Bytes,
    names: impl Into<FieldNames>,
) -> Result<T> {
    match codec {
        Codec::Json | Codec::MsgPack => serde::decode_strict(codec, bytes, names),
        _ => decode(codec, bytes),
    }
}
