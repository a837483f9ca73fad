//! Topics of the server: the service `switchboard.bus.v1.Bus`, and `GET /events`.

use std::{path::Path, time::Duration};
use switchboard::Result;
use switchboard_bus::BusServer;
use switchboard_message::{Bus, FileOptions, Storage, TopicOptions};

/// Entries that each topic keeps for later subscriptions.
const ENTRIES_MAX: usize = 1_000;
/// Their age.
const AGE_MAX: Duration = Duration::from_secs(3_600);

/// Creates the service of a bus whose topics are in memory, or in the files of a folder, and open to every client.
///
/// # Errors
/// Errors of the folder; see `BusBuilder::open`.
pub(crate) fn service(folder: Option<&Path>) -> Result<BusServer> {
    let options = TopicOptions::new().history(ENTRIES_MAX, AGE_MAX);
    let bus = match folder {
        None => Bus::builder().topics(">", options)?.build(),
        Some(folder) => {
            Bus::builder().topics(">", options.storage(Storage::File))?.open(FileOptions::new(folder))?
        }
    };
    Ok(BusServer::new(bus).event_patterns())
}
