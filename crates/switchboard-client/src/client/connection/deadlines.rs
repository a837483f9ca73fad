//! Deadlines of the calls of a client connection.

use super::Inner;
use std::{task::Waker, time::Instant};
use switchboard_wire::{Status, wire::ClientWire};

/// Message of a call that ends at its deadline.
pub(super) const NO_RESPONSE: &str = "no response within the call's deadline";

impl Inner {
    /// Sets the deadlines of new calls.
    pub(super) fn stamp(&mut self, now: Instant) {
        let Inner { fresh, calls, earliest, .. } = self;
        for (id, timeout) in fresh.drain(..) {
            let Some(slot) = calls.get_mut(id) else { continue };
            // A timeout beyond the range of the clock means no deadline.
            let Some(deadline) = now.checked_add(timeout) else { continue };
            slot.deadline = Some(deadline);
            if earliest.is_none_or(|earliest| deadline < earliest) {
                *earliest = Some(deadline);
            }
        }
    }

    /// Ends the calls whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant, wake: &mut Vec<Waker>) {
        let mut next = None::<Instant>;
        let mut overdue = Vec::new();
        for (id, slot) in self.calls.iter_mut() {
            let Some(deadline) = slot.deadline else { continue };
            if deadline <= now {
                overdue.push(id);
                slot.deadline = None;
            } else if next.is_none_or(|next| deadline < next) {
                next = Some(deadline);
            }
        }
        self.earliest = next;
        for id in overdue {
            self.fail(id, Status::deadline_exceeded(NO_RESPONSE), wake);
            self.wire.cancel(id, &mut self.out);
        }
    }
}
