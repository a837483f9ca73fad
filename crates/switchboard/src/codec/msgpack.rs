//! MessagePack: structures are maps by the names of their fields, as every other language has them.

use rmp_serde::{config::BytesMode, decode, encode};
use serde::{Serialize, de::DeserializeOwned};

/// Deepest nesting that is read, that of JSON here.
const DEPTH_MAX: usize = 128;

/// Appends a message. Sequences of bytes are written as such, as Go writes and reads a `[]byte`.
pub(super) fn write<T: Serialize>(into: &mut Vec<u8>, message: &T) -> Result<(), encode::Error> {
    let mut serializer =
        rmp_serde::Serializer::new(into).with_struct_map().with_bytes(BytesMode::ForceIterables);
    message.serialize(&mut serializer)
}

/// Reads a message, all of `bytes`.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, decode::Error> {
    let mut rest = bytes;
    let mut deserializer = rmp_serde::Deserializer::new(&mut rest);
    deserializer.set_max_depth(DEPTH_MAX);
    let message = T::deserialize(&mut deserializer)?;
    drop(deserializer);
    match rest.len() {
        0 => Ok(message),
        left => Err(decode::Error::Uncategorized(format!("{left} bytes are left behind it"))),
    }
}
