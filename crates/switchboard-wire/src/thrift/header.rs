//! THeader: a frame with a number, names and values, and transforms of what it carries.
//!
//! Behind the length: `0FFF`, flags (16 bits), sequence (32), words of the header (16); the header: the protocol, the
//! transforms, info blocks, zeros up to a whole word; the payload, to which the transforms were applied in their order.

use super::{
    Encoded, Malformed,
    compact::{put_varint, varint},
};
use crate::Metadata;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status as Progress};
use std::fmt;

/// The first two bytes behind the length.
pub const MAGIC: [u8; 2] = [0x0F, 0xFF];

/// The metadata in which callers say how many milliseconds they wait.
pub const TIMEOUT: &str = "client_timeout";

/// Bytes before the header.
const FIXED: usize = 10;

const ZLIB: u64 = 1;
const KEY_VALUES: u64 = 1;

/// What a frame says before its payload.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Header {
    /// The number that the answer repeats.
    pub sequence: u32,
    /// Bits that nobody uses; the answer repeats none.
    pub flags: u16,
    /// The protocol of the message.
    pub encoded: Encoded,
    /// The payload is compressed by zlib so many times, once if at all.
    pub zlib: bool,
    /// Names and values, those that [`Metadata`] can hold.
    pub metadata: Metadata,
}

/// Why a frame cannot be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refused {
    /// Its bytes make no sense.
    Malformed(Malformed),
    /// The message is in a protocol that nobody speaks here, by its number.
    Protocol(u64),
    /// The payload is transformed in a way that nobody reads here, by its number.
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
            Refused::Protocol(number) => write!(f, "protocol {number} is not spoken here, 0 and 2 are"),
            Refused::Transform(number) => write!(f, "transform {number} is not read here, 1 (zlib) is"),
        }
    }
}

impl Header {
    /// Reads a frame without its length: the header, and where the payload begins. Entries over `entries_max`, and
    /// those with names or values that metadata cannot have, are left out.
    ///
    /// # Errors
    /// Those of [`Refused`].
    pub fn read(frame: &[u8], entries_max: usize) -> Result<(Header, usize), Refused> {
        let Some((fixed, rest)) = frame.split_first_chunk::<FIXED>() else { return Err(cut_short().into()) };
        let words = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
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
        // Zero is padding, anything else is unknown: both end what is to be read.
        while !rest.is_empty() && take(&mut rest)? == KEY_VALUES {
            for _ in 0..take(&mut rest)? {
                let (name, value) = (text(&mut rest)?, text(&mut rest)?);
                if let Ok(name) = std::str::from_utf8(name)
                    && header.metadata.len() < entries_max
                {
                    // What metadata cannot hold is not for us.
                    let _ = header.metadata.insert(name, value.to_vec());
                }
            }
        }
        Ok((header, FIXED + words * 4))
    }

    /// Appends a whole frame, its length first.
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

/// What zlib made smaller.
fn deflate(payload: &[u8]) -> Vec<u8> {
    let mut machine = Compress::new(Compression::fast(), true);
    let mut out = Vec::with_capacity(payload.len() / 2 + 64);
    loop {
        let read = machine.total_in() as usize;
        // In memory only want of room can stop it.
        let progress = machine.compress_vec(&payload[read..], &mut out, FlushCompress::Finish);
        if matches!(progress, Ok(Progress::StreamEnd) | Err(_)) {
            return out;
        }
        out.reserve(out.capacity().max(64));
    }
}

/// What was there before zlib.
///
/// # Errors
/// Bytes that are not of zlib, and more than `max` bytes inside.
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
