//! Topics of the server: the service `switchboard.bus.v1.Bus`, `GET /events`, and clients of ZeroMQ, MQTT, NATS
//! and Redis.

use std::{path::Path, time::Duration};
use switchboard::{Result, Server};
use switchboard_adapter::{Mqtt, Nats, Redis, Zmtp};
use switchboard_bus::BusServer;
use switchboard_message::{Bus, FileOptions, Storage, TopicOptions};

/// Entries that each topic keeps for later subscriptions.
const ENTRIES_MAX: usize = 1_000;
/// Their age.
const AGE_MAX: Duration = Duration::from_secs(3_600);

/// Adds a bus whose topics are in memory, or in the files of a folder, and open to every client. Clients of NATS need a
/// listener `nats://` too.
///
/// # Errors
/// Errors of the folder; see `BusBuilder::open`.
pub(crate) fn with_topics(server: Server, folder: Option<&Path>) -> Result<Server> {
    let options = TopicOptions::new().history(ENTRIES_MAX, AGE_MAX);
    let bus = match folder {
        None => Bus::builder().topics(">", options)?.build(),
        Some(folder) => {
            Bus::builder().topics(">", options.storage(Storage::File))?.open(FileOptions::new(folder))?
        }
    };
    let server = server.plugin(Zmtp::new(bus.clone())).plugin(Redis::new(bus.clone()));
    let server = server.plugin(Nats::new(bus.clone())).plugin(Mqtt::new(bus.clone()));
    Ok(server.plugin(BusServer::new(bus).event_patterns()))
}
