//! Data of applications: bytes in Protocol Buffers, a value in JSON.

use super::field::Field;
use crate::proto::{Malformed, Value, put_bytes};
use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};
use serde_json::value::RawValue;

/// Data of an application; empty for none.
///
/// In JSON it is the value itself. Bytes that are no JSON cannot be written in that format, see
/// [`for_json`](Self::for_json).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Data(pub Bytes);

impl Data {
    /// Returns data that the JSON format can have: JSON on one line. Other text becomes a string of JSON. `None` for
    /// bytes that are no text.
    pub fn for_json(bytes: &Bytes) -> Option<Data> {
        match serde_json::from_slice::<&RawValue>(bytes) {
            Ok(_) if bytes.iter().any(|byte| matches!(byte, b'\n' | b'\r')) => Some(Data(on_one_line(bytes))),
            Ok(_) => Some(Data(bytes.clone())),
            Err(_) => {
                let text = std::str::from_utf8(bytes).ok()?;
                Some(Data(serde_json::to_vec(text).ok()?.into()))
            }
        }
    }
}

impl From<Bytes> for Data {
    fn from(bytes: Bytes) -> Data {
        Data(bytes)
    }
}

impl From<&'static str> for Data {
    fn from(text: &'static str) -> Data {
        Data(Bytes::from_static(text.as_bytes()))
    }
}

/// Replaces line breaks by spaces: in JSON they are between values.
fn on_one_line(json: &[u8]) -> Bytes {
    let space = |byte: &u8| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte };
    json.iter().map(space).collect()
}

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw = serde_json::from_slice::<&RawValue>(&self.0);
        raw.map_err(|error| S::Error::custom(format!("data is no JSON: {error}")))?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Data, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer).map_err(D::Error::custom)?;
        Ok(Data(String::from(Box::<str>::from(raw)).into()))
    }
}

impl Field for Data {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn put(&self, number: u32, into: &mut BytesMut) {
        put_bytes(into, number, &self.0);
    }

    fn merge(&mut self, value: Value<'_>) -> Result<(), Malformed> {
        self.0 = Bytes::copy_from_slice(value.bytes());
        Ok(())
    }
}
