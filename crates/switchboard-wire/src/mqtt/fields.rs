//! Fields of packets: reading within the packet, and writing.

use super::ProtocolError;
use bytes::{BufMut, Bytes, BytesMut};

/// The rest of a packet.
#[derive(Debug)]
pub(super) struct Fields {
    rest: Bytes,
}

impl Fields {
    pub(super) fn new(rest: Bytes) -> Fields {
        Fields { rest }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes everything that is left.
    pub(super) fn rest(self) -> Bytes {
        self.rest
    }

    /// Takes `count` bytes.
    pub(super) fn take(&mut self, what: &str, count: usize) -> Result<Bytes, ProtocolError> {
        if count > self.rest.len() {
            let text = format!("{what} has {count} bytes, and the packet ends after {}", self.rest.len());
            return Err(ProtocolError::malformed(text));
        }
        Ok(self.rest.split_to(count))
    }

    pub(super) fn u8(&mut self, what: &str) -> Result<u8, ProtocolError> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(super) fn u16(&mut self, what: &str) -> Result<u16, ProtocolError> {
        self.array(what).map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, ProtocolError> {
        self.array(what).map(u32::from_be_bytes)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], ProtocolError> {
        let Some((head, _)) = self.rest.split_first_chunk::<N>() else {
            return Err(ProtocolError::malformed(format!("the packet ends before {what}")));
        };
        let head = *head;
        let _ = self.rest.split_to(N);
        Ok(head)
    }

    /// Takes a variable byte integer.
    pub(super) fn varint(&mut self, what: &str) -> Result<u32, ProtocolError> {
        match varint(&self.rest) {
            Varint::Value(value, bytes) => {
                let _ = self.rest.split_to(bytes);
                Ok(value)
            }
            Varint::More => Err(ProtocolError::malformed(format!("the packet ends within {what}"))),
            Varint::Malformed => Err(ProtocolError::malformed(format!("{what} has more than 4 bytes"))),
        }
    }

    /// Takes binary data: a length of 2 bytes, and the bytes.
    pub(super) fn binary(&mut self, what: &str) -> Result<Bytes, ProtocolError> {
        let length = self.u16(what)?;
        self.take(what, length.into())
    }

    /// Takes a text: binary data that is UTF-8 without U+0000.
    pub(super) fn text(&mut self, what: &str) -> Result<Bytes, ProtocolError> {
        let text = self.binary(what)?;
        if !is_text(&text) {
            return Err(ProtocolError::malformed(format!("{what} is not UTF-8, or contains U+0000")));
        }
        Ok(text)
    }
}

/// Returns whether bytes are a text of MQTT.
pub(super) fn is_text(bytes: &[u8]) -> bool {
    !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok()
}

/// Result of reading a variable byte integer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Varint {
    /// The bytes end before the integer does.
    More,
    /// A fifth byte follows.
    Malformed,
    /// The value, and its number of bytes.
    Value(u32, usize),
}

/// Reads a variable byte integer. Encodings that are longer than needed are accepted.
pub(super) fn varint(bytes: &[u8]) -> Varint {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            return Varint::Value(value, index + 1);
        }
    }
    if bytes.len() < 4 { Varint::More } else { Varint::Malformed }
}

/// Returns the number of bytes of a variable byte integer.
pub(super) fn varint_len(value: usize) -> usize {
    match value {
        0..128 => 1,
        128..16_384 => 2,
        16_384..2_097_152 => 3,
        _ => 4,
    }
}

/// Appends a variable byte integer of at most 268,435,455.
pub(super) fn put_varint(out: &mut BytesMut, mut value: usize) {
    while value > 0x7F {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Appends binary data. Bytes beyond 65,535 are left out: every caller checks the length before.
pub(super) fn put_binary(out: &mut BytesMut, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(usize::from(u16::MAX))];
    out.put_u16(bytes.len() as u16);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_each_length_are_written_as_they_are_read() {
        for (value, bytes) in [
            (0, &[0][..]),
            (127, &[0x7F]),
            (128, &[0x80, 1]),
            (16_383, &[0xFF, 0x7F]),
            (16_384, &[0x80, 0x80, 1]),
            (2_097_151, &[0xFF, 0xFF, 0x7F]),
            (2_097_152, &[0x80, 0x80, 0x80, 1]),
            (268_435_455, &[0xFF, 0xFF, 0xFF, 0x7F]),
        ] {
            let mut out = BytesMut::new();
            put_varint(&mut out, value as usize);
            assert_eq!((&out[..], varint_len(value as usize)), (bytes, bytes.len()));
            assert_eq!(varint(&out), Varint::Value(value, bytes.len()));
            for end in 0..bytes.len() {
                assert_eq!(varint(&bytes[..end]), Varint::More);
            }
        }
        assert_eq!(varint(&[0xFF, 0xFF, 0xFF, 0xFF, 0]), Varint::Malformed);
        assert_eq!(varint(&[0x80, 0]), Varint::Value(0, 2), "longer than needed");
    }
}
