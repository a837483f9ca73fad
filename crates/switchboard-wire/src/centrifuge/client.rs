//! The client's side of a connection.

use super::{Command, Format, Limits, ProtocolError, Reply, error::ErrorKind};
use crate::{Input, Outbox};
use std::fmt;

/// The client's side of a connection: writes commands and reads replies.
#[derive(Debug)]
pub struct Client {
    format: Format,
    limits: Limits,
    last_id: u32,
    in_flight: Vec<u32>,
}

/// The reason for which a command was not written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum NotSent {
    /// As many commands are in flight as may be.
    Full,
    /// It has data that is no JSON.
    Data,
    /// All ids are used: connect again.
    Ids,
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotSent::Full => "as many commands are in flight as commands_max allows",
            NotSent::Data => "the data of the command is no JSON",
            NotSent::Ids => "all ids of the connection are used; connect again",
        })
    }
}

impl std::error::Error for NotSent {}

impl Client {
    /// Creates the machine of a new connection.
    pub fn new(format: Format, limits: Limits) -> Client {
        Client { format, limits, last_id: 0, in_flight: Vec::new() }
    }

    /// Writes a command with the next id, and returns the id; 0 for *send* and for the pong.
    ///
    /// # Errors
    /// The reason for which nothing was written.
    pub fn send(&mut self, command: Command, out: &mut Outbox) -> Result<u32, NotSent> {
        let mut command = command;
        let has_reply = command.send.is_none() && command.requests() > 0;
        command.id = if has_reply { self.last_id.checked_add(1).ok_or(NotSent::Ids)? } else { 0 };
        if has_reply && self.in_flight.len() >= self.limits.commands_max as usize {
            return Err(NotSent::Full);
        }
        if !self.format.write(&command, out.tail()) {
            return Err(NotSent::Data);
        }
        if has_reply {
            self.last_id = command.id;
            self.in_flight.push(command.id);
        }
        Ok(command.id)
    }

    /// Continues after a command with this id, which was written without the machine.
    pub fn expect(&mut self, id: u32) {
        self.last_id = self.last_id.max(id);
        self.in_flight.push(id);
    }

    /// Returns the number of commands whose reply has not arrived.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Reads the next reply or push; `None` if it has not arrived. The pong to a ping is in the outbox.
    ///
    /// # Errors
    /// The server broke a rule: the connection must be closed.
    pub fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<Reply>, ProtocolError> {
        let Some(reply) = self.format.read::<Reply>(input, &self.limits)? else { return Ok(None) };
        if reply.is_ping() {
            self.format.write(&Command::default(), out.tail());
        } else if reply.id != 0 {
            let Some(at) = self.in_flight.iter().position(|id| *id == reply.id) else {
                let text = format!("a reply has the id {}, which no command in flight has", reply.id);
                return Err(ProtocolError::new(ErrorKind::Id, text));
            };
            self.in_flight.swap_remove(at);
        }
        Ok(Some(reply))
    }
}
