//! Encodes and decodes messages, with one file per family of types.

pub mod flatbuffers;
#[cfg(feature = "proto")]
#[doc(hidden)]
pub mod in_order;
pub mod msgpack;
#[cfg(feature = "proto")]
pub mod proto;
pub mod serde;
pub mod thrift;

#[cfg(feature = "proto")]
mod encoded;
mod field_names;
mod located;
mod raw;
mod request;

#[cfg(feature = "proto")]
pub use encoded::Encoded;
#[doc(hidden)]
pub use field_names::FieldNames;
#[doc(hidden)]
pub use request::read_request;

use ::serde::de::DeserializeOwned;
use std::fmt;
use switchboard_wire::{Codec, Status};

/// Returns the status for bytes that cannot be decoded as the message.
fn malformed(type_name: &str, codec: Codec, error: &dyn fmt::Display) -> Status {
    Status::invalid_argument(format!("the {codec} message is no {type_name}: {error}"))
}

/// Decodes JSON. The error names the field by its path: `items[1].price`.
#[inline]
fn read_json<T: DeserializeOwned>(bytes: &[u8], type_name: &str, codec: Codec) -> Result<T, Status> {
    serde_json::from_slice(bytes).map_err(|error| json_error::<T>(bytes, type_name, codec, &error))
}

/// Decodes the JSON again for the path of the field at which it fails.
#[cold]
fn json_error<T: DeserializeOwned>(
    bytes: &[u8],
    type_name: &str,
    codec: Codec,
    error: &serde_json::Error,
) -> Status {
    match located::read::<T, _>(&mut serde_json::Deserializer::from_slice(bytes), false) {
        Err(failure) => malformed(type_name, codec, &failure),
        // Something is behind the message.
        Ok(_) => malformed(type_name, codec, error),
    }
}

/// Decodes JSON and refuses fields that the type does not have. The error suggests a near name among the fields of the
/// type, or among `names`, where the type does not list its fields.
fn read_strict_json<T: DeserializeOwned>(
    bytes: &[u8],
    type_name: &str,
    codec: Codec,
    names: FieldNames,
) -> Result<T, Status> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let message = located::read(&mut reader, true);
    let message = message.map_err(|failure| malformed(type_name, codec, &failure.nearest(&names)))?;
    reader.end().map_err(|error| malformed(type_name, codec, &error))?;
    Ok(message)
}

/// Returns the status for a codec that the type does not support.
fn foreign(type_name: &str, codec: Codec, known: &str) -> Status {
    Status::unimplemented(format!("{type_name} cannot be read or written as {codec}; use {known}"))
}

/// Returns the last part of a type's path, for error texts.
fn short_name<T>() -> &'static str {
    let name = std::any::type_name::<T>();
    name.split('<').next().and_then(|path| path.rsplit("::").next()).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_json_name_the_path_of_the_field() {
        #[derive(Debug, ::serde::Deserialize)]
        #[allow(dead_code, reason = "it is only read")]
        struct Order {
            items: Vec<Item>,
        }
        #[derive(Debug, ::serde::Deserialize)]
        #[allow(dead_code, reason = "it is only read")]
        struct Item {
            price: i32,
        }
        let json = br#"{"items": [{"price": 1}, {"price": "x"}]}"#;
        let status = read_json::<Order>(json, "Order", Codec::Json).unwrap_err();
        let wanted = "the json message is no Order: field items[1].price: invalid type: string \"x\", expected i32 \
            at line 1 column 38";
        assert_eq!(status.message(), wanted);
        let status = read_json::<Order>(b"{\"items\": [", "Order", Codec::Json).unwrap_err();
        assert!(status.message().contains("EOF while parsing"), "{status}");
    }
}
