//! Counters, clock readings and log entries of calls.

use super::{ClockBatch, Connection};
use crate::{driver::calls::Parked, serving::Watched};
use std::time::{Duration, Instant};
use switchboard_core::{Caller, access::Busy, metrics::Ended, trace::Trace};
use switchboard_wire::{MethodId, wire::ServerWire};

/// Maximum number of consecutive ready calls of one method that share a clock reading, which costs as much as
/// their dispatch.
const CLOCK_BATCH_MAX: u32 = 8;
/// Maximum number of calls before their counts are added to the counters of the peer.
const TALLY_MAX: u64 = 1024;
/// Time above which a handler that holds the turn is named in a metric and a log line.
const SLOW_HANDLER: Duration = Duration::from_millis(10);

impl<W: ServerWire> Connection<W> {
    /// Counts a call that was ready at once.
    #[inline]
    pub(super) fn count_ready(&mut self, method: MethodId, received: u64, sent: u64) {
        match &mut self.clock_batch {
            Some(batch) if batch.method == method && batch.calls < CLOCK_BATCH_MAX => {
                batch.calls += 1;
                batch.received += received;
                batch.sent += sent;
            }
            _ => {
                self.close_clock_batch();
                self.clock_batch = Some(ClockBatch { method, calls: 1, received, sent });
            }
        }
    }

    /// Counts the end of a call that was not ready at once; `sent` is the size of its last message in bytes.
    pub(super) fn record(&mut self, call: &Parked, code: switchboard_wire::Code, sent: u64) {
        let ended = call.record.ended(code, sent, self.now);
        self.count(call.record.method, &ended);
        self.shared.log_end(&self.peer, &call.record, &ended, self.now);
    }

    /// Records how long the handler of a parked call ran.
    pub(super) fn turned(&mut self, index: u32, began: Instant) {
        let ran = self.now.saturating_duration_since(began);
        if let Some(watched) = self.watched(index) {
            watched.turned(ran);
        }
    }

    /// Returns the log fields of a parked call, if a call log was on when it started.
    pub(super) fn watched(&mut self, index: u32) -> Option<&mut Watched> {
        self.calls.get_mut(index)?.record.watched.as_deref_mut()
    }

    /// Logs a call that was ready at once, if it was sampled; such a call reads the clock at its end.
    #[cold]
    pub(super) fn log_ready(
        &mut self,
        is_picked: bool,
        names: (MethodId, Option<&str>),
        received: u64,
        sent: u64,
        trace: Option<&Trace>,
        caller: Option<&Caller>,
    ) {
        let began = self.now;
        self.close_clock_batch();
        let took = self.now.saturating_duration_since(began);
        let ended = Ended { calls: 1, code: switchboard_wire::Code::Ok, took, received, sent };
        self.shared.log(&self.peer, names, &ended, Busy::Call(took), (is_picked, caller), trace);
    }

    #[inline]
    pub(super) fn count(&mut self, method: MethodId, ended: &Ended) {
        self.shared.metrics.record(self.shard, self.counted.0, method, ended);
        let tally = &mut self.tally;
        tally.calls += ended.calls;
        tally.failed += if ended.code == switchboard_wire::Code::Ok { 0 } else { ended.calls };
        tally.received += ended.received;
        tally.sent += ended.sent;
        if tally.calls >= TALLY_MAX {
            self.flush_tally();
        }
    }

    /// Reads the clock for the calls of the clock batch and counts them.
    #[inline]
    pub(super) fn close_clock_batch(&mut self) {
        if let Some(ClockBatch { method, calls, received, sent }) = self.clock_batch.take() {
            let began = self.now;
            self.clock(began, method);
            let took = self.now.saturating_duration_since(began) / calls;
            let calls = u64::from(calls);
            if let Some(counts) = &self.peer.counts {
                counts.started(calls, began);
                counts.ended(calls);
            }
            self.count(method, &Ended { calls, code: switchboard_wire::Code::Ok, took, received, sent });
        }
    }

    /// Reads the clock after handlers ran, and reports a method that held the turn too long.
    #[inline]
    pub(super) fn clock(&mut self, began: Instant, method: MethodId) {
        self.now = switchboard_core::clock::now();
        let took = self.now.saturating_duration_since(began);
        if took > SLOW_HANDLER {
            self.slow(took, method);
        }
    }

    #[cold]
    pub(super) fn slow(&self, took: Duration, method: MethodId) {
        self.shared.metrics.slow(method);
        tracing::warn!(
            method = self.shared.table.full_name(method),
            took_ms = took.as_millis() as u64,
            "a handler held its connection's turn; let it await, or mark the method `spawn`"
        );
    }
}

impl<W> Connection<W> {
    /// Adds the tally to the counters of the peer.
    #[cold]
    pub(super) fn flush_tally(&mut self) {
        let tally = std::mem::take(&mut self.tally);
        if let Some(counts) = &self.peer.tally {
            counts.add(&tally);
        }
    }
}
