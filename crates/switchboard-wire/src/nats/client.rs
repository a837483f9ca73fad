//! The client's side of a connection.

use super::{
    Connect, ErrorKind, Info, Limits, Message, OutgoingMessage, ProtocolError, SendError, ServerError,
    message::{self, Decimals, is_word},
    receiving::{Reader, Unit},
    subject::check_pattern,
    verb::{Role, Verb},
};
use crate::{Input, Outbox};
use bytes::Bytes;
use std::num::NonZeroU64;

/// Event from a server.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: a driver must handle each event
pub enum ClientEvent {
    /// The server reported an error. If it [closes](ServerError::closes), nothing more is read.
    Error(ServerError),
    /// The server sent its description. After the first one, a driver establishes TLS if required and calls
    /// [`Client::connect`].
    Info(Box<Info>),
    /// A message of a subscription.
    Message {
        /// Id of the subscription.
        sid: Bytes,
        /// Message.
        message: Message,
    },
    /// The server completed a command; sent if CONNECT was verbose.
    Ok,
    /// The server sent PING; the PONG is in the outbox.
    Ping,
    /// The server responded to PING.
    Pong,
}

/// The client's side of a connection.
#[derive(Debug)]
pub struct Client {
    limits: Limits,
    reader: Reader,
    state: State,
    /// The last INFO accepts headers, and its limit of payloads.
    headers: bool,
    payload_bytes_max: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// The first INFO is expected.
    Info,
    /// CONNECT was not sent yet.
    Connect,
    Open,
    Closed,
}

impl Client {
    /// Begins a connection. The server sends first.
    pub fn new(limits: Limits) -> Client {
        let reader = Reader::new(Role::Server);
        Client { limits, reader, state: State::Info, headers: false, payload_bytes_max: 0 }
    }

    /// Processes bytes of `input`; responses are appended to `out`. `None` means that more bytes are needed, or that
    /// the connection is closed.
    ///
    /// # Errors
    /// Returns an error of the protocol by the server and closes the connection. Servers expect no report of it.
    pub fn recv(
        &mut self,
        input: &mut Input,
        out: &mut Outbox,
    ) -> Result<Option<ClientEvent>, ProtocolError> {
        if self.state == State::Closed {
            input.skip(input.len());
            return Ok(None);
        }
        self.read(input, out).inspect_err(|_| self.state = State::Closed)
    }

    fn read(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ClientEvent>, ProtocolError> {
        let expects_info = self.state == State::Info;
        let unit = self.reader.next(input, &self.limits, |verb| {
            if expects_info && !matches!(verb, Verb::Info | Verb::Err) {
                let message = format!("{} arrived before INFO", verb.name());
                return Err(ProtocolError::new(ErrorKind::Operation, message));
            }
            Ok(())
        })?;
        let (verb, line) = match unit {
            None => return Ok(None),
            Some(Unit::Message { sid, message }) => {
                return Ok(Some(ClientEvent::Message { sid: sid.unwrap_or_default(), message }));
            }
            Some(Unit::Line(verb, line)) => (verb, line),
        };
        Ok(Some(match verb {
            Verb::Info => {
                let info = Info::read(line.argument())?;
                (self.headers, self.payload_bytes_max) = (info.headers, info.max_payload);
                if expects_info {
                    self.state = State::Connect;
                }
                ClientEvent::Info(Box::new(info))
            }
            Verb::Err => {
                let error = ServerError::read(line.argument());
                if error.closes() {
                    self.state = State::Closed;
                }
                ClientEvent::Error(error)
            }
            Verb::Ping => {
                out.tail().extend_from_slice(b"PONG\r\n");
                ClientEvent::Ping
            }
            Verb::Ok => ClientEvent::Ok,
            _ => ClientEvent::Pong,
        }))
    }

    /// Sends CONNECT. A client usually sends PING after it: the PONG means that the credentials were accepted.
    ///
    /// # Errors
    /// Fails, and writes nothing, before the first INFO and after the end of the connection.
    pub fn connect(&mut self, options: &Connect, out: &mut Outbox) -> Result<(), SendError> {
        if matches!(self.state, State::Info | State::Closed) {
            return Err(SendError::NotOpen);
        }
        options.write(out);
        self.state = State::Open;
        Ok(())
    }

    /// Sends PUB, or HPUB if the message has headers.
    ///
    /// # Errors
    /// Fails, and writes nothing, on an invalid subject, on a payload over the limit of the server, on headers that it
    /// does not accept, on a line over `control_line_bytes_max`, and unless the connection is open.
    pub fn publish(&self, message: &OutgoingMessage<'_>, out: &mut Outbox) -> Result<(), SendError> {
        self.check_open()?;
        if message.headers.is_some() && !self.headers {
            return Err(SendError::HeadersUnsupported);
        }
        if message.bytes() as u64 > self.payload_bytes_max {
            return Err(SendError::Payload(message.bytes(), self.payload_bytes_max));
        }
        message::write(["PUB ", "HPUB "], None, message, self.limits.control_line_bytes_max, out)
    }

    /// Sends SUB with an id that this client does not use, in a queue group or alone.
    ///
    /// # Errors
    /// Fails, and writes nothing, on an invalid subject, queue group or sid, on a line over `control_line_bytes_max`,
    /// and unless the connection is open.
    pub fn subscribe(
        &self,
        pattern: &[u8],
        queue: Option<&[u8]>,
        sid: &[u8],
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        self.check_open()?;
        if check_pattern(pattern).is_err() || !queue.is_none_or(is_word) || !is_word(sid) {
            return Err(SendError::InvalidSubject);
        }
        let fields = [Some(pattern), queue].into_iter().flatten();
        message::write_line("SUB ", fields, sid, self.limits.control_line_bytes_max, out)
    }

    /// Sends UNSUB: the subscription ends after `max` messages from its beginning, or at once.
    ///
    /// # Errors
    /// Fails, and writes nothing, on an invalid sid, on a line over `control_line_bytes_max`, and unless the connection
    /// is open.
    pub fn unsubscribe(
        &self,
        sid: &[u8],
        max: Option<NonZeroU64>,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        self.check_open()?;
        if !is_word(sid) {
            return Err(SendError::InvalidSubject);
        }
        let limit = self.limits.control_line_bytes_max;
        match max {
            None => message::write_line("UNSUB ", std::iter::empty(), sid, limit, out),
            Some(max) => {
                let mut decimals = Decimals::new();
                decimals.push(max.get());
                message::write_line("UNSUB ", std::iter::once(sid), decimals.text(), limit, out)
            }
        }
    }

    /// Sends PING. Returns false, and sends nothing, unless the connection is open.
    #[must_use]
    pub fn ping(&self, out: &mut Outbox) -> bool {
        if self.is_open() {
            out.tail().extend_from_slice(b"PING\r\n");
        }
        self.is_open()
    }

    /// Returns true between CONNECT and the end of the connection.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Returns true if nothing more is read.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    fn check_open(&self) -> Result<(), SendError> {
        if self.is_open() { Ok(()) } else { Err(SendError::NotOpen) }
    }
}
