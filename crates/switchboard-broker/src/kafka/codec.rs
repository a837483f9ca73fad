//! Fields of Kafka's requests and responses (Apache Kafka, "A guide to the Kafka protocol").
//!
//! Versions before the flexible ones have lengths in two or four bytes, flexible ones have them as unsigned varints
//! plus 1, where 0 means null, and end each structure with tagged fields.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Writes the fields of a request.
#[derive(Debug, Default)]
pub(super) struct Encoder(pub(super) BytesMut);

impl Encoder {
    pub(super) fn i8(&mut self, value: i8) -> &mut Self {
        self.0.put_i8(value);
        self
    }

    pub(super) fn i16(&mut self, value: i16) -> &mut Self {
        self.0.put_i16(value);
        self
    }

    pub(super) fn i32(&mut self, value: i32) -> &mut Self {
        self.0.put_i32(value);
        self
    }

    pub(super) fn i64(&mut self, value: i64) -> &mut Self {
        self.0.put_i64(value);
        self
    }

    pub(super) fn bool(&mut self, value: bool) -> &mut Self {
        self.i8(value.into())
    }

    pub(super) fn uuid(&mut self, id: u128) -> &mut Self {
        self.0.put_u128(id);
        self
    }

    pub(super) fn string(&mut self, text: &str) -> &mut Self {
        // Names of topics and settings are far below this.
        self.i16(text.len().try_into().unwrap_or(i16::MAX));
        self.0.put_slice(text.as_bytes());
        self
    }

    pub(super) fn null_string(&mut self) -> &mut Self {
        self.i16(-1)
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.length(bytes.len());
        self.0.put_slice(bytes);
        self
    }

    /// Writes the length of an array, or of bytes.
    pub(super) fn length(&mut self, length: usize) -> &mut Self {
        self.i32(length.try_into().unwrap_or(i32::MAX))
    }

    /// Writes a length of a flexible version.
    pub(super) fn compact_length(&mut self, length: usize) -> &mut Self {
        self.uvarint(length as u64 + 1)
    }

    pub(super) fn compact_string(&mut self, text: &str) -> &mut Self {
        self.compact_length(text.len());
        self.0.put_slice(text.as_bytes());
        self
    }

    /// Ends a structure of a flexible version, without tagged fields.
    pub(super) fn no_tags(&mut self) -> &mut Self {
        self.0.put_u8(0);
        self
    }

    pub(super) fn uvarint(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.0.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.put_u8(value as u8);
        self
    }

    /// Writes a signed number in the zigzag encoding of records.
    pub(super) fn varint(&mut self, value: i64) -> &mut Self {
        self.uvarint(((value << 1) ^ (value >> 63)) as u64)
    }
}

/// Reads the fields of a response; each method returns `None` for bytes that end early or contradict each other.
#[derive(Debug)]
pub(super) struct Decoder(pub(super) Bytes);

impl Decoder {
    pub(super) fn i8(&mut self) -> Option<i8> {
        self.0.try_get_i8().ok()
    }

    pub(super) fn i16(&mut self) -> Option<i16> {
        self.0.try_get_i16().ok()
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.0.try_get_i32().ok()
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.0.try_get_i64().ok()
    }

    pub(super) fn bool(&mut self) -> Option<bool> {
        self.i8().map(|value| value != 0)
    }

    pub(super) fn uuid(&mut self) -> Option<u128> {
        self.0.try_get_u128().ok()
    }

    pub(super) fn take(&mut self, length: usize) -> Option<Bytes> {
        (length <= self.0.len()).then(|| self.0.split_to(length))
    }

    /// Reads a string; null is empty.
    pub(super) fn string(&mut self) -> Option<String> {
        let length = self.i16()?;
        let bytes = self.take(usize::try_from(length).unwrap_or(0))?;
        String::from_utf8(bytes.into()).ok()
    }

    /// Reads a string of a flexible version; null is empty.
    pub(super) fn compact_string(&mut self) -> Option<String> {
        String::from_utf8(self.compact_bytes()?.into()).ok()
    }

    /// Reads bytes of a flexible version; null is empty.
    pub(super) fn compact_bytes(&mut self) -> Option<Bytes> {
        let length = self.compact_length()?;
        self.take(length)
    }

    /// Reads the length of an array, or of bytes; null is 0.
    pub(super) fn compact_length(&mut self) -> Option<usize> {
        usize::try_from(self.uvarint()?.saturating_sub(1)).ok()
    }

    /// Reads an array. No space is reserved for elements whose bytes have not arrived.
    pub(super) fn array<T>(&mut self, element: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let length = usize::try_from(self.i32()?).unwrap_or(0);
        self.elements(length, element)
    }

    /// Reads an array of a flexible version.
    pub(super) fn compact_array<T>(&mut self, element: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let length = self.compact_length()?;
        self.elements(length, element)
    }

    fn elements<T>(
        &mut self,
        length: usize,
        mut element: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        // Each element has at least one byte.
        if length > self.0.len() {
            return None;
        }
        let mut elements = Vec::new();
        for _ in 0..length {
            elements.push(element(self)?);
        }
        Some(elements)
    }

    /// Skips the tagged fields at the end of a structure.
    pub(super) fn tags(&mut self) -> Option<()> {
        for _ in 0..self.uvarint()? {
            self.uvarint()?;
            let length = usize::try_from(self.uvarint()?).ok()?;
            self.take(length)?;
        }
        Some(())
    }

    pub(super) fn uvarint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.0.try_get_u8().ok()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn varint(&mut self) -> Option<i64> {
        let value = self.uvarint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}
