//! The task of an open connection.
//!
//! A turn writes what waits with one system call and reads up to 64 KiB with another. The connection is not read while
//! the lane of its peer is full, so a slow receiver slows its senders by the flow control of the transport.

use super::{handshake::HandshakeResult, seal::Sealer, watch::Activity};
use crate::{
    Message,
    core::{Attached, Batch, Command, Core},
};
use bytes::Bytes;
use std::{
    io::IoSlice,
    mem,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
};
use switchboard_core::{clock, runtime};
use switchboard_net::net::{self, Io};
use switchboard_wire::{
    Input, Outbox,
    zmtp::{Connection, Event},
};
use tokio::io::AsyncReadExt;

/// Turns after which other tasks of the thread run.
const TURNS_MAX: usize = 16;
/// Bytes read after which other tasks of the thread run. Connections that are read in long turns drain one after the
/// other: a publisher that waits for the slowest one then waits for each of them.
const READ_BYTES_MAX: usize = 64 << 10;
/// Parts of a vectored write.
const PARTS_MAX: usize = 64;
/// Messages that one turn takes from the input at most.
const MESSAGES_MAX: usize = 4096;
/// Room in a buffer below which a read is not worth a system call, in bytes.
const ROOM_MIN: usize = 8 << 10;
/// Small payloads of shorter reads are copied, so that a kept message does not keep a buffer of 64 KiB.
const SHARED_READ_MIN: usize = 4 << 10;
/// PINGs and PONGs that wait to be written, at which the connection is not read and sends no further PING. A peer that
/// does not read would add a PONG with each of its PINGs.
const KEEPALIVES_MAX: u32 = 64;
/// PINGs of a peer in one second; a peer that sends more is closed.
const PINGS_MAX: u32 = 20;

/// An open connection.
pub(crate) struct Link {
    core: Arc<Core>,
    io: Box<dyn Io>,
    machine: Connection,
    attached: Attached,
    activity: Arc<Activity>,
    input: Input,
    /// The input may have a complete frame.
    has_input: bool,
    /// Frames of the incomplete message, and complete messages on their way to the lane.
    frames: Vec<Bytes>,
    messages: Vec<Message>,
    /// Commands of this side, after the hello message.
    out: Outbox,
    /// PINGs and PONGs that were added to `out` since it was last empty.
    keepalives: u32,
    batch: Batch,
    /// Bytes of the batch were written: it is written to its end before anything else.
    is_batch_begun: bool,
    /// Messages and bytes that were written since the last visit of the socket.
    written: (usize, usize),
    /// Encrypts the batch into `out`, for CURVE.
    sealer: Option<Box<Sealer>>,
    is_flushed: bool,
    /// The socket closes, or the endpoint was stopped.
    is_closing: bool,
    /// Bytes that were read since the last poll began.
    read_bytes: usize,
    pings: (u64, u32),
}

impl Link {
    pub(crate) fn new(
        core: Arc<Core>,
        io: Box<dyn Io>,
        mut handshake: HandshakeResult,
        attached: Attached,
        activity: Arc<Activity>,
    ) -> Link {
        let mut out = Outbox::new();
        if let Some(hello) = &core.options.notices.hello {
            // Not in the queue: unsent messages are kept for the next connection, which has a hello message of its own.
            let _ = handshake.machine.send([hello], &mut out);
        }
        let sealer = handshake.machine.is_sealed().then(Box::default);
        Link {
            core,
            io,
            machine: handshake.machine,
            attached,
            activity,
            input: handshake.input,
            has_input: true,
            frames: Vec::new(),
            messages: Vec::new(),
            out,
            keepalives: 0,
            batch: Batch::default(),
            is_batch_begun: false,
            written: (0, 0),
            sealer,
            is_flushed: false,
            is_closing: false,
            read_bytes: 0,
            pings: (0, 0),
        }
    }

    /// Returns true if the connection ended because the socket closes and everything is written.
    pub(crate) fn is_flushed(&self) -> bool {
        self.is_flushed
    }

