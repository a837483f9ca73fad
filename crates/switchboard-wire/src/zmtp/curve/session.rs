//! Keys and counters of an open connection, and MESSAGE, the command of all traffic.

use super::{
    boxes::{BoxKey, SharedKey, TAG_BYTES},
    client::COUNTER_BYTES,
    refused,
};
use crate::{
    Outbox,
    zmtp::{ProtocolError, frame},
};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Name of the command with its length.
const MESSAGE: &[u8; 8] = b"\x07MESSAGE";

/// Bytes of a MESSAGE before and after the name: counter, tag, flags.
const FLAGS_AT: usize = MESSAGE.len() + COUNTER_BYTES + TAG_BYTES;

/// Bytes that a MESSAGE has beside its frame or command.
pub(super) const OVERHEAD_BYTES: usize = FLAGS_AT + 1;

/// Flags in a box.
pub(super) const MORE: u8 = 1;
pub(super) const COMMAND: u8 = 2;

/// Larger bodies have memory of their own, which the outbox chains; smaller ones are sealed in its tail.
const TAIL_MAX: usize = 8 << 10;

/// Side of a connection, for the nonces.
#[derive(Clone, Copy)]
pub(super) enum Role {
    Client,
    Server,
}

/// Keys and counters of an open connection.
pub(in crate::zmtp) struct Session {
    sealing: BoxKey,
    opening: BoxKey,
    /// The last counters of both sides.
    sent: u64,
    received: u64,
}

impl Session {
    pub(super) fn new(shared: &SharedKey, role: Role, sent: u64, received: u64) -> Session {
        let (client, server) =
            (shared.for_prefix(b"CurveZMQMESSAGEC"), shared.for_prefix(b"CurveZMQMESSAGES"));
        let (sealing, opening) = match role {
            Role::Client => (client, server),
            Role::Server => (server, client),
        };
        Session { sealing, opening, sent, received }
    }

    /// Appends a MESSAGE with these flags and this body, which is copied once. Returns false, and appends nothing, if
    /// all counters are used.
    #[must_use]
    pub(in crate::zmtp) fn seal(&mut self, flags: u8, parts: &[&[u8]], out: &mut Outbox) -> bool {
        let Some(counter) = self.sent.checked_add(1) else { return false };
        self.sent = counter;
        let body_bytes: usize = parts.iter().map(|part| part.len()).sum();
        let len = OVERHEAD_BYTES.saturating_add(body_bytes);
        if body_bytes > TAIL_MAX {
            let mut own = BytesMut::with_capacity(frame::frame_bytes(len));
            self.write(counter, flags, parts, len, &mut own);
            out.chain(own.freeze());
        } else {
            let tail = out.tail();
            tail.reserve(frame::frame_bytes(len));
            self.write(counter, flags, parts, len, tail);
        }
        true
    }

    fn write(&self, counter: u64, flags: u8, parts: &[&[u8]], len: usize, into: &mut BytesMut) {
        // As libzmq does: a frame of a message, although MESSAGE is a command. All peers of libzmq read it.
        frame::write_frame_header(len, false, into);
        let counter = counter.to_be_bytes();
        into.put_slice(MESSAGE);
        into.put_slice(&counter);
        let start = into.len();
        into.put_bytes(0, TAG_BYTES);
        into.put_u8(flags);
        parts.iter().for_each(|part| into.put_slice(part));
        if let Some((tag, body)) = into[start..].split_first_chunk_mut::<TAG_BYTES>() {
            *tag = self.sealing.seal(counter, body);
        }
    }

    /// Opens the body of a frame, which must be a MESSAGE, in place. Returns its flags and its body.
    pub(in crate::zmtp) fn open(&mut self, mut command: BytesMut) -> Result<(u8, Bytes), ProtocolError> {
        let is_message = command.len() >= OVERHEAD_BYTES && command.starts_with(MESSAGE);
        let split = command.get_mut(MESSAGE.len()..).and_then(|rest| rest.split_first_chunk_mut());
        let Some((counter, sealed)) = split.filter(|_| is_message) else {
            return Err(refused("traffic", "has another command than MESSAGE, or an incomplete one"));
        };
        let number = u64::from_be_bytes(*counter);
        if number <= self.received {
            return Err(refused("MESSAGE", &format!("has the nonce {number} after {}", self.received)));
        }
        let is_open = sealed
            .split_first_chunk_mut::<TAG_BYTES>()
            .is_some_and(|(tag, body)| self.opening.open(*counter, tag, body));
        if !is_open {
            return Err(refused("MESSAGE", "has a box that does not open"));
        }
        self.received = number;
        command.advance(FLAGS_AT);
        let flags = command.get_u8();
        if flags & !(MORE | COMMAND) != 0 || flags == MORE | COMMAND {
            return Err(refused("MESSAGE", &format!("has the flags {flags:#04x}")));
        }
        Ok((flags, command.freeze()))
    }
}
