//! MessagePack: structures are maps by the names of their fields, as in the libraries of other languages.

#[cfg(feature = "proto")]
mod json;

use super::located::{self, Failure};
use rmp_serde::{
    Deserializer,
    config::BytesMode,
    decode::{self, ReadReader},
    encode,
};
use serde::{Serialize, de::DeserializeOwned};

/// Deepest nesting that is decoded, equal to that of JSON.
const DEPTH_MAX: usize = 128;

/// Appends a message. Sequences of bytes are written as byte strings, which Go writes and reads as `[]byte`.
pub(super) fn write<T: Serialize>(into: &mut Vec<u8>, message: &T) -> Result<(), encode::Error> {
    let mut serializer =
        rmp_serde::Serializer::new(into).with_struct_map().with_bytes(BytesMode::ForceIterables);
    message.serialize(&mut serializer)
}

/// Decodes a message that must use all of `bytes`. The failure has the path of the field.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure<decode::Error>> {
    read_all(bytes, |deserializer| T::deserialize(deserializer)).map_err(|error| failure::<T>(bytes, error))
}

/// Decodes like [`read`], and refuses fields that the type does not have.
pub(super) fn read_strict<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure<decode::Error>> {
    let mut failed = None;
    let read = read_all(bytes, |deserializer| {
        located::read(deserializer, true).map_err(|failure| {
            failed = Some(failure);
            decode::Error::Uncategorized(String::new())
        })
    });
    read.map_err(|error| failed.unwrap_or_else(|| Failure::outermost(error)))
}

/// Decodes the message again for the path of the field at which it fails.
#[cold]
fn failure<T: DeserializeOwned>(bytes: &[u8], error: decode::Error) -> Failure<decode::Error> {
    let mut failed = None;
    let _ = read_all(bytes, |deserializer| {
        failed = located::read::<T, _>(deserializer, false).err();
        Ok(())
    });
    failed.unwrap_or_else(|| Failure::outermost(error))
}

/// Converts all of `bytes` to JSON with the same values: byte strings as base64, `NaN` and infinities as texts, as in
/// protobuf JSON.
///
/// # Errors
/// `InvalidArgument` for bytes that are not MessagePack, values more than 128 deep, and names that are neither text nor
/// number.
#[cfg(feature = "proto")]
pub fn to_json(bytes: &[u8]) -> crate::Result<Vec<u8>> {
    json_of(bytes)
        .map_err(|error| switchboard_wire::Status::invalid_argument(format!("no MessagePack: {error}")))
}

#[cfg(feature = "proto")]
pub(super) fn json_of(bytes: &[u8]) -> Result<Vec<u8>, decode::Error> {
    read_all(bytes, |deserializer| {
        json::write(deserializer).map_err(|error| decode::Error::Uncategorized(error.to_string()))
    })
}

fn read_all<'a, T>(
    bytes: &'a [u8],
    read: impl FnOnce(&mut Deserializer<ReadReader<&mut &'a [u8]>>) -> Result<T, decode::Error>,
) -> Result<T, decode::Error> {
    let mut rest = bytes;
    let mut deserializer = rmp_serde::Deserializer::new(&mut rest);
    deserializer.set_max_depth(DEPTH_MAX);
    let message = read(&mut deserializer)?;
    drop(deserializer);
    match rest.len() {
        0 => Ok(message),
        left => Err(decode::Error::Uncategorized(format!("{left} bytes follow the value"))),
    }
}

#[cfg(all(test, feature = "proto"))]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn json_has_the_same_values() {
        #[derive(Serialize)]
        struct All<'a> {
            text: &'a str,
            whole: (u64, i64, bool, Option<u8>),
            real: (f64, f32, f32, f64, f64),
            by_number: BTreeMap<i32, &'a str>,
            bytes: Vec<u8>,
            none: (),
        }
        let all = All {
            text: "a\"\u{1f600}",
            whole: (u64::MAX, i64::MIN, true, None),
            real: (0.1, 0.1, f32::NAN, f64::INFINITY, f64::NEG_INFINITY),
            by_number: BTreeMap::from([(-1, "x")]),
            bytes: vec![1, 2, 255],
            none: (),
        };
        let mut packed = Vec::new();
        write(&mut packed, &all).unwrap();
        let json = String::from_utf8(json_of(&packed).unwrap()).unwrap();
        let parts = [
            "{\"text\":\"a\\\"\u{1f600}\"",
            r#""whole":[18446744073709551615,-9223372036854775808,true,null]"#,
            r#""real":[0.1,0.10000000149011612,"NaN","Infinity","-Infinity"]"#,
            r#""by_number":{"-1":"x"}"#,
            r#""bytes":"AQL/""#,
            r#""none":null}"#,
        ];
        assert_eq!(json, parts.join(","));
    }

    #[test]
    fn malformed_values_are_errors() {
        for (bytes, part) in [
            (&b""[..], "read"),
            (b"\xc0\xc0", "1 bytes follow"),
            (b"\x92\x01", "read"),
            (&[0x91; 1000][..], "depth limit"),
            // A list cannot be the name of a field.
            (b"\x81\x90\x01", "key must be a string"),
        ] {
            let error = json_of(bytes).unwrap_err().to_string();
            assert!(error.contains(part), "{bytes:02x?}: {error}");
        }
    }
}
