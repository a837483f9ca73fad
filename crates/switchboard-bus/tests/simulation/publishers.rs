//! Publishers: each publication has an id, and is repeated until it is accepted.

use crate::{random::Random, world::World};
use std::{sync::Arc, time::Duration};
use switchboard_message::Bus;
use tokio::time::sleep;

/// Entries of each publisher.
const ENTRIES: u64 = 150;

/// Publishes numbered entries to random topics.
pub(crate) async fn run(world: Arc<World>, number: u64, bus: Bus, random: Random) {
    for entry in 0..ENTRIES {
        sleep(random.millis(0..=random.one_of(&[5, 50, 400]))).await;
        let topic = random.one_of(&world.topics.iter().map(String::as_str).collect::<Vec<_>>()).to_owned();
        publish(&world, &bus, &topic, number * 1_000_000 + entry).await;
    }
}

/// Publishes a value until the server accepts it.
pub(crate) async fn publish(world: &World, bus: &Bus, topic: &str, value: u64) {
    loop {
        match bus.publish(topic, &value).id(value.to_string()).await {
            Ok(position) => return world.journal.accepted(topic, position, value),
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}
