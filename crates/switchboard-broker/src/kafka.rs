//! Kafka 3.1 or later: one topic of Kafka, whose partitions have the entries of all topics.
//!
//! With the prefix `swb`, the topic of Kafka is `swb`. The key of a record is the topic of its entry, and its partition
//! is the one that Kafka's own clients select, and the message as value. The offset of an entry is that of its record
//! plus 1: the offsets of a topic increase with holes. The epoch is derived from the id of the topic of Kafka and its
//! number of partitions.
//!
//! A process that follows a topic reads its whole partition, and continues there after an interruption.

mod append;
mod batch;
mod cluster;
mod codec;
mod connection;
mod errors;
mod ids;
mod live;
mod log;
mod messages;
mod options;
mod read;
mod writer;

pub use options::Options;

use append::Appends;
use cluster::Cluster;
use live::Live;
use options::Address;
use std::{fmt, sync::Arc, time::Duration};
use switchboard_core::Result;
use switchboard_message::{
    Position, Publication, Topic,
    broker::{Accepted, Broker, BrokerFuture, Capabilities, Mailbox, Page, ReadFrom},
};
use switchboard_wire::Status;

/// Servers respond within milliseconds; one that takes longer than this counts as down.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// An engine in Kafka.
pub struct Kafka {
    cluster: Arc<Cluster>,
    appends: Arc<Appends>,
    live: Arc<Live>,
}

impl Kafka {
    /// Creates the engine at `kafka://[USER:PASSWORD@]HOST:PORT[,HOST:PORT]…`, with some of the servers of a cluster; a
    /// user is authenticated by SASL's mechanism PLAIN. Nothing is sent before it is used; then the topic of Kafka is
    /// created, if there is none.
    ///
    /// # Errors
    /// `InvalidArgument` for a malformed address or prefix.
    pub fn connect(url: &str, options: Options) -> Result<Kafka> {
        options.check()?;
        let address = Address::parse(url)?;
        let servers: Vec<_> = address.servers.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        let name = format!("kafka {}", servers.join(","));
        let cluster = Arc::new(Cluster::new(name, address, options));
        Ok(Kafka { appends: Appends::new(cluster.clone()), live: Live::new(cluster.clone()), cluster })
    }
}

fn ended(cluster: &Cluster) -> Status {
    Status::unavailable(format!("{} is shut down", cluster.name))
}

impl Broker for Kafka {
    fn name(&self) -> &str {
        &self.cluster.name
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new(Accepted::Engine);
        capabilities.appends_batches = true;
        capabilities.has_history = true;
        capabilities.drops_duplicates = !self.cluster.options.dedup_window.is_zero();
        capabilities.survives_restart = true;
        capabilities.topics_max = self.cluster.options.topics_max;
        capabilities
    }

    fn append<'a>(&'a self, topic: &'a Topic, publications: Vec<Publication>) -> BrokerFuture<'a, Position> {
        Box::pin(self.appends.append(topic, publications))
    }

    fn subscribe<'a>(
        &'a self,
        topic: &'a Topic,
        known: Option<Position>,
        to: Mailbox,
    ) -> BrokerFuture<'a, Position> {
        Box::pin(self.live.subscribe(topic, known, to))
    }

    fn unsubscribe(&self, topic: &Topic) {
        self.live.unsubscribe(topic);
    }

    fn read<'a>(&'a self, topic: &'a Topic, from: ReadFrom, entries_max: usize) -> BrokerFuture<'a, Page> {
        Box::pin(read::page(&self.cluster, topic, from, entries_max))
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        self.live.stop();
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka")
            .field("name", &self.cluster.name)
            .field("options", &self.cluster.options)
            .finish_non_exhaustive()
    }
}
