//! Parked calls: polls of their handlers, and their removal.

use super::Connection;
use crate::driver::calls::{Parked, Stage};
use std::task::{Context, Poll};
use switchboard_core::{
    Result,
    access::CallerWatch,
    call::{ReplyBody, ReplyParts},
    context,
};
use switchboard_wire::{Status, wire::ServerWire};

impl<W: ServerWire> Connection<W> {
    pub(super) fn park(&mut self, index: u32, parked: Parked) {
        if let Some(deadline) = parked.record.deadline {
            self.timer.wake_by(deadline);
        }
        if let Some(queue) = &parked.inbound {
            queue.watch_consumer(self.calls.waker(index));
        }
        self.shared.park(self.shard, self.counted.0, parked.record.method);
        self.memory.change(0, parked.held);
        self.calls.park(index, parked);
    }

    /// Polls woken calls; calls that remain when the turn is over are polled in the next turn.
    pub(super) fn poll_ready(&mut self) {
        let mut polled = 0;
        while let Some(index) = self.ready.get(polled).copied()
            && (polled == 0 || !self.is_over())
        {
            polled += 1;
            self.poll_call(index);
        }
        self.ready.drain(..polled);
    }

    /// Polls a parked call as far as possible.
    pub(super) fn poll_call(&mut self, index: u32) {
        let Some((parked, waker)) = self.calls.poll_parts(index) else { return };
        let mut cx = Context::from_waker(waker);
        let deadline = parked.record.deadline;
        let trace = parked.record.trace.clone();
        let began = self.now;
        match std::mem::replace(&mut parked.stage, Stage::Polled) {
            Stage::Polled => {}
            Stage::Handler { service, slot } => {
                let method = parked.record.method;
                let dispatch =
                    self.dispatches[usize::from(service)].as_mut().expect("a parked call has its dispatch");
                let is_watched =
                    parked.record.watched.as_ref().is_some_and(|watched| watched.caller.is_none());
                let watch = CallerWatch::begin(is_watched);
                let polled = context::scope(deadline, trace.as_ref(), || dispatch.poll(slot, &mut cx));
                let caller = watch.and_then(CallerWatch::end);
                self.clock(began, method);
                self.turned(index, began);
                if caller.is_some()
                    && let Some(watched) = self.watched(index)
                {
                    watched.caller = caller;
                }
                match polled {
                    Poll::Pending => {
                        if let Some(parked) = self.calls.get_mut(index) {
                            parked.stage = Stage::Handler { service, slot };
                            if parked.inbound.is_some() {
                                self.weigh(index);
                            }
                        }
                        self.give_credit(index);
                    }
                    Poll::Ready(Err(status)) => self.finish(index, Err(status)),
                    Poll::Ready(Ok(reply)) => match reply.into_parts() {
                        ReplyParts { body: ReplyBody::Many(items), .. } => {
                            if let Some(parked) = self.calls.get_mut(index) {
                                let items = items.into_items();
                                parked.stage = Stage::Replies { items, head_sent: false };
                            }
                            self.poll_call(index);
                        }
                        reply => self.finish(index, Ok(reply)),
                    },
                }
            }
            Stage::Replies { items, head_sent } => {
                self.poll_replies(index, items, head_sent, deadline);
                self.weigh(index);
                self.give_credit(index);
            }
        }
    }

    /// Ends a parked call with the result of its handler.
    pub(super) fn finish(&mut self, index: u32, result: Result<ReplyParts>) {
        let Some(parked) = self.take(index) else { return };
        match result {
            Ok(reply) => self.succeed_with(&parked, &reply),
            Err(status) => self.end(&parked, Err(&status)),
        }
    }

    /// Drops a parked call without a response: its caller is gone.
    pub(super) fn forget(&mut self, index: u32) {
        if let Some(parked) = self.take(index) {
            self.record(&parked, switchboard_wire::Code::Canceled, 0);
            if let Some(counts) = &self.peer.counts {
                counts.lost();
            }
        }
    }

    /// Removes a call from the table and drops its handler.
    pub(super) fn take(&mut self, index: u32) -> Option<Parked> {
        let mut parked = self.calls.remove(index)?;
        self.shared.unpark(self.shard, self.counted.0, parked.record.method);
        self.memory.change(parked.held, 0);
        match std::mem::replace(&mut parked.stage, Stage::Polled) {
            Stage::Handler { service, slot } => {
                if let Some(dispatch) = &mut self.dispatches[usize::from(service)] {
                    dispatch.cancel(slot);
                }
            }
            Stage::Replies { items, .. } => drop(items),
            Stage::Polled => {}
        }
        if let Some(queue) = &parked.inbound {
            queue.finish(Err(Status::canceled("the call has ended")));
        }
        Some(parked)
    }
}
