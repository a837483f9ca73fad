//! THeader: a frame with a number, names and values, and transforms of its payload.
//!
//! After the length: `0FFF`, flags (16 bits), sequence (32), words of the header (16). The header has the protocol, the
//! transforms, info blocks, and zeros up to a whole word. The payload follows, to which the transforms were applied in
//! order.

use super::{
    Encoded, Malformed,
    compact::{put_varint, varint},
};
use crate::Metadata;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status as Progress};
use std::fmt;

/// First two bytes after the length.
pub const MAGIC: [u8; 2] = [0x0F, 0xFF];

/// Metadata key with which callers send their timeout in milliseconds.
pub const TIMEOUT: &str = "client_timeout";

/// Bytes before the header.
const FIXED: usize = 10;

const ZLIB: u64 = 1;
const KEY_VALUES: u64 = 1;

/// Fields of a frame before its payload.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Header {
    /// Number that the reply repeats.
    pub sequence: u32,
    /// Unused bits; the reply has none.
    pub flags: u16,
    /// The protocol of the message.
    pub encoded: Encoded,
    /// The payload is compressed by zlib once.
    pub zlib: bool,
    /// Names and values that [`Metadata`] can hold.
    pub metadata: Metadata,
}

/// Reason why a frame cannot be read.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Refused {
    /// The bytes are not a valid frame.
    Malformed(Malformed),
    /// The message is in an unsupported protocol, given by its number.
    Protocol(u64),
    /// The payload has an unsupported transform, given by its number.
    Transform(u64),
}

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Refused {
        Refused::Malformed(malformed)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Malformed(malformed) => malformed.fmt(f),
            Refused::Protocol(number) => write!(f, "protocol {number} is not supported; use 0 or 2"),
            Refused::Transform(number) => write!(f, "transform {number} is not supported; use 1 (zlib)"),
        }
    }
}

impl Header {
    /// Reads a frame without its length; returns the header and the position of the payload. Entries over
    /// `entries_max`, and entries whose name or value metadata does not allow, are left out.
    ///
    /// # Errors
    /// Returns the errors of [`Refused`].
    pub fn read(frame: &[u8], entries_max: usize) -> Result<(Header, usize), Refused> {
        let Some((fixed, rest)) = frame.split_first_chunk::<FIXED>() else { return Err(cut_short().into()) };
        let words = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
        crate::work::add(words * 4);
        let Some(mut rest) = rest.get(..words * 4) else { return Err(cut_short().into()) };
        let mut header = Header {
            flags: u16::from_be_bytes([fixed[2], fixed[3]]),
            sequence: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
            encoded: match take(&mut rest)? {
                0 => Encoded::Binary,
                2 => Encoded::Compact,
                other => return Err(Refused::Protocol(other)),
            },
            zlib: false,
            metadata: Metadata::new(),
        };
        for _ in 0..take(&mut rest)? {
            match take(&mut rest)? {
                ZLIB if !header.zlib => header.zlib = true,
                other => return Err(Refused::Transform(other)),
            }
        }
        // Zero is padding, any other number is unknown: both end the known entries.
        while !rest.is_empty() && take(&mut rest)? == KEY_VALUES {
            for _ in 0..take(&mut rest)? {
                let (name, value) = (text(&mut rest)?, text(&mut rest)?);
                if let Ok(name) = std::str::from_utf8(name)
                    && header.metadata.len() < entries_max
                {
                    // Entries that metadata cannot hold are left out.
                    let _ = header.metadata.insert(name, value.to_vec());
                }
            }
        }
        Ok((header, FIXED + words * 4))
    }

    /// Appends a complete frame, including its length.
    pub fn write(&self, payload: &[u8], out: &mut Vec<u8>) {
        let compressed = self.zlib.then(|| deflate(payload));
        let payload = compressed.as_deref().unwrap_or(payload);
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        let header = out.len();
        put_varint(out, if self.encoded == Encoded::Compact { 2 } else { 0 });
        put_varint(out, u64::from(self.zlib));
        if self.zlib {
            put_varint(out, ZLIB);
        }
        if !self.metadata.is_empty() {
            put_varint(out, KEY_VALUES);
            put_varint(out, self.metadata.len() as u64);
            for (name, value) in self.metadata.iter() {
                put_varint(out, name.len() as u64);
                out.extend_from_slice(name.as_bytes());
                put_varint(out, value.len() as u64);
                out.extend_from_slice(value);
            }
        }
        while !(out.len() - header).is_multiple_of(4) {
            out.push(0);
        }
        let words = ((out.len() - header) / 4) as u16;
        out[header - 2..header].copy_from_slice(&words.to_be_bytes());
        out.extend_from_slice(payload);
        let len = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&len.to_be_bytes());
    }
}

/// Compresses a payload with zlib.
fn deflate(payload: &[u8]) -> Vec<u8> {
    let mut machine = Compress::new(Compression::fast(), true);
    let mut out = Vec::with_capacity(payload.len() / 2 + 64);
    loop {
        let read = machine.total_in() as usize;
        // Compression to memory fails only without space.
        let progress = machine.compress_vec(&payload[read..], &mut out, FlushCompress::Finish);
        if matches!(progress, Ok(Progress::StreamEnd) | Err(_)) {
            return out;
        }
        out.reserve(out.capacity().max(64));
    }
}

/// Decompresses a payload with zlib.
///
/// # Errors
/// Returns an error for bytes that are not zlib data, and for a result of more than `max` bytes.
pub fn inflate(payload: &[u8], max: usize) -> Result<Vec<u8>, Malformed> {
    let mut machine = Decompress::new(true);
    let mut out = Vec::with_capacity(payload.len().saturating_mul(2).min(max).max(64));
    loop {
        let (read, before) = (machine.total_in() as usize, out.len());
        let progress = machine
            .decompress_vec(&payload[read..], &mut out, FlushDecompress::Finish)
            .map_err(|_| Malformed("a payload that zlib cannot read".into()))?;
        if out.len() > max {
            return Err(Malformed(format!("more than {max} bytes (message_bytes_max) inside zlib").into()));
        }
        if progress == Progress::StreamEnd {
            return Ok(out);
        }
        if out.len() < out.capacity() && out.len() == before && machine.total_in() as usize == read {
            return Err(Malformed("a payload of zlib that is cut short".into()));
        }
        let more = out.len().clamp(64, (max + 1 - out.len()).max(64));
        out.reserve(more);
    }
}

fn take(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let (number, len) = varint(rest)?.ok_or_else(cut_short)?;
    *rest = &rest[len..];
    Ok(number)
}

fn text<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let len = take(rest)?;
    let (text, after) =
        usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len)).ok_or_else(cut_short)?;
    *rest = after;
    Ok(text)
}

fn cut_short() -> Malformed {
    Malformed("a header that is cut short".into())
}
