//! Server side of a connection: packets become events and replies.

use super::{
    Auth, Limits, Packet, ProtocolError, PushForm, Variant, Variants,
    imcloud::{self, MISSING_PARAMETER, PushKind, UNKNOWN_COMMAND},
    operation,
};
use crate::{Input, Outbox};
use bytes::Bytes;
use serde_json::{Map, Value};

/// Event from the device.
///
/// Events with a method in brackets wait for it: until it is called, nothing more is read, so that replies have the
/// order of the requests. All others that need a reply have it in the outbox already. Pushes may be written at any
/// time.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: a driver must handle each event
pub enum Event {
    /// The device sent its credentials. A driver that does not accept them closes the connection, without a reply.
    /// \[[`Server::accept`]\]
    Auth(Box<Auth>),
    /// The device leaves its room, and joins another if it names one.
    ChangeRoom {
        /// The room, `type://id`.
        room: Option<String>,
    },
    /// The device is alive. \[[`Server::heartbeat`]\]
    Heartbeat,
    /// The device sent a message to the application.
    Message {
        /// Number of the operation, one that has no other meaning.
        operation: i32,
        /// Any bytes.
        body: Bytes,
    },
    /// A device with im-cloud pushes a message to others.
    Push(imcloud::Push),
    /// The packet was replied to, and has no effect.
    Refused {
        /// Number of the operation.
        operation: i32,
        /// The reason.
        refusal: Refusal,
    },
    /// A packet that arrived before the authentication was ignored.
    Skipped {
        /// Number of the operation.
        operation: i32,
    },
    /// The device receives these operations too.
    Subscribe {
        /// Numbers of operations.
        operations: Vec<i32>,
    },
    /// The device does not receive these operations any more.
    Unsubscribe {
        /// Numbers of operations.
        operations: Vec<i32>,
    },
}

/// Reason for which a packet has no effect.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Refusal {
    /// The command of an im-cloud device is not known.
    Command,
    /// The list of operations has a text that is not a number, or too many numbers.
    Operations,
    /// The command of an im-cloud device lacks a parameter.
    Parameter,
    /// The key of the room is not UTF-8, or too long.
    Room,
}

impl Refusal {
    /// Every reason, for counters.
    pub const ALL: [Refusal; 4] = [Refusal::Command, Refusal::Operations, Refusal::Parameter, Refusal::Room];

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Command => "command",
            Refusal::Operations => "operations",
            Refusal::Parameter => "parameter",
            Refusal::Room => "room",
        }
    }
}

/// Server side of one connection. It has no memory of its own.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    variants: Variants,
    variant: Variant,
    is_authenticated: bool,
    is_closed: bool,
    pending: Option<Pending>,
}

/// Reply that an event waits for: its operation, and the version and the sequence of the request.
#[derive(Clone, Copy, Debug)]
struct Pending {
    operation: i32,
    version: i16,
    sequence: i32,
}

impl Server {
    /// Begins a connection.
    pub fn new(variants: Variants) -> Server {
        let variant = match variants {
            Variants::Only(variant) => variant,
            Variants::ByAuth => Variant::Goim,
        };
        Server { variants, variant, is_authenticated: false, is_closed: false, pending: None }
    }

    /// Processes at most one packet of `input`; replies are appended to `out`. `None` means that more bytes are needed,
    /// that the last event waits for its reply, or that the connection is closed.
    ///
    /// # Errors
    /// Returns the error of the device and closes the connection, without a reply.
    pub fn recv(
        &mut self,
        input: &mut Input,
        limits: &Limits,
        out: &mut Outbox,
    ) -> Result<Option<Event>, ProtocolError> {
        if self.is_closed {
            input.skip(input.len());
            return Ok(None);
        }
        if self.is_waiting() {
            return Ok(None);
        }
        let read = Packet::read(input, limits.body_bytes_max);
        let event = read.and_then(|packet| packet.map(|packet| self.event(packet, limits, out)).transpose());
        event.inspect_err(|_| self.is_closed = true)
    }

    /// Accepts the credentials of the last event. Has no effect at other times.
    pub fn accept(&mut self, out: &mut Outbox) {
        let Some(Pending { operation: operation::AUTH_REPLY, version, sequence }) = self.pending else {
            return;
        };
        self.pending = None;
        self.is_authenticated = true;
        let body = match self.variant {
            Variant::Goim => &[],
            Variant::ImCloud => imcloud::AUTH_REPLY,
        };
        Packet::write(version, operation::AUTH_REPLY, sequence, body, out);
    }

