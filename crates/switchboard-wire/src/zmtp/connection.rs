//! State of a connection: greeting, handshake, then messages and commands.

use super::{
    Credentials, ErrorKind, Properties, ProtocolError, Settings, SocketType, Version,
    command::{self, Command, Name},
    frame::{self, Header},
    greeting::{GREETING_BYTES, Greeting},
    handshake::{Handshake, Progress},
};
use crate::{Input, Outbox, Outgoing};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

/// First byte of a subscription, and of its end, in the form of a message.
pub(super) const SUBSCRIBE: u8 = 1;
pub(super) const CANCEL: u8 = 0;

/// Largest name of a group of RADIO and DISH, in bytes; libzmq has the same limit.
const GROUP_BYTES_MAX: u64 = 255;

/// Event from the peer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// The peer ended one subscription to this prefix.
    Cancel(Bytes),
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
    settings: Arc<Settings>,
    state: State,
    /// The version that both sides use, known after the greeting.
    version: Version,
    /// Frames of the incomplete message, and their bytes.
    frames: u32,
    bytes: u64,
    /// Bytes of a frame that this socket type does not read.
    skip: u64,
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
        let version = settings.version;
        Connection { settings, state: State::Greeting, version, frames: 0, bytes: 0, skip: 0 }
    }

    /// Processes bytes of `input`; responses are appended to `out`. `None` means that more bytes are needed, that the
    /// credentials of the last event wait for a verdict, or that the connection is closed.
    ///
    /// # Errors
    /// Returns the error of the peer and closes the connection. During the handshake, `out` has an ERROR with its text.
    pub fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<Event>, ProtocolError> {
        let received = match self.state {
            State::Greeting | State::Handshake(_) => self.connect(input, out),
            State::Open => self.open(input, out),
            State::Closed => {
                input.skip(input.len());
                Ok(None)
            }
        };
        received.inspect_err(|error| {
            if matches!(self.state, State::Handshake(_)) && error.kind() != ErrorKind::Refused {
                command::write_error(error.message(), out);
            }
            self.state = State::Closed;
        })
    }

    /// Accepts the credentials of the peer; [`recv`](Self::recv) then continues. Has no effect at other times.
    pub fn accept(&mut self, out: &mut Outbox) {
        if self.state == State::Handshake(Handshake::Verdict) {
            command::write(Name::Welcome, &[], out);
            self.state = State::Handshake(Handshake::Initiate);
        }
    }

    /// Rejects the credentials of the peer and closes the connection. `reason` is sent in an ERROR; libzmq sends a
    /// status of ZAP there: `300`, `400` or `500`. Clients of PLAIN in libzmq 4.3.5 report each ERROR of the standard
    /// form as a command that they did not expect. Has no effect at other times.
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

    /// Returns true if nothing more is read.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Returns the settings of this side.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sends a message of these frames. Returns false, and sends nothing, unless the connection is open.
    #[must_use]
    pub fn send<'a, I>(&self, frames: I, out: &mut Outbox) -> bool
    where
        I: IntoIterator,
        I::Item: Into<Outgoing<'a>>,
    {
        if self.is_open() {
            frame::write_message(frames, out);
        }
        self.is_open()
    }

    /// Subscribes to messages whose first frame begins with `topic`: as a command, or as a message where a side has
    /// 3.0. Returns false, and sends nothing, unless the connection is open.
    #[must_use]
    pub fn subscribe(&self, topic: &[u8], out: &mut Outbox) -> bool {
        self.write_subscription(Name::Subscribe, SUBSCRIBE, topic, out)
    }

    /// Ends one subscription to `topic`. Returns false, and sends nothing, unless the connection is open.
    #[must_use]
    pub fn cancel(&self, topic: &[u8], out: &mut Outbox) -> bool {
        self.write_subscription(Name::Cancel, CANCEL, topic, out)
    }

    fn write_subscription(&self, name: Name, first: u8, topic: &[u8], out: &mut Outbox) -> bool {
        if self.is_open() {
            match self.version {
                Version::V3_0 => frame::write_frame(Outgoing::Lent(&[&[first], topic].concat()), false, out),
                Version::V3_1 => command::write(name, &[topic], out),
            }
        }
        self.is_open()
    }

    /// Joins a group, as a DISH. Returns false, and sends nothing, unless the connection is open.
    #[must_use]
    pub fn join(&self, group: &[u8], out: &mut Outbox) -> bool {
        self.write_command(Name::Join, group, out)
    }

    /// Leaves a group, as a DISH. Returns false, and sends nothing, unless the connection is open.
    #[must_use]
    pub fn leave(&self, group: &[u8], out: &mut Outbox) -> bool {
        self.write_command(Name::Leave, group, out)
    }

    fn write_command(&self, name: Name, data: &[u8], out: &mut Outbox) -> bool {
        if self.is_open() {
            command::write(name, &[data], out);
        }
        self.is_open()
    }

    /// Sends a PING. `ttl` requests that the peer close the connection if nothing arrives for that time; it is rounded
    /// up to tenths of a second. The peer returns up to 16 bytes of `context`. Returns false, and sends nothing, unless
    /// the connection is open and both sides have 3.1.
    #[must_use]
    pub fn ping(&self, ttl: Option<Duration>, context: &[u8], out: &mut Outbox) -> bool {
        let can_ping = self.is_open() && self.version >= Version::V3_1;
        if can_ping {
            command::write_ping(ttl, context, out);
        }
        can_ping
    }

    /// Reads the greeting and the commands of the handshake.
    fn connect(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<Event>, ProtocolError> {
        loop {
            let State::Handshake(mut handshake) = self.state else {
                let Some(greeting) = Greeting::read(input.rest())? else { return Ok(None) };
                greeting.check_mechanism(self.settings.mechanism.name())?;
                input.skip(GREETING_BYTES);
                self.version = self.version.min(greeting.version);
                self.state = State::Handshake(Handshake::begin(&self.settings, out));
                continue;
            };
            if handshake == Handshake::Verdict {
                return Ok(None);
            }
            let Some(header) = Header::read(input.rest())? else { return Ok(None) };
            if !header.command {
                return Err(handshake.unexpected("a message"));
            }
            let Some(command) = self.take_command(&header, input)? else { return Ok(None) };
            let progress = handshake.command(&command, self.version, &self.settings, out);
            self.state = State::Handshake(handshake);
            match progress? {
                Progress::Credentials(credentials) => return Ok(Some(Event::Credentials(credentials))),
                Progress::Done(peer) => {
                    self.state = State::Open;
                    return Ok(Some(Event::Ready(peer)));
                }
                Progress::More => {}
            }
        }
    }

    /// Reads frames of messages, and commands between them.
    fn open(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<Event>, ProtocolError> {
        loop {
            let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(input.len());
            input.skip(skipped);
            self.skip -= skipped as u64;
            let Some(header) = Header::read(input.rest())? else { return Ok(None) };
            let event = if header.command {
                let Some(command) = self.take_command(&header, input)? else { return Ok(None) };
                self.command(command, out)?
            } else {
                let bytes = self.check_frame(&header)?;
                match self.take_frame(&header, input)? {
                    Taken::Incomplete => return Ok(None),
                    Taken::Frame(event) => {
                        (self.frames, self.bytes) =
                            if header.more { (self.frames + 1, bytes) } else { (0, 0) };
                        event
                    }
                }
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// Takes a command once it is complete.
    fn take_command(&self, header: &Header, input: &mut Input) -> Result<Option<Command>, ProtocolError> {
        let limit = u64::from(self.settings.limits.command_bytes_max);
        let Some(bytes) = header.frame_bytes().filter(|_| header.len <= limit) else {
            return Err(ProtocolError::over("command", header.len, "bytes", limit, "command_bytes_max"));
        };
        if input.len() < bytes {
            return Ok(None);
        }
        input.skip(header.bytes);
        Command::read(input.take(bytes - header.bytes)).map(Some)
    }

    /// Processes a command after the handshake. Commands that mean nothing to this socket type are ignored.
    fn command(&self, command: Command, out: &mut Outbox) -> Result<Option<Event>, ProtocolError> {
        let Command { name, data } = command;
        let socket = self.settings.socket;
        Ok(match name {
            Name::Subscribe | Name::Cancel if socket.publishes() => {
                self.check_topic(name.text(), data.len() as u64)?;
                Some(if name == Name::Subscribe { Event::Subscribe(data) } else { Event::Cancel(data) })
            }
            Name::Join | Name::Leave if socket == SocketType::Radio => {
                check_group(name.text(), data.len() as u64)?;
                Some(if name == Name::Join { Event::Join(data) } else { Event::Leave(data) })
            }
            Name::Ping => {
                let (ttl, context) = command::read_ping(&data)?;
                command::write(Name::Pong, &[context], out);
                Some(Event::Ping { ttl })
            }
            Name::Pong => Some(Event::Pong(data)),
            Name::Error => {
                let reason = command::read_error(&data)?;
                let message = format!("peer sent ERROR \"{reason}\"");
                return Err(ProtocolError::new(ErrorKind::Refused, message));
            }
            _ => None,
        })
    }

    /// Checks a frame of a message against the limits and the socket type. Returns the bytes of the message with it.
    fn check_frame(&self, header: &Header) -> Result<u64, ProtocolError> {
        let (limits, socket) = (&self.settings.limits, self.settings.socket);
        let frames = self.frames.saturating_add(1);
        if header.len > limits.frame_bytes_max {
            let (what, limit) = (format!("frame {frames} of a message"), limits.frame_bytes_max);
            return Err(ProtocolError::over(&what, header.len, "bytes", limit, "frame_bytes_max"));
        }
        let bytes = self.bytes.saturating_add(header.len);
        if bytes > limits.message_bytes_max {
            let (what, limit) = (format!("message up to its frame {frames}"), limits.message_bytes_max);
            return Err(ProtocolError::over(&what, bytes, "bytes", limit, "message_bytes_max"));
        }
        // A further frame is announced by this one.
        let frames = frames.saturating_add(header.more.into());
        if frames > limits.message_frames_max {
            let limit = u64::from(limits.message_frames_max);
            return Err(ProtocolError::over(
                "message",
                frames.into(),
                "frames or more",
                limit,
                "message_frames_max",
            ));
        }
        let expected = match socket {
            _ if socket.is_single_frame() && header.more => "one frame",
            SocketType::Dish if header.more != (self.frames == 0) => "two frames, the group and the body",
            SocketType::Dish if header.more => return check_group("a message", header.len).map(|()| bytes),
            _ => return Ok(bytes),
        };
        let message = format!("message to {socket} does not have {expected}");
        Err(ProtocolError::new(ErrorKind::Frame, message))
    }

    /// Takes a frame of a message once it is complete. A frame that this socket type does not read is skipped as its
    /// bytes arrive.
    fn take_frame(&mut self, header: &Header, input: &mut Input) -> Result<Taken, ProtocolError> {
        let socket = self.settings.socket;
        let mut subscription = None;
        if socket.publishes() && self.frames == 0 && !header.more && header.len > 0 {
            let Some(&first) = input.rest().get(header.bytes) else { return Ok(Taken::Incomplete) };
            if matches!(first, SUBSCRIBE | CANCEL) {
                self.check_topic("a subscription message", header.len - 1)?;
                subscription = Some(first);
            }
        }
        if !socket.receives() && subscription.is_none() {
            input.skip(header.bytes);
            self.skip = header.len;
            return Ok(Taken::Frame(None));
        }
        let Some(bytes) = header.frame_bytes() else {
            let limit = usize::MAX as u64;
            return Err(ProtocolError::over("frame", header.len, "bytes", limit, "address space"));
        };
        if input.len() < bytes {
            return Ok(Taken::Incomplete);
        }
        input.skip(header.bytes);
        let mut body = input.take(bytes - header.bytes);
        Ok(Taken::Frame(Some(match subscription {
            None => Event::Frame { body, more: header.more },
            Some(SUBSCRIBE) => Event::Subscribe(body.split_off(1)),
            Some(_) => Event::Cancel(body.split_off(1)),
        })))
    }

    fn check_topic(&self, what: &str, len: u64) -> Result<(), ProtocolError> {
        let limit = u64::from(self.settings.limits.topic_bytes_max);
        if len <= limit {
            return Ok(());
        }
        Err(ProtocolError::over(&format!("topic of {what}"), len, "bytes", limit, "topic_bytes_max"))
    }
}

/// Result of reading a frame of a message.
enum Taken {
    /// It was consumed; an event, unless it is skipped.
    Frame(Option<Event>),
    Incomplete,
}

fn check_group(what: &str, len: u64) -> Result<(), ProtocolError> {
    if len <= GROUP_BYTES_MAX {
        return Ok(());
    }
    let message = format!("group of {what} has {len} bytes; the limit is {GROUP_BYTES_MAX}");
    Err(ProtocolError::new(ErrorKind::Limit, message))
}
