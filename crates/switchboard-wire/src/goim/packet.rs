//! Packets.

use super::{ErrorKind, ProtocolError};
use crate::{Input, Outbox, work};
use bytes::Bytes;

/// Length of the header of a packet in bytes.
pub const HEADER_BYTES: usize = 16;

/// A packet.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Packet {
    /// Version of the sender: 1, or 0. A reply has that of its request, and a push has 1.
    pub version: i16,
    /// Number of the operation, see [`operation`](super::operation).
    pub operation: i32,
    /// Number of the request, which its reply repeats. A push has 0.
    pub sequence: i32,
    /// Any bytes.
    pub body: Bytes,
}

impl Packet {
    /// Reads a packet. `None` means that more bytes are needed.
    ///
    /// # Errors
    /// A length that is not allowed. Nothing is taken from the input then.
    pub(super) fn read(input: &mut Input, body_bytes_max: u32) -> Result<Option<Packet>, ProtocolError> {
        let bytes = input.rest();
        work::add(bytes.len().min(HEADER_BYTES));
        let Some(length) = body_length(bytes, body_bytes_max)? else { return Ok(None) };
        if bytes.len() < HEADER_BYTES + length {
            return Ok(None);
        }
        let version = i16::from_be_bytes([bytes[6], bytes[7]]);
        let operation = i32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        let sequence = i32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
        input.skip(HEADER_BYTES);
        Ok(Some(Packet { version, operation, sequence, body: input.take(length) }))
    }

    /// Reads a packet from the front of the body of a container.
    ///
    /// # Errors
    /// If the body does not begin with a complete packet.
    pub(super) fn read_inner(container: &mut Bytes) -> Result<Packet, ProtocolError> {
        let size = container.len();
        let incomplete = || {
            let text = format!("container ends with {size} bytes that are not a complete packet");
            ProtocolError::new(ErrorKind::Container, text)
        };
        let length = body_length(container, u32::MAX)?.ok_or_else(incomplete)?;
        if size < HEADER_BYTES + length {
            return Err(incomplete());
        }
        let mut packet = container.split_to(HEADER_BYTES + length);
        let header = packet.split_to(HEADER_BYTES);
        Ok(Packet {
            version: i16::from_be_bytes([header[6], header[7]]),
            operation: i32::from_be_bytes([header[8], header[9], header[10], header[11]]),
            sequence: i32::from_be_bytes([header[12], header[13], header[14], header[15]]),
            body: packet,
        })
    }

    /// Writes a packet whose body is short enough to be copied: a reply, or a request.
    pub(super) fn write(version: i16, operation: i32, sequence: i32, body: &[u8], out: &mut Outbox) {
        // Bodies of replies are those of requests, which a limit bounds.
        let header = header(body.len() as u32, version, operation, sequence);
        out.put_with(&header, crate::Outgoing::Lent(body));
    }
}

/// Returns the header of a packet with a body of this many bytes.
pub(super) fn header(body_bytes: u32, version: i16, operation: i32, sequence: i32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&body_bytes.saturating_add(HEADER_BYTES as u32).to_be_bytes());
    header[4..6].copy_from_slice(&(HEADER_BYTES as u16).to_be_bytes());
    header[6..8].copy_from_slice(&version.to_be_bytes());
    header[8..12].copy_from_slice(&operation.to_be_bytes());
    header[12..].copy_from_slice(&sequence.to_be_bytes());
    header
}

/// Returns the length of the body of the packet that `bytes` begin with; `None` if the header is not complete.
///
/// # Errors
/// As soon as a length that is not allowed has arrived.
fn body_length(bytes: &[u8], body_bytes_max: u32) -> Result<Option<usize>, ProtocolError> {
    let [a, b, c, d, rest @ ..] = bytes else { return Ok(None) };
    let length = i32::from_be_bytes([*a, *b, *c, *d]);
    let Some(body) = usize::try_from(length).ok().and_then(|length| length.checked_sub(HEADER_BYTES)) else {
        let text = format!("packet has the length {length}, which is less than its header of 16 bytes");
        return Err(ProtocolError::new(ErrorKind::PackageLength, text));
    };
    if body > body_bytes_max as usize {
        let limit = body_bytes_max as usize;
        return Err(ProtocolError::over("body of a packet", body, "bytes", limit, "body_bytes_max"));
    }
    if let [a, b, ..] = rest {
        let header = i16::from_be_bytes([*a, *b]);
        if usize::try_from(header) != Ok(HEADER_BYTES) {
            let text = format!("header has the length {header}; it must be 16");
            return Err(ProtocolError::new(ErrorKind::HeaderLength, text));
        }
    }
    Ok((bytes.len() >= HEADER_BYTES).then_some(body))
}
