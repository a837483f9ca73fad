//! Waiting calls and held permits by tenant, and the choice of the next call. Pure.

use super::{
    permits::{Load, TenantPermits},
    turns::{Pushed, Turns},
};
use std::time::Instant;

/// Waiting calls, by number, and tenants that hold permits.
#[derive(Default)]
pub(super) struct Line {
    turns: Turns,
    permits: TenantPermits,
}

/// Maximum number of tenants that are passed over in favor of one that holds less; bounds the cost of a
/// released permit.
const PASSED_MAX: usize = 64;

impl Line {
    /// Returns the number of waiting calls.
    pub(super) fn len(&self) -> usize {
        self.turns.len()
    }

    /// Returns whether an arriving call of this tenant may take a permit. Waiting calls that could take it
    /// have already received theirs, so the call only overtakes tenants above their share.
    pub(super) fn passes(&mut self, tenant: u64, share: u32, now: Instant, load: Load) -> bool {
        self.permits.look(now);
        let is_first = self.len() == 0 || self.permits.is_within(tenant, share, load.limit);
        is_first && self.permits.may(tenant, share, load)
    }

    /// Records that a call has taken a permit without waiting.
    pub(super) fn take(&mut self, tenant: u64, share: u32, limit: u32) {
        self.permits.take(tenant, share, limit);
    }

    /// Adds a waiting call if fewer than `most` calls of its tenant wait.
    pub(super) fn push(&mut self, tenant: u64, share: u32, level: usize, number: u32, most: usize) -> Pushed {
        self.turns.push(tenant, share, level, number, most)
    }

    /// Returns the position of the waiting call that may take a permit, if there is one.
    pub(super) fn next(&self, load: Load) -> Option<usize> {
        self.turns.order().take(PASSED_MAX).position(|(tenant, share)| self.permits.may(tenant, share, load))
    }

    /// Removes the call at `at`, which has taken a permit; returns its number.
    pub(super) fn admit(&mut self, at: usize, limit: u32) -> Option<u32> {
        let (tenant, share) = self.turns.order().nth(at)?;
        let number = self.turns.pop_at(at)?;
        self.permits.take(tenant, share, limit);
        Some(number)
    }

    /// Removes a call that stops waiting.
    pub(super) fn remove(&mut self, tenant: u64, number: u32) {
        self.turns.remove(tenant, number);
    }

    /// Records that a call of this tenant has released its permit.
    pub(super) fn leave(&mut self, tenant: u64, limit: u32) {
        self.permits.release(tenant, limit);
    }
}
