//! Who holds how many of the places, and who may take one more. Pure.
//!
//! Turns alone are not enough: a tenant that asks for more than there is fills all places at once, its calls end as
//! they began, together, and whoever comes meanwhile waits for as long as a call takes. So while several tenants call,
//! those that hold more than their share leave an eighth of the places to those that do not.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// The places of one limit, as far as their holders are known.
#[derive(Default)]
pub(super) struct Places {
    tenants: HashMap<u64, Holder>,
    held: u32,
    /// Of these, what tenants hold that are beyond their share.
    beyond: u32,
    /// Of the tenants that hold places.
    shares: u32,
    /// The most that this was in the period before, and in this one.
    lately: [u32; 2],
    period: Option<Instant>,
}

#[derive(Default)]
struct Holder {
    held: u32,
    share: u32,
    is_beyond: bool,
}

/// A limit, and how much of it is in use.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Load {
    pub(in super::super) limit: u32,
    pub(in super::super) in_flight: u32,
}

/// One place in so many is kept from those beyond their share.
const KEPT: u32 = 8;
/// A tenant that calls at least this often is reckoned with.
const PERIOD: Duration = Duration::from_secs(1);

impl Places {
    /// Notes the time, from which follows who called lately.
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

    /// Whether the tenant may take one more.
    pub(super) fn may(&self, tenant: u64, share: u32, load: Load) -> bool {
        load.in_flight < load.limit
            && (self.is_within(tenant, share, load.limit) || self.leaves_room(share, load))
    }

    /// Whether one place more is within the tenant's share; everybody's is one at least.
    pub(super) fn is_within(&self, tenant: u64, share: u32, limit: u32) -> bool {
        let held = self.tenants.get(&tenant).map_or(0, |holder| holder.held);
        self.is_share(held + 1, share, limit)
    }

    fn is_share(&self, places: u32, share: u32, limit: u32) -> bool {
        places <= 1 || u64::from(places) * u64::from(self.all()) <= u64::from(limit) * u64::from(share)
    }

    /// Whether somebody beyond their share of `share` leaves enough to the others with one place more.
    fn leaves_room(&self, share: u32, load: Load) -> bool {
        let kept = if self.all() > share { load.limit / KEPT } else { 0 };
        let within = self.held - self.beyond;
        load.in_flight + kept.saturating_sub(within) < load.limit
    }

    /// The shares of all that called lately.
    fn all(&self) -> u32 {
        self.lately[0].max(self.lately[1])
    }

    /// The tenant takes one.
    pub(super) fn take(&mut self, tenant: u64, share: u32, limit: u32) {
        let holder = self.tenants.entry(tenant).or_default();
        if holder.held == 0 {
            holder.share = share;
            self.shares += share;
            self.lately[1] = self.lately[1].max(self.shares);
        }
        self.change(tenant, limit, |held| held + 1);
    }

    /// The tenant gives one back.
    pub(super) fn give_back(&mut self, tenant: u64, limit: u32) {
        let Some(share) = self.change(tenant, limit, |held| held.saturating_sub(1)) else { return };
        self.shares -= share;
        self.tenants.remove(&tenant);
    }

    /// Counts anew what the tenant holds; its share if that is nothing.
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

    /// Lets the tenant take what it may, and says how much that was.
    fn fill(places: &mut Places, tenant: u64, share: u32, most: u32) -> u32 {
        let may = |places: &Places| places.may(tenant, share, Load { limit: LIMIT, in_flight: places.held });
        let mut taken = 0;
        while taken < most && may(places) {
            places.take(tenant, share, LIMIT);
            taken += 1;
        }
        taken
    }

    fn empty(places: &mut Places, tenant: u64) {
        while places.tenants.contains_key(&tenant) {
            places.give_back(tenant, LIMIT);
        }
    }

    #[test]
    fn tenant_that_is_alone_has_all_places() {
        let mut places = Places::default();
        assert_eq!(fill(&mut places, 1, 1, 100), LIMIT);
        assert!(!places.may(2, 1, Load { limit: LIMIT, in_flight: LIMIT }));
        empty(&mut places, 1);
        assert_eq!((places.held, places.beyond, places.shares), (0, 0, 0));
    }

    #[test]
    fn greedy_tenant_leaves_an_eighth_to_others_for_as_long_as_they_call() {
        let (mut places, start) = (Places::default(), Instant::now());
        places.look(start);
        assert_eq!(fill(&mut places, 2, 1, 2), 2);
        assert_eq!(fill(&mut places, 1, 1, 100), 35, "two of the five are taken");
        assert_eq!(fill(&mut places, 2, 1, 100), 3);
        empty(&mut places, 2);
        assert_eq!(fill(&mut places, 1, 1, 100), 0, "it will call again");
        places.look(start + PERIOD);
        assert_eq!(fill(&mut places, 1, 1, 100), 0);
        places.look(start + 2 * PERIOD);
        assert_eq!(fill(&mut places, 1, 1, 100), 5);
    }

    #[test]
    fn tenants_within_their_shares_use_every_place() {
        let mut places = Places::default();
        for _ in 0..10 {
            for (tenant, share) in [(1, 3), (2, 1)] {
                fill(&mut places, tenant, share, share);
            }
        }
        assert_eq!((places.held, places.beyond), (LIMIT, 0));
        // The others hold more than the eighth that is theirs: nothing is kept free.
        places.give_back(1, LIMIT);
        assert_eq!(fill(&mut places, 2, 1, 100), 1);
        assert_eq!(places.beyond, 11);
    }

    #[test]
    fn limits_of_a_few_places_keep_none() {
        let mut places = Places::default();
        let load = |places: &Places| Load { limit: 4, in_flight: places.held };
        places.take(2, 1, 4);
        places.give_back(2, 4);
        places.take(1, 1, 4);
        while places.may(1, 1, load(&places)) {
            places.take(1, 1, 4);
        }
        assert_eq!(places.held, 4);
    }

    #[test]
    fn what_nobody_holds_cannot_be_given_back() {
        let mut places = Places::default();
        places.give_back(7, LIMIT);
        assert_eq!((places.held, places.shares), (0, 0));
    }
}
