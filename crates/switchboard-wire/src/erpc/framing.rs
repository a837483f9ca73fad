//! Encoding of messages on a connection.

use super::{
    GZIP, HEAD_BYTES_MAX, json,
    message::{Glance, Message},
    protobuf, raw,
};
use crate::{Fatal, Outbox};
use bytes::{Bytes, BytesMut};
use flate2::{Compression, write::GzEncoder};
use std::{fmt, io::Write};

/// Socket protocol of erpc; both sides of a connection use the same one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
// closed: the socket protocols of erpc
pub enum Framing {
    /// JSON.
    Json,
    /// Protocol Buffers.
    Proto,
    /// The binary framing, the default of erpc.
    #[default]
    Raw,
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Framing::Json => "json",
            Framing::Proto => "proto",
            Framing::Raw => "raw",
        })
    }
}

impl Framing {
    /// Returns the framing whose messages begin with this byte.
    pub(super) fn of_first(byte: u8) -> Option<Framing> {
        match byte {
            b'{' => Some(Framing::Json),
            0x08 => Some(Framing::Proto),
            1..=7 => Some(Framing::Raw),
            _ => None,
        }
    }

    /// Returns the end of a frame that begins with this length.
    pub(super) fn frame_end(self, len: u32) -> usize {
        match self {
            Framing::Raw => len as usize,
            Framing::Json | Framing::Proto => 4 + len as usize,
        }
    }

    /// Returns the largest message whose body has at most `body_max` bytes. In JSON every byte may be escaped once;
    /// binary bodies that become six times as long are rejected before.
    pub(super) fn payload_max(self, body_max: usize) -> usize {
        match self {
            Framing::Json => 2 * body_max + HEAD_BYTES_MAX,
            Framing::Proto | Framing::Raw => body_max + HEAD_BYTES_MAX,
        }
    }

    /// Reads a message behind length and filters.
    ///
    /// # Errors
    /// Returns an error for bytes that are not a message of this framing.
    pub(super) fn read(self, payload: &Bytes) -> Result<Message<'_>, Fatal> {
        let message = match self {
            Framing::Json => json::read(payload),
            Framing::Proto => protobuf::read(payload),
            Framing::Raw => raw::read(payload),
        };
        message.filter(|message| has_code(&message.status)).ok_or_else(|| {
            Fatal(format!(
                "the bytes are no {self} message of erpc 6 or 7; versions 5 and older are not supported"
            ))
        })
    }

    /// Reads the available fields from the first bytes of a message.
    pub(super) fn glance(self, prefix: &[u8]) -> Option<Glance> {
        match self {
            Framing::Json => json::glance(prefix),
            Framing::Proto => protobuf::glance(prefix),
            Framing::Raw => raw::glance(prefix),
        }
    }

    /// Writes a frame, through the gzip filter if `gzip` is set.
    pub(super) fn put(self, message: &Message<'_>, gzip: bool, out: &mut Outbox) {
        if gzip {
            let mut plain = BytesMut::with_capacity(128 + message.body.len());
            self.put_head(message, &mut plain);
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            let written = gzip.write_all(&plain).and_then(|()| gzip.write_all(self.behind(message)));
            let packed = written.and_then(|()| gzip.finish()).expect("writing to memory does not fail");
            let len = 2 + packed.len();
            let counted = if self == Framing::Raw { len + 4 } else { len };
            out.tail().extend_from_slice(&(counted as u32).to_be_bytes());
            out.tail().extend_from_slice(&[1, GZIP]);
            out.put(&packed.into());
            return;
        }
        let tail = out.tail();
        let at = tail.len();
        tail.extend_from_slice(&[0; 5]);
        self.put_head(message, tail);
        let end = tail.len() - at + self.behind(message).len();
        let counted = if self == Framing::Raw { end } else { end - 4 };
        tail[at..at + 4].copy_from_slice(&(counted as u32).to_be_bytes());
        if self != Framing::Json {
            out.put(&message.body);
        }
    }

    /// Writes a message up to its body, or all of it.
    fn put_head(self, message: &Message<'_>, into: &mut BytesMut) {
        match self {
            Framing::Json => json::put(message, into),
            Framing::Proto => protobuf::put_head(message, into),
            Framing::Raw => raw::put_head(message, into),
        }
    }

    /// Returns the bytes that follow [`put_head`](Self::put_head).
    fn behind<'a>(self, message: &'a Message<'_>) -> &'a [u8] {
        if self == Framing::Json { &[] } else { &message.body }
    }
}

/// Returns true if the status has a code. Every status has one; the field at its position in older versions has none.
fn has_code(status: &[u8]) -> bool {
    status.is_empty() || status.windows(5).any(|part| part == b"code=")
}
