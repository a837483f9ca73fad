//! Types of `.fbs` files: FlatBuffers, JSON and MessagePack.
//!
//! gRPC without a subtype says protobuf, and the generated code of FlatBuffers calls so: for these types protobuf means
//! FlatBuffers.

use super::{foreign, malformed, serde, short_name};
use crate::{Codec, Payload, Result, Status};
use ::serde::{Serialize, de::DeserializeOwned};
use bytes::Bytes;
pub use switchboard_wire::flatbuffers::{Inline, Malformed, Place, Referred, Slot, Table, Union, Writer};
use switchboard_wire::flatbuffers::{read, write};

/// What such types are written as.
const KNOWN: &str = "flatbuffers, json and msgpack";

/// Writes a message.
///
/// # Errors
/// `Internal` when the type refuses to be written, `ResourceExhausted` for one too large for FlatBuffers,
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
        Codec::Postcard | Codec::Raw | Codec::Thrift | Codec::ThriftStruct => {
            Err(foreign(short_name::<T>(), codec, KNOWN))
        }
    }
}

/// As [`encode`], in the shape that generated code wants.
///
/// # Errors
/// Those of [`encode`].
pub fn encode_payload<T: Serialize + Referred>(message: &T, codec: Codec) -> Result<Payload> {
    encode(message, codec).map(Payload::from)
}

/// Reads a message.
///
/// # Errors
/// `InvalidArgument` for bytes that are no such message, `Unimplemented` for other codecs.
pub fn decode<T: DeserializeOwned + Referred>(codec: Codec, bytes: Bytes) -> Result<T> {
    match codec {
        Codec::FlatBuffers | Codec::Proto => {
            read(&bytes).map_err(|error| malformed(short_name::<T>(), Codec::FlatBuffers, &error))
        }
        Codec::Json | Codec::MsgPack => serde::decode(codec, bytes),
        Codec::Postcard | Codec::Raw | Codec::Thrift | Codec::ThriftStruct => {
            Err(foreign(short_name::<T>(), codec, KNOWN))
        }
    }
}
