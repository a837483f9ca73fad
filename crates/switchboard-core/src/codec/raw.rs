//! Raw bytes: a message that consists of one value of bytes or text, or is empty.
//!
//! The arguments of a method are a structure, which may have one field; the result is the value itself.

use super::msgpack;
use serde::{
    Deserializer, Serialize,
    de::{
        DeserializeOwned, IntoDeserializer, Visitor,
        value::{Error, SeqDeserializer},
    },
    forward_to_deserialize_any,
};
use std::iter;

/// Returns the bytes of a message; `None` for a message with other content.
pub(super) fn write<T: Serialize>(message: &T) -> Option<Vec<u8>> {
    // MessagePack shows where the bytes are, regardless of their type.
    let mut packed = Vec::new();
    msgpack::write(&mut packed, message).ok()?;
    let start = payload(&packed)?;
    packed.drain(..start);
    Some(packed)
}

/// Returns where the bytes begin in a MessagePack message, at whose end they are.
fn payload(packed: &[u8]) -> Option<usize> {
    let length = |from: usize, size: usize| {
        let bytes = packed.get(from..from + size)?;
        let length = bytes.iter().fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
        Some((from + size, length))
    };
    let mut at = 0;
    if packed.first() == Some(&0x81) {
        // The name of the only field.
        let (start, name) = match packed.get(1)? {
            short @ 0xA0..=0xBF => (2, usize::from(short & 0x1F)),
            0xD9 => length(2, 1)?,
            _ => return None,
        };
        at = start + name;
    }
    let (start, bytes) = match packed.get(at)? {
        // No value, no fields, and no bytes: an empty array may have elements of any type.
        0xC0 | 0x80 | 0x90 => (at + 1, 0),
        short @ 0xA0..=0xBF => (at + 1, usize::from(short & 0x1F)),
        0xC4 | 0xD9 => length(at + 1, 1)?,
        0xC5 | 0xDA => length(at + 1, 2)?,
        0xC6 | 0xDB => length(at + 1, 4)?,
        _ => return None,
    };
    (start + bytes == packed.len()).then_some(start)
}

/// Decodes a message from these bytes.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    T::deserialize(Raw(bytes))
}

#[derive(Clone, Copy)]
struct Raw<'a>(&'a [u8]);

impl Raw<'_> {
    fn none(self) -> Result<(), Error> {
        let left = self.0.len();
        let error = || serde::de::Error::custom(format_args!("{left} bytes, and the type allows none"));
        if left == 0 { Ok(()) } else { Err(error()) }
    }
}

impl<'de> Deserializer<'de> for Raw<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_bytes(self.0)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(SeqDeserializer::new(self.0.iter().copied()))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match fields.len() {
            0 => {
                self.none()?;
                visitor.visit_seq(SeqDeserializer::new(iter::empty::<u8>()))
            }
            1 => visitor.visit_seq(SeqDeserializer::new(iter::once(self))),
            fields => {
                Err(serde::de::Error::custom(format_args!("it has {fields} fields, and raw bytes are one")))
            }
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.none()?;
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit_struct tuple
        tuple_struct map enum identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Error> for Raw<'de> {
    type Deserializer = Raw<'de>;

    fn into_deserializer(self) -> Raw<'de> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use serde::Deserialize;
    use std::fmt::Debug;

    #[derive(Debug, Deserialize, PartialEq, Serialize)]
    struct One<T> {
        data: T,
    }

    #[derive(Debug, Deserialize, PartialEq, Serialize)]
    struct Two {
        a: Vec<u8>,
        b: Vec<u8>,
    }

    #[derive(Debug, Deserialize, PartialEq, Serialize)]
    struct Nothing {}

    fn there_and_back<T: Debug + DeserializeOwned + PartialEq + Serialize>(message: &T, bytes: &[u8]) {
        assert_eq!(write(message).as_deref(), Some(bytes), "{message:?}");
        assert_eq!(&read::<T>(bytes).unwrap(), message);
    }

    #[test]
    fn one_value_of_bytes_is_nothing_else() {
        for len in [0, 1, 31, 32, 255, 256, 70_000] {
            let bytes = vec![b'x'; len];
            there_and_back(&bytes, &bytes);
            there_and_back(&Bytes::from(bytes.clone()), &bytes);
            there_and_back(&One { data: bytes.clone() }, &bytes);
            there_and_back(&One { data: Some(Bytes::from(bytes.clone())) }, &bytes);
            there_and_back(&One { data: String::from_utf8(bytes.clone()).unwrap() }, &bytes);
        }
        there_and_back(&(), b"");
        there_and_back(&Nothing {}, b"");
    }

    #[test]
    fn everything_else_is_refused() {
        assert!(write(&5).is_none() && write(&Two { a: vec![1], b: vec![] }).is_none());
        assert!(write(&One { data: [1.5] }).is_none() && write(&["a", "b"]).is_none());
        assert!(
            read::<u32>(b"1234").is_err()
                && read::<Two>(b"1234").unwrap_err().to_string().contains("2 fields")
        );
        assert!(
            read::<String>(b"\xff").is_err() && read::<()>(b"1").is_err() && read::<Nothing>(b"1").is_err()
        );
    }
}
