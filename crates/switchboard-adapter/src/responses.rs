//! Responses to a peer, and counters.

use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use switchboard_fanout::{SubscriberId, Subscribers};
use switchboard_wire::Outbox;

/// Moves responses to the outbox of a peer. Returns the number of bytes that wait there if there are responses, else 0.
pub(crate) fn flush(id: SubscriberId, out: &mut Outbox, subscribers: &mut Subscribers) -> usize {
    if out.is_empty() {
        return 0;
    }
    let bytes = Bytes::from(out.take_all());
    subscribers.send(id, |own| own.chain(bytes))
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
