//! Servers of a cluster, the topic of Kafka that has the entries, and the leaders of its partitions.

use super::{
    Options, PAUSE_MAX, RESPONSE_TIMEOUT,
    connection::Connection,
    errors,
    messages::{self, Metadata, NewTopic},
    options::Address,
};
use crate::attempts::Attempts;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use switchboard_core::{Result, backoff, clock};
use switchboard_message::Topic;
use switchboard_wire::Status;

/// Bytes of one batch, when the topic of Kafka is created. Larger ones are refused.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Age at which a layout is read again, as the number of partitions may have changed.
const LAYOUT_AGE_MAX: Duration = Duration::from_secs(60);

/// Number of the connection to one of the given servers.
const GIVEN: i32 = -1;

/// Use of a connection: a server handles the requests of one in sequence, and a request for new records waits.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Purpose {
    /// Metadata, and reads of partitions.
    Commands,
    /// Appends to one partition, whose replicas may be slow.
    Append(i32),
    Live,
}

/// A cluster with its connections.
pub(super) struct Cluster {
    pub(super) name: String,
    pub(super) options: Options,
    address: Address,
    state: Mutex<State>,
    reading: Attempts,
}

#[derive(Default)]
struct State {
    layout: Option<Arc<Layout>>,
    /// When it was read, or could not be read again.
    layout_read: Option<Instant>,
    connections: HashMap<(i32, Purpose), Arc<Connection>>,
    opening: HashMap<(i32, Purpose), Arc<Attempts>>,
    /// Words that change the epochs of partitions which have lost entries, with the topic's id.
    losses: HashMap<(u128, i32), u64>,
}

/// The topic of Kafka at one time.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) topic_id: u128,
    /// Leaders by partition.
    leaders: Vec<(i32, i32)>,
    servers: HashMap<i32, (String, u16)>,
}

/// The leader of a topic's partition.
pub(super) struct Target {
    pub(super) layout: Arc<Layout>,
    pub(super) partition: i32,
    pub(super) epoch: u64,
    pub(super) connection: Arc<Connection>,
}

/// Attempts of one operation within the response timeout.
pub(super) struct Tries {
    begun: Instant,
    failures: u32,
}

impl Tries {
    pub(super) fn new() -> Tries {
        Tries { begun: clock::now(), failures: 0 }
    }

    /// Returns the time for the next request.
    pub(super) fn limit(&self) -> Duration {
        RESPONSE_TIMEOUT.saturating_sub(clock::since(self.begun)).max(Duration::from_millis(100))
    }

    /// Waits before the next attempt, for which the leaders are read again. Returns the error if it would not help, or
    /// if the time has passed.
    pub(super) async fn again(
        &mut self,
        cluster: &Cluster,
        layout: &Arc<Layout>,
        request: &str,
        error: i16,
        text: &str,
    ) -> Result<()> {
        let status = errors::status(&cluster.name, request, error, text);
        if !errors::is_transient(error) || clock::since(self.begun) >= RESPONSE_TIMEOUT {
            return Err(status);
        }
        cluster.forget(layout);
        self.failures += 1;
        tokio::time::sleep(backoff::pause(self.failures, Duration::from_millis(20), PAUSE_MAX / 10)).await;
        Ok(())
    }
}

impl Layout {
    fn new(metadata: &Metadata) -> Layout {
        Layout {
            topic_id: metadata.topic_id,
            leaders: metadata.partitions.iter().map(|one| (one.leader, one.leader_epoch)).collect(),
            servers: metadata
                .servers
                .iter()
                .map(|(number, host, port)| (*number, (host.clone(), *port)))
                .collect(),
        }
    }

    /// Returns the partition of a topic: the one that Kafka's own clients select for the key.
    pub(super) fn partition(&self, topic: &Topic) -> i32 {
        let hash = murmur2(topic.name().as_bytes()) & 0x7FFF_FFFF;
        (hash as usize % self.leaders.len().max(1)) as i32
    }

    /// Returns the number of partitions.
    pub(super) fn partitions(&self) -> usize {
        self.leaders.len()
    }

    /// Returns the leader of a partition; negative if it has none.
    pub(super) fn leader(&self, partition: i32) -> i32 {
        self.leaders.get(partition as usize).map_or(GIVEN, |(leader, _)| *leader)
    }

    fn leader_epoch(&self, partition: i32) -> i32 {
        self.leaders.get(partition as usize).map_or(0, |(_, epoch)| *epoch)
    }

    /// Returns the epoch of positions: another topic, or another number of partitions, is another log.
    pub(super) fn epoch(&self) -> u64 {
        let (high, low) = ((self.topic_id >> 64) as u64, self.topic_id as u64);
        clock::mix(high ^ clock::mix(low ^ self.leaders.len() as u64)).max(1)
    }
}

