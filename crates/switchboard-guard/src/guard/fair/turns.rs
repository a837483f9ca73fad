//! Order of waiting calls: round robin over tenants by their shares (deficit round robin with equal costs),
//! and by priority within a tenant. Pure.

use std::collections::{HashMap, VecDeque};

/// Levels of priority, the most urgent first.
pub(super) const LEVELS: usize = 4;

/// Waiting calls, by number.
#[derive(Default)]
pub(super) struct Turns {
    tenants: HashMap<u64, Tenant>,
    /// Waiting tenants in the order of their turns.
    order: VecDeque<u64>,
    waiting: usize,
}

#[derive(Default)]
struct Tenant {
    levels: [VecDeque<u32>; LEVELS],
    waiting: usize,
    share: u32,
    /// Remaining calls of the current turn.
    left: u32,
}

/// Result of adding a waiting call.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Pushed {
    Full,
    /// The call replaced this one, which was less urgent and arrived last.
    InsteadOf(u32),
    Waits,
}

impl Turns {
    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    /// Adds a waiting call if fewer than `most` calls of its tenant wait.
    pub(super) fn push(&mut self, tenant: u64, share: u32, level: usize, number: u32, most: usize) -> Pushed {
        let known = self.tenants.entry(tenant).or_default();
        known.share = share.max(1);
        let mut pushed = Pushed::Waits;
        if known.waiting >= most {
            let less = known.levels[level + 1..].iter_mut().rev().find_map(VecDeque::pop_back);
            let Some(less) = less else { return Pushed::Full };
            known.waiting -= 1;
            self.waiting -= 1;
            pushed = Pushed::InsteadOf(less);
        }
        known.levels[level].push_back(number);
        known.waiting += 1;
        self.waiting += 1;
        if known.waiting == 1 && pushed == Pushed::Waits {
            known.left = known.share;
            self.order.push_back(tenant);
        }
        pushed
    }

    /// Returns the waiting tenants in the order of their turns, with their shares.
    pub(super) fn order(&self) -> impl Iterator<Item = (u64, u32)> {
        self.order.iter().map(|tenant| (*tenant, self.tenants.get(tenant).map_or(1, |known| known.share)))
    }

    /// Removes and returns the first call of the tenant at this index of the [order](Self::order); usually
    /// the index is that of the first tenant.
    pub(super) fn pop_at(&mut self, at: usize) -> Option<u32> {
        let whose = *self.order.get(at)?;
        let tenant = self.tenants.get_mut(&whose)?;
        let number = tenant.levels.iter_mut().find_map(VecDeque::pop_front)?;
        tenant.waiting -= 1;
        tenant.left -= 1;
        self.waiting -= 1;
        if tenant.waiting == 0 {
            self.tenants.remove(&whose);
            self.order.remove(at);
        } else if tenant.left == 0 {
            tenant.left = tenant.share;
            self.order.remove(at);
            self.order.push_back(whose);
        }
        Some(number)
    }

    /// Removes a call that stops waiting.
    pub(super) fn remove(&mut self, tenant: u64, number: u32) {
        let Some(known) = self.tenants.get_mut(&tenant) else { return };
        for level in &mut known.levels {
            if let Some(at) = level.iter().position(|waiting| *waiting == number) {
                level.remove(at);
                known.waiting -= 1;
                self.waiting -= 1;
                break;
            }
        }
        if known.waiting == 0 {
            self.tenants.remove(&tenant);
            self.order.retain(|waiting| *waiting != tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NORMAL: usize = 2;

    fn drain(turns: &mut Turns) -> Vec<u32> {
        std::iter::from_fn(|| turns.pop_at(0)).collect()
    }

    #[test]
    fn greedy_tenant_delays_others_by_one_call() {
        let mut turns = Turns::default();
        for number in 0..100 {
            assert_eq!(turns.push(1, 1, NORMAL, number, 100), Pushed::Waits);
        }
        assert_eq!(turns.push(1, 1, NORMAL, 100, 100), Pushed::Full);
        turns.push(2, 1, NORMAL, 200, 100);
        turns.push(3, 1, NORMAL, 300, 100);
        turns.push(2, 1, NORMAL, 201, 100);
        assert_eq!(drain(&mut turns)[..6], [0, 200, 300, 1, 201, 2]);
        assert_eq!((turns.len(), turns.tenants.len(), turns.order.len()), (0, 0, 0));
    }

    #[test]
    fn shares_are_kept_and_priorities_hold_within_a_tenant() {
        let mut turns = Turns::default();
        for number in 0..6 {
            turns.push(1, 2, NORMAL, number, 100);
            turns.push(2, 1, NORMAL, 10 + number, 100);
        }
        turns.push(2, 1, 0, 99, 100);
        assert_eq!(drain(&mut turns), [0, 1, 99, 2, 3, 10, 4, 5, 11, 12, 13, 14, 15]);
    }

    #[test]
    fn urgent_call_replaces_the_last_less_urgent_call() {
        let mut turns = Turns::default();
        for (level, number) in [(2, 1), (3, 2), (3, 3), (1, 4)] {
            assert_eq!(turns.push(1, 1, level, number, 4), Pushed::Waits);
        }
        assert_eq!(turns.push(1, 1, 3, 5, 4), Pushed::Full);
        assert_eq!(turns.push(1, 1, 2, 6, 4), Pushed::InsteadOf(3));
        assert_eq!(turns.push(1, 1, 0, 7, 4), Pushed::InsteadOf(2));
        assert_eq!(turns.push(1, 1, 2, 8, 4), Pushed::Full);
        assert_eq!(drain(&mut turns), [7, 4, 1, 6]);
        // The tenant has a single call.
        turns.push(1, 1, 3, 1, 1);
        assert_eq!(turns.push(1, 1, 0, 2, 1), Pushed::InsteadOf(1));
        assert_eq!(drain(&mut turns), [2]);
        assert!(turns.order.is_empty());
    }

    #[test]
    fn tenant_that_is_passed_over_keeps_its_turn() {
        let mut turns = Turns::default();
        for (tenant, number) in [(1, 1), (1, 2), (2, 3), (2, 4), (3, 5)] {
            turns.push(tenant, 1, NORMAL, number, 10);
        }
        assert_eq!(turns.order().collect::<Vec<_>>(), [(1, 1), (2, 1), (3, 1)]);
        assert_eq!(turns.pop_at(1), Some(3));
        assert_eq!(turns.pop_at(1), Some(5));
        assert_eq!(turns.pop_at(2), None);
        assert_eq!(drain(&mut turns), [1, 4, 2]);
    }

    #[test]
    fn those_that_go_leave_nothing_behind() {
        let mut turns = Turns::default();
        for (tenant, number) in [(1, 1), (1, 2), (2, 3), (3, 4)] {
            turns.push(tenant, 1, NORMAL, number, 10);
        }
        for (tenant, number) in [(2, 3), (1, 1), (9, 9), (1, 3)] {
            turns.remove(tenant, number);
        }
        assert_eq!(turns.len(), 2);
        assert_eq!(drain(&mut turns), [2, 4]);
    }
}
