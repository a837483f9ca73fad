//! Messages and commands of this side, after the handshake.

use super::{
    Connection, Version,
    command::{self, Name},
    frame,
    subscription::{CANCEL, SUBSCRIBE},
};
use crate::{Outbox, Outgoing};
use std::time::Duration;

impl Connection {
    /// Sends a message of these frames. Returns false, and sends nothing, unless the connection is open.
    #[must_use]
    pub fn send<'a, I>(&mut self, frames: I, out: &mut Outbox) -> bool
    where
        I: IntoIterator,
        I::Item: Into<Outgoing<'a>>,
    {
        if self.is_open() {
            let mut frames = frames.into_iter().peekable();
            while let Some(body) = frames.next() {
                self.put_frame(body.into(), frames.peek().is_some(), out);
            }
        }
        self.is_open()
    }

    fn put_frame(&mut self, body: Outgoing<'_>, more: bool, out: &mut Outbox) {
        #[cfg(feature = "curve")]
        if self.is_sealed() {
            return self.seal(u8::from(more), &[&body], out);
        }
        frame::write_frame(body, more, out);
    }

    pub(super) fn put_command(&mut self, name: Name, data: &[&[u8]], out: &mut Outbox) {
        #[cfg(feature = "curve")]
        if self.is_sealed() {
            return self.seal_command(name, data, out);
        }
        command::write(name, data, out);
    }

    /// Subscribes to messages whose first frame begins with `topic`: as a command, or as a message where a side has
    /// 3.0. Returns false, and sends nothing, unless the connection is open.
    #[must_use]
    pub fn subscribe(&mut self, topic: &[u8], out: &mut Outbox) -> bool {
        self.write_subscription(Name::Subscribe, SUBSCRIBE, topic, out)
    }

    /// Ends one subscription to `topic`. Returns false, and sends nothing, unless the connection is open.
    #[must_use]
    pub fn cancel(&mut self, topic: &[u8], out: &mut Outbox) -> bool {
        self.write_subscription(Name::Cancel, CANCEL, topic, out)
    }

    fn write_subscription(&mut self, name: Name, first: u8, topic: &[u8], out: &mut Outbox) -> bool {
        if self.is_open() {
            match self.version {
                Version::V3_0 => self.put_frame(Outgoing::Lent(&[&[first], topic].concat()), false, out),
                Version::V3_1 => self.put_command(name, &[topic], out),
            }
        }
        self.is_open()
    }

    /// Joins a group, as a DISH. Returns false, and sends nothing, unless the connection is open.
    #[must_use]
    pub fn join(&mut self, group: &[u8], out: &mut Outbox) -> bool {
        self.write_command(Name::Join, group, out)
    }

    /// Leaves a group, as a DISH. Returns false, and sends nothing, unless the connection is open.
    #[must_use]
    pub fn leave(&mut self, group: &[u8], out: &mut Outbox) -> bool {
        self.write_command(Name::Leave, group, out)
    }

    fn write_command(&mut self, name: Name, data: &[u8], out: &mut Outbox) -> bool {
        if self.is_open() {
            self.put_command(name, &[data], out);
        }
        self.is_open()
    }

    /// Sends a PING. `ttl` requests that the peer close the connection if nothing arrives for that time; it is rounded
    /// up to tenths of a second. The peer returns up to 16 bytes of `context`. Returns false, and sends nothing, unless
    /// the connection is open and both sides have 3.1.
    #[must_use]
    pub fn ping(&mut self, ttl: Option<Duration>, context: &[u8], out: &mut Outbox) -> bool {
        let can_ping = self.is_open() && self.version >= Version::V3_1;
        if can_ping {
            let (ttl, context) = command::ping(ttl, context);
            self.put_command(Name::Ping, &[&ttl, context], out);
        }
        can_ping
    }
}
