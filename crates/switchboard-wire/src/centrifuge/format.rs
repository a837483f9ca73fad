//! The two formats of a connection.

use super::{Limits, ProtocolError, error::ErrorKind, message::Message};
use crate::{
    Input,
    proto::{Fields, put_length},
};
use bytes::{BufMut, BytesMut};
use serde::{Serialize, de::DeserializeOwned};

/// Format of the commands and replies of a connection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
// closed: version 2 of the protocol has these
pub enum Format {
    /// An object on a line.
    Json,
    /// Protocol Buffers, each message behind its length.
    Protobuf,
}

/// Most bytes of a length.
const LENGTH_BYTES_MAX: usize = 5;

impl Format {
    /// Returns the sub-protocol of its WebSockets.
    pub fn subprotocol(self) -> &'static str {
        match self {
            Format::Json => "centrifuge-json",
            Format::Protobuf => "centrifuge-protobuf",
        }
    }

    /// Appends a message. Returns false, and appends nothing, if it has data that is no JSON in the JSON format.
    pub(super) fn write<M: Message + Serialize>(self, message: &M, into: &mut BytesMut) -> bool {
        match self {
            Format::Json => {
                let before = into.len();
                let mut writer = (&mut *into).writer();
                if serde_json::to_writer(&mut writer, message).is_err() {
                    into.truncate(before);
                    return false;
                }
                into.put_u8(b'\n');
            }
            Format::Protobuf => {
                let mut bytes = BytesMut::new();
                message.encode(&mut bytes);
                put_length(into, bytes.len());
                into.extend_from_slice(&bytes);
            }
        }
        true
    }

    /// Reads the next message; `None` if it has not arrived. Empty lines are skipped.
    pub(super) fn read<M: Message + DeserializeOwned>(
        self,
        input: &mut Input,
        limits: &Limits,
    ) -> Result<Option<M>, ProtocolError> {
        match self {
            Format::Json => read_line(input, limits),
            Format::Protobuf => read_bytes(input, limits),
        }
    }
}

fn too_large(size: usize, limit: usize) -> ProtocolError {
    ProtocolError::over("a message", size, "bytes", limit, "command_bytes_max")
}

fn read_line<M: DeserializeOwned>(input: &mut Input, limits: &Limits) -> Result<Option<M>, ProtocolError> {
    let max = limits.command_bytes_max as usize;
    loop {
        let rest = input.rest();
        let searched = &rest[..rest.len().min(max.saturating_add(1))];
        let Some(end) = searched.iter().position(|byte| *byte == b'\n') else {
            return if rest.len() > max { Err(too_large(rest.len(), max)) } else { Ok(None) };
        };
        let line = rest[..end].trim_ascii();
        let message = match line.first() {
            None => None,
            Some(b'{') => Some(serde_json::from_slice(line).map_err(|error| {
                ProtocolError::new(ErrorKind::Encoding, format!("a message is not valid: {error}"))
            })?),
            Some(_) => {
                return Err(ProtocolError::new(ErrorKind::Encoding, "a message is not an object of JSON"));
            }
        };
        input.skip(end + 1);
        if message.is_some() {
            return Ok(message);
        }
    }
}

fn read_bytes<M: Message>(input: &mut Input, limits: &Limits) -> Result<Option<M>, ProtocolError> {
    let rest = input.rest();
    let mut length = 0_u64;
    let mut read = None;
    for (at, byte) in rest.iter().take(LENGTH_BYTES_MAX).enumerate() {
        length |= u64::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            read = Some(at + 1);
            break;
        }
    }
    let Some(head) = read else {
        if rest.len() < LENGTH_BYTES_MAX {
            return Ok(None);
        }
        let text = format!("a length has over {LENGTH_BYTES_MAX} bytes");
        return Err(ProtocolError::new(ErrorKind::Encoding, text));
    };
    let max = limits.command_bytes_max as usize;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > max {
        return Err(too_large(length, max));
    }
    let Some(bytes) = rest.get(head..head.saturating_add(length)) else { return Ok(None) };
    let message = M::decode(Fields(bytes))
        .map_err(|_| ProtocolError::new(ErrorKind::Encoding, "a message is not valid Protocol Buffers"))?;
    input.skip(head + length);
    Ok(Some(message))
}
