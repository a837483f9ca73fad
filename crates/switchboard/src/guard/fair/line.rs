//! Who waits, who holds a place, and who is next. Pure.

use super::{
    places::{Load, Places},
    turns::{Pushed, Turns},
};
use std::time::Instant;

/// Those who wait for places, by number, and those who hold them.
#[derive(Default)]
pub(super) struct Line {
    turns: Turns,
    places: Places,
}

/// Tenants that are passed over, at most, for one that holds less: what a place that becomes free may cost.
const PASSED_MAX: usize = 64;

impl Line {
    /// Calls that wait.
    pub(super) fn len(&self) -> usize {
        self.turns.len()
    }

    /// Whether a call of this tenant that comes now may take a place. Those who wait and could take it have got theirs,
    /// so it passes only those who hold more than their share.
    pub(super) fn passes(&mut self, tenant: u64, share: u32, now: Instant, load: Load) -> bool {
        self.places.look(now);
        let is_first = self.len() == 0 || self.places.is_within(tenant, share, load.limit);
        is_first && self.places.may(tenant, share, load)
    }

    /// A call has taken a place without waiting.
    pub(super) fn take(&mut self, tenant: u64, share: u32, limit: u32) {
        self.places.take(tenant, share, limit);
    }

    /// One more waits, if fewer than `most` of its tenant do.
    pub(super) fn push(&mut self, tenant: u64, share: u32, level: usize, number: u32, most: usize) -> Pushed {
        self.turns.push(tenant, share, level, number, most)
    }

    /// Which of those who wait may take a place, if there is one.
    pub(super) fn next(&self, load: Load) -> Option<usize> {
        self.turns.order().take(PASSED_MAX).position(|(tenant, share)| self.places.may(tenant, share, load))
    }

    /// The one at `at` has taken a place; its number.
    pub(super) fn admit(&mut self, at: usize, limit: u32) -> Option<u32> {
        let (tenant, share) = self.turns.order().nth(at)?;
        let number = self.turns.pop_at(at)?;
        self.places.take(tenant, share, limit);
        Some(number)
    }

    /// One waits no more.
    pub(super) fn remove(&mut self, tenant: u64, number: u32) {
        self.turns.remove(tenant, number);
    }

    /// A call of this tenant has given its place back.
    pub(super) fn leave(&mut self, tenant: u64, limit: u32) {
        self.places.give_back(tenant, limit);
    }
}
