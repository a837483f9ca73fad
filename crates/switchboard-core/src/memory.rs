//! Memory budget: bytes that a server holds for all peers together, and restrictions when they approach the
//! limit.
//!
//! Each connection tracks the bytes that it holds: replies that its peer has not read, requests and queues of
//! parked calls, partially received messages. It reports changes to the [`MemoryBudget`] at the end of a turn,
//! with one relaxed atomic. A connection that holds nothing between its turns, which is the usual case, never
//! accesses the budget. The total, compared with marks of `memory_bytes_max`, determines the restrictions of
//! connections in their next turn:
//!
//! - From 80 %, connections that hold more than the *read limit* are not read, and their streams wait. The
//!   read limit falls from 1 MiB to 16 KiB, so that the connections that hold the most stop first.
//! - From 90 %, calls are rejected whose method or message is known to be large; on the native wire, large
//!   messages are rejected before they are read.
//! - At 100 %, all calls are rejected and streams wait. A connection in the middle of a large message is
//!   closed if its wire cannot reject the message.
//!
//! Between the marks, small calls of other peers are served. No notification is needed when memory is
//! available again: the bytes of a connection shrink when its peer reads or its handlers end, which wakes its
//! task anyway, and stopped connections check again at intervals. If their peer has no replies to read, they
//! also read a little then, to receive cancellations, keepalives and the end of the connection.

use crate::Flag;
#[cfg(feature = "auth")]
use std::sync::Arc;
use std::{
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    time::Duration,
};
use switchboard_wire::{MethodId, Retry, Status};

/// Initial value of the read limit.
const MOST: usize = 1 << 20;
/// Final value of the read limit: a connection that holds no more is always read, and smaller messages are
/// accepted for longer. The buffer of a connection is four times as large.
pub const LARGE: usize = 16 << 10;
/// Number of times that the read limit is halved between [`MOST`] and [`LARGE`].
const HALVINGS: usize = 6;
/// Retry delay for rejected callers, and the interval at which stopped connections check again: short for a
/// person, and cheap for ten thousand connections.
pub const PAUSE: Duration = Duration::from_millis(250);

/// Bytes that all connections of a server hold.
#[derive(Debug)]
pub struct MemoryBudget {
    /// The limit `memory_bytes_max`.
    max: Flag,
    held: AtomicUsize,
    /// Connections that are not read now.
    paused: AtomicUsize,
    pauses: AtomicU64,
    refused: AtomicU64,
    dropped: AtomicU64,
    aborted: AtomicU64,
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
    pub aborted: u64,
}

/// Memory pressure.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
// closed: every place that accepts work decides for each level
pub enum Pressure {
    /// Below every mark.
    Normal,
    /// Connections that hold the most are not read.
    High,
    /// Large calls are rejected.
    Severe,
    /// All calls are rejected.
    Exhausted,
}

/// Restrictions of a connection in one turn.
#[derive(Clone, Copy, Debug)]
pub struct Restrictions {
    pub pressure: Pressure,
    /// A connection that holds more bytes is not read.
    pub read_limit: usize,
    /// Maximum size of a reply.
    pub reply_bytes_max: usize,
}

impl Restrictions {
    pub const NONE: Restrictions =
        Restrictions { pressure: Pressure::Normal, read_limit: usize::MAX, reply_bytes_max: usize::MAX };
}

/// Bytes charged to a memory budget until this is dropped; for data that outlives its call.
#[cfg(feature = "auth")]
#[derive(Debug)]
pub struct MemoryCharge {
    /// `None` for callers in this process, whose data is not charged.
    budget: Option<Arc<MemoryBudget>>,
    bytes: usize,
}

#[cfg(feature = "auth")]
impl MemoryCharge {
    pub fn new(budget: Option<Arc<MemoryBudget>>, bytes: usize) -> MemoryCharge {
        if let Some(budget) = &budget {
            budget.change(0, bytes);
        }
        MemoryCharge { budget, bytes }
    }
}

#[cfg(feature = "auth")]
impl Drop for MemoryCharge {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.change(self.bytes, 0);
        }
    }
}

/// Bytes that one holder, such as a connection, has reported to a [`MemoryBudget`]. Small changes are not reported, so
/// that a holder whose bytes change often seldom touches the budget, which all cores share.
#[derive(Debug, Default)]
pub struct ReportedBytes(usize);

