//! Ring buffer of the last logged calls, for the page `/recent` of the admin listener.

use super::Entry;
use crate::{clock, trace::Trace};
use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError, TryLockError},
    time::{Duration, SystemTime},
};
use switchboard_wire::Code;

/// Maximum number of calls kept; each takes a few hundred bytes.
const KEPT_MAX: usize = 1000;

/// A ring of calls. A call that finds the lock taken is not recorded: calls do not wait for a page.
#[derive(Debug, Default)]
pub struct Recent(Mutex<VecDeque<Seen>>);

/// A call that has ended.
#[derive(Clone, Debug)]
pub struct Seen {
    #[doc(hidden)]
    pub ended: SystemTime,
    #[doc(hidden)]
    pub method: String,
    #[doc(hidden)]
    pub wire: &'static str,
    #[doc(hidden)]
    pub peer: String,
    #[doc(hidden)]
    pub caller: Option<String>,
    #[doc(hidden)]
    pub code: Code,
    #[doc(hidden)]
    pub took: Duration,
    #[doc(hidden)]
    pub received: u64,
    #[doc(hidden)]
    pub sent: u64,
    #[doc(hidden)]
    pub trace: Option<String>,
    /// The call was kept because it was slow, not because it was sampled.
    #[doc(hidden)]
    pub is_slow: bool,
}

impl Recent {
    pub(super) fn keep(&self, entry: Entry<'_>, took: Duration, is_slow: bool) {
        self.push(Seen {
            ended: clock::time_of_day(),
            method: entry.method,
            wire: entry.peer.wire(),
            peer: entry.peer.address.clone(),
            caller: entry.caller.map(str::to_owned),
            code: entry.code,
            took,
            received: entry.received,
            sent: entry.sent,
            trace: entry.trace.map(Trace::id),
            is_slow,
        });
    }

    fn push(&self, seen: Seen) {
        let mut ring = match self.0.try_lock() {
            Ok(ring) => ring,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if ring.len() == KEPT_MAX {
            ring.pop_front();
        }
        ring.push_back(seen);
    }

    /// Returns all kept calls, the latest first.
    #[doc(hidden)]
    pub fn newest_first(&self) -> Vec<Seen> {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ring.iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_make_room() {
        let recent = Recent::default();
        for number in 0..KEPT_MAX as u64 + 7 {
            recent.push(Seen {
                ended: SystemTime::UNIX_EPOCH,
                method: "a.B/C".to_owned(),
                wire: "native",
                peer: "local".to_owned(),
                caller: None,
                code: Code::Ok,
                took: Duration::ZERO,
                received: number,
                sent: 0,
                trace: None,
                is_slow: false,
            });
        }
        let kept: Vec<_> = recent.newest_first().iter().map(|seen| seen.received).collect();
        assert_eq!((kept.len(), kept[0], kept.last()), (KEPT_MAX, KEPT_MAX as u64 + 6, Some(&7)));
    }
}
