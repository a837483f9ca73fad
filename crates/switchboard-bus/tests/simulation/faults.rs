//! Faults of a run, one after the other, and the recovery from all of them.

use crate::world::World;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::time::{advance, sleep};

/// Crashes of the server process with its topics, at most. Publications in between show the lost entries.
const NEW_LOGS_MAX: u64 = 2;

/// Disturbs the network and the server, and ends with a healthy network.
pub(crate) async fn run(world: &Arc<World>) {
    let random = world.random.child();
    // The first entries arrive before the first fault.
    sleep(Duration::from_secs(1)).await;
    for _ in 0..random.within(10..=40) {
        sleep(random.millis(0..=random.one_of(&[50, 500, 2_000]))).await;
        world.check_budgets();
        match random.within(0..=99) {
            0..30 => {
                let cut = world.link.abort_connections(random.percent(50), &random);
                world.cuts.fetch_add(cut as u64, Ordering::Relaxed);
            }
            30..50 => {
                let flows = random.one_of(&[[false, false], [true, false], [false, true]]);
                world.link.set(|state| state.flows = flows);
            }
            50..58 => world.link.set(|state| state.listens = false),
            58..70 => {
                let (latency, width) = (random.one_of(&[(0, 30), (100, 300)]), random.one_of(&[10, 1_000]));
                world.link.set(|state| (state.latency, state.width) = (latency, width));
            }
            70..82 => {
                let is_new = random.percent(30) && world.new_logs.load(Ordering::Relaxed) < NEW_LOGS_MAX;
                world.crash(is_new, random.millis(0..=1_500)).await;
            }
            82..88 => advance(random.millis(1..=random.one_of(&[50, 3_000, 60_000]))).await,
            _ => world.link.heal(),
        }
    }
    world.link.heal();
}