    /// Returns true if the socket closes, or the endpoint was stopped.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Returns the number of PINGs and PONGs that wait, those counted that were written since `out` was last empty.
    #[cfg(test)]
    pub(super) fn waiting_keepalives(&self) -> u32 {
        self.keepalives
    }

    pub(crate) fn into_parts(self) -> (Box<dyn Io>, Batch) {
        (self.io, self.batch)
    }

    /// Writes and reads until neither makes progress; returns the reason for which the connection ends.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        self.read_bytes = 0;
        for _ in 0..TURNS_MAX {
            if self.read_bytes >= READ_BYTES_MAX {
                break;
            }
            let turn = self.write(cx).and_then(|wrote| Ok(self.read(cx)? || wrote));
            match turn {
                Ok(_) if self.is_flushed => return Poll::Ready("the socket was closed".to_owned()),
                Ok(true) => {}
                Ok(false) => return Poll::Pending,
                Err(reason) => return Poll::Ready(reason),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes; returns true if bytes were written.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, String> {
        let mut has_written = false;
        loop {
            if self.batch.is_empty() && self.out.is_empty() && !self.visit(cx)? {
                return Ok(has_written);
            }
            if let Some(sealer) = self.sealer.as_mut().filter(|_| self.out.is_empty()) {
                sealer.seal(&self.batch, &mut self.machine, &mut self.out)?;
            }
            let is_command = !self.is_batch_begun && !self.out.is_empty();
            let bytes = if is_command { &self.out } else { &self.batch.bytes };
            let mut parts = [IoSlice::new(&[]); PARTS_MAX];
            let filled = bytes.fill(&mut parts);
            match net::poll_write_parts(&mut *self.io, cx, &parts[..filled]) {
                Poll::Pending => {
                    // Commands are taken, and an abort ends the connection, even if the peer does not read.
                    self.visit(cx)?;
                    return Ok(has_written);
                }
                Poll::Ready(Ok(0)) => return Err("write: the connection takes no bytes".to_owned()),
                Poll::Ready(Ok(written)) => {
                    has_written = true;
                    if is_command {
                        self.out.advance(written);
                        if let Some(sealer) = &mut self.sealer {
                            let (messages, bytes) = sealer.written(written, &mut self.batch);
                            self.written = (self.written.0 + messages, self.written.1 + bytes);
                        }
                        if self.out.is_empty() {
                            self.keepalives = 0;
                        }
                    } else {
                        self.written.0 += self.batch.written(written);
                        self.written.1 += written;
                        self.is_batch_begun = !self.batch.is_empty();
                    }
                }
                Poll::Ready(Err(error)) => return Err(format!("write: {error}")),
            }
        }
    }

    /// Visits the socket; returns true if there is something to write.
    fn visit(&mut self, cx: &mut Context<'_>) -> Result<bool, String> {
        let written = mem::take(&mut self.written);
        let duties = self.core.exchange(self.attached.id, written, &mut self.batch, cx.waker());
        self.is_closing = duties.is_closing;
        if let Some(reason) = duties.abort {
            return Err(reason);
        }
        for command in duties.commands {
            self.command(&command);
        }
        if !self.batch.is_empty() || !self.out.is_empty() {
            return Ok(true);
        }
        self.is_flushed = duties.is_closing;
        self.batch.release();
        if let Some(tail) = self.out.release() {
            net::take_back(tail);
        }
        Ok(false)
    }

    fn command(&mut self, command: &Command) {
        let (machine, out) = (&mut self.machine, &mut self.out);
        // Each returns false for a connection that is closed, or for a peer of 3.0, which has no PING.
        let _ = match command {
            Command::Cancel(topic) => machine.cancel(topic, out),
            Command::Join(group) => machine.join(group, out),
            Command::Leave(group) => machine.leave(group, out),
            Command::Ping if self.keepalives >= KEEPALIVES_MAX => false,
            Command::Ping => {
                let is_sent = machine.ping(self.core.options.heartbeats.ttl, &[], out);
                self.keepalives += u32::from(is_sent);
                is_sent
            }
            Command::Subscribe(topic) => machine.subscribe(topic, out),
        };
    }

    /// Reads and delivers messages; returns true if there was progress.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, String> {
        // Above the limit a write waits, and the task is woken once the peer reads.
        if self.is_flushed || self.keepalives >= KEEPALIVES_MAX {
            return Ok(false);
        }
        if !self.has_input && !self.fill(cx)? {
            return Ok(false);
        }
        let room = self.attached.lane.room_or_wake(cx.waker()).min(MESSAGES_MAX);
        if room == 0 {
            return Ok(false);
        }
        let result = self.parse(room);
        if !self.messages.is_empty() {
            let pushed = self.attached.lane.extend(&mut self.messages);
            self.core.inbox.arrived(&self.attached.lane, pushed);
        }
        result.map(|()| true)
    }

    /// Reads bytes; returns false if there are none.
    fn fill(&mut self, cx: &mut Context<'_>) -> Result<bool, String> {
        let mut buffer = mem::take(&mut self.input).into_buffer();
        if buffer.is_empty() {
            net::take_back(mem::replace(&mut buffer, net::lend()));
        } else if buffer.capacity() - buffer.len() < ROOM_MIN {
            buffer.reserve(net::BUFFER_BYTES);
        }
        let read = pin!(self.io.read_buf(&mut buffer)).poll(cx);
        match read {
            Poll::Pending => {
                if buffer.is_empty() {
                    net::take_back(buffer);
                    self.messages = Vec::new();
                } else {
                    self.input = Input::new(buffer);
                }
                Ok(false)
            }
            Poll::Ready(Ok(0)) => Err("the peer closed the connection".to_owned()),
            Poll::Ready(Ok(read)) => {
                runtime::traffic(clock::now());
                self.read_bytes += read;
                self.activity.record();
                self.input = Input::new(buffer).sharing(read >= SHARED_READ_MIN);
                self.has_input = true;
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(format!("read: {error}")),
        }
    }

    /// Takes up to `room` messages from the input.
    fn parse(&mut self, room: usize) -> Result<(), String> {
        while self.messages.len() < room && self.keepalives < KEEPALIVES_MAX {
            let event = self.machine.recv(&mut self.input, &mut self.out);
            match event.map_err(|error| error.message().to_owned())? {
                Some(Event::Frame { body, more: false }) if self.frames.is_empty() => {
                    self.messages.push(Message::from(body));
                }
                Some(Event::Frame { body, more }) => {
                    self.frames.push(body);
                    if !more {
                        self.messages.push(Message::from(mem::take(&mut self.frames)));
                    }
                }
                Some(event) => self.event(event)?,
                None => {
                    self.has_input = false;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Processes an event that is no part of a message. The names that the socket keeps are copied: slices would keep
    /// the whole read buffer for as long as the subscription.
    fn event(&mut self, event: Event) -> Result<(), String> {
        let id = self.attached.id;
        match event {
            Event::Cancel(topic) => self.messages.extend(self.core.cancelled(id, topic)),
            Event::Join(group) => self.core.joined(id, Bytes::copy_from_slice(&group))?,
            Event::Leave(group) => self.core.left(id, &group),
            Event::Ping { ttl } => {
                self.activity.set_ttl(ttl);
                // The machine has added the PONG.
                self.keepalives += 1;
                self.count_ping()?;
            }
            Event::Subscribe(topic) => {
                let topic = Bytes::copy_from_slice(&topic);
                self.messages.extend(self.core.subscribed(id, topic)?);
            }
            Event::ClientKey(_)
            | Event::Credentials(_)
            | Event::Frame { .. }
            | Event::Pong(_)
            | Event::Ready(_) => {}
        }
        Ok(())
    }

    fn count_ping(&mut self) -> Result<(), String> {
        let second = clock::now_ns() / 1_000_000_000;
        let (last, count) = &mut self.pings;
        if *last != second {
            (*last, *count) = (second, 0);
        }
        *count += 1;
        if *count > PINGS_MAX {
            return Err(format!("the peer sent more than {PINGS_MAX} PINGs in a second"));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link {{ peer: {} }}", self.attached.id)
    }
}