impl ReportedBytes {
    /// Minimum change that is reported, except the release of all bytes.
    pub const CHANGE_MIN: usize = 1 << 10;

    /// Returns the bytes that the budget knows of.
    #[inline]
    pub fn get(&self) -> usize {
        self.0
    }

    /// Sets the bytes that are held. Returns the previously reported number if the holder must report the change, with
    /// [`MemoryBudget::change`].
    #[inline]
    #[must_use]
    pub fn set(&mut self, held: usize) -> Option<usize> {
        if held != self.0 && (held == 0 || held.abs_diff(self.0) >= ReportedBytes::CHANGE_MIN) {
            return Some(std::mem::replace(&mut self.0, held));
        }
        None
    }
}

impl MemoryBudget {
    /// Creates an empty budget for a server with this number of methods.
    pub fn new(max: Flag, methods: usize) -> MemoryBudget {
        MemoryBudget {
            max,
            held: AtomicUsize::new(0),
            paused: AtomicUsize::new(0),
            pauses: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            aborted: AtomicU64::new(0),
            sizes: (0..methods).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Returns the restrictions of a connection. One that is `paused` resumes at lower marks than those at
    /// which it stopped.
    #[inline]
    pub fn restrictions(&self, paused: bool) -> Restrictions {
        let (max, held) = (self.max.value() as usize, self.held.load(Relaxed));
        if max == 0 || held < max / 100 * if paused { 70 } else { 80 } {
            return Restrictions::NONE;
        }
        MemoryBudget::scarce(held, max, paused)
    }

    #[cold]
    fn scarce(held: usize, max: usize, paused: bool) -> Restrictions {
        let (high, severe) = (max / 100 * 80, max / 100 * 90);
        let step = ((severe - high) / HALVINGS).max(1);
        let read_limit = MOST >> (held.saturating_sub(high) / step).min(HALVINGS);
        let pressure = match held {
            _ if held >= max => Pressure::Exhausted,
            _ if held >= severe => Pressure::Severe,
            _ => Pressure::High,
        };
        let read_limit = if paused { read_limit / 2 } else { read_limit };
        Restrictions { pressure, read_limit, reply_bytes_max: max.saturating_sub(held).max(LARGE) }
    }

    /// Replaces the charge of a connection, `before`, by `now`.
    pub fn change(&self, before: usize, now: usize) {
        if now > before {
            self.held.fetch_add(now - before, Relaxed);
        } else {
            self.held.fetch_sub(before - now, Relaxed);
        }
    }

    /// Counts a connection that stops or resumes being read.
    pub fn pause(&self, paused: bool) {
        if paused {
            self.paused.fetch_add(1, Relaxed);
            self.pauses.fetch_add(1, Relaxed);
        } else {
            self.paused.fetch_sub(1, Relaxed);
        }
    }

    /// Records that a call of this method held more than [`LARGE`].
    #[cold]
    pub fn note(&self, method: MethodId, bytes: usize) {
        let (size, bytes) = (self.size(method), u32::try_from(bytes).unwrap_or(u32::MAX));
        if size.load(Relaxed) < bytes {
            size.store(bytes, Relaxed);
        }
    }

    /// Records that a call of this method held little while memory was short; after several such calls the
    /// method no longer counts as large.
    #[cold]
    pub fn note_small(&self, method: MethodId) {
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

    /// Returns the error if a call must be rejected at this pressure; `request` is its length in bytes.
    #[cold]
    pub fn refuses(&self, pressure: Pressure, method: MethodId, request: usize) -> Option<Status> {
        let usual = self.size(method).load(Relaxed) as usize;
        let what = match pressure {
            Pressure::Exhausted => "call",
            Pressure::Severe if usual > LARGE => "call of this method, whose replies are large",
            Pressure::Severe if request > LARGE => "large request",
            _ => return None,
        };
        self.refused.fetch_add(1, Relaxed);
        Some(self.exhausted(&format!("no room for a further {what}")).with_retry(Retry::After(PAUSE)))
    }

    /// Returns the error for a call whose reply does not fit.
    #[cold]
    pub fn drops(&self, reply: usize) -> Status {
        self.dropped.fetch_add(1, Relaxed);
        self.exhausted(&format!("no room for the reply of {reply} bytes")).with_retry(Retry::IfIdempotent)
    }

    /// Returns the error for a peer that is in the middle of a large message while there is no memory for its
    /// rest.
    #[cold]
    pub fn aborts(&self) -> Status {
        self.aborted.fetch_add(1, Relaxed);
        self.exhausted("no room for the rest of a message")
    }

    /// Returns the error for the caller of a large request while there is no memory for its rest.
    #[cfg(feature = "http")]
    #[cold]
    pub fn refuses_rest(&self) -> Status {
        self.refused.fetch_add(1, Relaxed);
        self.exhausted("no room for the rest of a large request").with_retry(Retry::After(PAUSE))
    }

    fn exhausted(&self, what: &str) -> Status {
        let (held, max) = (self.held.load(Relaxed), self.max.text());
        Status::resource_exhausted(format!(
            "{what}: this server holds {held} bytes of {max} for its peers (memory_bytes_max)"
        ))
    }

    pub fn stats(&self) -> MemoryStats {
        MemoryStats {
            held: self.held.load(Relaxed) as u64,
            max: self.max.value(),
            paused: self.paused.load(Relaxed) as u64,
            pauses: self.pauses.load(Relaxed),
            refused: self.refused.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            aborted: self.aborted.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Unit;
    use switchboard_wire::Code;

    const METHOD: MethodId = MethodId(0);
    const MIB: usize = 1 << 20;

    fn budget(max: u64) -> MemoryBudget {
        MemoryBudget::new(Flag::new("memory_bytes_max", Unit::Bytes, max, 0..=1 << 40, "test"), 1)
    }

    #[test]
    fn line_falls_between_the_marks() {
        let budget = budget(100 << 20);
        let mut held = 0;
        for (now, pressure, read_limit) in [
            (79, Pressure::Normal, usize::MAX),
            (80, Pressure::High, MIB),
            (85, Pressure::High, 128 << 10),
            (89, Pressure::High, 32 << 10),
            (90, Pressure::Severe, LARGE),
            (99, Pressure::Severe, LARGE),
            (100, Pressure::Exhausted, LARGE),
            (300, Pressure::Exhausted, LARGE),
        ] {
            budget.change(held * MIB, now * MIB);
            held = now;
            let restrictions = budget.restrictions(false);
            assert_eq!((restrictions.pressure, restrictions.read_limit), (pressure, read_limit), "{now} %");
        }
        assert_eq!(budget.restrictions(false).reply_bytes_max, LARGE);
        // A paused connection resumes later.
        budget.change(held * MIB, 75 * MIB);
        assert_eq!(budget.restrictions(false).pressure, Pressure::Normal);
        assert_eq!(
            (budget.restrictions(true).pressure, budget.restrictions(true).read_limit),
            (Pressure::High, MIB / 2)
        );
        budget.change(75 * MIB, 69 * MIB);
        assert_eq!(budget.restrictions(true).pressure, Pressure::Normal);
        // Zero means no limit.
        let budget = self::budget(0);
        budget.change(0, 1 << 40);
        assert_eq!(budget.restrictions(false).pressure, Pressure::Normal);
    }

    #[test]
    fn small_changes_are_not_reported() {
        let mut reported = ReportedBytes::default();
        assert_eq!(reported.set(1000), None);
        assert_eq!((reported.set(5000), reported.get()), (Some(0), 5000));
        assert_eq!(reported.set(5000 + 1023), None);
        assert_eq!(reported.set(5000 - 1024), Some(5000));
        // The release of the last bytes always is.
        assert_eq!((reported.set(0), reported.set(0), reported.get()), (Some(3976), None, 0));
    }

    #[test]
    fn large_calls_are_refused_first() {
        let budget = budget(100 << 20);
        assert!(budget.refuses(Pressure::High, METHOD, MIB).is_none());
        assert!(budget.refuses(Pressure::Severe, METHOD, 100).is_none());
        let status = budget.refuses(Pressure::Severe, METHOD, MIB).unwrap();
        assert_eq!((status.code(), status.retry()), (Code::ResourceExhausted, Retry::After(PAUSE)));
        assert!(status.message().contains("of 100MiB for its peers (memory_bytes_max)"), "{status}");
        budget.note(METHOD, MIB);
        assert!(budget.refuses(Pressure::Severe, METHOD, 100).is_some());
        for _ in 0..40 {
            budget.note_small(METHOD);
        }
        assert!(budget.refuses(Pressure::Severe, METHOD, 100).is_none());
        assert!(budget.refuses(Pressure::Exhausted, METHOD, 0).is_some());
        assert_eq!(budget.stats().refused, 3);
    }
}