impl Cluster {
    pub(super) fn new(name: String, address: Address, options: Options) -> Cluster {
        Cluster { name, options, address, state: Mutex::default(), reading: Attempts::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the partition of a topic, and a connection to its leader for reads.
    pub(super) async fn target(&self, topic: &Topic) -> Result<Target> {
        let layout = self.layout().await?;
        let partition = layout.partition(topic);
        let target = self.target_for(layout, partition, Purpose::Commands).await?;
        if target.layout.partition(topic) != partition {
            return Err(Status::unavailable(format!("{}: the number of partitions has changed", self.name)));
        }
        Ok(target)
    }

    /// Returns a connection to the leader of a partition for appends.
    pub(super) async fn target_of(&self, layout: Arc<Layout>, partition: i32) -> Result<Target> {
        self.target_for(layout, partition, Purpose::Append(partition)).await
    }

    /// Waits for the leader of a partition, if it has none. Others are not affected.
    async fn target_for(&self, mut layout: Arc<Layout>, partition: i32, purpose: Purpose) -> Result<Target> {
        let mut tries = Tries::new();
        while layout.leader(partition) < 0 {
            let request = messages::METADATA.name;
            tries.again(self, &layout, request, errors::LEADER_NOT_AVAILABLE, "").await?;
            layout = self.layout().await?;
        }
        let epoch = self.epoch(&layout, partition);
        let connection = self.connection(&layout, layout.leader(partition), purpose).await;
        let connection = connection.inspect_err(|_| self.forget(&layout))?;
        Ok(Target { layout, partition, epoch, connection })
    }

    /// Returns the epoch of positions in a partition.
    pub(super) fn epoch(&self, layout: &Layout, partition: i32) -> u64 {
        let losses = &self.state().losses;
        (layout.epoch() ^ losses.get(&(layout.topic_id, partition)).copied().unwrap_or(0)).max(1)
    }

    /// Begins a new epoch of a partition that has lost entries which this process has seen.
    pub(super) fn note_loss(&self, layout: &Layout, partition: i32) {
        let word = clock::mix(layout.leader_epoch(partition) as u64 + 1);
        self.state().losses.insert((layout.topic_id, partition), word);
    }

    /// Removes a layout that has become wrong: the next caller reads it again.
    pub(super) fn forget(&self, layout: &Arc<Layout>) {
        self.state().layout.take_if(|known| Arc::ptr_eq(known, layout));
    }

    /// Returns the leaders of the partitions; creates the topic of Kafka if there is none.
    pub(super) async fn layout(&self) -> Result<Arc<Layout>> {
        let known = || {
            let state = self.state();
            let is_fresh = state.layout_read.is_some_and(|read| clock::since(read) < LAYOUT_AGE_MAX);
            state.layout.clone().filter(|_| is_fresh)
        };
        let read = self.reading.open(known, self.read_layout()).await;
        read.or_else(|status| {
            // An old one is as good as before.
            let mut state = self.state();
            state.layout_read = Some(clock::now());
            state.layout.clone().ok_or(status)
        })
    }

    async fn read_layout(&self) -> Result<Arc<Layout>> {
        let (begun, mut failures, mut is_new) = (clock::now(), 0, false);
        loop {
            let connection = self.given().await?;
            let metadata = self.metadata(&connection).await?;
            let error = match metadata.error {
                errors::NONE => {
                    let mut leaders = metadata.partitions.iter().map(|one| one.leader >= 0);
                    // A topic that was just created receives its leaders. Later, a partition may be without.
                    let is_ready = if is_new { leaders.all(|has| has) } else { leaders.any(|has| has) };
                    (!is_ready || metadata.partitions.is_empty()).then_some(errors::LEADER_NOT_AVAILABLE)
                }
                error => Some(error),
            };
            let Some(error) = error else {
                let layout = Arc::new(Layout::new(&metadata));
                let mut state = self.state();
                state.layout = Some(layout.clone());
                state.layout_read = Some(clock::now());
                return Ok(layout);
            };
            if error == errors::UNKNOWN_TOPIC_OR_PARTITION {
                self.create(&metadata, &connection).await?;
                is_new = true;
            } else if !errors::is_transient(error) {
                return Err(errors::status(&self.name, messages::METADATA.name, error, ""));
            }
            if clock::since(begun) >= RESPONSE_TIMEOUT {
                return Err(errors::status(&self.name, messages::METADATA.name, error, ""));
            }
            failures += 1;
            tokio::time::sleep(backoff::pause(failures, Duration::from_millis(20), PAUSE_MAX / 10)).await;
        }
    }

    async fn metadata(&self, connection: &Connection) -> Result<Metadata> {
        let api = messages::METADATA;
        let body = messages::metadata_request(&self.options.prefix).0;
        let body = connection.request(api, &body, RESPONSE_TIMEOUT).await?;
        messages::metadata(body).ok_or_else(|| connection.unreadable(api))
    }

    /// Creates the topic of Kafka. Another process may do so at the same time.
    async fn create(&self, metadata: &Metadata, given: &Arc<Connection>) -> Result<()> {
        let api = messages::CREATE_TOPICS;
        let keep = i64::try_from(self.options.keep.as_millis()).unwrap_or(-1);
        let settings = [
            ("cleanup.policy", "delete".to_owned()),
            // Batches of other producers are readable as well.
            ("compression.type", "uncompressed".to_owned()),
            // The largest entry of a bus, and its fields.
            ("max.message.bytes", BATCH_BYTES_MAX.to_string()),
            ("message.timestamp.type", "LogAppendTime".to_owned()),
            ("retention.ms", keep.to_string()),
        ];
        let topic = NewTopic {
            name: &self.options.prefix,
            partitions: self.options.partitions.into(),
            replicas: self.options.replicas.map_or(-1, |replicas| replicas.try_into().unwrap_or(i16::MAX)),
            settings: &settings,
        };
        let layout = Layout::new(metadata);
        let controller = match layout.servers.contains_key(&metadata.controller) {
            true => self.connection(&layout, metadata.controller, Purpose::Commands).await?,
            false => given.clone(),
        };
        let body = messages::create_topics_request(&topic, RESPONSE_TIMEOUT.as_millis() as i32).0;
        let body = controller.request(api, &body, RESPONSE_TIMEOUT).await?;
        let (error, text) = messages::create_topics(body).ok_or_else(|| controller.unreadable(api))?;
        match error {
            errors::NONE | errors::TOPIC_ALREADY_EXISTS => Ok(()),
            // The controller has moved: the caller reads it again.
            _ if errors::is_transient(error) => Ok(()),
            _ => Err(errors::status(&self.name, api.name, error, &text)),
        }
    }

    /// Returns a connection to one of the given servers.
    async fn given(&self) -> Result<Arc<Connection>> {
        let known = || self.open_connection((GIVEN, Purpose::Commands));
        self.opening((GIVEN, Purpose::Commands))
            .open(known, async {
                let mut failed = Status::unavailable(format!("{} has no servers", self.name));
                for (host, port) in &self.address.servers {
                    match self.open((host, *port)).await {
                        Ok(connection) => return Ok(self.insert((GIVEN, Purpose::Commands), connection)),
                        Err(status) => failed = status,
                    }
                }
                Err(failed)
            })
            .await
    }

    /// Returns a connection to a server.
    pub(super) async fn connection(
        &self,
        layout: &Layout,
        server: i32,
        purpose: Purpose,
    ) -> Result<Arc<Connection>> {
        let key = (server, purpose);
        let advertised = layout.servers.get(&server);
        let given = self.address.servers.first();
        let address = if self.options.uses_given_address { given } else { advertised.or(given) };
        let Some((host, port)) = address else {
            return Err(Status::unavailable(format!("{} has no server {server}", self.name)));
        };
        let opening = async { Ok(self.insert(key, self.open((host, *port)).await?)) };
        self.opening(key).open(|| self.open_connection(key), opening).await
    }

    async fn open(&self, address: (&str, u16)) -> Result<Connection> {
        Connection::open(&self.name, address, self.address.credentials.as_ref()).await
    }

    fn opening(&self, key: (i32, Purpose)) -> Arc<Attempts> {
        self.state().opening.entry(key).or_default().clone()
    }

    fn open_connection(&self, key: (i32, Purpose)) -> Option<Arc<Connection>> {
        self.state().connections.get(&key).filter(|connection| !connection.is_closed()).cloned()
    }

    fn insert(&self, key: (i32, Purpose), connection: Connection) -> Arc<Connection> {
        let connection = Arc::new(connection);
        self.state().connections.insert(key, connection.clone());
        connection
    }
}

/// Hashes a key as the default partitioner of Kafka's Java client does.
fn murmur2(bytes: &[u8]) -> u32 {
    const M: u32 = 0x5BD1_E995;
    let mut hash = 0x9747_B28C ^ bytes.len() as u32;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let mut word = u32::from_le_bytes(*word).wrapping_mul(M);
        word ^= word >> 24;
        hash = hash.wrapping_mul(M) ^ word.wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (place, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * place);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_java_client() {
        // From the tests of Apache Kafka's `Utils.murmur2`.
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()) as i32, hash, "{key}");
        }
    }
}
