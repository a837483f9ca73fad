//! Input of a server connection: reads, the calls and events in their bytes, and the end of reading.

use super::{Connection, RELEASE_AFTER, Read};
use crate::driver::calls::Stage;
use std::{
    sync::atomic::Ordering,
    task::{Context, Poll},
};
use switchboard_core::{clock::after, compression::Message, runtime};
use switchboard_guard::guard::BatchScope;
use switchboard_net::net;
use switchboard_wire::{
    Metadata,
    wire::{Encoding, Head, Opened, ServerEvent, ServerWire},
};

/// Number of input units between two checks of the turn's time.
const UNITS: u32 = 16;

impl<W: ServerWire> Connection<W> {
    /// Reads once and handles the bytes.
    pub(super) fn read(&mut self, cx: &mut Context<'_>) -> Read {
        if !self.state.reads() {
            return Read::Over;
        }
        if self.is_full() {
            return self.pause_reads();
        }
        if self.held {
            self.handle_input();
            return if self.state.reads() { Read::Some } else { Read::Over };
        }
        if self.lacks_room() {
            return self.close_for_memory();
        }
        match self.input.poll_read(&mut *self.io, cx) {
            Poll::Pending => Read::Blocked,
            Poll::Ready(Ok(n)) if n > 0 => {
                self.now = switchboard_core::clock::now();
                self.keepalive.received(self.now);
                self.shared.metrics.received(self.shard, self.counted.1, n);
                runtime::traffic(self.now);
                self.handle_input();
                self.end_read_once();
                if self.state.reads() { Read::Some } else { Read::Over }
            }
            Poll::Ready(_) => {
                self.close_read();
                Read::Over
            }
        }
    }

    /// Reads nothing until there is room. Detects within a second that the peer has closed its side, once the outbox is
    /// empty; the calls then end as at the end of the peer's bytes.
    #[cold]
    fn pause_reads(&mut self) -> Read {
        if self.calls.len() > 0 && self.out.is_empty() {
            if self.io.is_read_closed() {
                self.close_read();
                return Read::Over;
            }
            self.timer.wake_by(after(self.now, RELEASE_AFTER));
        }
        Read::Held
    }

    /// Handles whole units of the input while the outbox has room and the turn lasts.
    pub(super) fn handle_input(&mut self) {
        let mut input = self.input.take();
        self.held = false;
        self.out.adopt(net::lend);
        let batch = BatchScope::begin();
        let (mut handled, mut spent) = (0, false);
        loop {
            while !self.is_full()
                && !spent
                && let Some(Opened { id, method, codec, replies, timeout, len }) =
                    self.wire.next_call(&mut input)
            {
                let (encoding, metadata) = (Encoding::Identity, Metadata::new());
                let (undeclared_name, oneway) = (None, false);
                let head =
                    Head { method, undeclared_name, codec, encoding, replies, timeout, metadata, oneway };
                self.open(id, head, Some(input.take(len)), false);
                spent = self.has_spent(&mut handled);
            }
            if self.is_full() || spent {
                self.held = true;
                self.close_clock_batch();
                break;
            }
            match self.wire.recv(&mut input, &mut self.out) {
                Ok(Some(event)) => {
                    self.unclocked += 1;
                    self.event(event);
                    spent = self.has_spent(&mut handled);
                }
                Ok(None) => {
                    self.close_clock_batch();
                    break;
                }
                Err(fatal) => {
                    self.close_clock_batch();
                    self.shared.metrics.protocol_errors.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(peer = %self.peer.address, wire = self.wire.name(), "closed: {fatal}");
                    self.wire.drain(&fatal.to_string(), &mut self.out);
                    self.discard_input();
                    break;
                }
            }
        }
        drop(batch);
        self.input.put_back(input);
    }

    /// Returns whether the turn has used up its time, estimated by the number of input units handled in it.
    #[inline]
    fn has_spent(&mut self, handled: &mut u32) -> bool {
        *handled += 1;
        if *handled < UNITS {
            return false;
        }
        *handled = 0;
        if self.unclocked > 0 {
            self.tick();
        }
        self.is_over()
    }

    /// Reads the clock for input units that do not read it themselves.
    fn tick(&mut self) {
        self.unclocked = 0;
        match self.clock_batch {
            Some(_) => self.close_clock_batch(),
            None => self.now = switchboard_core::clock::now(),
        }
    }

    #[inline]
    fn event(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Open { id, head, first, compressed: false, more } => {
                self.open(id, head, first, more);
            }
            ServerEvent::Open { id, head, first, compressed: true, more } => {
                self.open_compressed(id, head, first, more);
            }
            ServerEvent::Item { id, item, compressed } => {
                self.item(id, Message { bytes: item, compressed, codec: None });
            }
            ServerEvent::HalfClose { id } => {
                if let Some(queue) = self.inbound(id) {
                    queue.finish(Ok(Metadata::new()));
                }
            }
            ServerEvent::Cancel { id } => {
                if let Some(index) = self.calls.find(id) {
                    self.forget(index);
                }
            }
            ServerEvent::Credit { id, bytes } => {
                let Some(index) = self.calls.find(id) else { return };
                let Some(parked) = self.calls.get_mut(index) else { return };
                parked.credit = parked.credit.saturating_add(i64::from(bytes));
                if let Stage::Replies { .. } = parked.stage {
                    self.poll_call(index);
                }
            }
            ServerEvent::Resume { id } => {
                if let Some(index) = self.calls.find(id)
                    && let Some(parked) = self.calls.get_mut(index)
                    && let Stage::Replies { .. } = parked.stage
                {
                    self.poll_call(index);
                }
            }
            ServerEvent::Refused { id, status } => {
                if let Some(index) = self.calls.find(id) {
                    self.forget(index);
                }
                self.wire.end(id, Err(&status), &mut self.out);
            }
            ServerEvent::Pong | ServerEvent::Handled => {}
            ServerEvent::Closed => self.close_read(),
        }
    }
}
