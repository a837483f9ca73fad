//! The task of an open connection.
//!
//! A turn writes what waits with one system call and reads up to 64 KiB with another. The connection is not read while
//! the lane of its peer is full, so a slow receiver slows its senders by the flow control of the transport.

use super::{handshake::HandshakeResult, seal::Sealer, watch::Activity};
use crate::{
    Message, PeerId,
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
    /// `None` while the time without bytes has no limit.
    activity: Option<Arc<Activity>>,
    /// `None` while nothing was read or is to be written in part: an idle connection holds no memory for it.
    buffers: Option<Box<Buffers>>,
    /// Encrypts the batch, for CURVE.
    sealer: Option<Box<Sealer>>,
    is_flushed: bool,
    /// The socket closes, or the endpoint was stopped.
    is_closing: bool,
    /// A second of the clock, modulo 2^32, and the PINGs of the peer in it.
    pings: (u32, u32),
}

/// Bytes and messages of a connection on their way.
#[derive(Debug, Default)]
struct Buffers {
    input: Input,
    /// The input may have a complete frame.
    has_input: bool,
    /// Frames of the incomplete message, and complete messages on their way to the lane.
    frames: Vec<Bytes>,
    messages: Vec<Message>,
    /// Commands of this side, after the hello message; encrypted messages for CURVE.
    out: Outbox,
    /// PINGs and PONGs that were added to `out` since it was last empty.
    keepalives: u32,
    batch: Batch,
    /// Bytes of the batch were written: it is written to its end before anything else.
    is_batch_begun: bool,
    /// Messages and bytes that were written since the last visit of the socket.
    written: (usize, usize),
    /// Bytes that were read since the last poll began.
    read_bytes: usize,
}

impl Buffers {
    /// Returns true if nothing would be lost with the buffers.
    fn is_empty(&self) -> bool {
        self.input.is_empty()
            && self.frames.is_empty()
            && self.messages.is_empty()
            && self.out.is_empty()
            && self.keepalives == 0
            && self.batch.is_empty()
            && self.written == (0, 0)
    }
}

impl Link {
    pub(crate) fn new(
        core: Arc<Core>,
        io: Box<dyn Io>,
        mut handshake: HandshakeResult,
        attached: Attached,
    ) -> Link {
        let mut out = Outbox::new();
        if let Some(hello) = &core.options.notices.hello {
            // Not in the queue: unsent messages are kept for the next connection, which has a hello message of its own.
            let _ = handshake.machine.send([hello], &mut out);
        }
        let sealer = handshake.machine.is_sealed().then(Box::default);
        let activity = core.options.heartbeats.interval.is_some().then(|| Arc::new(Activity::new()));
        let buffers = Buffers { input: handshake.input, has_input: true, out, ..Buffers::default() };
        Link {
            core,
            io,
            machine: handshake.machine,
            attached,
            activity,
            buffers: Some(Box::new(buffers)),
            sealer,
            is_flushed: false,
            is_closing: false,
            pings: (0, 0),
        }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(super) fn id(&self) -> PeerId {
        self.attached.id
    }

    /// Returns the activity of the peer if its time without bytes is limited.
    pub(super) fn activity(&self) -> Option<&Arc<Activity>> {
        self.activity.as_ref()
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
        self.buffers.as_ref().map_or(0, |buffers| buffers.keepalives)
    }

    #[cfg(test)]
    pub(super) fn has_buffers(&self) -> bool {
        self.buffers.is_some()
    }

    pub(crate) fn into_parts(self) -> (Box<dyn Io>, Batch) {
        (self.io, self.buffers.map(|buffers| buffers.batch).unwrap_or_default())
    }

    /// Writes and reads until neither makes progress; returns the reason for which the connection ends.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        let mut buffers = self.buffers.take().unwrap_or_default();
        let polled = self.turns(&mut buffers, cx);
        if !buffers.is_empty() {
            self.buffers = Some(buffers);
        }
        polled
    }

