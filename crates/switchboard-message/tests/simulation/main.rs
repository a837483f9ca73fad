//! Random publishers, subscriptions, groups and durable cursors on one thread, from seeds, against a model.
//!
//! `SEED=7 cargo test -p switchboard-message --test simulation` runs one seed. Topics are
//! distributed to the shards at random in each process: a seed may need several runs.
#![allow(clippy::unwrap_used)]

mod keyed;
mod model;
mod resume;
mod world;

use world::World;

/// Seeds of a usual run.
const SEEDS: u64 = 100;
/// Operations of each.
const OPERATIONS: usize = 800;

fn run(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..OPERATIONS {
        world.step();
        world.check_budgets();
    }
    world.finish();
}

#[test]
fn random_operations_keep_the_invariants() {
    let seeds = match std::env::var("SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..SEEDS,
    };
    for seed in seeds {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed)) {
            eprintln!("replay: SEED={seed} cargo test -p switchboard-message --test simulation");
            std::panic::resume_unwind(panic);
        }
    }
}
