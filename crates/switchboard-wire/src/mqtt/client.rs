//! The client's side of a connection: reads and writes packets, for tests and tools.

use super::{Limits, Packet, ProtocolError, Version, decode, encode, server::Aliases};
use crate::{Input, Outbox};

/// The client's side of a connection. It reads and writes packets and resolves aliases; acknowledgements, packet
/// identifiers and time are the user's.
#[derive(Debug)]
pub struct Client {
    version: Version,
    limits: Limits,
    aliases: Aliases,
    is_closed: bool,
}

impl Client {
    /// Creates the machine of a connection in a version.
    pub fn new(version: Version, limits: Limits) -> Client {
        Client { version, limits, aliases: Aliases::new(limits.aliases_max), is_closed: false }
    }

    /// Appends a packet to `out`.
    pub fn send(&self, packet: &Packet, out: &mut Outbox) {
        encode::packet(packet, self.version, out);
    }

    /// Returns the next packet of the server; `None` if more bytes are needed, or after an error.
    ///
    /// # Errors
    /// Returns the error of the server, and reads nothing any more.
    pub fn recv(&mut self, input: &mut Input) -> Result<Option<Packet>, ProtocolError> {
        if self.is_closed {
            input.skip(input.len());
            return Ok(None);
        }
        self.read(input).inspect_err(|_| self.is_closed = true)
    }

    fn read(&mut self, input: &mut Input) -> Result<Option<Packet>, ProtocolError> {
        let Some(raw) = decode::take_packet(input, &self.limits)? else { return Ok(None) };
        if raw.first == 0x10 {
            return Err(ProtocolError::protocol("a server cannot send CONNECT"));
        }
        match decode::packet(raw, self.version, &self.limits)? {
            Packet::Publish(mut publish) => {
                self.aliases.resolve(&mut publish)?;
                Ok(Some(Packet::Publish(publish)))
            }
            packet @ (Packet::PingReq | Packet::Subscribe(_) | Packet::Unsubscribe(_)) => {
                Err(ProtocolError::protocol(format!("a server cannot send {}", packet.name())))
            }
            packet => Ok(Some(packet)),
        }
    }
}
