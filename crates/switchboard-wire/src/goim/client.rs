//! Client side of a connection: requests become packets, and packets become events.

use super::{Auth, HEADER_BYTES, Packet, ProtocolError, PushLimits, Variant, imcloud, operation};
use crate::{Input, Outbox};
use bytes::Bytes;
use std::{collections::VecDeque, fmt};

/// Version that the client sends.
const VERSION: i16 = 1;

/// Event from the server.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: a driver must handle each event
pub enum ClientEvent {
    /// A push.
    Push {
        /// Operation of the application; 9 with im-cloud.
        operation: i32,
        /// Any bytes.
        payload: Bytes,
    },
    /// Reply to a request.
    Reply {
        /// Number of the operation of the reply.
        operation: i32,
        /// Number of the request.
        sequence: i32,
        /// Body of the reply.
        body: Bytes,
    },
}

impl ClientEvent {
    /// Returns the number of connections in the room, if this is goim's reply to a heartbeat.
    pub fn room_connections(&self) -> Option<i32> {
        match self {
            ClientEvent::Reply { operation: operation::HEARTBEAT_REPLY, body, .. } => {
                body[..].try_into().ok().map(i32::from_be_bytes)
            }
            _ => None,
        }
    }
}

/// Reason why a request was not sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum NotSent {
    /// The connection is closed by an error of the server.
    Closed,
    /// Replies to as many requests as [`PushLimits::requests_max`] are outstanding.
    Full,
    /// The body is longer than the length field can say.
    TooLarge,
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotSent::Closed => "connection is closed",
            NotSent::Full => "replies to requests_max requests are outstanding; read them first",
            NotSent::TooLarge => "body is longer than a packet of goim can be; send a shorter one",
        })
    }
}

impl std::error::Error for NotSent {}

/// Client side of one connection.
#[derive(Debug)]
pub struct Client {
    variant: Variant,
    limits: PushLimits,
    is_closed: bool,
    sequence: i32,
    /// Operations and sequences of replies that the server owes.
    expected: VecDeque<(i32, i32)>,
    /// Packets of a container that were not returned yet.
    container: Bytes,
}

impl Client {
    /// Begins a connection. The first request is the [authentication](Self::auth).
    pub fn new(variant: Variant, limits: PushLimits) -> Client {
        let (expected, container) = (VecDeque::new(), Bytes::new());
        Client { variant, limits, is_closed: false, sequence: 0, expected, container }
    }

    /// Processes bytes of `input` up to the end of one push or reply. `None` means that more bytes are needed, or that
    /// the connection is closed.
    ///
    /// Payloads are slices of the input: copy the ones that are kept for long.
    ///
    /// # Errors
    /// Returns the error of the server and closes the connection.
    pub fn recv(&mut self, input: &mut Input) -> Result<Option<ClientEvent>, ProtocolError> {
        if self.is_closed {
            input.skip(input.len());
            return Ok(None);
        }
        self.next(input).inspect_err(|_| self.is_closed = true)
    }

    fn next(&mut self, input: &mut Input) -> Result<Option<ClientEvent>, ProtocolError> {
        loop {
            if !self.container.is_empty() {
                let Packet { operation, body, .. } = Packet::read_inner(&mut self.container)?;
                return Ok(Some(ClientEvent::Push { operation, payload: body }));
            }
            let Some(packet) = Packet::read(input, self.limits.body_bytes_max)? else { return Ok(None) };
            let Packet { operation, sequence, body, .. } = packet;
            if self.expected.front() == Some(&(operation, sequence)) {
                self.expected.pop_front();
                return Ok(Some(ClientEvent::Reply { operation, sequence, body }));
            }
            if operation == operation::RAW && self.variant == Variant::Goim {
                self.container = body;
            } else {
                return Ok(Some(ClientEvent::Push { operation, payload: body }));
            }
        }
    }

    /// Sends the authentication. Returns the number of the request.
    ///
    /// # Errors
    /// Fails, and sends nothing, for the reasons of [`NotSent`].
    pub fn auth(&mut self, auth: &Auth, out: &mut Outbox) -> Result<i32, NotSent> {
        self.request(operation::AUTH, &auth.to_json(), out)
    }

    /// Sends a heartbeat. Returns the number of the request.
    ///
    /// # Errors
    /// Fails, and sends nothing, for the reasons of [`NotSent`].
    pub fn heartbeat(&mut self, out: &mut Outbox) -> Result<i32, NotSent> {
        self.request(operation::HEARTBEAT, b"", out)
    }

    /// Leaves the room, and joins another if one is given. Returns the number of the request.
    ///
    /// # Errors
    /// Fails, and sends nothing, for the reasons of [`NotSent`].
    pub fn change_room(&mut self, room: Option<&str>, out: &mut Outbox) -> Result<i32, NotSent> {
        self.request(operation::CHANGE_ROOM, room.unwrap_or_default().as_bytes(), out)
    }

    /// Adds operations that the server may push. Returns the number of the request.
    ///
    /// # Errors
    /// Fails, and sends nothing, for the reasons of [`NotSent`].
    pub fn subscribe(&mut self, operations: &[i32], out: &mut Outbox) -> Result<i32, NotSent> {
        self.request(operation::SUBSCRIBE, list(operations).as_bytes(), out)
    }

    /// Removes operations that the server may push. Returns the number of the request.
    ///
    /// # Errors
    /// Fails, and sends nothing, for the reasons of [`NotSent`].
    pub fn unsubscribe(&mut self, operations: &[i32], out: &mut Outbox) -> Result<i32, NotSent> {
        self.request(operation::UNSUBSCRIBE, list(operations).as_bytes(), out)
    }

    /// Pushes a message to other devices, with im-cloud, whose servers reply to errors only: those arrive as pushes.
    ///
    /// # Errors
    /// Fails, and sends nothing, for the reasons of [`NotSent`].
    pub fn push(&mut self, push: &imcloud::Push, out: &mut Outbox) -> Result<i32, NotSent> {
        self.request(operation::RAW, &push.to_json(), out)
    }

    /// Sends a request. Returns its number.
    ///
    /// # Errors
    /// Fails, and sends nothing, for the reasons of [`NotSent`].
    pub fn request(&mut self, operation: i32, body: &[u8], out: &mut Outbox) -> Result<i32, NotSent> {
        if self.is_closed {
            return Err(NotSent::Closed);
        }
        if body.len() > i32::MAX as usize - HEADER_BYTES {
            return Err(NotSent::TooLarge);
        }
        let has_reply = match self.variant {
            Variant::Goim => true,
            Variant::ImCloud => operation::reply(operation) != operation,
        };
        let sequence = self.sequence.wrapping_add(1);
        if has_reply {
            if self.expected.len() >= self.limits.requests_max as usize {
                return Err(NotSent::Full);
            }
            self.expected.push_back((operation::reply(operation), sequence));
        }
        self.sequence = sequence;
        Packet::write(VERSION, operation, sequence, body, out);
        Ok(sequence)
    }

    /// Returns true if nothing more is read, after an error of the server.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns the number of requests whose replies have not arrived.
    pub fn outstanding(&self) -> usize {
        self.expected.len()
    }
}

fn list(operations: &[i32]) -> String {
    operations.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}