    fn turns(&mut self, buffers: &mut Buffers, cx: &mut Context<'_>) -> Poll<String> {
        buffers.read_bytes = 0;
        for _ in 0..TURNS_MAX {
            if buffers.read_bytes >= READ_BYTES_MAX {
                break;
            }
            let turn = self.write(buffers, cx).and_then(|wrote| Ok(self.read(buffers, cx)? || wrote));
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
    fn write(&mut self, buffers: &mut Buffers, cx: &mut Context<'_>) -> Result<bool, String> {
        let mut has_written = false;
        loop {
            if buffers.batch.is_empty() && buffers.out.is_empty() && !self.visit(buffers, cx)? {
                return Ok(has_written);
            }
            if let Some(sealer) = self.sealer.as_mut().filter(|_| buffers.out.is_empty()) {
                sealer.seal(&buffers.batch, &mut self.machine, &mut buffers.out)?;
            }
            let is_command = !buffers.is_batch_begun && !buffers.out.is_empty();
            let bytes = if is_command { &buffers.out } else { &buffers.batch.bytes };
            let mut parts = [IoSlice::new(&[]); PARTS_MAX];
            let filled = bytes.fill(&mut parts);
            match net::poll_write_parts(&mut *self.io, cx, &parts[..filled]) {
                Poll::Pending => {
                    // Commands are taken, and an abort ends the connection, even if the peer does not read.
                    self.visit(buffers, cx)?;
                    return Ok(has_written);
                }
                Poll::Ready(Ok(0)) => return Err("write: the connection takes no bytes".to_owned()),
                Poll::Ready(Ok(written)) => {
                    has_written = true;
                    if is_command {
                        buffers.out.advance(written);
                        if let Some(sealer) = &mut self.sealer {
                            let (messages, bytes) = sealer.written(written, &mut buffers.batch);
                            buffers.written = (buffers.written.0 + messages, buffers.written.1 + bytes);
                        }
                        if buffers.out.is_empty() {
                            buffers.keepalives = 0;
                        }
                    } else {
                        buffers.written.0 += buffers.batch.written(written);
                        buffers.written.1 += written;
                        buffers.is_batch_begun = !buffers.batch.is_empty();
                    }
                }
                Poll::Ready(Err(error)) => return Err(format!("write: {error}")),
            }
        }
    }

    /// Visits the socket; returns true if there is something to write.
    fn visit(&mut self, buffers: &mut Buffers, cx: &mut Context<'_>) -> Result<bool, String> {
        let written = mem::take(&mut buffers.written);
        let duties = self.core.exchange(self.attached.id, written, &mut buffers.batch, cx.waker());
        self.is_closing = duties.is_closing;
        if let Some(reason) = duties.abort {
            return Err(reason.into());
        }
        for command in duties.commands {
            self.command(buffers, &command);
        }
        if !buffers.batch.is_empty() || !buffers.out.is_empty() {
            return Ok(true);
        }
        self.is_flushed = duties.is_closing;
        buffers.batch.release();
        if let Some(tail) = buffers.out.release() {
            net::take_back(tail);
        }
        Ok(false)
    }

    fn command(&mut self, buffers: &mut Buffers, command: &Command) {
        let Buffers { out, keepalives, .. } = buffers;
        let machine = &mut self.machine;
        // Each returns false for a connection that is closed, or for a peer of 3.0, which has no PING.
        let _ = match command {
            Command::Cancel(topic) => machine.cancel(topic, out),
            Command::Join(group) => machine.join(group, out),
            Command::Leave(group) => machine.leave(group, out),
            Command::Ping if *keepalives >= KEEPALIVES_MAX => false,
            Command::Ping => {
                let is_sent = machine.ping(self.core.options.heartbeats.ttl, &[], out);
                *keepalives += u32::from(is_sent);
                is_sent
            }
            Command::Subscribe(topic) => machine.subscribe(topic, out),
        };
    }

    /// Reads and delivers messages; returns true if there was progress.
    fn read(&mut self, buffers: &mut Buffers, cx: &mut Context<'_>) -> Result<bool, String> {
        // Above the limit a write waits, and the task is woken once the peer reads.
        if self.is_flushed || buffers.keepalives >= KEEPALIVES_MAX {
            return Ok(false);
        }
        if !buffers.has_input && !self.fill(buffers, cx)? {
            return Ok(false);
        }
        let room = self.attached.lane.room_or_wake(cx.waker()).min(MESSAGES_MAX);
        if room == 0 {
            return Ok(false);
        }
        let result = self.parse(buffers, room);
        if !buffers.messages.is_empty() {
            let pushed = self.attached.lane.extend(&mut buffers.messages);
            self.core.inbox.arrived(&self.attached.lane, pushed);
        }
        result.map(|()| true)
    }

    /// Reads bytes; returns false if there are none.
    fn fill(&mut self, buffers: &mut Buffers, cx: &mut Context<'_>) -> Result<bool, String> {
        let mut buffer = mem::take(&mut buffers.input).into_buffer();
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
                    buffers.messages = Vec::new();
                } else {
                    buffers.input = Input::new(buffer);
                }
                Ok(false)
            }
            Poll::Ready(Ok(0)) => Err("the peer closed the connection".to_owned()),
            Poll::Ready(Ok(read)) => {
                runtime::traffic(clock::now());
                buffers.read_bytes += read;
                if let Some(activity) = &self.activity {
                    activity.record();
                }
                buffers.input = Input::new(buffer).sharing(read >= SHARED_READ_MIN);
                buffers.has_input = true;
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(format!("read: {error}")),
        }
    }

    /// Takes up to `room` messages from the input.
    fn parse(&mut self, buffers: &mut Buffers, room: usize) -> Result<(), String> {
        while buffers.messages.len() < room && buffers.keepalives < KEEPALIVES_MAX {
            let event = self.machine.recv(&mut buffers.input, &mut buffers.out);
            match event.map_err(|error| error.message().to_owned())? {
                Some(Event::Frame { body, more: false }) if buffers.frames.is_empty() => {
                    buffers.messages.push(Message::from(body));
                }
                Some(Event::Frame { body, more }) => {
                    buffers.frames.push(body);
                    if !more {
                        buffers.messages.push(Message::from(mem::take(&mut buffers.frames)));
                    }
                }
                Some(event) => self.event(buffers, event)?,
                None => {
                    buffers.has_input = false;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Processes an event that is no part of a message. The names that the socket keeps are copied: slices would keep
    /// the whole read buffer for as long as the subscription.
    fn event(&mut self, buffers: &mut Buffers, event: Event) -> Result<(), String> {
        let id = self.attached.id;
        match event {
            Event::Cancel(topic) => buffers.messages.extend(self.core.cancelled(id, topic)),
            Event::Join(group) => self.core.joined(id, Bytes::copy_from_slice(&group))?,
            Event::Leave(group) => self.core.left(id, &group),
            Event::Ping { ttl } => {
                if ttl.is_some() || self.activity.is_some() {
                    self.activity.get_or_insert_with(|| Arc::new(Activity::new())).set_ttl(ttl);
                }
                // The machine has added the PONG.
                buffers.keepalives += 1;
                self.count_ping()?;
            }
            Event::Subscribe(topic) => {
                let topic = Bytes::copy_from_slice(&topic);
                buffers.messages.extend(self.core.subscribed(id, topic)?);
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
        let second = (clock::now_ns() / 1_000_000_000) as u32;
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
