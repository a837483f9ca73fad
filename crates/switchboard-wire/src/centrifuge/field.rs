//! Types of fields, as Protocol Buffers have them.

use super::message::{Message, put};
use crate::proto::{Fields, Malformed, Value, put_bytes, put_message, put_number};
use bytes::BytesMut;
use std::collections::BTreeMap;

/// Most entries of a map or a list in one message, so that a peer cannot have a small message become much memory.
const ENTRIES_MAX: usize = 1 << 16;

/// A field of a message.
pub(super) trait Field: Default {
    /// Returns whether it is zero, false or empty, and left out.
    fn is_empty(&self) -> bool;

    /// Appends it.
    fn put(&self, number: u32, into: &mut BytesMut);

    /// Adds a value that was read: a repeated one for a list, else the one that counts.
    fn merge(&mut self, value: Value<'_>) -> Result<(), Malformed>;
}

/// A command or a result without fields.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(default)]
pub struct Empty {}

impl Message for Empty {
    fn encode(&self, _: &mut BytesMut) {}

    fn decode(mut fields: Fields<'_>) -> Result<Empty, Malformed> {
        while fields.next()?.is_some() {}
        Ok(Empty {})
    }
}

/// Implements [`Field`] for numbers.
macro_rules! numbers {
    ($($kind:ty: |$value:ident| $to:expr, |$wire:ident| $from:expr;)*) => {$(
        impl Field for $kind {
            fn is_empty(&self) -> bool {
                *self == <$kind>::default()
            }

            fn put(&self, number: u32, into: &mut BytesMut) {
                let $value = *self;
                put_number(into, number, $to);
            }

            fn merge(&mut self, value: Value<'_>) -> Result<(), Malformed> {
                let $wire = value.number();
                *self = $from;
                Ok(())
            }
        }
    )*};
}

// Numbers that are too large are cut, as in Protocol Buffers.
numbers! {
    bool: |value| u64::from(value), |wire| wire != 0;
    u32: |value| u64::from(value), |wire| wire as u32;
    u64: |value| value, |wire| wire;
    i32: |value| i64::from(value).cast_unsigned(), |wire| wire as i32;
    i64: |value| value.cast_unsigned(), |wire| wire.cast_signed();
}

impl Field for String {
    fn is_empty(&self) -> bool {
        String::is_empty(self)
    }

    fn put(&self, number: u32, into: &mut BytesMut) {
        put_bytes(into, number, self.as_bytes());
    }

    fn merge(&mut self, value: Value<'_>) -> Result<(), Malformed> {
        let text = std::str::from_utf8(value.bytes()).map_err(|_| Malformed)?;
        text.clone_into(self);
        Ok(())
    }
}

impl<M: Message> Field for Option<Box<M>> {
    fn is_empty(&self) -> bool {
        self.is_none()
    }

    fn put(&self, number: u32, into: &mut BytesMut) {
        if let Some(message) = self {
            put_message(into, number, |into| message.encode(into));
        }
    }

    fn merge(&mut self, value: Value<'_>) -> Result<(), Malformed> {
        *self = Some(Box::new(M::decode(Fields(value.bytes()))?));
        Ok(())
    }
}

impl<M: Message> Field for Vec<M> {
    fn is_empty(&self) -> bool {
        Vec::is_empty(self)
    }

    fn put(&self, number: u32, into: &mut BytesMut) {
        for message in self {
            put_message(into, number, |into| message.encode(into));
        }
    }

    fn merge(&mut self, value: Value<'_>) -> Result<(), Malformed> {
        if self.len() >= ENTRIES_MAX {
            return Err(Malformed);
        }
        self.push(M::decode(Fields(value.bytes()))?);
        Ok(())
    }
}

/// The value of a map.
pub(super) trait MapValue: Default {
    fn put(&self, into: &mut BytesMut);
    fn read(value: Value<'_>) -> Result<Self, Malformed>;
}

impl MapValue for String {
    fn put(&self, into: &mut BytesMut) {
        put(2, self, into);
    }

    fn read(value: Value<'_>) -> Result<String, Malformed> {
        let mut text = String::new();
        text.merge(value)?;
        Ok(text)
    }
}

impl<M: Message> MapValue for M {
    fn put(&self, into: &mut BytesMut) {
        put_message(into, 2, |into| self.encode(into));
    }

    fn read(value: Value<'_>) -> Result<M, Malformed> {
        M::decode(Fields(value.bytes()))
    }
}

impl<V: MapValue> Field for BTreeMap<String, V> {
    fn is_empty(&self) -> bool {
        BTreeMap::is_empty(self)
    }

    fn put(&self, number: u32, into: &mut BytesMut) {
        for (key, value) in self {
            put_message(into, number, |into| {
                put(1, key, into);
                value.put(into);
            });
        }
    }

    fn merge(&mut self, value: Value<'_>) -> Result<(), Malformed> {
        let (mut key, mut found) = (String::new(), V::default());
        let mut fields = Fields(value.bytes());
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => key.merge(value)?,
                2 => found = V::read(value)?,
                _ => {}
            }
        }
        if self.len() >= ENTRIES_MAX {
            return Err(Malformed);
        }
        self.insert(key, found);
        Ok(())
    }
}
