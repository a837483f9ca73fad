//! Simulated server for tests of the effect of a greedy tenant on other tenants.

use super::{line::Line, turns::Pushed};
use crate::guard::concurrency::{Concurrency, GradientLimit, Limiter, Timed};
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    time::{Duration, Instant},
};

/// Number of units that process one call at a time, 5 ms each, without variance: calls that start together
/// end together, and so do their successors. This load is the worst case for calls that arrive in between.
const UNITS: usize = 40;
const SERVICE: u64 = 5_000;
/// In calls per second.
const CAPACITY: f64 = UNITS as f64 * 1e6 / SERVICE as f64;
const WAITING_MAX: usize = 100;
/// Priority level of calls that set none.
const NORMAL: usize = 2;
/// Duration in microseconds; the limits adapt during the first half.
const TIME: u64 = 4_000_000;

/// Result of a tenant.
struct Outcome {
    /// The 99th percentile of the time from a call's arrival to its reply, in microseconds.
    p99: u64,
    /// Share of the capacity.
    part: f64,
}

struct World {
    limiter: Limiter,
    line: Line,
    start: Instant,
    /// Time at which each unit is free.
    units: [u64; UNITS],
    running: BinaryHeap<Reverse<Running>>,
}

/// A running call: its end, its number, its tenant, its arrival, its start, and whether it is timed.
type Running = (u64, u64, usize, u64, u64, bool);

impl World {
    fn begin(&mut self, tenant: usize, arrived: u64, now: u64, timed: bool) {
        let unit = self.units.iter_mut().min().expect("there are units");
        *unit = (*unit).max(now) + SERVICE;
        let number = self.running.len() as u64;
        self.running.push(Reverse((*unit, number, tenant, arrived, now, timed)));
    }

    fn at(&self, us: u64) -> Instant {
        self.start + Duration::from_micros(us)
    }
}

/// Runs tenants that each offer a multiple of the capacity; returns their results.
fn run(concurrency: &Concurrency, loads: &[f64]) -> Vec<Outcome> {
    let limiter = Limiter::new("simulation".into(), concurrency);
    let mut world = World {
        limiter,
        line: Line::default(),
        start: Instant::now(),
        units: [0; UNITS],
        running: BinaryHeap::new(),
    };
    let mut random = 88_172_645_463_325_252u64;
    let mut gap = |load: f64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        -(1.0 - (random >> 11) as f64 / (1u64 << 53) as f64).ln() * 1e6 / (CAPACITY * load)
    };
    let mut due: Vec<f64> = loads.iter().map(|load| gap(*load)).collect();
    let mut waiting = Vec::new();
    let mut times = vec![Vec::new(); loads.len()];
    loop {
        let tenant = (0..loads.len())
            .min_by(|one, other| due[*one].total_cmp(&due[*other]))
            .expect("at least one tenant calls");
        let arrived = due[tenant] as u64;
        if let Some(Reverse((end, _, whose, came, began, timed))) =
            world.running.peek().copied().filter(|Reverse(first)| first.0 <= arrived)
        {
            world.running.pop();
            let sample = Timed { began: world.at(began), ended: world.at(end), outcome: Some(true) };
            world.limiter.leave();
            if timed {
                world.limiter.learn(sample, 1);
            }
            world.line.leave(whose as u64, world.limiter.load().limit);
            if end > TIME / 2 {
                times[whose].push(end - came);
            }
            while let Some(at) = world.line.next(world.limiter.load()) {
                let timed = world.limiter.try_enter().expect("there is room for the next");
                let number = world.line.admit(at, world.limiter.load().limit).expect("it waits");
                let (next, came) = waiting[number as usize];
                world.begin(next, came, end, timed);
            }
        } else if arrived >= TIME {
            break;
        } else {
            due[tenant] += gap(loads[tenant]);
            let (now, load) = (world.at(arrived), world.limiter.load());
            if world.line.passes(tenant as u64, 1, now, load) {
                let timed = world.limiter.try_enter().expect("there is room for it");
                world.line.take(tenant as u64, 1, load.limit);
                world.begin(tenant, arrived, arrived, timed);
            } else if world.line.push(tenant as u64, 1, NORMAL, waiting.len() as u32, WAITING_MAX)
                == Pushed::Waits
            {
                waiting.push((tenant, arrived));
            }
        }
    }
    let capacity = CAPACITY * (TIME / 2) as f64 / 1e6;
    let outcome = |mut times: Vec<u64>| {
        times.sort_unstable();
        let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or(0);
        Outcome { p99, part: times.len() as f64 / capacity }
    };
    times.into_iter().map(outcome).collect()
}

/// Limits under which few calls queue in the server. The gradient limit lets the calls of all tenants take up
/// to half as long again.
fn limits() -> [Concurrency; 2] {
    [Concurrency::from(UNITS as u32), Concurrency::auto()]
}

#[test]
fn well_behaved_tenant_is_served_beside_greedy_ones_as_if_it_were_alone() {
    for limit in limits() {
        let alone = &run(&limit, &[0.1])[0];
        assert!((0.09..0.11).contains(&alone.part), "{limit:?}: {}", alone.part);
        for greedy in [&[10.0][..], &[5.0, 5.0], &[1.0, 2.0, 7.0]] {
            let outcomes = run(&limit, &[&[0.1], greedy].concat());
            let ratio = outcomes[0].p99 as f64 / alone.p99 as f64;
            assert!(ratio < 1.8, "{limit:?} beside {greedy:?}: {ratio:.2} times");
            assert!(outcomes[0].part > alone.part * 0.95, "{limit:?} beside {greedy:?}");
            let all: f64 = outcomes.iter().map(|outcome| outcome.part).sum();
            assert!(all > 0.9, "{limit:?} beside {greedy:?}: goodput {all:.2}");
            let parts: Vec<_> = outcomes[1..].iter().map(|outcome| outcome.part).collect();
            let (least, most) =
                (parts.iter().copied().fold(1.0, f64::min), parts.iter().copied().fold(0.0, f64::max));
            assert!(most - least < 0.05, "greedy ones share alike: {parts:?}");
        }
    }
}

#[test]
fn capacity_is_used_when_no_tenant_needs_protection() {
    for limit in limits() {
        for loads in [&[10.0][..], &[5.0, 5.0], &[0.5; 10]] {
            let all: f64 = run(&limit, loads).iter().map(|outcome| outcome.part).sum();
            assert!(all > 0.93, "{limit:?} with {loads:?}: {all:.2}");
        }
    }
}

/// `docs/limits.md` documents this cost of a gradient limit.
#[test]
fn gradient_lets_a_greedy_tenant_delay_others_by_the_tolerance() {
    let worst = |tolerance| {
        let limit = Concurrency::Gradient(GradientLimit { tolerance, ..GradientLimit::default() });
        let alone = run(&limit, &[0.1])[0].p99 as f64;
        let beside = |greedy: &[f64]| run(&limit, &[&[0.1], greedy].concat())[0].p99 as f64 / alone;
        [&[10.0][..], &[5.0, 5.0], &[1.0, 2.0, 7.0]].into_iter().map(beside).fold(0.0, f64::max)
    };
    let (usual, strict) = (worst(GradientLimit::default().tolerance), worst(1.1));
    assert!(usual < 3.0, "{usual:.2} times");
    assert!(strict < 2.0, "{strict:.2} times");
}
