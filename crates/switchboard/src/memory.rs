//! Memory budget: bytes that a server holds for all peers together, and restrictions when they approach the
//! limit.
//!
//! Each connection tracks the bytes that it holds: replies that its peer has not read, requests and queues of
//! parked calls, partially received messages. It reports changes to the [`Account`] at the end of a turn,
//! with one relaxed atomic. A connection that holds nothing between its turns, which is the usual case, never
//! accesses the account. The total, compared with marks of `memory_bytes_max`, determines the restrictions of
//! connections in their next turn:
//!
//! - From 80 %, connections that hold more than the *line* are not read, and their streams wait. The line
//!   falls from 1 MiB to 16 KiB, so that the connections that hold the most stop first.
//! - From 90 %, calls are rejected whose method or message is known to be large; on the native wire, large
//!   messages are rejected before they are read.
//! - At 100 %, all calls are rejected and streams wait. A connection in the middle of a large message is
//!   closed if its wire cannot reject the message.
//!
//! Between the marks, small calls of other peers are served. No notification is needed when memory is
//! available again: the bytes of a connection shrink when its peer reads or its handlers end, which wakes its
//! task anyway, and stopped connections check again at intervals. If their peer has no replies to read, they
//! also read a little then, to receive cancellations, keepalives and the end of the connection.

use crate::{Flag, Retry, Status};
#[cfg(feature = "auth")]
use std::sync::Arc;
use std::{
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    time::Duration,
};
use switchboard_wire::MethodId;

/// Initial value of the line.
const MOST: usize = 1 << 20;
/// Final value of the line: a connection that holds no more is always read, and smaller messages are accepted
/// for longer. The buffer of a connection is four times as large.
pub(crate) const LARGE: usize = 16 << 10;
/// Number of times that the line is halved between [`MOST`] and [`LARGE`].
const HALVINGS: usize = 6;
/// Retry delay for rejected callers, and the interval at which stopped connections check again: short for a
/// person, and cheap for ten thousand connections.
pub(crate) const PAUSE: Duration = Duration::from_millis(250);

/// Bytes that all connections of a server hold.
#[derive(Debug)]
pub(crate) struct Account {
    /// The limit `memory_bytes_max`.
    max: Flag,
    held: AtomicUsize,
    /// Connections that are not read now.
    paused: AtomicUsize,
    pauses: AtomicU64,
    refused: AtomicU64,
    dropped: AtomicU64,
    cut: AtomicU64,
    /// Bytes that a recent call held, by method, if they were above [`LARGE`].
    sizes: Box<[AtomicU32]>,
}

/// Statistics of a server's memory budget, `memory_bytes_max`.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Bytes that the server currently holds for its peers.
    pub held: u64,
    /// The limit; 0 if there is none.
    pub max: u64,
    /// Connections that are currently not read, because they hold much.
    pub paused: u64,
    /// Number of times that a connection stopped being read.
    pub pauses: u64,
    /// Rejected calls.
    pub refused: u64,
    /// Replies that were dropped because there was no memory for them.
    pub dropped: u64,
    /// Connections closed in the middle of a large message.
    pub cut: u64,
}

/// Memory pressure.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Level {
    /// Below every mark.
    Calm,
    /// Connections that hold the most are not read.
    Tight,
    /// Large calls are rejected.
    Hard,
    /// All calls are rejected.
    Full,
}

/// Restrictions of a connection in one turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) level: Level,
    /// A connection that holds more bytes is not read.
    pub(crate) line: usize,
    /// Maximum size of a reply.
    pub(crate) left: usize,
}

impl Room {
    pub(crate) const CALM: Room = Room { level: Level::Calm, line: usize::MAX, left: usize::MAX };
}

/// Bytes charged to an account until this is dropped; for data that outlives its call.
#[cfg(feature = "auth")]
#[derive(Debug)]
pub(crate) struct MemoryCharge {
    /// `None` for callers in this process, whose data is not charged.
    account: Option<Arc<Account>>,
    bytes: usize,
}

