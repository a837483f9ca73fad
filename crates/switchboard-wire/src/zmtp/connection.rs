//! State of a connection: greeting, handshake, then messages and commands.

#[cfg(feature = "curve")]
use super::curve::Curve;
use super::{
    Credentials, ErrorKind, Properties, ProtocolError, PublicKey, Settings, SocketType, Version,
    command::{self, Command, Name},
    frame::Header,
    greeting::{GREETING_BYTES, Greeting},
    handshake::{Handshake, Progress},
};
use crate::{Input, Outbox};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

/// Event from the peer.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: a driver must handle each event
pub enum Event {
    /// The peer ended one subscription to this prefix.
    Cancel(Bytes),
    /// The peer of a CURVE server has the secret key of this public key. Nothing is read until
    /// [`Connection::accept`] or [`Connection::reject`]; [`Event::Ready`] follows the acceptance, from the next call of
    /// [`Connection::recv`] even without more bytes.
    ClientKey(PublicKey),
    /// The peer of a PLAIN server sent credentials. Nothing is read until [`Connection::accept`] or
    /// [`Connection::reject`].
    Credentials(Credentials),
    /// One frame of a message.
    Frame {
        /// Content of the frame.
        body: Bytes,
        /// Another frame of the same message follows.
        more: bool,
    },
    /// A DISH joined this group.
    Join(Bytes),
    /// A DISH left this group.
    Leave(Bytes),
    /// The peer sent a PING; the PONG is in the outbox. A driver limits the rate of PINGs.
    Ping {
        /// The peer requests that the connection be closed if nothing arrives for this time.
        ttl: Option<Duration>,
    },
    /// The peer responded to a PING with this context.
    Pong(Bytes),
    /// The handshake is complete: messages can be sent.
    Ready(Box<Peer>),
    /// The peer subscribed to this prefix. Each subscription is counted: two need two cancellations.
    Subscribe(Bytes),
}

/// The other side of a connection, from its greeting and its metadata.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Peer {
    /// Socket type.
    pub socket: SocketType,
    /// Identity, empty if the peer has none. It is not authenticated.
    pub identity: Bytes,
    /// The version that both sides use.
    pub version: Version,
    /// The other properties of the metadata.
    pub properties: Properties,
}

/// One side of a connection.
#[derive(Debug)]
pub struct Connection {
    pub(super) settings: Arc<Settings>,
    state: State,
    /// Socket type of this side; that of the settings until the handshake is complete.
    pub(super) socket: SocketType,
    /// The version that both sides use, known after the greeting.
    pub(super) version: Version,
    /// Frames of the incomplete message, and their bytes.
    pub(super) frames: u32,
    pub(super) bytes: u64,
    /// Bytes of a frame that this socket type does not read.
    pub(super) skip: u64,
    /// Keys and steps of CURVE after the greeting.
    #[cfg(feature = "curve")]
    pub(super) curve: Option<Box<Curve>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Greeting,
    Handshake(Handshake),
    Open,
    Closed,
}

impl Connection {
    /// Begins a connection: the greeting is appended to `out`. Both sides send it at once.
    pub fn new(settings: Arc<Settings>, out: &mut Outbox) -> Connection {
        let mechanism = &settings.mechanism;
        Greeting::write(settings.version, mechanism.name(), mechanism.is_server(), out.tail());
        let (version, socket) = (settings.version, settings.socket);
        Connection {
            settings,
            state: State::Greeting,
            socket,
            version,
            frames: 0,
            bytes: 0,
            skip: 0,
            #[cfg(feature = "curve")]
            curve: None,
        }
    }

    /// Processes bytes of `input`; responses are appended to `out`. `None` means that more bytes are needed, that the
    /// credentials of the last event wait for a verdict, or that the connection is closed.
    ///
    /// # Errors
    /// Returns the error of the peer and closes the connection. During the handshake, `out` has an ERROR with its text,
    /// unless this side is a client of PLAIN or CURVE.
    pub fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<Event>, ProtocolError> {
        if self.state == State::Open
            && !self.is_sealed()
            && let Some(event) = self.take_short(input)
        {
            return Ok(Some(event));
        }
        let received = match self.state {
            State::Greeting | State::Handshake(_) => self.connect(input, out),
            #[cfg(feature = "curve")]
            State::Open if self.is_sealed() => self.open_sealed(input, out),
            State::Open => self.open(input, out),
            State::Closed => {
                input.skip(input.len());
                Ok(None)
            }
        };
        received.inspect_err(|error| {
            let is_handshake =
                matches!(self.state, State::Handshake(_)) && !self.settings.mechanism.is_client();
            if is_handshake && error.kind() != ErrorKind::Refused {
                command::write_error(error.message(), out);
            }
            self.state = State::Closed;
        })
    }

