//! Head of a message: its kind, method and sequence number, before the struct.

use super::{
    Encoded, Malformed, NAME_MAX,
    compact::{put_varint, varint},
};
use crate::{Outbox, Outgoing};
use bytes::BufMut;

/// The first byte of a compact message.
pub const COMPACT: u8 = 0x82;
/// Version in the second byte of a compact message, below the kind.
const COMPACT_VERSION: u8 = 1;
/// The first two bytes of a message in strict binary.
pub const STRICT: [u8; 2] = [0x80, 0x01];

/// Kind of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: the message types of Thrift
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
            other => return Err(Malformed(format!("message kind {other} does not exist").into())),
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

/// Encoding of the head.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: the encodings of a Thrift head
pub enum Form {
    /// Compact.
    Compact,
    /// Binary without a version, as the oldest writers encode it.
    Old,
    /// Binary with its version.
    Strict,
}

impl Form {
    /// Returns the protocol of the struct that follows.
    pub fn encoded(self) -> Encoded {
        match self {
            Form::Compact => Encoded::Compact,
            Form::Old | Form::Strict => Encoded::Binary,
        }
    }
}

/// Head of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Head<'a> {
    /// Encoding of the head.
    pub form: Form,
    /// Kind of the message.
    pub kind: Kind,
    /// Name of the method, after the service and a colon if the client is multiplexed.
    pub name: &'a [u8],
    /// Sequence number, which the reply repeats.
    pub sequence: i32,
    /// Size of the head in bytes.
    pub len: usize,
}

impl<'a> Head<'a> {
    /// Reads a head from the front of `bytes`; `None` if more bytes are needed.
    ///
    /// # Errors
    /// Returns an error for bytes that are not a message, and for a name that exceeds the limit.
    pub fn read(bytes: &'a [u8]) -> Result<Option<Head<'a>>, Malformed> {
        crate::work::add(1);
        match bytes {
            [] => Ok(None),
            [COMPACT, ..] => read_compact(bytes),
            [0x80, ..] => read_strict(bytes),
            _ => read_old(bytes),
        }
    }

    /// Appends the head; `len` is ignored.
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

    /// Writes a message with this struct, in a frame if `framed`.
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

/// Largest struct that is copied behind its head, with memory reserved once for both, in bytes.
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
    // Writers sign-extend a negative number to 64 bits.
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