#[cfg(feature = "auth")]
impl MemoryCharge {
    pub(crate) fn new(account: Option<Arc<Account>>, bytes: usize) -> MemoryCharge {
        if let Some(account) = &account {
            account.change(0, bytes);
        }
        MemoryCharge { account, bytes }
    }
}

#[cfg(feature = "auth")]
impl Drop for MemoryCharge {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.change(self.bytes, 0);
        }
    }
}

impl Account {
    /// Creates an empty account for a server with this number of methods.
    pub(crate) fn new(max: Flag, methods: usize) -> Account {
        Account {
            max,
            held: AtomicUsize::new(0),
            paused: AtomicUsize::new(0),
            pauses: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            sizes: (0..methods).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Returns the restrictions of a connection. One that is `paused` resumes at lower marks than those at
    /// which it stopped.
    #[inline]
    pub(crate) fn room(&self, paused: bool) -> Room {
        let (max, held) = (self.max.value() as usize, self.held.load(Relaxed));
        if max == 0 || held < max / 100 * if paused { 70 } else { 80 } {
            return Room::CALM;
        }
        Account::scarce(held, max, paused)
    }

    #[cold]
    fn scarce(held: usize, max: usize, paused: bool) -> Room {
        let (tight, hard) = (max / 100 * 80, max / 100 * 90);
        let step = ((hard - tight) / HALVINGS).max(1);
        let line = MOST >> (held.saturating_sub(tight) / step).min(HALVINGS);
        let level = match held {
            _ if held >= max => Level::Full,
            _ if held >= hard => Level::Hard,
            _ => Level::Tight,
        };
        let line = if paused { line / 2 } else { line };
        Room { level, line, left: max.saturating_sub(held).max(LARGE) }
    }

    /// Replaces the charge of a connection, `before`, by `now`.
    pub(crate) fn change(&self, before: usize, now: usize) {
        if now > before {
            self.held.fetch_add(now - before, Relaxed);
        } else {
            self.held.fetch_sub(before - now, Relaxed);
        }
    }

    /// Counts a connection that stops or resumes being read.
    pub(crate) fn pause(&self, paused: bool) {
        if paused {
            self.paused.fetch_add(1, Relaxed);
            self.pauses.fetch_add(1, Relaxed);
        } else {
            self.paused.fetch_sub(1, Relaxed);
        }
    }

    /// Records that a call of this method held more than [`LARGE`].
    #[cold]
    pub(crate) fn note(&self, method: MethodId, bytes: usize) {
        let (size, bytes) = (self.size(method), u32::try_from(bytes).unwrap_or(u32::MAX));
        if size.load(Relaxed) < bytes {
            size.store(bytes, Relaxed);
        }
    }

    /// Records that a call of this method held little while memory was short; after several such calls the
    /// method no longer counts as large.
    #[cold]
    pub(crate) fn note_small(&self, method: MethodId) {
        let size = self.size(method);
        let known = size.load(Relaxed);
        if known > 0 {
            size.store(known - known.div_ceil(8), Relaxed);
        }
    }

    /// Returns the entry of a method; undeclared methods share the last entry.
    fn size(&self, method: MethodId) -> &AtomicU32 {
        &self.sizes[usize::from(method.0).min(self.sizes.len() - 1)]
    }

    /// Returns the error if a call must be rejected at this level; `request` is its length in bytes.
    #[cold]
    pub(crate) fn refuses(&self, level: Level, method: MethodId, request: usize) -> Option<Status> {
        let usual = self.size(method).load(Relaxed) as usize;
        let what = match level {
            Level::Full => "call",
            Level::Hard if usual > LARGE => "call of this method, whose replies are large",
            Level::Hard if request > LARGE => "large request",
            _ => return None,
        };
        self.refused.fetch_add(1, Relaxed);
        Some(self.exhausted(&format!("no room for a further {what}")).with_retry(Retry::After(PAUSE)))
    }

    /// Returns the error for a call whose reply does not fit.
    #[cold]
    pub(crate) fn drops(&self, reply: usize) -> Status {
        self.dropped.fetch_add(1, Relaxed);
        self.exhausted(&format!("no room for the reply of {reply} bytes")).with_retry(Retry::IfIdempotent)
    }

    /// Returns the error for a peer that is in the middle of a large message while there is no memory for its
    /// rest.
    #[cold]
    pub(crate) fn cuts(&self) -> Status {
        self.cut.fetch_add(1, Relaxed);
        self.exhausted("no room for the rest of a message")
    }

    /// Returns the error for the caller of a large request while there is no memory for its rest.
    #[cfg(feature = "http")]
    #[cold]
    pub(crate) fn refuses_rest(&self) -> Status {
        self.refused.fetch_add(1, Relaxed);
        self.exhausted("no room for the rest of a large request").with_retry(Retry::After(PAUSE))
    }

    fn exhausted(&self, what: &str) -> Status {
        let (held, max) = (self.held.load(Relaxed), self.max.text());
        Status::resource_exhausted(format!(
            "{what}: this server holds {held} bytes of {max} for its peers (memory_bytes_max)"
        ))
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        MemoryStats {
            held: self.held.load(Relaxed) as u64,
            max: self.max.value(),
            paused: self.paused.load(Relaxed) as u64,
            pauses: self.pauses.load(Relaxed),
            refused: self.refused.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            cut: self.cut.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Code, limits::Unit};

    const METHOD: MethodId = MethodId(0);
    const MIB: usize = 1 << 20;

    fn account(max: u64) -> Account {
        Account::new(Flag::new("memory_bytes_max", Unit::Bytes, max, 0..=1 << 40, "test"), 1)
    }

    #[test]
    fn line_falls_between_the_marks() {
        let account = account(100 << 20);
        let mut held = 0;
        for (now, level, line) in [
            (79, Level::Calm, usize::MAX),
            (80, Level::Tight, MIB),
            (85, Level::Tight, 128 << 10),
            (89, Level::Tight, 32 << 10),
            (90, Level::Hard, LARGE),
            (99, Level::Hard, LARGE),
            (100, Level::Full, LARGE),
            (300, Level::Full, LARGE),
        ] {
            account.change(held * MIB, now * MIB);
            held = now;
            let room = account.room(false);
            assert_eq!((room.level, room.line), (level, line), "{now} %");
        }
        assert_eq!(account.room(false).left, LARGE);
        // A paused connection resumes later.
        account.change(held * MIB, 75 * MIB);
        assert_eq!(account.room(false).level, Level::Calm);
        assert_eq!((account.room(true).level, account.room(true).line), (Level::Tight, MIB / 2));
        account.change(75 * MIB, 69 * MIB);
        assert_eq!(account.room(true).level, Level::Calm);
        // Zero means no limit.
        let account = self::account(0);
        account.change(0, 1 << 40);
        assert_eq!(account.room(false).level, Level::Calm);
    }

    #[test]
    fn large_calls_are_refused_first() {
        let account = account(100 << 20);
        assert!(account.refuses(Level::Tight, METHOD, MIB).is_none());
        assert!(account.refuses(Level::Hard, METHOD, 100).is_none());
        let status = account.refuses(Level::Hard, METHOD, MIB).unwrap();
        assert_eq!((status.code(), status.retry()), (Code::ResourceExhausted, Retry::After(PAUSE)));
        assert!(status.message().contains("of 100MiB for its peers (memory_bytes_max)"), "{status}");
        account.note(METHOD, MIB);
        assert!(account.refuses(Level::Hard, METHOD, 100).is_some());
        for _ in 0..40 {
            account.note_small(METHOD);
        }
        assert!(account.refuses(Level::Hard, METHOD, 100).is_none());
        assert!(account.refuses(Level::Full, METHOD, 0).is_some());
        assert_eq!(account.stats().refused, 3);
    }
}
