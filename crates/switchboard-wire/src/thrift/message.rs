//! What precedes the struct of a message: what it is, whose, and its number.

use super::{
    Encoded, Malformed, NAME_MAX,
    compact::{put_varint, varint},
};
use crate::{Outbox, Outgoing};
use bytes::BufMut;

/// The first byte of a compact message.
pub const COMPACT: u8 = 0x82;
/// The version in the second byte of a compact message, below its kind.
const COMPACT_VERSION: u8 = 1;
/// The first two bytes of a message in strict binary.
pub const STRICT: [u8; 2] = [0x80, 0x01];

/// What a message is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A request.
    Call,
    /// A result.
    Reply,
    /// A [`TApplicationException`](super::exception).
    Exception,
    /// A request that has no reply.
    Oneway,
}

impl Kind {
    fn of(number: u8) -> Result<Kind, Malformed> {
        Ok(match number {
            1 => Kind::Call,
            2 => Kind::Reply,
            3 => Kind::Exception,
            4 => Kind::Oneway,
            other => return Err(Malformed(format!("no message is of the kind {other}").into())),
        })
    }

    fn number(self) -> u8 {
        match self {
            Kind::Call => 1,
            Kind::Reply => 2,
            Kind::Exception => 3,
            Kind::Oneway => 4,
        }
    }
}

/// How what precedes the struct is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// Compact.
    Compact,
    /// Binary without a version, as the oldest writers have it.
    Old,
    /// Binary with its version.
    Strict,
}

impl Form {
    /// The protocol of the struct that follows.
    pub fn encoded(self) -> Encoded {
        match self {
            Form::Compact => Encoded::Compact,
            Form::Old | Form::Strict => Encoded::Binary,
        }
    }
}

/// What precedes the struct.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Head<'a> {
    /// How it is written.
    pub form: Form,
    /// What the message is.
    pub kind: Kind,
    /// The method, behind the service and a colon if the client is multiplexed.
    pub name: &'a [u8],
    /// The number that the reply repeats.
    pub sequence: i32,
    /// Bytes of all of this.
    pub len: usize,
}

impl<'a> Head<'a> {
    /// Reads from the front of `bytes`; none if more are needed.
    ///
    /// # Errors
    /// Bytes that are no message, and a name over the limit.
    pub fn read(bytes: &'a [u8]) -> Result<Option<Head<'a>>, Malformed> {
        match bytes {
            [] => Ok(None),
            [COMPACT, ..] => read_compact(bytes),
            [0x80, ..] => read_strict(bytes),
            _ => read_old(bytes),
        }
    }

    /// Appends it; `len` is of no interest.
    pub fn write(&self, out: &mut impl BufMut) {
        let name_len = (self.name.len() as u32).to_be_bytes();
        match self.form {
            Form::Compact => {
                out.put_slice(&[COMPACT, self.kind.number() << 5 | COMPACT_VERSION]);
                put_varint(out, u64::from(self.sequence as u32));
                put_varint(out, self.name.len() as u64);
                out.put_slice(self.name);
            }
            Form::Old => {
                out.put_slice(&name_len);
                out.put_slice(self.name);
                out.put_u8(self.kind.number());
                out.put_i32(self.sequence);
            }
            Form::Strict => {
                out.put_slice(&[STRICT[0], STRICT[1], 0, self.kind.number()]);
                out.put_slice(&name_len);
                out.put_slice(self.name);
                out.put_i32(self.sequence);
            }
        }
    }

    /// Writes a message with this struct behind it, in a frame or without one.
    pub(super) fn put(&self, framed: bool, body: Outgoing<'_>, out: &mut Outbox) {
        let tail = out.tail();
        tail.reserve(32 + self.name.len() + body.len().min(BODY_USUAL));
        let at = tail.len();
        if framed {
            tail.put_u32(0);
        }
        self.write(tail);
        if framed {
            let len = tail.len() - at - 4 + body.len();
            tail[at..at + 4].copy_from_slice(&(len as u32).to_be_bytes());
        }
        out.put(body);
    }
}

/// Room for a struct that is copied behind its head is made once for both.
const BODY_USUAL: usize = 8 << 10;

fn read_strict(bytes: &[u8]) -> Result<Option<Head<'_>>, Malformed> {
    let Some((start, rest)) = bytes.split_first_chunk::<8>() else { return Ok(None) };
    if start[..2] != STRICT {
        return Err(Malformed(format!("version {:02x}{:02x} is not 8001", start[0], start[1]).into()));
    }
    let kind = Kind::of(start[3])?;
    let name_len = name_len(u32::from_be_bytes([start[4], start[5], start[6], start[7]]).into())?;
    let Some((name, rest)) = rest.split_at_checked(name_len) else { return Ok(None) };
    let Some(sequence) = rest.first_chunk() else { return Ok(None) };
    let sequence = i32::from_be_bytes(*sequence);
    Ok(Some(Head { form: Form::Strict, kind, name, sequence, len: 12 + name_len }))
}

fn read_old(bytes: &[u8]) -> Result<Option<Head<'_>>, Malformed> {
    let Some((start, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let name_len = name_len(u32::from_be_bytes(*start).into())?;
    let Some((name, rest)) = rest.split_at_checked(name_len) else { return Ok(None) };
    let Some((kind, rest)) = rest.split_first() else { return Ok(None) };
    let kind = Kind::of(*kind)?;
    let Some(sequence) = rest.first_chunk() else { return Ok(None) };
    let sequence = i32::from_be_bytes(*sequence);
    Ok(Some(Head { form: Form::Old, kind, name, sequence, len: 9 + name_len }))
}

fn read_compact(bytes: &[u8]) -> Result<Option<Head<'_>>, Malformed> {
    let Some(second) = bytes.get(1) else { return Ok(None) };
    if second & 0x1F != COMPACT_VERSION {
        return Err(Malformed(format!("version {} of the compact protocol is not 1", second & 0x1F).into()));
    }
    let kind = Kind::of(second >> 5)?;
    let Some((sequence, sequence_len)) = varint(&bytes[2..])? else { return Ok(None) };
    // Writers extend a negative number to 64 bits.
    let sequence = sequence as u32 as i32;
    let Some((len, len_len)) = varint(&bytes[2 + sequence_len..])? else { return Ok(None) };
    let name_len = name_len(len)?;
    let at = 2 + sequence_len + len_len;
    let Some(name) = bytes.get(at..at + name_len) else { return Ok(None) };
    Ok(Some(Head { form: Form::Compact, kind, name, sequence, len: at + name_len }))
}

fn name_len(len: u64) -> Result<usize, Malformed> {
    match usize::try_from(len) {
        Ok(len) if len <= NAME_MAX => Ok(len),
        _ => Err(Malformed(format!("a method name of {len} bytes is over the limit of {NAME_MAX}").into())),
    }
}