    /// Replies to a heartbeat with the number of connections in the room of the device, 0 if it has no room. Has no
    /// effect at other times.
    pub fn heartbeat(&mut self, room_connections: u32, out: &mut Outbox) {
        let Some(Pending { operation: operation::HEARTBEAT_REPLY, version, sequence }) = self.pending else {
            return;
        };
        self.pending = None;
        let count = i32::try_from(room_connections).unwrap_or(i32::MAX).to_be_bytes();
        let body = match self.variant {
            Variant::Goim => &count[..],
            Variant::ImCloud => imcloud::HEARTBEAT_REPLY,
        };
        Packet::write(version, operation::HEARTBEAT_REPLY, sequence, body, out);
    }

    /// Returns true if the last event waits for its reply.
    pub fn is_waiting(&self) -> bool {
        self.pending.is_some()
    }

    /// Returns true if the credentials of the device were accepted.
    pub fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Returns true if nothing more is read, after an error.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns the variant of the connection, which the authentication may select.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// Returns the form of pushes to the device, once it is authenticated.
    pub fn push_form(&self, is_websocket: bool) -> PushForm {
        PushForm::new(self.variant, is_websocket)
    }

    fn event(&mut self, packet: Packet, limits: &Limits, out: &mut Outbox) -> Result<Event, ProtocolError> {
        let Packet { version, operation, sequence, body } = packet;
        if !self.is_authenticated {
            if operation != operation::AUTH {
                return Ok(Event::Skipped { operation });
            }
            let (auth, variant) = Auth::read(body, self.variants, limits)?;
            self.variant = variant;
            self.wait(operation::AUTH_REPLY, version, sequence);
            return Ok(Event::Auth(Box::new(auth)));
        }
        if operation == operation::HEARTBEAT {
            self.wait(operation::HEARTBEAT_REPLY, version, sequence);
            return Ok(Event::Heartbeat);
        }
        if self.variant == Variant::ImCloud && operation == operation::RAW {
            return Ok(Self::command(version, sequence, &body, out));
        }
        let (event, reply, body) = match operation {
            operation::CHANGE_ROOM => (change_room(&body, limits), operation::reply(operation), &body[..]),
            operation::SUBSCRIBE | operation::UNSUBSCRIBE => {
                (change_accepts(operation, &body, limits), operation::reply(operation), &body[..])
            }
            // im-cloud ignores all other packets; goim replies with their own operation, even to an authentication.
            _ if self.variant == Variant::ImCloud => return Ok(Event::Message { operation, body }),
            _ => (Event::Message { operation, body: body.clone() }, operation, &[][..]),
        };
        Packet::write(version, reply, sequence, body, out);
        Ok(event)
    }

    fn wait(&mut self, operation: i32, version: i16, sequence: i32) {
        self.pending = Some(Pending { operation, version, sequence });
    }

    /// Returns the event of a command of im-cloud. One that has no effect is replied to with the reason; im-cloud sends
    /// no reply to the others.
    fn command(version: i16, sequence: i32, body: &[u8], out: &mut Outbox) -> Event {
        let members: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
        let kind = members.get("cmd").and_then(Value::as_str).and_then(PushKind::from_command);
        let empty = Map::new();
        let data = members.get("data").and_then(Value::as_object).unwrap_or(&empty);
        let push = kind.map(|kind| imcloud::Push::from_parameters(kind, data));
        let (refusal, text) = match push {
            Some(Some(push)) => return Event::Push(push),
            Some(None) => (Refusal::Parameter, MISSING_PARAMETER),
            None => (Refusal::Command, UNKNOWN_COMMAND),
        };
        Packet::write(version, operation::RAW, sequence, text.as_bytes(), out);
        Event::Refused { operation: operation::RAW, refusal }
    }
}

fn change_room(body: &[u8], limits: &Limits) -> Event {
    match std::str::from_utf8(body) {
        Ok("") => Event::ChangeRoom { room: None },
        Ok(room) if room.len() <= limits.room_bytes_max as usize => {
            Event::ChangeRoom { room: Some(room.to_owned()) }
        }
        _ => Event::Refused { operation: operation::CHANGE_ROOM, refusal: Refusal::Room },
    }
}

fn change_accepts(operation: i32, body: &[u8], limits: &Limits) -> Event {
    match operation::parse_list(body, limits.accepts_max as usize) {
        None => Event::Refused { operation, refusal: Refusal::Operations },
        Some(operations) if operation == operation::SUBSCRIBE => Event::Subscribe { operations },
        Some(operations) => Event::Unsubscribe { operations },
    }
}
