//! Records of the log: a length, a check sum, and the content.
//!
//! ```text
//! 4 bytes   length of the content
//! 4 bytes   CRC-32C of the content
//! 1 byte    kind: 1 request, 2 reply, 3 close
//! 16 bytes  number of the request
//! 8 bytes   time of the request, in seconds since 1970
//! then for each frame 4 bytes of its length, and its bytes
//! ```
//!
//! Integers are little-endian. The first frame of a request is the name of its service.

use super::super::RequestId;
use std::io::{self, Read};

const HEADER_BYTES: usize = 8;
const FIXED_BYTES: usize = 25;

/// Largest content, above that of the largest message of a socket.
const CONTENT_BYTES_MAX: u32 = 1 << 30;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Close,
    Reply,
    Request,
}

#[derive(Debug, Eq, PartialEq)]
pub(super) struct Record<'a> {
    pub(super) kind: Kind,
    pub(super) id: RequestId,
    pub(super) time: u64,
    pub(super) frames: Vec<&'a [u8]>,
}

impl<'a> Record<'a> {
    /// Returns the bytes of the record, its header included.
    pub(super) fn encode(&self) -> Vec<u8> {
        let frames: usize = self.frames.iter().map(|frame| frame.len().saturating_add(4)).sum();
        let mut bytes = Vec::with_capacity(HEADER_BYTES.saturating_add(FIXED_BYTES).saturating_add(frames));
        bytes.extend_from_slice(&[0; HEADER_BYTES]);
        bytes.push(match self.kind {
            Kind::Request => 1,
            Kind::Reply => 2,
            Kind::Close => 3,
        });
        bytes.extend_from_slice(&self.id.to_bytes());
        bytes.extend_from_slice(&self.time.to_le_bytes());
        for frame in &self.frames {
            bytes.extend_from_slice(&(frame.len() as u32).to_le_bytes());
            bytes.extend_from_slice(frame);
        }
        let len = (bytes.len() - HEADER_BYTES) as u32;
        let sum = crc32c(&bytes[HEADER_BYTES..]);
        bytes[..4].copy_from_slice(&len.to_le_bytes());
        bytes[4..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads the bytes of the next record, of at most `left` bytes, into `bytes`. Returns false at the end, and for
    /// bytes that are no record.
    pub(super) fn read_from(reader: &mut impl Read, left: u64, bytes: &mut Vec<u8>) -> io::Result<bool> {
        let mut header = [0; HEADER_BYTES];
        if left < header.len() as u64 {
            return Ok(false);
        }
        reader.read_exact(&mut header)?;
        let [a, b, c, d, ..] = header;
        let len = u32::from_le_bytes([a, b, c, d]);
        if len > CONTENT_BYTES_MAX || u64::from(len) > left - header.len() as u64 {
            return Ok(false);
        }
        bytes.clear();
        bytes.extend_from_slice(&header);
        reader.take(len.into()).read_to_end(bytes)?;
        Ok(bytes.len() == header.len() + len as usize)
    }

    /// Reads a record with its header; `None` if it is damaged.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Record<'a>> {
        let (len, rest) = bytes.split_first_chunk()?;
        let (sum, content) = rest.split_first_chunk()?;
        if u32::from_le_bytes(*len) as usize != content.len() || u32::from_le_bytes(*sum) != crc32c(content) {
            return None;
        }
        let (&kind, rest) = content.split_first()?;
        let (id, rest) = rest.split_first_chunk()?;
        let (time, mut rest) = rest.split_first_chunk()?;
        let kind = match kind {
            1 => Kind::Request,
            2 => Kind::Reply,
            3 => Kind::Close,
            _ => return None,
        };
        let mut frames = Vec::new();
        while !rest.is_empty() {
            let (len, after) = rest.split_first_chunk()?;
            let (frame, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            frames.push(frame);
            rest = after;
        }
        Some(Record { kind, id: RequestId::from_bytes(*id), time: u64::from_le_bytes(*time), frames })
    }
}

/// Returns the check sum of Castagnoli.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| TABLE[((sum ^ u32::from(*byte)) & 0xFF) as usize] ^ (sum >> 8);
    !bytes.iter().fold(!0, step)
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let (mut value, mut bit) = (index as u32, 0);
        while bit < 8 {
            value = if value & 1 == 1 { 0x82F6_3B78 ^ (value >> 1) } else { value >> 1 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_sum_is_that_of_castagnoli() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn a_record_with_any_changed_byte_is_refused() {
        let id = RequestId::from_bytes(*b"0123456789abcdef");
        let record = Record { kind: Kind::Reply, id, time: 7, frames: vec![b"", b"frame", b"x"] };
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Some(record));
        for index in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[index] ^= 0x10;
            assert_eq!(Record::decode(&changed), None, "byte {index}");
            assert_eq!(Record::decode(&bytes[..index]), None, "{index} bytes");
        }
    }
}
