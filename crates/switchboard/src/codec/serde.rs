//! Serde types: postcard between Rust programs, JSON with everybody else.

use super::{foreign, malformed, short_name};
use crate::{Codec, Result};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

/// Writes a message.
///
/// # Errors
/// `Internal` when the type refuses to be written, `Unimplemented` for protobuf.
pub fn encode<T: Serialize>(message: &T, codec: Codec) -> Result<Bytes> {
    let refused = |error: &dyn std::fmt::Display| {
        crate::Status::internal(format!("{} cannot be written as {codec}: {error}", short_name::<T>()))
    };
    match codec {
        Codec::Postcard => postcard::to_stdvec(message).map(Bytes::from).map_err(|error| refused(&error)),
        Codec::Json => serde_json::to_vec(message).map(Bytes::from).map_err(|error| refused(&error)),
        Codec::Proto => Err(foreign(short_name::<T>(), codec, "postcard and json")),
    }
}

/// Reads a message.
///
/// # Errors
/// `InvalidArgument` for bytes that are no such message, `Unimplemented` for protobuf.
pub fn decode<T: DeserializeOwned>(codec: Codec, bytes: Bytes) -> Result<T> {
    match codec {
        Codec::Postcard => {
            postcard::from_bytes(&bytes).map_err(|error| malformed(short_name::<T>(), codec, &error))
        }
        Codec::Json => {
            serde_json::from_slice(&bytes).map_err(|error| malformed(short_name::<T>(), codec, &error))
        }
        Codec::Proto => Err(foreign(short_name::<T>(), codec, "postcard and json")),
    }
}
