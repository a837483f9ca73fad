//! Messages and commands of the peer in boxes, after the handshake.

use super::{
    refused,
    session::{COMMAND, MORE, OVERHEAD_BYTES},
};
use crate::{
    Input, Outbox,
    zmtp::{
        Connection, Event, ProtocolError,
        command::{Command, Name},
        frame::Header,
    },
};
use bytes::BytesMut;

/// Parts of a command: the length of its name, the name, and at most two of its data.
const PARTS_MAX: usize = 4;

impl Connection {
    /// Reads boxes, each of which has a frame of a message or a command. All of them are opened, also those that this
    /// socket type skips: a box that was not opened may be forged.
    pub(in crate::zmtp) fn open_sealed(
        &mut self,
        input: &mut Input,
        out: &mut Outbox,
    ) -> Result<Option<Event>, ProtocolError> {
        loop {
            let Some(sealed) = self.take_sealed(input)? else { return Ok(None) };
            let Some(session) = self.curve.as_mut().and_then(|curve| curve.session()) else {
                return Ok(None);
            };
            let (flags, body) = session.open(sealed)?;
            let event = if flags & COMMAND != 0 {
                self.check_command_bytes(body.len() as u64)?;
                self.command(Command::read(body)?, out)?
            } else {
                let more = flags & MORE != 0;
                let header = Header { more, command: false, len: body.len() as u64, bytes: 0 };
                self.unsealed_frame(&header, body)?
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// Sends a frame of a message.
    pub(in crate::zmtp) fn seal(&mut self, flags: u8, parts: &[&[u8]], out: &mut Outbox) {
        let session = self.curve.as_mut().and_then(|curve| curve.session());
        if !session.is_some_and(|session| session.seal(flags, parts, out)) {
            // 2^64 - 1 messages were sent.
            self.exhaust();
        }
    }

    /// Sends a command.
    pub(in crate::zmtp) fn seal_command(&mut self, name: Name, data: &[&[u8]], out: &mut Outbox) {
        let text = name.text();
        let mut parts: [&[u8]; PARTS_MAX] = [&[]; PARTS_MAX];
        let len = [text.len() as u8];
        let all = [&len[..], text.as_bytes()].into_iter().chain(data.iter().copied());
        parts.iter_mut().zip(all).for_each(|(part, value)| *part = value);
        self.seal(COMMAND, &parts, out);
    }

    /// Takes the body of a frame once it is complete. Its size is checked before its bytes arrive: a box above
    /// the limit of commands can only have a frame.
    fn take_sealed(&self, input: &mut Input) -> Result<Option<BytesMut>, ProtocolError> {
        let Some(header) = Header::read(input.rest())? else { return Ok(None) };
        // Either a command or, as libzmq writes it, a frame of a message.
        if header.more {
            return Err(refused("MESSAGE", "has another frame behind it"));
        }
        let Some(len) = header.len.checked_sub(OVERHEAD_BYTES as u64) else {
            let least = OVERHEAD_BYTES;
            return Err(refused("MESSAGE", &format!("has {} bytes; the least is {least}", header.len)));
        };
        if len > u64::from(self.settings.limits.command_bytes_max) {
            self.check_frame(&Header { more: false, len, ..header })?;
        }
        let Some(bytes) = header.frame_bytes() else {
            let limit = usize::MAX as u64;
            return Err(ProtocolError::over("frame", header.len, "bytes", limit, "address space"));
        };
        if input.len() < bytes {
            return Ok(None);
        }
        input.skip(header.bytes);
        Ok(Some(input.take_mut(bytes - header.bytes)))
    }
}
