//! Topics of the server: the service `switchboard.bus.v1.Bus`, and `GET /events`.

use std::time::Duration;
use switchboard::Result;
use switchboard_bus::BusServer;
use switchboard_message::{Bus, TopicOptions};

/// Entries that each topic keeps for later subscriptions.
const ENTRIES_MAX: usize = 1_000;
/// Their age.
const AGE_MAX: Duration = Duration::from_secs(3_600);

/// Creates the service of a bus whose topics are in memory, and open to every client.
///
/// # Errors
/// Topics that the pattern of all topics leaves out: none.
pub(crate) fn service() -> Result<BusServer> {
    let options = TopicOptions::new().history(ENTRIES_MAX, AGE_MAX);
    let bus = Bus::builder().topics(">", options)?.build();
    Ok(BusServer::new(bus).event_patterns())
}
