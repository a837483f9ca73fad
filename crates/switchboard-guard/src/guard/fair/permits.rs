//! Permits held per tenant, and the rule for taking one more. Pure.
//!
//! Round robin alone is not enough: a tenant with excess demand fills all permits at once, its calls end
//! together as they started, and a call that arrives in between waits for as long as a call takes. So while
//! several tenants call, tenants above their share leave an eighth of the permits to the others.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Permits of one limit by tenant, as far as the tenants are tracked.
#[derive(Default)]
pub(super) struct TenantPermits {
    tenants: HashMap<u64, Holder>,
    held: u32,
    /// Permits held by tenants above their share.
    beyond: u32,
    /// Sum of the shares of tenants that hold permits.
    shares: u32,
    /// Maximum of `shares` in the previous period and in the current one.
    lately: [u32; 2],
    period: Option<Instant>,
}

#[derive(Default)]
struct Holder {
    held: u32,
    share: u32,
    is_beyond: bool,
}

/// A limit, and its current use.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Load {
    pub(in super::super) limit: u32,
    pub(in super::super) in_flight: u32,
}

/// Divisor of the limit that is reserved from tenants above their share.
const KEPT: u32 = 8;
/// Length of a period; tenants that call at least this often count as active.
const PERIOD: Duration = Duration::from_secs(1);

impl TenantPermits {
    /// Advances the period, which determines the tenants that called recently.
    pub(super) fn look(&mut self, now: Instant) {
        let Some(began) = self.period else {
            self.period = Some(now);
            return;
        };
        let passed = now.saturating_duration_since(began);
        if passed >= PERIOD {
            let before = if passed < 2 * PERIOD { self.lately[1] } else { self.shares };
            self.lately = [before, self.shares];
            self.period = Some(now);
        }
    }

    /// Returns whether the tenant may take one more permit.
    pub(super) fn may(&self, tenant: u64, share: u32, load: Load) -> bool {
        load.in_flight < load.limit
            && (self.is_within(tenant, share, load.limit) || self.leaves_room(share, load))
    }

    /// Returns whether one more permit is within the tenant's share, which is at least one.
    pub(super) fn is_within(&self, tenant: u64, share: u32, limit: u32) -> bool {
        let held = self.tenants.get(&tenant).map_or(0, |holder| holder.held);
        self.is_share(held + 1, share, limit)
    }

    fn is_share(&self, permits: u32, share: u32, limit: u32) -> bool {
        permits <= 1 || u64::from(permits) * u64::from(self.all()) <= u64::from(limit) * u64::from(share)
    }

    /// Returns whether a tenant above its share of `share` leaves enough to the others after taking one more
    /// permit.
    fn leaves_room(&self, share: u32, load: Load) -> bool {
        let kept = if self.all() > share { load.limit / KEPT } else { 0 };
        let within = self.held - self.beyond;
        load.in_flight + kept.saturating_sub(within) < load.limit
    }

    /// Returns the sum of the shares of all tenants that called recently.
    fn all(&self) -> u32 {
        self.lately[0].max(self.lately[1])
    }

    /// Records that the tenant takes a permit.
    pub(super) fn take(&mut self, tenant: u64, share: u32, limit: u32) {
        let holder = self.tenants.entry(tenant).or_default();
        if holder.held == 0 {
            holder.share = share;
            self.shares += share;
            self.lately[1] = self.lately[1].max(self.shares);
        }
        self.change(tenant, limit, |held| held + 1);
    }

    /// Records that the tenant releases a permit.
    pub(super) fn release(&mut self, tenant: u64, limit: u32) {
        let Some(share) = self.change(tenant, limit, |held| held.saturating_sub(1)) else { return };
        self.shares -= share;
        self.tenants.remove(&tenant);
    }

    /// Updates the permits of the tenant; returns its share if it holds none afterwards.
    fn change(&mut self, tenant: u64, limit: u32, change: impl FnOnce(u32) -> u32) -> Option<u32> {
        let holder = self.tenants.get(&tenant)?;
        let (before, share) = (holder.held, holder.share);
        let held = change(before);
        let is_beyond = !self.is_share(held, share, limit);
        self.held = self.held + held - before;
        let holder = self.tenants.get_mut(&tenant)?;
        holder.held = held;
        if std::mem::replace(&mut holder.is_beyond, is_beyond) {
            self.beyond -= before;
        }
        if is_beyond {
            self.beyond += held;
        }
        (held == 0).then_some(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u32 = 40;

    /// Takes permits for the tenant while it may, up to `most`; returns their number.
    fn fill(permits: &mut TenantPermits, tenant: u64, share: u32, most: u32) -> u32 {
        let may = |permits: &TenantPermits| {
            permits.may(tenant, share, Load { limit: LIMIT, in_flight: permits.held })
        };
        let mut taken = 0;
        while taken < most && may(permits) {
            permits.take(tenant, share, LIMIT);
            taken += 1;
        }
        taken
    }

    fn empty(permits: &mut TenantPermits, tenant: u64) {
        while permits.tenants.contains_key(&tenant) {
            permits.release(tenant, LIMIT);
        }
    }

    #[test]
    fn lone_tenant_may_hold_all_permits() {
        let mut permits = TenantPermits::default();
        assert_eq!(fill(&mut permits, 1, 1, 100), LIMIT);
        assert!(!permits.may(2, 1, Load { limit: LIMIT, in_flight: LIMIT }));
        empty(&mut permits, 1);
        assert_eq!((permits.held, permits.beyond, permits.shares), (0, 0, 0));
    }

    #[test]
    fn greedy_tenant_leaves_an_eighth_while_others_are_active() {
        let (mut permits, start) = (TenantPermits::default(), Instant::now());
        permits.look(start);
        assert_eq!(fill(&mut permits, 2, 1, 2), 2);
        assert_eq!(fill(&mut permits, 1, 1, 100), 35, "two of the five are taken");
        assert_eq!(fill(&mut permits, 2, 1, 100), 3);
        empty(&mut permits, 2);
        assert_eq!(fill(&mut permits, 1, 1, 100), 0, "the period of the other tenant is not over");
        permits.look(start + PERIOD);
        assert_eq!(fill(&mut permits, 1, 1, 100), 0);
        permits.look(start + 2 * PERIOD);
        assert_eq!(fill(&mut permits, 1, 1, 100), 5);
    }

    #[test]
    fn tenants_within_their_shares_use_every_permit() {
        let mut permits = TenantPermits::default();
        for _ in 0..10 {
            for (tenant, share) in [(1, 3), (2, 1)] {
                fill(&mut permits, tenant, share, share);
            }
        }
        assert_eq!((permits.held, permits.beyond), (LIMIT, 0));
        // The other tenants hold more than the reserved eighth: nothing is kept free.
        permits.release(1, LIMIT);
        assert_eq!(fill(&mut permits, 2, 1, 100), 1);
        assert_eq!(permits.beyond, 11);
    }

    #[test]
    fn small_limits_reserve_no_permits() {
        let mut permits = TenantPermits::default();
        let load = |permits: &TenantPermits| Load { limit: 4, in_flight: permits.held };
        permits.take(2, 1, 4);
        permits.release(2, 4);
        permits.take(1, 1, 4);
        while permits.may(1, 1, load(&permits)) {
            permits.take(1, 1, 4);
        }
        assert_eq!(permits.held, 4);
    }

    #[test]
    fn releasing_an_unheld_permit_changes_nothing() {
        let mut permits = TenantPermits::default();
        permits.release(7, LIMIT);
        assert_eq!((permits.held, permits.shares), (0, 0));
    }
}
