//! How a connection ends, and what becomes of its calls.

use super::Connection;
use crate::Status;
use std::sync::atomic::Ordering;

/// How a connection ended.
pub(in crate::client) enum Ended {
    /// The server had said something before.
    Heard,
    /// The server had said nothing, not even its preface.
    Unheard(Status),
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
