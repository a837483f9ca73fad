//! Frames of section 5.2: reading and writing of headers, and masking.

use bytes::{BufMut, BytesMut};

/// Kind of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: the opcodes of RFC 6455, section 5.2
pub enum Kind {
    /// Bytes.
    Binary,
    /// UTF-8.
    Text,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Opcode {
    Binary,
    Close,
    Continuation,
    Ping,
    Pong,
    Text,
}

/// The longest payload of CLOSE, PING and PONG.
pub(super) const CONTROL_MAX: usize = 125;

/// Reserved bit that marks a message as compressed (RFC 7692, section 6).
pub(super) const COMPRESSED_BIT: u8 = 0x40;

/// A frame before its payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Header {
    pub(super) fin: bool,
    /// The first reserved bit is set.
    pub(super) compressed: bool,
    pub(super) opcode: Opcode,
    pub(super) mask: Option<[u8; 4]>,
    pub(super) len: u64,
    /// Size of the header in bytes.
    pub(super) bytes: usize,
}

impl Opcode {
    fn from_number(number: u8) -> Option<Opcode> {
        Some(match number {
            0 => Opcode::Continuation,
            1 => Opcode::Text,
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return None,
        })
    }

    fn number(self) -> u8 {
        match self {
            Opcode::Continuation => 0,
            Opcode::Text => 1,
            Opcode::Binary => 2,
            Opcode::Close => 8,
            Opcode::Ping => 9,
            Opcode::Pong => 10,
        }
    }

    /// The first byte of an unfragmented frame.
    pub(super) fn first_byte(self) -> u8 {
        0x80 | self.number()
    }

    fn is_control(self) -> bool {
        matches!(self, Opcode::Close | Opcode::Ping | Opcode::Pong)
    }
}

impl Header {
    /// Reads a header; `None` if more bytes are needed. An error is returned as soon as its byte has arrived. Data
    /// frames may be `compressible`.
    pub(super) fn read(bytes: &[u8], compressible: bool) -> Result<Option<Header>, String> {
        let Some(&first) = bytes.first() else { return Ok(None) };
        let compressed = first & COMPRESSED_BIT != 0;
        if first & 0x30 != 0 || (compressed && !compressible) {
            return Err("a reserved bit is set without a negotiated extension".into());
        }
        let number = first & 0x0F;
        let opcode = Opcode::from_number(number).ok_or_else(|| format!("opcode {number} is reserved"))?;
        let fin = first & 0x80 != 0;
        if opcode.is_control() && !fin {
            return Err("a control frame is fragmented".into());
        }
        if opcode.is_control() && compressed {
            return Err("the first reserved bit is set in a control frame".into());
        }
        let Some(&second) = bytes.get(1) else { return Ok(None) };
        let masked = second & 0x80 != 0;
        let short = second & 0x7F;
        if opcode.is_control() && usize::from(short) > CONTROL_MAX {
            return Err(format!("a control frame has more than {CONTROL_MAX} bytes"));
        }
        let (len, at) = match short {
            126 => match bytes.get(2..4) {
                None => return Ok(None),
                Some(len) => (u64::from(u16::from_be_bytes([len[0], len[1]])), 4),
            },
            127 => match bytes.get(2..).and_then(|rest| rest.first_chunk::<8>()) {
                None => return Ok(None),
                Some(len) => (u64::from_be_bytes(*len), 10),
            },
            short => (u64::from(short), 2),
        };
        if len >> 63 != 0 {
            return Err("the highest bit of a length is set".into());
        }
        if (short == 126 && len < 126) || (short == 127 && len <= u64::from(u16::MAX)) {
            return Err("a length is not written in the shortest way".into());
        }
        let (mask, bytes) = match masked {
            false => (None, at),
            true => match bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
                None => return Ok(None),
                Some(mask) => (Some(*mask), at + 4),
            },
        };
        Ok(Some(Header { fin, compressed, opcode, mask, len, bytes }))
    }

    /// Appends a header that begins with `first`; the payload follows.
    pub(super) fn write(first: u8, len: usize, mask: Option<[u8; 4]>, into: &mut BytesMut) {
        into.put_u8(first);
        let masked = if mask.is_some() { 0x80 } else { 0 };
        match len {
            0..=125 => into.put_u8(masked | len as u8),
            126..=0xFFFF => {
                into.put_u8(masked | 126);
                into.put_u16(len as u16);
            }
            _ => {
                into.put_u8(masked | 127);
                into.put_u64(len as u64);
            }
        }
        if let Some(mask) = mask {
            into.put_slice(&mask);
        }
    }
}

impl From<Kind> for Opcode {
    fn from(kind: Kind) -> Opcode {
        match kind {
            Kind::Binary => Opcode::Binary,
            Kind::Text => Opcode::Text,
        }
    }
}

/// Masks or unmasks `bytes`, which begin `offset` bytes into the payload. It processes eight bytes at a time: a byte at
/// a time would be the largest cost of a frame.
pub(super) fn apply_mask(bytes: &mut [u8], mask: [u8; 4], offset: usize) {
    let mut turned = mask;
    turned.rotate_left(offset % 4);
    let [a, b, c, d] = turned;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let mut chunks = bytes.chunks_exact_mut(8);
    for chunk in &mut chunks {
        if let Some(eight) = chunk.first_chunk_mut::<8>() {
            *eight = (u64::from_ne_bytes(*eight) ^ wide).to_ne_bytes();
        }
    }
    for (byte, mask) in chunks.into_remainder().iter_mut().zip(turned.iter().cycle()) {
        *byte ^= mask;
    }
}
