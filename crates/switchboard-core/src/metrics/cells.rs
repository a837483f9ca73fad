//! Counter storage: separate cache lines for each worker, and cells that are allocated on first use.
//!
//! A method with calls on a wire costs 1.2 KiB per worker and wire; without calls it costs eight bytes.

use super::{histogram::Histogram, labels::ConnectionProtocol};
use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use switchboard_wire::{Code, WireId};

/// Cells written by one worker; aligned so that workers share no cache line.
#[repr(align(128))]
pub(super) struct Shard {
    /// Cells by wire, then by method; allocated with the first call of the wire, and of the method on it.
    wires: [OnceLock<Methods>; WireId::COUNT_MAX],
    /// Traffic by connection protocol.
    traffic: [Traffic; ConnectionProtocol::COUNT],
}

type Methods = Box<[OnceLock<Box<Cells>>]>;

/// Counters of one method on one wire.
#[derive(Default)]
pub(super) struct Cells {
    pub(super) latency: Histogram,
    pub(super) nanoseconds: AtomicU64,
    /// Failures by [`Code::number`]; successes are computed from the total.
    pub(super) codes: [AtomicU64; 17],
    /// Calls that wait in handlers. The same worker increments and decrements it for a call.
    pub(super) in_flight: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) sent: AtomicU64,
}

/// Bytes of connections.
#[derive(Default)]
pub(super) struct Traffic {
    pub(super) received: AtomicU64,
    pub(super) sent: AtomicU64,
}

/// A number of calls that ended in the same way.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub calls: u64,
    pub code: Code,
    /// Duration of each call.
    pub took: Duration,
    /// Bytes of all request messages, as the handler sees them.
    pub received: u64,
    pub sent: u64,
}

impl Shard {
    pub(super) fn new() -> Shard {
        Shard {
            wires: std::array::from_fn(|_| OnceLock::new()),
            traffic: std::array::from_fn(|_| Traffic::default()),
        }
    }

    /// Returns the cells of a method; `methods` is the number of methods.
    #[inline]
    pub(super) fn at(&self, wire: WireId, method: usize, methods: usize) -> &Cells {
        let cells = self.wires[wire.index()].get_or_init(|| (0..methods).map(|_| OnceLock::new()).collect());
        cells[method].get_or_init(Box::default)
    }

    /// Returns the cells of a method if they exist.
    pub(super) fn find(&self, wire: WireId, method: usize) -> Option<&Cells> {
        self.wires[wire.index()].get()?[method].get().map(|cells| &**cells)
    }

    #[inline]
    pub(crate) fn traffic(&self, protocol: ConnectionProtocol) -> &Traffic {
        &self.traffic[protocol.index()]
    }
}

impl Cells {
    #[inline]
    pub(super) fn record(&self, ended: &Ended) {
        let nanoseconds = ended.took.as_nanos() as u64;
        self.latency.add(nanoseconds, ended.calls);
        self.nanoseconds.fetch_add(nanoseconds * ended.calls, Ordering::Relaxed);
        if ended.code != Code::Ok {
            self.codes[ended.code as usize].fetch_add(ended.calls, Ordering::Relaxed);
        }
        if ended.received > 0 {
            self.received.fetch_add(ended.received, Ordering::Relaxed);
        }
        if ended.sent > 0 {
            self.sent.fetch_add(ended.sent, Ordering::Relaxed);
        }
    }
}
