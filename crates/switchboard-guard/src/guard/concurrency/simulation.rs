//! Simulated server for tests of adaptive limits under load.

use super::{Adaptive, Auto, AutoLimit, Gradient, GradientLimit, Sample};
use std::{collections::VecDeque, time::Duration};

/// Workers that process one call at a time, 5 ms each, and callers that give up after 100 ms.
const WORKERS: usize = 10;
const SERVICE: u64 = 5_000;
const PATIENCE: u64 = 100_000;
/// Capacity of the workers in calls per second.
const CAPACITY: f64 = WORKERS as f64 * 1e6 / SERVICE as f64;

struct Outcome {
    /// Calls per second that were answered in time.
    goodput: f64,
    limit: u32,
}

/// Offers `load` times the capacity for `seconds` and evaluates the second half; times are in microseconds.
fn run(mut limiter: Option<&mut dyn Adaptive>, mut limit: u32, load: f64, seconds: u64) -> Outcome {
    let (end, mut random) = (seconds * 1_000_000, 88_172_645_463_325_252u64);
    let mut unit = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as f64 / (1u64 << 53) as f64
    };
    // Time at which each worker is free, and the admitted calls with their arrival and end.
    let mut workers = [0u64; WORKERS];
    let mut running: VecDeque<(u64, u64)> = VecDeque::new();
    let (mut now, mut ended, mut good) = (0.0, 0u64, 0u64);
    while (now as u64) < end {
        now += -(1.0 - unit()).ln() * 1e6 / (CAPACITY * load);
        let arrived = now as u64;
        while let Some(&(began, until)) = running.front().filter(|(_, until)| *until <= arrived) {
            let in_flight = running.len() as u32;
            running.pop_front();
            ended += 1;
            let took = until - began;
            if took <= PATIENCE && until > end / 2 {
                good += 1;
            }
            if let Some(limiter) = &mut limiter {
                limit = limiter.sample(Sample {
                    now: Duration::from_micros(until),
                    took: Duration::from_micros(took),
                    is_ok: took <= PATIENCE,
                    ended,
                    in_flight,
                });
            }
        }
        if running.len() < limit as usize {
            let free = workers.iter_mut().min().expect("there are workers");
            // Varies by ±10 %.
            let service = (SERVICE as f64 * (0.9 + 0.2 * unit())) as u64;
            *free = (*free).max(arrived) + service;
            let until = *free;
            let at = running.partition_point(|(_, other)| *other <= until);
            running.insert(at, (arrived, until));
        }
    }
    Outcome { goodput: good as f64 * 2.0 / seconds as f64, limit }
}

#[test]
fn without_a_limit_goodput_collapses() {
    assert!(run(None, u32::MAX, 0.8, 4).goodput > CAPACITY * 0.75);
    assert!(run(None, u32::MAX, 10.0, 4).goodput < CAPACITY * 0.1, "the simulation has no overload");
}

#[test]
fn adaptive_limits_keep_goodput_flat_at_ten_times_capacity() {
    for load in [1.5, 3.0, 10.0] {
        let auto = run(Some(&mut Auto::new(AutoLimit::default())), 40, load, 60);
        assert!(auto.goodput > CAPACITY * 0.9, "auto at {load}: {} at {}", auto.goodput, auto.limit);
        let gradient = run(Some(&mut Gradient::new(GradientLimit::default())), 20, load, 60);
        assert!(
            gradient.goodput > CAPACITY * 0.9,
            "gradient at {load}: {} at {}",
            gradient.goodput,
            gradient.limit
        );
    }
}

#[test]
fn automatic_limit_is_near_the_concurrency_without_a_queue() {
    let mut auto = Auto::new(AutoLimit { initial: 500, ..AutoLimit::default() });
    let outcome = run(Some(&mut auto), 500, 10.0, 120);
    assert!((WORKERS as u32..4 * WORKERS as u32).contains(&outcome.limit), "{}", outcome.limit);
}

#[test]
fn automatic_limit_that_begins_too_high_under_full_load_is_found_out_soon() {
    let initial = 8 * WORKERS as u32;
    let mut auto = Auto::new(AutoLimit { initial, ..AutoLimit::default() });
    let outcome = run(Some(&mut auto), initial, 10.0, 6);
    assert!((WORKERS as u32..2 * WORKERS as u32).contains(&outcome.limit), "{}", outcome.limit);
    assert!(outcome.goodput > CAPACITY * 0.9, "{}", outcome.goodput);
}

#[test]
fn limits_stay_within_their_bounds() {
    let bounds = AutoLimit { initial: 1000, least: 7, most: 9, ..AutoLimit::default() };
    let outcome = run(Some(&mut Auto::new(bounds)), 9, 3.0, 20);
    assert!((7..=9).contains(&outcome.limit), "{}", outcome.limit);
    let bounds = GradientLimit { initial: 1000, least: 7, most: 9, ..GradientLimit::default() };
    let outcome = run(Some(&mut Gradient::new(bounds)), 9, 3.0, 20);
    assert!((7..=9).contains(&outcome.limit), "{}", outcome.limit);
}

#[test]
fn light_load_does_not_lower_the_limit_below_its_needs() {
    for (load, initial) in [(0.5, 40), (0.5, 8), (0.6, 14), (0.7, 14)] {
        let offered = run(None, u32::MAX, load, 60).goodput;
        let mut auto = Auto::new(AutoLimit { initial, ..AutoLimit::default() });
        let outcome = run(Some(&mut auto), initial, load, 60);
        let (goodput, limit) = (outcome.goodput, outcome.limit);
        assert!(goodput > offered * 0.998, "{goodput} of {offered} at {load} with a limit of {limit}");
    }
    let outcome = run(Some(&mut Gradient::new(GradientLimit::default())), 20, 0.5, 60);
    assert!(outcome.goodput > CAPACITY * 0.48, "{} at {}", outcome.goodput, outcome.limit);
}
