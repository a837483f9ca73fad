//! Writing to subscribers: write passes over a broadcast buffer, and the outboxes of single subscribers.

use crate::{
    broadcast_buffer::BroadcastBuffer,
    close_reason::CloseReason,
    subscriber::{BLOCKED, CLOSING, Feed, LAGGED, LINGERING, READ_STOPPED, SubscriberId, WRITE_QUEUED},
    subscribers::{BufferId, Pass, Subscribers},
};
use std::{
    io::{self, ErrorKind, IoSlice},
    time::Instant,
};
use switchboard_core::clock;
use switchboard_wire::Outbox;

/// Parts of a vectored write.
const PARTS: usize = 64;

/// Members of a buffer that keeps no memory while it has nothing to write: there may be very many such buffers.
const MEMBERS_FEW: usize = 8;

/// Subscribers that are written between two readings of the clock.
const CLOCK_EVERY: usize = 32;

/// Result of writing to a subscriber.
enum Wrote {
    /// Everything that it has to get is written.
    All,
    /// Its socket is full.
    Full,
    /// Bytes that it had to get were dropped.
    Lagged(BufferId, u64),
    /// Its connection has ended.
    Ended(CloseReason),
}

impl Subscribers {
    /// Continues the write passes of all buffers with new bytes until `end`. Returns whether all have ended.
    pub(crate) fn write_buffers(&mut self, end: Instant) -> bool {
        while let Some(index) = self.dirty.pop_front() {
            if self.reuse_closed(index) {
                continue;
            }
            if !self.pass(index, end) {
                self.dirty.push_front(index);
                return false;
            }
            let buffer = &mut self.buffers[index as usize];
            buffer.queued = false;
        }
        true
    }

    /// Brings all members of a buffer that are not blocked to its head. Returns false if the time is over before.
    fn pass(&mut self, index: u32, end: Instant) -> bool {
        let buffer = &mut self.buffers[index as usize];
        let target = buffer.bytes.head();
        buffer.pass.get_or_insert(Pass { next: 0, target });
        let mut written = 0;
        loop {
            let buffer = &mut self.buffers[index as usize];
            let Some(pass) = &mut buffer.pass else { return true };
            let Some(member) = buffer.members.get(pass.next).copied() else {
                let Pass { target, .. } = *pass;
                buffer.pass = None;
                buffer.bytes.free(target);
                if buffer.members.len() < MEMBERS_FEW {
                    buffer.bytes.release_spare();
                }
                self.charge_buffer(index);
                let buffer = &mut self.buffers[index as usize];
                // Bytes that were appended during the pass need another one.
                if buffer.bytes.head() == target {
                    return true;
                }
                return self.pass(index, end);
            };
            // Before the write, which may remove the member.
            pass.next += 1;
            let subscriber = self.pages.at_mut(member);
            if subscriber.has(BLOCKED | LAGGED) {
                let has_lagged = |feed: &Feed| feed.buffer == index && feed.cursor < buffer.bytes.tail();
                if self.options.closes_lagged && subscriber.feeds.iter().any(has_lagged) {
                    self.remove(member, CloseReason::Lagged);
                }
                continue;
            }
            match subscriber.feeds.as_mut_slice() {
                // The usual case: one buffer, nothing else to write.
                [feed] if subscriber.outbox.is_none() => {
                    let part = buffer.bytes.part(feed.cursor);
                    if part.is_empty() && feed.cursor == buffer.bytes.head() {
                        continue;
                    }
                    match subscriber.link.write(part) {
                        Ok(n) if n == part.len() && n > 0 => {
                            feed.cursor += n as u64;
                            if feed.cursor != buffer.bytes.head() {
                                self.flush(member);
                            }
                        }
                        Ok(n) => {
                            feed.cursor += n as u64;
                            keep_rest(feed, &buffer.bytes, &mut subscriber.outbox);
                            self.flush(member);
                        }
                        Err(_) => self.flush(member),
                    }
                }
                _ => self.flush(member),
            }
            written += 1;
            if written % CLOCK_EVERY == 0 && clock::now() >= end {
                return false;
            }
        }
    }

    /// Writes the outboxes of the queued subscribers until `end`. Returns whether all are written or blocked.
    pub(crate) fn write_outboxes(&mut self, end: Instant) -> bool {
        let mut written = 0;
        while let Some(index) = self.to_write.pop_front() {
            let subscriber = self.pages.at_mut(index);
            subscriber.flags &= !WRITE_QUEUED;
            if !subscriber.has(BLOCKED | LAGGED) {
                self.flush(index);
            }
            written += 1;
            if written % CLOCK_EVERY == 0 && clock::now() >= end {
                return self.to_write.is_empty();
            }
        }
        true
    }

    /// The socket of a subscriber has room again.
    pub(crate) fn unblock(&mut self, index: u32) {
        if !self.pages.at(index).has(BLOCKED) {
            return;
        }
        self.pages.at_mut(index).flags &= !BLOCKED;
        self.count_unblocked(index);
        if !self.pages.at(index).has(LAGGED) {
            self.flush(index);
        }
    }

