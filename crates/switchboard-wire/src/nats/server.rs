//! The server's side of a connection.

use super::{
    Connect, EncodedMessage, ErrorKind, Headers, Info, Limits, Message, OutgoingMessage, ProtocolError,
    SendError,
    message::{self, is_word},
    receiving::{Line, Reader, Unit, check_sid, number},
    subject::{check_pattern, check_subject},
    verb::{Role, Verb},
};
use crate::{Input, Outbox, Outgoing};
use bytes::Bytes;
use std::num::NonZeroU64;

/// First byte of a TLS record with a handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// Event from a client.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: a driver must handle each event
pub enum ServerEvent {
    /// The client sent its options and credentials. If INFO has `auth_required`, nothing is read until
    /// [`Server::accept`] or [`Server::reject`]. A client may send CONNECT again.
    Connect(Box<Connect>),
    /// A publication or a subscription with an invalid subject was dropped; a driver counts it. The client got an error
    /// if it is pedantic or if it was a subscription.
    InvalidSubject,
    /// The client sent PING; the PONG is in the outbox. A driver limits the rate.
    Ping,
    /// The client responded to PING.
    Pong,
    /// The client published a message. Headers are accepted even if its CONNECT has no `headers`.
    Publish(Message),
    /// The client subscribes. A sid that it already uses has no effect in the servers of NATS.
    Subscribe {
        /// Subject, which may have wildcards.
        pattern: Bytes,
        /// Queue group.
        queue: Option<Bytes>,
        /// Id of the subscription.
        sid: Bytes,
    },
    /// The client starts TLS, which INFO requires: its bytes stay in the input. Nothing is read until
    /// [`Server::secured`].
    Tls,
    /// The client ends a subscription. See [`Deliveries`](super::Deliveries).
    Unsubscribe {
        /// Id of the subscription.
        sid: Bytes,
        /// Number of messages, from the beginning of the subscription, after which it ends; `None` means at once.
        max: Option<NonZeroU64>,
    },
}

/// The server's side of a connection.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    reader: Reader,
    state: State,
    auth_required: bool,
    /// A CONNECT was accepted, or none is required.
    authorized: bool,
    options: Connect,
    /// The last command of a verbose client has no response yet.
    owes_ok: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// The first byte of TLS is expected.
    Plaintext,
    /// TLS is being established.
    Tls,
    Open,
    /// The credentials wait for a verdict.
    Verdict,
    Closed,
}

impl Server {
    /// Begins a connection: INFO is appended to `out`, with the limit of payloads.
    pub fn new(info: &Info, limits: Limits, out: &mut Outbox) -> Server {
        let state = if info.tls_required { State::Plaintext } else { State::Open };
        let server = Server {
            limits,
            reader: Reader::new(Role::Client),
            state,
            auth_required: info.auth_required,
            authorized: !info.auth_required,
            options: Connect::default(),
            owes_ok: false,
        };
        server.write_info(info, out);
        server
    }

    /// Processes bytes of `input`; responses are appended to `out`. `None` means that more bytes are needed, that the
    /// last event waits for a decision, or that the connection is closed. The `+OK` of a verbose client is written
    /// by the next call or the next message, so that [`deny`](Self::deny) can replace it.
    ///
    /// # Errors
    /// Returns the error of the client and closes the connection; `out` has its `-ERR`.
    pub fn recv(
        &mut self,
        input: &mut Input,
        out: &mut Outbox,
    ) -> Result<Option<ServerEvent>, ProtocolError> {
        match self.state {
            State::Closed => {
                input.skip(input.len());
                return Ok(None);
            }
            State::Tls | State::Verdict => return Ok(None),
            State::Open => {}
            State::Plaintext => match input.rest().first() {
                None => return Ok(None),
                Some(&TLS_HANDSHAKE) => {
                    self.state = State::Tls;
                    return Ok(Some(ServerEvent::Tls));
                }
                Some(_) => {
                    let error = ProtocolError::new(ErrorKind::TlsRequired, "client did not start TLS");
                    self.close(error.kind(), out);
                    return Err(error);
                }
            },
        }
        self.write_owed_ok(out);
        self.read(input, out).inspect_err(|error| self.close(error.kind(), out))
    }