    /// Accepts the credentials or the key of the peer; [`recv`](Self::recv) then continues. Has no effect at other
    /// times.
    pub fn accept(&mut self, out: &mut Outbox) {
        if self.state == State::Handshake(Handshake::Verdict) {
            #[cfg(feature = "curve")]
            if let Some(curve) = &mut self.curve {
                curve.accept(&self.settings, out);
                self.state = State::Handshake(Handshake::Accepted);
                return;
            }
            command::write(Name::Welcome, &[], out);
            self.state = State::Handshake(Handshake::Initiate);
        }
    }

    /// Rejects the credentials or the key of the peer and closes the connection. `reason` is sent in an ERROR; libzmq
    /// sends a status of ZAP there: `300`, `400` or `500`. Clients of PLAIN in libzmq 4.3.5 report each ERROR of the
    /// standard form as a command that they did not expect. Has no effect at other times.
    pub fn reject(&mut self, reason: &str, out: &mut Outbox) {
        if self.state == State::Handshake(Handshake::Verdict) {
            command::write_error(reason, out);
            self.state = State::Closed;
        }
    }

    /// Returns true between the handshake and the end of the connection.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Returns true if each message is encrypted for this peer, with CURVE. Frames that were encoded with
    /// [`write_frame`](super::write_frame) cannot be sent to it.
    pub fn is_sealed(&self) -> bool {
        #[cfg(feature = "curve")]
        return self.curve.is_some();
        #[cfg(not(feature = "curve"))]
        false
    }

    /// Returns true if nothing more is read.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Returns the socket type of this side; if the peer decides it, once the handshake is complete.
    pub fn socket(&self) -> SocketType {
        self.socket
    }

    /// Returns the settings of this side.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Reads the greeting and the commands of the handshake.
    fn connect(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<Event>, ProtocolError> {
        loop {
            let State::Handshake(mut handshake) = self.state else {
                let Some(greeting) = Greeting::read(input.rest())? else { return Ok(None) };
                greeting.check_mechanism(self.settings.mechanism.name())?;
                input.skip(GREETING_BYTES);
                self.version = self.version.min(greeting.version);
                self.state = State::Handshake(self.begin(out)?);
                continue;
            };
            if handshake == Handshake::Verdict {
                return Ok(None);
            }
            #[cfg(feature = "curve")]
            if let Some(Progress::Done(peer, socket)) = self.curve.as_mut().and_then(|curve| curve.complete())
            {
                return Ok(Some(self.complete(peer, socket)));
            }
            let Some(header) = Header::read(input.rest())? else { return Ok(None) };
            if !header.command {
                return Err(handshake.unexpected("a message"));
            }
            let Some(command) = self.take_command(&header, input)? else { return Ok(None) };
            let progress = self.progress(&mut handshake, &command, out);
            self.state = State::Handshake(handshake);
            match progress? {
                Progress::Done(peer, socket) => return Ok(Some(self.complete(peer, socket))),
                Progress::More => {}
                Progress::Verdict(event) => return Ok(Some(event)),
            }
        }
    }

    /// Begins the handshake once the greeting of the peer was accepted.
    fn begin(&mut self, out: &mut Outbox) -> Result<Handshake, ProtocolError> {
        #[cfg(feature = "curve")]
        if let Some((curve, handshake)) = Curve::begin(&self.settings, out)? {
            self.curve = Some(Box::new(curve));
            return Ok(handshake);
        }
        Ok(Handshake::begin(&self.settings, out))
    }

    fn progress(
        &mut self,
        handshake: &mut Handshake,
        command: &Command,
        out: &mut Outbox,
    ) -> Result<Progress, ProtocolError> {
        #[cfg(feature = "curve")]
        if let Some(curve) = &mut self.curve {
            return curve.command(handshake, command, self.version, &self.settings, out);
        }
        handshake.command(command, self.version, &self.settings, out)
    }

    fn complete(&mut self, peer: Box<Peer>, socket: SocketType) -> Event {
        self.state = State::Open;
        self.socket = socket;
        Event::Ready(peer)
    }

    /// Closes a connection that has no counters left for further messages.
    #[cfg(feature = "curve")]
    pub(super) fn exhaust(&mut self) {
        self.state = State::Closed;
    }
}
