//! The server's side of a connection.

use super::{Command, Format, Limits, ProtocolError, Reply, error::ErrorKind};
use crate::{Input, Outbox};

/// The server's side of a connection: reads commands and writes replies.
#[derive(Debug)]
pub struct Server {
    format: Format,
    has_connected: bool,
    /// Ids of the commands in flight.
    in_flight: Vec<u32>,
}

impl Server {
    /// Creates the machine of a new connection.
    pub fn new(format: Format) -> Server {
        Server { format, has_connected: false, in_flight: Vec::new() }
    }

    /// Returns the format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the number of commands whose reply was not written.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Reads the next command; `None` if it has not arrived. A command without a request that the machine knows has
    /// none: the reply is the error [`METHOD_NOT_FOUND`](super::code::METHOD_NOT_FOUND).
    ///
    /// # Errors
    /// The peer broke a rule: the connection must be closed with [`ErrorKind::code`].
    pub fn recv(&mut self, input: &mut Input, limits: &Limits) -> Result<Option<Command>, ProtocolError> {
        let Some(command) = self.format.read::<Command>(input, limits)? else { return Ok(None) };
        self.check(&command, limits)?;
        Ok(Some(command))
    }

    fn check(&mut self, command: &Command, limits: &Limits) -> Result<(), ProtocolError> {
        let error = |kind, text: &str| Err(ProtocolError::new(kind, text));
        if command.requests() > 1 {
            return error(ErrorKind::Requests, "a command has several requests");
        }
        if command.connect.is_some() == self.has_connected {
            return match self.has_connected {
                true => error(ErrorKind::Order, "the connection has a second connect"),
                false => error(ErrorKind::Order, "the first command is not connect"),
            };
        }
        let channel = command.channel().map_or(0, str::len);
        let max = limits.channel_bytes_max as usize;
        if channel > max {
            return Err(ProtocolError::over(
                "the name of a channel",
                channel,
                "bytes",
                max,
                "channel_bytes_max",
            ));
        }
        if command.send.is_some() || command.is_pong() {
            return Ok(());
        }
        if command.id == 0 {
            return error(ErrorKind::Id, "a command has no id, or the id 0");
        }
        if self.in_flight.contains(&command.id) {
            let text = format!("a command has the id {} of a command in flight", command.id);
            return Err(ProtocolError::new(ErrorKind::Id, text));
        }
        let max = limits.commands_max as usize;
        if self.in_flight.len() >= max {
            let count = self.in_flight.len().saturating_add(1);
            return Err(ProtocolError::over(
                "the connection",
                count,
                "commands in flight",
                max,
                "commands_max",
            ));
        }
        self.has_connected = true;
        self.in_flight.push(command.id);
        Ok(())
    }

    /// A failed *connect* may be repeated on this connection.
    pub fn connect_again(&mut self) {
        self.has_connected = false;
    }

    /// Writes the reply to a command. Returns false, and writes nothing, if it has data that is no JSON in the JSON
    /// format; the command stays in flight.
    pub fn reply(&mut self, reply: &Reply, out: &mut Outbox) -> bool {
        let is_written = reply.write(self.format, out);
        if is_written {
            self.replied(reply.id);
        }
        is_written
    }

    /// The reply to a command was written without the machine, by [`Reply::write`].
    pub fn replied(&mut self, id: u32) {
        self.in_flight.retain(|known| *known != id);
        if self.in_flight.is_empty() {
            // Idle connections hold no memory.
            self.in_flight = Vec::new();
        }
    }
}

impl Reply {
    /// Writes a reply or a push, in bytes that all clients with the format understand. Returns false, and writes
    /// nothing, if it has data that is no JSON in the JSON format.
    pub fn write(&self, format: Format, out: &mut Outbox) -> bool {
        format.write(self, out.tail())
    }
}
