//! Commands: frames with a name, for the handshake, subscriptions and heartbeats.

use super::{ErrorKind, ProtocolError, frame};
use crate::Outbox;
use bytes::{BufMut, Bytes, BytesMut};
use std::time::Duration;

/// Largest context of a PING, in bytes. libzmq returns no more of it.
pub(super) const CONTEXT_BYTES_MAX: usize = 16;

/// Size in bytes of the time to live of a PING.
const TTL_BYTES: usize = 2;

/// Start of an ERROR of PLAIN as libzmq 4.3.5 writes it: the length 5 and the first letter became one byte, which is
/// longer than the command when read as a length.
const ERROR_OF_LIBZMQ: &[u8] = b"^RROR";

/// Name of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Name {
    Cancel,
    Error,
    Hello,
    Initiate,
    Join,
    Leave,
    Ping,
    Pong,
    Ready,
    Subscribe,
    /// A command of a later version, or of another mechanism.
    Unknown,
    Welcome,
}

impl Name {
    const KNOWN: [Name; 11] = [
        Name::Cancel,
        Name::Error,
        Name::Hello,
        Name::Initiate,
        Name::Join,
        Name::Leave,
        Name::Ping,
        Name::Pong,
        Name::Ready,
        Name::Subscribe,
        Name::Welcome,
    ];

    pub(super) fn text(self) -> &'static str {
        match self {
            Name::Cancel => "CANCEL",
            Name::Error => "ERROR",
            Name::Hello => "HELLO",
            Name::Initiate => "INITIATE",
            Name::Join => "JOIN",
            Name::Leave => "LEAVE",
            Name::Ping => "PING",
            Name::Pong => "PONG",
            Name::Ready => "READY",
            Name::Subscribe => "SUBSCRIBE",
            Name::Unknown => "an unknown command",
            Name::Welcome => "WELCOME",
        }
    }
}

/// A command as it was received.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Command {
    pub(super) name: Name,
    pub(super) data: Bytes,
}

impl Command {
    /// Splits the body of a command frame.
    pub(super) fn read(mut body: Bytes) -> Result<Command, ProtocolError> {
        let malformed = |why: String| Err(ProtocolError::new(ErrorKind::Command, why));
        let Some(&len) = body.first() else {
            return malformed("command is empty: it has no name".to_owned());
        };
        let end = 1 + usize::from(len);
        let Some(name) = body.get(1..end).filter(|name| !name.is_empty()) else {
            if body.starts_with(ERROR_OF_LIBZMQ) {
                return Ok(Command { name: Name::Error, data: body.split_off(ERROR_OF_LIBZMQ.len()) });
            }
            let have = body.len() - 1;
            return malformed(format!("command has a name of {len} bytes in a body of {have}"));
        };
        let known = Name::KNOWN.into_iter().find(|known| known.text().as_bytes() == name);
        let data = body.split_off(end);
        Ok(Command { name: known.unwrap_or(Name::Unknown), data })
    }
}

/// Appends a command.
pub(super) fn write(name: Name, data: &[&[u8]], out: &mut Outbox) {
    let text = name.text();
    let len = 1 + text.len() + data.iter().map(|part| part.len()).sum::<usize>();
    let mut body = BytesMut::with_capacity(len);
    body.put_u8(text.len() as u8);
    body.put_slice(text.as_bytes());
    data.iter().for_each(|part| body.put_slice(part));
    frame::write_command(&body, out);
}

/// Appends an ERROR with as much of `reason` as its length can express.
pub(super) fn write_error(reason: &str, out: &mut Outbox) {
    let reason = &reason[..reason.floor_char_boundary(usize::from(u8::MAX))];
    write(Name::Error, &[&[reason.len() as u8], reason.as_bytes()], out);
}

/// Reads the reason of an ERROR.
pub(super) fn read_error(data: &[u8]) -> Result<String, ProtocolError> {
    match data.split_first() {
        Some((len, reason)) if usize::from(*len) == reason.len() => Ok(reason.escape_ascii().to_string()),
        _ => Err(ProtocolError::new(
            ErrorKind::Command,
            format!("ERROR of {} bytes does not have the size of its reason", data.len()),
        )),
    }
}

/// Reads the time to live and the context of a PING. A context over [`CONTEXT_BYTES_MAX`] is truncated, as in libzmq.
pub(super) fn read_ping(data: &[u8]) -> Result<(Option<Duration>, &[u8]), ProtocolError> {
    let Some((ttl, context)) = data.split_first_chunk::<TTL_BYTES>() else {
        let message = format!("PING has {} bytes; the time to live alone has {TTL_BYTES}", data.len());
        return Err(ProtocolError::new(ErrorKind::Command, message));
    };
    let tenths = u16::from_be_bytes(*ttl);
    let ttl = (tenths > 0).then(|| Duration::from_millis(u64::from(tenths) * 100));
    Ok((ttl, &context[..context.len().min(CONTEXT_BYTES_MAX)]))
}

/// Returns the data of a PING. The time to live is rounded up to tenths of a second, up to 6553.5 s.
pub(super) fn ping(ttl: Option<Duration>, context: &[u8]) -> ([u8; TTL_BYTES], &[u8]) {
    let tenths = ttl.map_or(0, |ttl| ttl.as_millis().div_ceil(100));
    let tenths = u16::try_from(tenths).unwrap_or(u16::MAX);
    let context = &context[..context.len().min(CONTEXT_BYTES_MAX)];
    (tenths.to_be_bytes(), context)
}
