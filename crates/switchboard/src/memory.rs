//! What peers make a server hold, all connections together, and what is done when it gets too much.
//!
//! Each connection knows what it holds: replies that its peer has not read, requests and queues of calls that wait,
//! messages that have come in part. It tells the [`Account`] of changes at the end of a turn, with one relaxed atomic;
//! one that holds nothing between its turns, which is the usual case, never touches it. What the account has decides,
//! by marks of `memory_bytes_max`, what connections do in their next turn:
//!
//! - From 80 %, connections that hold more than the *line* are not read, and their streams wait. The line falls from
//!   1 MiB to 16 KiB, so that the greediest stop first.
//! - From 90 %, calls are refused whose method or message is known to be large; on the native wire, large messages
//!   before they are read.
//! - At 100 %, all calls are refused and streams wait; who is in the middle of a large message on a wire that cannot
//!   refuse it is cut off.
//!
//! Between the marks small calls of other peers are served. Nobody has to be told when there is room again: what a
//! connection holds shrinks when its peer reads or its handlers end, which wakes it anyway; and those that were stopped
//! look again now and then. They also read a little then, if their peer has no replies to read: for cancellations,
//! signs of life, and their end.

use crate::{Flag, Retry, Status};
use std::{
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    time::Duration,
};
use switchboard_wire::MethodId;

/// The line where it begins to fall.
const MOST: usize = 1 << 20;
/// Who holds no more is always read; smaller messages are let through for longer. The room of a connection's buffer is
/// four times that.
pub(crate) const LARGE: usize = 16 << 10;
/// Times that the line is halved on its way from [`MOST`] to [`LARGE`].
const HALVINGS: usize = 6;
/// When refused callers are to come back, and connections that were stopped look again: soon for a person, and cheap
/// for ten thousand connections.
pub(crate) const PAUSE: Duration = Duration::from_millis(250);

/// What all connections of a server hold.
pub(crate) struct Account {
    /// `memory_bytes_max`.
    max: Flag,
    held: AtomicUsize,
    /// Connections that are not read now.
    paused: AtomicUsize,
    pauses: AtomicU64,
    refused: AtomicU64,
    dropped: AtomicU64,
    cut: AtomicU64,
    /// By method: what one of its calls made us hold lately, if that was large.
    sizes: Box<[AtomicU32]>,
}

/// What a server counted of its memory budget, `memory_bytes_max`.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Bytes that peers make the server hold now.
    pub held: u64,
    /// The limit; 0 if there is none.
    pub max: u64,
    /// Connections that are not read now, because they hold much.
    pub paused: u64,
    /// Times that a connection was not read any more.
    pub pauses: u64,
    /// Calls refused.
    pub refused: u64,
    /// Replies that found no room when they were made.
    pub dropped: u64,
    /// Connections cut off in the middle of a large message.
    pub cut: u64,
}

/// How scarce room is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Level {
    /// Under every mark.
    Calm,
    /// The greediest are not read.
    Tight,
    /// Large calls are refused.
    Hard,
    /// All calls are refused.
    Full,
}

/// What a connection may do in one turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) level: Level,
    /// A connection that holds more is not read.
    pub(crate) line: usize,
    /// The largest reply that still fits.
    pub(crate) left: usize,
}

impl Room {
    pub(crate) const CALM: Room = Room { level: Level::Calm, line: usize::MAX, left: usize::MAX };
}

impl Account {
    /// An account of nothing, for a server with so many methods.
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

    /// What a connection may do now; one that is `paused` goes on at lower marks than those where it stopped.
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

    /// A connection holds this now, and was said to hold `before`.
    pub(crate) fn change(&self, before: usize, now: usize) {
        if now > before {
            self.held.fetch_add(now - before, Relaxed);
        } else {
            self.held.fetch_sub(before - now, Relaxed);
        }
    }

    /// A connection is not read any more, or is again.
    pub(crate) fn pause(&self, paused: bool) {
        if paused {
            self.paused.fetch_add(1, Relaxed);
            self.pauses.fetch_add(1, Relaxed);
        } else {
            self.paused.fetch_sub(1, Relaxed);
        }
    }

    /// Notes that a call of this method made us hold more than [`LARGE`].
    #[cold]
    pub(crate) fn note(&self, method: MethodId, bytes: usize) {
        let (size, bytes) = (self.size(method), u32::try_from(bytes).unwrap_or(u32::MAX));
        if size.load(Relaxed) < bytes {
            size.store(bytes, Relaxed);
        }
    }

    /// Notes that one made us hold little, while room is scarce: some more, and the method is no large one.
    #[cold]
    pub(crate) fn note_small(&self, method: MethodId) {
        let size = self.size(method);
        let known = size.load(Relaxed);
        if known > 0 {
            size.store(known - known.div_ceil(8), Relaxed);
        }
    }

    /// That of a method; learned ones share the last.
    fn size(&self, method: MethodId) -> &AtomicU32 {
        &self.sizes[usize::from(method.0).min(self.sizes.len() - 1)]
    }

    /// Why a call is not begun at this level, if it is not; `request` is its length in bytes.
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

    /// The end of a call whose reply does not fit.
    #[cold]
    pub(crate) fn drops(&self, reply: usize) -> Status {
        self.dropped.fetch_add(1, Relaxed);
        self.exhausted(&format!("no room for the reply of {reply} bytes")).with_retry(Retry::IfIdempotent)
    }

    /// What a peer is told that sends a large message in part while there is no room.
    #[cold]
    pub(crate) fn cuts(&self) -> Status {
        self.cut.fetch_add(1, Relaxed);
        self.exhausted("no room for the rest of a message")
    }

    /// What the caller of a large request is told of which there is no room for the rest.
    #[cfg(feature = "http")]
    #[cold]
    pub(crate) fn refuses_rest(&self) -> Status {
        self.refused.fetch_add(1, Relaxed);
        self.exhausted("no room for the rest of a large request").with_retry(Retry::After(PAUSE))
    }

    fn exhausted(&self, what: &str) -> Status {
        let (held, max) = (self.held.load(Relaxed), self.max.text());
        Status::resource_exhausted(format!(
            "{what}: peers make this server hold {held} bytes of {max} (memory_bytes_max)"
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
        // Who stopped goes on later.
        account.change(held * MIB, 75 * MIB);
        assert_eq!(account.room(false).level, Level::Calm);
        assert_eq!((account.room(true).level, account.room(true).line), (Level::Tight, MIB / 2));
        account.change(75 * MIB, 69 * MIB);
        assert_eq!(account.room(true).level, Level::Calm);
        // No limit.
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
        assert!(status.message().contains("of 100MiB (memory_bytes_max)"), "{status}");
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
