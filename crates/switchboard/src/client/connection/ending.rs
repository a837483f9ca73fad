//! How a connection ends, and what becomes of its calls.

use super::Connection;
use crate::Status;
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// A server that closes a connection on which nobody has said anything, and does so earlier, is not there.
const UNUSED: Duration = Duration::from_secs(1);

/// How a connection ended.
pub(in crate::client) enum Ended {
    /// The server had said something before, or there was nothing for it to answer.
    Heard,
    /// The server had said nothing, not even its preface.
    Unheard(Status),
}

/// What went over a connection so far.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Talk {
    /// Nothing: wires of other frameworks begin with a call.
    #[default]
    Nothing,
    /// What we had to say.
    Said,
    /// Something of the server's.
    Heard,
}

impl Talk {
    #[inline]
    pub(super) fn said(&mut self, something: bool) {
        *self = (*self).max(if something { Talk::Said } else { Talk::Nothing });
    }

    /// How a connection ended of which this is known, and on which nothing was read since then. A server may close one
    /// that was never used: that is no failure, after which calls would have to wait.
    pub(super) fn ended(self, since: Instant, end: Status) -> Ended {
        match self {
            Talk::Heard => Ended::Heard,
            Talk::Nothing if crate::clock::now() - since > UNUSED => Ended::Heard,
            Talk::Nothing | Talk::Said => Ended::Unheard(end),
        }
    }
}

/// Ends every call in flight; new ones are refused.
pub(super) fn close(connection: &Connection, status: &Status) {
    connection.usable.store(false, Ordering::Relaxed);
    let mut wake = Vec::new();
    let mut inner = connection.lock();
    inner.closed.get_or_insert_with(|| status.clone());
    wake.extend(inner.settling.take());
    let ids: Vec<_> = inner.calls.iter_mut().map(|(id, _)| id).collect();
    for id in ids {
        inner.fail(id, status.clone(), &mut wake);
    }
    drop(inner);
    for waker in wake {
        waker.wake();
    }
}

#[cfg(test)]
impl Connection {
    /// What is held for calls.
    pub(in super::super) fn left(&self) -> [(&'static str, usize); 4] {
        let inner = self.lock();
        let (calls, fresh, due) = (inner.calls.len(), inner.fresh.len(), inner.due.len());
        [("calls", calls), ("fresh calls", fresh), ("due streams", due), ("bytes to write", inner.out.len())]
    }
}