    fn read(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ServerEvent>, ProtocolError> {
        let authorized = self.authorized;
        let unit = self.reader.next(input, &self.limits, |verb| {
            if authorized || verb == Verb::Connect {
                return Ok(());
            }
            let message = format!("{} arrived before CONNECT", verb.name());
            Err(ProtocolError::new(ErrorKind::Authorization, message))
        })?;
        match unit {
            None => Ok(None),
            Some(Unit::Line(verb, line)) => self.line(verb, &line, out).map(Some),
            Some(Unit::Message { message, .. }) => {
                let is_valid = |subject: &Bytes| self.fits(subject) && check_subject(subject).is_ok();
                if is_valid(&message.subject) && message.reply.as_ref().is_none_or(is_valid) {
                    self.owes_ok = self.options.verbose;
                    return Ok(Some(ServerEvent::Publish(message)));
                }
                if self.options.pedantic {
                    ErrorKind::InvalidSubject.write(None, out);
                } else {
                    self.owes_ok = self.options.verbose;
                }
                Ok(Some(ServerEvent::InvalidSubject))
            }
        }
    }

    fn line(&mut self, verb: Verb, line: &Line, out: &mut Outbox) -> Result<ServerEvent, ProtocolError> {
        let event = match verb {
            Verb::Connect => {
                let connect = Connect::read(line.argument())?;
                self.options = connect.clone();
                if self.auth_required {
                    self.state = State::Verdict;
                    return Ok(ServerEvent::Connect(Box::new(connect)));
                }
                ServerEvent::Connect(Box::new(connect))
            }
            Verb::Ping => {
                out.tail().extend_from_slice(b"PONG\r\n");
                return Ok(ServerEvent::Ping);
            }
            Verb::Sub => {
                let fields = line.fields(verb, 2, 3)?;
                let (pattern, queue, sid) = match *fields.get() {
                    [pattern, queue, sid] => (pattern, Some(queue), sid),
                    [pattern, .., sid] => (pattern, None, sid),
                    _ => return Err(ProtocolError::parser("SUB has no sid")),
                };
                let (pattern, sid) = (line.slice(pattern), line.slice(sid));
                let queue = queue.map(|queue| line.slice(queue));
                check_sid(verb, &sid, &self.limits)?;
                let is_valid = self.fits(&pattern)
                    && check_pattern(&pattern).is_ok()
                    && queue.as_ref().is_none_or(|queue| self.fits(queue) && is_word(queue))
                    && is_word(&sid);
                if !is_valid {
                    ErrorKind::InvalidSubject.write(None, out);
                    return Ok(ServerEvent::InvalidSubject);
                }
                ServerEvent::Subscribe { pattern, queue, sid }
            }
            Verb::Unsub => {
                let fields = line.fields(verb, 1, 2)?;
                let sid = line.slice(fields.get()[0]);
                check_sid(verb, &sid, &self.limits)?;
                let max = match fields.get().get(1) {
                    Some(max) => NonZeroU64::new(number(verb, "maximum", &line.slice(*max))?),
                    None => None,
                };
                ServerEvent::Unsubscribe { sid, max }
            }
            _ => return Ok(ServerEvent::Pong),
        };
        self.owes_ok = self.options.verbose;
        Ok(event)
    }

    /// Returns true if the length of a subject is within the limit.
    fn fits(&self, subject: &[u8]) -> bool {
        u32::try_from(subject.len()).is_ok_and(|len| len <= self.limits.subject_bytes_max)
    }

    /// Accepts the credentials of the client; [`recv`](Self::recv) then continues. Has no effect at other times.
    pub fn accept(&mut self) {
        if self.state == State::Verdict {
            self.state = State::Open;
            self.authorized = true;
            self.owes_ok = self.options.verbose;
        }
    }

    /// Rejects the credentials of the client and closes the connection. Has no effect at other times.
    pub fn reject(&mut self, out: &mut Outbox) {
        if self.state == State::Verdict {
            self.close(ErrorKind::Authorization, out);
        }
    }

    /// Continues after the TLS handshake: the input now has its decrypted bytes. Where TLS begins before INFO, call it
    /// before the first byte.
    pub fn secured(&mut self) {
        if matches!(self.state, State::Plaintext | State::Tls) {
            self.state = State::Open;
        }
    }

    /// Refuses the publication or the subscription of the last event with an error that does not close the connection,
    /// such as [`ErrorKind::PublishDenied`]. Replaces its `+OK`, if nothing was sent since.
    pub fn deny(&mut self, kind: ErrorKind, subject: &[u8], out: &mut Outbox) {
        if self.is_open() && !kind.closes() {
            self.owes_ok = false;
            kind.write(Some(subject), out);
        }
    }

    /// Closes the connection with an error, for instance after a timeout that the driver measures.
    pub fn close(&mut self, kind: ErrorKind, out: &mut Outbox) {
        if self.state != State::Closed {
            kind.write(None, out);
            self.state = State::Closed;
            self.owes_ok = false;
        }
    }

    /// Sends MSG, or HMSG if the message has headers and the client accepts them.
    ///
    /// # Errors
    /// Fails, and writes no message, as [`write_message`](super::write_message) does, and unless the connection is
    /// open.
    pub fn send(
        &mut self,
        sid: &[u8],
        message: &OutgoingMessage<'_>,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        if !self.is_open() {
            return Err(SendError::NotOpen);
        }
        self.write_owed_ok(out);
        let max = self.limits.control_line_bytes_max;
        message::write_message(sid, message, self.options.headers, max, out)
    }

