//! The parts of the Protocol Buffers encoding that message heads need: reading and writing of fields.

use bytes::{BufMut, BytesMut};

/// Value of a field in its wire form.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// A value of fixed size; no field that is read has one.
    Fixed,
}

impl<'a> Value<'a> {
    /// Returns the number of a varint field; 0 for others.
    pub(crate) fn number(self) -> u64 {
        match self {
            Value::Varint(number) => number,
            Value::Bytes(_) | Value::Fixed => 0,
        }
    }

    /// Returns the bytes of a length-delimited field; empty for others.
    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Value::Bytes(bytes) => bytes,
            Value::Varint(_) | Value::Fixed => &[],
        }
    }
}

/// Reader of the fields of a message, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

/// Error for bytes that are not a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Malformed;

impl<'a> Fields<'a> {
    /// Reads the number and value of the next field; `None` at the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        crate::work::add(1);
        let tag = u32::try_from(self.varint()?).map_err(|_| Malformed)?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Value::Bytes(self.take(len)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            // Groups are deprecated and not supported.
            _ => return Err(Malformed),
        };
        if tag >> 3 == 0 { Err(Malformed) } else { Ok(Some((tag >> 3, value))) }
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for (at, byte) in self.0.iter().take(10).enumerate() {
            if at == 9 && *byte > 1 {
                return Err(Malformed);
            }
            value |= u64::from(byte & 0x7F) << (7 * at);
            if byte & 0x80 == 0 {
                self.0 = &self.0[at + 1..];
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }
}

/// Appends a number.
#[inline]
pub(crate) fn put_number(into: &mut BytesMut, field: u32, number: u64) {
    put_varint(into, u64::from(field) << 3);
    put_varint(into, number);
}

/// Appends text, bytes or a message.
#[inline]
pub(crate) fn put_bytes(into: &mut BytesMut, field: u32, bytes: &[u8]) {
    put_len(into, field, bytes.len());
    into.put_slice(bytes);
}

/// Appends a message whose fields `write` appends.
#[inline]
pub(crate) fn put_message(into: &mut BytesMut, field: u32, write: impl FnOnce(&mut BytesMut)) {
    put_varint(into, u64::from(field) << 3 | 2);
    let at = into.len();
    // Most messages are so short that their length is one byte.
    into.put_u8(0);
    write(into);
    let len = into.len() - at - 1;
    if len < 0x80 {
        into[at] = len as u8;
    } else {
        let message = into[at + 1..].to_vec();
        into.truncate(at);
        put_varint(into, len as u64);
        into.extend_from_slice(&message);
    }
}

/// Appends the tag and the length of a field with `len` bytes.
#[inline]
pub(crate) fn put_len(into: &mut BytesMut, field: u32, len: usize) {
    put_varint(into, u64::from(field) << 3 | 2);
    put_varint(into, len as u64);
}

/// Appends the length of a message that follows.
#[cfg(feature = "centrifuge")]
pub(crate) fn put_length(into: &mut BytesMut, len: usize) {
    put_varint(into, len as u64);
}

#[inline]
fn put_varint(into: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        into.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    into.put_u8(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_survive_the_round_trip() {
        let mut bytes = BytesMut::new();
        put_number(&mut bytes, 4, u64::MAX);
        put_bytes(&mut bytes, 300, b"abc");
        put_number(&mut bytes, 1, 0);
        put_message(&mut bytes, 2, |into| put_number(into, 1, 5));
        put_message(&mut bytes, 2, |into| into.extend_from_slice(&[7; 300]));
        bytes.extend_from_slice(&[0x0D, 1, 2, 3, 4, 0x09, 1, 2, 3, 4, 5, 6, 7, 8]);
        let mut fields = Fields(&bytes);
        assert_eq!(fields.next(), Ok(Some((4, Value::Varint(u64::MAX)))));
        assert_eq!(fields.next(), Ok(Some((300, Value::Bytes(b"abc")))));
        assert_eq!(fields.next(), Ok(Some((1, Value::Varint(0)))));
        assert_eq!(fields.next(), Ok(Some((2, Value::Bytes(&[8, 5])))));
        assert_eq!(fields.next(), Ok(Some((2, Value::Bytes(&[7; 300])))));
        assert_eq!(fields.next(), Ok(Some((1, Value::Fixed))));
        assert_eq!(fields.next(), Ok(Some((1, Value::Fixed))));
        assert_eq!(fields.next(), Ok(None));
    }

    #[test]
    fn bytes_that_are_no_fields_are_refused() {
        let cases: [&[u8]; 8] = [
            &[0x08],                                                                   // no value
            &[0x08, 0x80],                                                             // a value cut short
            &[0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01], // too long
            &[0x08, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02],       // too large
            &[0x0A, 0x05, 1],                                                          // bytes cut short
            &[0x0B],                                                                   // a group
            &[0x00, 0x00],                                                             // field 0
            &[0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01], // a length out of this world
        ];
        for bytes in cases {
            assert_eq!(Fields(bytes).next(), Err(Malformed), "{bytes:02x?}");
        }
    }
}