    /// The adapter knows that the subscriber lagged: it continues, unless it was closed.
    pub(crate) fn continue_lagged(&mut self, id: SubscriberId) {
        if self.pages.get_mut(id).is_some_and(|subscriber| subscriber.has(LAGGED)) {
            self.pages.at_mut(id.index).flags &= !LAGGED;
            self.count_unblocked(id.index);
            if !self.pages.at(id.index).has(BLOCKED) {
                self.flush(id.index);
            }
        }
    }

    /// Takes back the count of a subscriber that was blocked or lagged, and is neither now.
    fn count_unblocked(&mut self, index: u32) {
        let subscriber = self.pages.at(index);
        if !subscriber.has(BLOCKED | LAGGED) {
            for feed in &subscriber.feeds {
                self.buffers[feed.buffer as usize].bytes.unblock(feed.cursor);
            }
        }
    }

    /// Marks a subscriber as blocked or lagged, and has its bytes held.
    fn hold(&mut self, index: u32, flag: u16) {
        let subscriber = self.pages.at_mut(index);
        if !subscriber.has(BLOCKED | LAGGED) {
            for feed in &subscriber.feeds {
                self.buffers[feed.buffer as usize].bytes.block(feed.cursor);
            }
        }
        subscriber.flags |= flag;
    }

    /// Writes everything that a subscriber has to get: its outbox, then its buffers.
    pub(crate) fn flush(&mut self, index: u32) {
        let had_outbox = self.pages.at(index).outbox.is_some();
        let wrote = self.write_all(index);
        let subscriber = self.pages.at_mut(index);
        if had_outbox && subscriber.outbox.is_none() {
            let resumes = subscriber.has(READ_STOPPED);
            subscriber.flags &= !READ_STOPPED;
            if let Some(id) = self.pages.id(index) {
                self.drained.push_back(id);
            }
            if resumes {
                self.queue_read(index);
            }
        }
        match wrote {
            Wrote::All if self.pages.at(index).has(CLOSING) && !self.pages.at(index).has(LINGERING) => {
                self.linger(index);
            }
            Wrote::All => {}
            Wrote::Full => self.hold(index, BLOCKED),
            Wrote::Lagged(buffer, lost) => {
                self.lagged_total = self.lagged_total.saturating_add(1);
                self.hold(index, LAGGED);
                if let Some(id) = self.pages.id(index) {
                    self.lagged.push_back((id, buffer, lost));
                }
            }
            Wrote::Ended(reason) => self.remove(index, reason),
        }
        self.charge(index);
    }

    fn write_all(&mut self, index: u32) -> Wrote {
        match self.write_outbox(index) {
            Wrote::All => {}
            other => return other,
        }
        for at in 0..self.pages.at(index).feeds.len() {
            match self.write_feed(index, at) {
                Wrote::All => {}
                other => return other,
            }
        }
        match self.pages.at_mut(index).link.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Wrote::Ended(CloseReason::Peer),
            Err(_) => Wrote::Full,
            Ok(()) => Wrote::All,
        }
    }

    fn write_outbox(&mut self, index: u32) -> Wrote {
        let subscriber = self.pages.at_mut(index);
        let Some(outbox) = &mut subscriber.outbox else { return Wrote::All };
        while !outbox.is_empty() {
            let mut parts = [IoSlice::new(&[]); PARTS];
            let filled = outbox.fill(&mut parts);
            match subscriber.link.write_parts(&parts[..filled]) {
                Ok(n) => outbox.advance(n),
                Err(error) => return not_written(&error),
            }
        }
        subscriber.outbox = None;
        Wrote::All
    }

    /// Writes one feed to the head of its buffer.
    fn write_feed(&mut self, index: u32, at: usize) -> Wrote {
        let subscriber = self.pages.at_mut(index);
        let feed = &mut subscriber.feeds[at];
        let bytes = &self.buffers[feed.buffer as usize].bytes;
        if feed.cursor < bytes.tail() {
            let (buffer, oldest) = (BufferId(feed.buffer), bytes.oldest_frame());
            let lost = oldest - feed.cursor;
            feed.cursor = oldest;
            return Wrote::Lagged(buffer, lost);
        }
        while feed.cursor < bytes.head() {
            let mut parts = [IoSlice::new(&[]); PARTS];
            let filled = bytes.fill(feed.cursor..bytes.head(), &mut parts);
            match subscriber.link.write_parts(&parts[..filled]) {
                Ok(n) => feed.cursor += n as u64,
                Err(error) => {
                    keep_rest(feed, bytes, &mut subscriber.outbox);
                    return not_written(&error);
                }
            }
        }
        Wrote::All
    }
}

/// Moves the rest of a frame that a socket took in part to the outbox. The cursor is between two frames then, so that
/// the subscriber can lag, leave the buffer and get replies like any other.
fn keep_rest(feed: &mut Feed, bytes: &BroadcastBuffer, outbox: &mut Option<Box<Outbox>>) {
    let end = bytes.frame_end(feed.cursor);
    if end != feed.cursor {
        let outbox = outbox.get_or_insert_default();
        bytes.rest_of_frame(feed.cursor).for_each(|part| outbox.chain(part));
        feed.cursor = end;
    }
}

fn not_written(error: &io::Error) -> Wrote {
    match error.kind() {
        ErrorKind::WouldBlock => Wrote::Full,
        _ => Wrote::Ended(CloseReason::Peer),
    }
}
