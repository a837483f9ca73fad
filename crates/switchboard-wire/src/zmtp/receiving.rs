//! Messages and commands of the peer, after the handshake.

use super::{
    Connection, ErrorKind, Event, ProtocolError, SocketType,
    command::{self, Command, Name},
    frame::Header,
    subscription::{CANCEL, SUBSCRIBE},
};
use crate::{Input, Outbox};
use bytes::Bytes;

/// Largest name of a group of RADIO and DISH, in bytes; libzmq has the same limit.
const GROUP_BYTES_MAX: u64 = 255;

impl Connection {
    /// Takes a complete short frame that is within the limits, the most common input. `None` leaves the input to
    /// [`open`](Self::open), which has all rules and errors.
    #[inline]
    pub(super) fn take_short(&mut self, input: &mut Input) -> Option<Event> {
        let (&[flags @ (0 | 1), len], body) = input.rest().split_first_chunk()? else { return None };
        let (more, limits) = (flags == 1, &self.settings.limits);
        let (frames, bytes) = (self.frames.saturating_add(1), self.bytes.saturating_add(len.into()));
        let is_within = u64::from(len) <= limits.frame_bytes_max
            && bytes <= limits.message_bytes_max
            && frames.saturating_add(more.into()) <= limits.message_frames_max;
        let len = usize::from(len);
        if self.skip > 0 || body.len() < len || !is_within || !self.socket.receives_any_frames() {
            return None;
        }
        (self.frames, self.bytes) = if more { (frames, bytes) } else { (0, 0) };
        input.skip(2);
        Some(Event::Frame { body: input.take(len), more })
    }

    /// Reads frames of messages, and commands between them.
    pub(super) fn open(
        &mut self,
        input: &mut Input,
        out: &mut Outbox,
    ) -> Result<Option<Event>, ProtocolError> {
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
    pub(super) fn take_command(
        &self,
        header: &Header,
        input: &mut Input,
    ) -> Result<Option<Command>, ProtocolError> {
        self.check_command_bytes(header.len)?;
        let Some(bytes) = header.frame_bytes() else { return Ok(None) };
        if input.len() < bytes {
            return Ok(None);
        }
        input.skip(header.bytes);
        Command::read(input.take(bytes - header.bytes)).map(Some)
    }

    pub(super) fn check_command_bytes(&self, len: u64) -> Result<(), ProtocolError> {
        let limit = u64::from(self.settings.limits.command_bytes_max);
        if len <= limit {
            return Ok(());
        }
        Err(ProtocolError::over("command", len, "bytes", limit, "command_bytes_max"))
    }

    /// Processes a command after the handshake. Commands that mean nothing to this socket type are ignored.
    pub(super) fn command(
        &mut self,
        command: Command,
        out: &mut Outbox,
    ) -> Result<Option<Event>, ProtocolError> {
        let Command { name, data } = command;
        let socket = self.socket;
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
                self.put_command(Name::Pong, &[context], out);
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
    pub(super) fn check_frame(&self, header: &Header) -> Result<u64, ProtocolError> {
        let (limits, socket) = (&self.settings.limits, self.socket);
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
        let mut subscription = None;
        if self.may_subscribe(header) {
            let Some(&first) = input.rest().get(header.bytes) else { return Ok(Taken::Incomplete) };
            subscription = self.subscription(header, first)?;
        }
        if !self.socket.receives() && subscription.is_none() {
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
        let body = input.take(bytes - header.bytes);
        Ok(Taken::Frame(Some(frame_event(header, body, subscription))))
    }

    /// Processes a frame that was opened.
    #[cfg(feature = "curve")]
    pub(super) fn unsealed_frame(
        &mut self,
        header: &Header,
        body: Bytes,
    ) -> Result<Option<Event>, ProtocolError> {
        let bytes = self.check_frame(header)?;
        let mut subscription = None;
        if let Some(&first) = body.first().filter(|_| self.may_subscribe(header)) {
            subscription = self.subscription(header, first)?;
        }
        (self.frames, self.bytes) = if header.more { (self.frames + 1, bytes) } else { (0, 0) };
        let is_read = self.socket.receives() || subscription.is_some();
        Ok(is_read.then(|| frame_event(header, body, subscription)))
    }

    /// Returns true if a frame can be a subscription, by its header.
    fn may_subscribe(&self, header: &Header) -> bool {
        self.socket.publishes() && self.frames == 0 && !header.more && header.len > 0
    }

    /// Returns the first byte of a frame if it makes the frame a subscription.
    fn subscription(&self, header: &Header, first: u8) -> Result<Option<u8>, ProtocolError> {
        if !matches!(first, SUBSCRIBE | CANCEL) {
            return Ok(None);
        }
        self.check_topic("a subscription message", header.len - 1)?;
        Ok(Some(first))
    }

    fn check_topic(&self, what: &str, len: u64) -> Result<(), ProtocolError> {
        let limit = u64::from(self.settings.limits.topic_bytes_max);
        if len <= limit {
            return Ok(());
        }
        Err(ProtocolError::over(&format!("topic of {what}"), len, "bytes", limit, "topic_bytes_max"))
    }
}

fn frame_event(header: &Header, mut body: Bytes, subscription: Option<u8>) -> Event {
    match subscription {
        None => Event::Frame { body, more: header.more },
        Some(SUBSCRIBE) => Event::Subscribe(body.split_off(1)),
        Some(_) => Event::Cancel(body.split_off(1)),
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