    /// Sends a message that is encoded for many subscriptions.
    ///
    /// # Errors
    /// Fails, and writes no message, as [`send`](Self::send) does.
    pub fn send_encoded(
        &mut self,
        sid: &[u8],
        message: &EncodedMessage<'_>,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        if !self.is_open() {
            return Err(SendError::NotOpen);
        }
        self.write_owed_ok(out);
        message.write(sid, self.options.headers, self.limits.control_line_bytes_max, out)
    }

    /// Sends the status 503 to the reply subject of a request without subscribers. `sid` is that of the client's
    /// subscription to it. Returns false, and sends nothing, unless the client accepts it.
    ///
    /// # Errors
    /// Fails, and writes no message, as [`send`](Self::send) does.
    pub fn no_responders(&mut self, sid: &[u8], reply: &[u8], out: &mut Outbox) -> Result<bool, SendError> {
        if !self.options.headers || !self.options.no_responders {
            return Ok(false);
        }
        let headers = Headers::no_responders();
        let message = OutgoingMessage {
            subject: reply,
            reply: None,
            headers: Some(&headers),
            payload: Outgoing::EMPTY,
        };
        self.send(sid, &message, out).map(|()| true)
    }

    /// Sends INFO again, for instance with `ldm` when the server drains. Returns false, and sends nothing, unless the
    /// connection is open and the client has the version of the protocol that allows it.
    #[must_use]
    pub fn send_info(&self, info: &Info, out: &mut Outbox) -> bool {
        let can_send = self.is_open() && self.options.protocol >= 1;
        if can_send {
            self.write_info(info, out);
        }
        can_send
    }

    /// Writes the `+OK` of the last command. Clients expect it before the messages that the command causes.
    fn write_owed_ok(&mut self, out: &mut Outbox) {
        if std::mem::take(&mut self.owes_ok) {
            out.tail().extend_from_slice(b"+OK\r\n");
        }
    }

    fn write_info(&self, info: &Info, out: &mut Outbox) {
        Info { max_payload: self.limits.payload_bytes_max.into(), ..info.clone() }.write(out);
    }

    /// Sends PING. Returns false, and sends nothing, unless the connection is open.
    #[must_use]
    pub fn ping(&self, out: &mut Outbox) -> bool {
        if self.is_open() {
            out.tail().extend_from_slice(b"PING\r\n");
        }
        self.is_open()
    }

    /// Returns true while commands are read and messages can be sent: no decision is awaited.
    pub fn is_open(&self) -> bool {
        self.state == State::Open && self.authorized
    }

    /// Returns true if nothing more is read.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Returns the options of the last CONNECT, or the defaults.
    pub fn options(&self) -> &Connect {
        &self.options
    }
}
