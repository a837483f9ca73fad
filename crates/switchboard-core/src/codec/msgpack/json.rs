//! Converts MessagePack to JSON with the same values, for types that have JSON decoders.
//!
//! Serde generates separate decoding code for each type and format. For protobuf messages that would add half of the
//! size of their JSON code to every program, for a codec that few callers use.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{
    Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
    ser::{Error as _, SerializeMap, SerializeSeq},
};
use std::{cell::Cell, fmt};

/// Writes the value as JSON: bytes as base64, floating-point numbers that JSON does not have as in protobuf JSON.
///
/// # Errors
/// An invalid value, or a map key that is neither text nor a number.
pub(super) fn write<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<u8>, serde_json::Error> {
    let mut json = Vec::new();
    Read::new(value).serialize(&mut serde_json::Serializer::new(&mut json))?;
    Ok(json)
}

/// A value that is serialized while it is deserialized; once.
struct Read<D>(Cell<Option<D>>);

impl<D> Read<D> {
    fn new(value: D) -> Read<D> {
        Read(Cell::new(Some(value)))
    }
}

impl<'de, D: Deserializer<'de>> Serialize for Read<D> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let value = self.0.take().ok_or_else(|| S::Error::custom("a value is written twice"))?;
        value.deserialize_any(Write(to)).map_err(S::Error::custom)
    }
}

/// Serializes the visited value.
struct Write<S>(S);

impl<'de, S: Serializer> Visitor<'de> for Write<S> {
    type Value = S::Ok;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("a value that JSON can represent")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<S::Ok, E> {
        self.0.serialize_bool(value).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<S::Ok, E> {
        self.0.serialize_i64(value).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<S::Ok, E> {
        self.0.serialize_u64(value).map_err(E::custom)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<S::Ok, E> {
        let written = match value {
            _ if value.is_finite() => self.0.serialize_f64(value),
            _ if value.is_nan() => self.0.serialize_str("NaN"),
            _ if value > 0.0 => self.0.serialize_str("Infinity"),
            _ => self.0.serialize_str("-Infinity"),
        };
        written.map_err(E::custom)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<S::Ok, E> {
        self.0.serialize_str(value).map_err(E::custom)
    }

    fn visit_bytes<E: Error>(self, value: &[u8]) -> Result<S::Ok, E> {
        self.0.serialize_str(&BASE64_STANDARD.encode(value)).map_err(E::custom)
    }

    fn visit_unit<E: Error>(self) -> Result<S::Ok, E> {
        self.0.serialize_unit().map_err(E::custom)
    }

    fn visit_none<E: Error>(self) -> Result<S::Ok, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<S::Ok, D::Error> {
        value.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<S::Ok, A::Error> {
        let mut to = self.0.serialize_seq(from.size_hint()).map_err(A::Error::custom)?;
        while from.next_element_seed(Element(&mut to))?.is_some() {}
        to.end().map_err(A::Error::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<S::Ok, A::Error> {
        let mut to = self.0.serialize_map(from.size_hint()).map_err(A::Error::custom)?;
        while from.next_key_seed(Key(&mut to))?.is_some() {
            from.next_value_seed(Member(&mut to))?;
        }
        to.end().map_err(A::Error::custom)
    }
}

struct Element<'a, S>(&'a mut S);

impl<'de, S: SerializeSeq> DeserializeSeed<'de> for Element<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        self.0.serialize_element(&Read::new(value)).map_err(D::Error::custom)
    }
}

struct Key<'a, S>(&'a mut S);

impl<'de, S: SerializeMap> DeserializeSeed<'de> for Key<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<(), D::Error> {
        self.0.serialize_key(&Read::new(key)).map_err(D::Error::custom)
    }
}

struct Member<'a, S>(&'a mut S);

impl<'de, S: SerializeMap> DeserializeSeed<'de> for Member<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        self.0.serialize_value(&Read::new(value)).map_err(D::Error::custom)
    }
}
