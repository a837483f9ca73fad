//! The topics of another process, as a bus uses them.
//!
//! This crate has no connections. A crate above it implements [`RemoteBus`] over a protocol, and makes a [`Bus`] of it:
//! `switchboard-bus` does so over the service `switchboard.bus.v1.Bus`.

use super::{Bus, Side, TopicsPage};
use crate::{
    limits::Limits,
    log::{Checkpoint, Entry, Gap, Position, Publication, Topic},
};
use bytes::Bytes;
use futures_core::Stream;
use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};
use switchboard_core::Result;
use switchboard_wire::Codec;

/// Future of a remote operation.
pub type RemoteFuture<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// Events of a remote subscription. An error ends the subscription, and so does the end of the stream.
pub type RemoteStream = Pin<Box<dyn Stream<Item = Result<RemoteEvent>> + Send>>;

/// Topics of another process. Each method may be called at any time, from any task.
///
/// An implementation reconnects and resumes: a [`RemoteStream`] continues after a lost connection without repeated
/// entries, and reports those that are missing as [`RemoteEvent::Gap`].
pub trait RemoteBus: fmt::Debug + Send + Sync + 'static {
    /// Appends publications to a topic, all or none; resolves to the position of the last. Repeats an attempt whose
    /// outcome is not known only if each publication has an id.
    fn publish(&self, topic: String, publications: Vec<Publication>) -> RemoteFuture<Position>;

    /// Publishes in the background, in the order of the calls.
    ///
    /// # Errors
    /// `ResourceExhausted` when the queue is full.
    fn publish_later(&self, topic: String, publication: Publication) -> Result<()>;

    /// Begins a subscription; resolves when it receives all later entries.
    fn subscribe(&self, request: RemoteSubscribe) -> RemoteFuture<RemoteStream>;

    /// Sends a request; resolves to the number of its receivers, and the stream of replies.
    fn request(&self, request: RemoteRequest) -> RemoteFuture<(u32, RemoteStream)>;

    /// Replies to a request.
    fn reply(&self, reply_to: String, reply: Publication) -> RemoteFuture<()>;

    /// Acknowledges or rejects an entry in the background; returns false when the queue is full.
    fn settle(&self, ack_id: &str, outcome: Settled) -> bool;

    /// Resolves when the outcomes so far were sent, or given up.
    fn settled(&self) -> RemoteFuture<()>;

    /// Resolves to the number of entries that a topic accepts without a wait, at least one.
    fn credit(&self, topic: String) -> RemoteFuture<usize>;

    /// Reads the entries that a topic keeps.
    fn history(&self, request: RemoteHistory) -> RemoteFuture<RemoteHistoryPage>;

    /// Lists topics.
    fn topics(&self, request: RemoteTopics) -> RemoteFuture<TopicsPage>;
}

/// Outcome of an entry that has to be acknowledged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: an entry is acknowledged or rejected
pub enum Settled {
    /// It is not delivered again.
    Acknowledged,
    /// It is delivered again at once.
    Rejected,
}

/// Topics of a remote subscription.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: every connector must be able to send each selector
pub enum RemoteSelector {
    /// All topics whose names match a token pattern.
    Pattern(String),
    /// All topics whose names begin with these bytes.
    Prefix(Bytes),
    /// One topic.
    Topic(String),
}

/// First entry of a remote subscription.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: every connector must be able to send each start
pub enum RemoteStart {
    /// The one after this position.
    After(Position),
    /// The next one.
    Head,
    /// This number of kept entries of each topic.
    Last(usize),
    /// The one after this checkpoint.
    Resume(Checkpoint),
    /// The first one of this age.
    Since(Duration),
}

/// A subscription to begin.
#[derive(Clone, Debug)]
pub struct RemoteSubscribe {
    /// The topics.
    pub topics: RemoteSelector,
    /// The first entry.
    pub start: RemoteStart,
    /// Name of the group.
    pub group: Option<String>,
    /// The group is kept while it has no member.
    pub is_durable: bool,
    /// Members acknowledge entries.
    pub ack: Option<RemoteAck>,
}

/// Acknowledgements of a group.
#[derive(Clone, Debug)]
pub struct RemoteAck {
    /// Period after which an unacknowledged entry is delivered again.
    pub wait: Duration,
    /// Deliveries of one entry.
    pub attempts_max: u32,
    /// Topic for entries that were delivered as often.
    pub dead_letters: Option<String>,
    /// Unacknowledged entries of this member; `None`: the maximum of the server.
    pub unacknowledged_max: Option<usize>,
}

/// A request over a topic.
#[derive(Debug)]
pub struct RemoteRequest {
    /// The topic of the request.
    pub topic: String,
    /// The request.
    pub publication: Publication,
    /// Period after which no reply is accepted.
    pub time_limit: Duration,
}

/// A page of the entries that a topic keeps.
#[derive(Clone, Debug)]
pub struct RemoteHistory {
    /// The topic.
    pub topic: String,
    /// First entry: [`RemoteStart::Resume`] does not occur. `Head`: the newest entries.
    pub start: RemoteStart,
    /// Number of entries; `None`: the default of the server.
    pub entries_max: Option<usize>,
}

/// Entries that a topic keeps.
#[derive(Debug, Default)]
pub struct RemoteHistoryPage {
    /// The entries, and those that are missing before or between them.
    pub events: Vec<RemoteEvent>,
    /// The topic may keep later entries.
    pub has_more: bool,
}

/// A page of the topics of a selector.
#[derive(Clone, Debug)]
pub struct RemoteTopics {
    /// The topics.
    pub topics: RemoteSelector,
    /// Where the page begins: [`TopicsPage::next`] of the page before it.
    pub token: Option<String>,
    /// Number of topics; `None`: the default of the server.
    pub topics_max: Option<usize>,
}

/// Event of a remote subscription.
#[derive(Debug)]
// closed: every subscription handles each event
pub enum RemoteEvent {
    /// An entry.
    Entry(Box<RemoteEntry>),
    /// Entries that the subscription does not receive.
    Gap(Gap),
    /// No entry is missing since the start.
    Recovered,
}

/// A delivered entry.
#[derive(Debug)]
pub struct RemoteEntry {
    /// Its topic.
    pub topic: Topic,
    /// Its position.
    pub position: Position,
    /// The entry.
    pub entry: Entry,
    /// Number of the delivery, from 1.
    pub attempt: u32,
    /// For [`RemoteBus::settle`], in groups that acknowledge.
    pub ack_id: Option<Box<str>>,
}

impl RemoteEntry {
    /// Creates a delivered entry; `reply_to` is for [`RemoteBus::reply`], if its sender waits for a reply.
    ///
    /// # Errors
    /// `InvalidArgument` for the name of a topic that breaks a rule.
    pub fn new(
        topic: &str,
        position: Position,
        publication: Publication,
        reply_to: Option<&str>,
    ) -> Result<RemoteEntry> {
        let reply_to = reply_to.map(Topic::internal);
        // The server has applied its limits.
        let entry = Publication { reply_to, ..publication }.into_entry(|| 0, usize::MAX, usize::MAX)?;
        // Replies are entries of reserved topics.
        let topic = if topic.starts_with('$') { Topic::internal(topic) } else { Topic::new(topic)? };
        Ok(RemoteEntry { topic, position, entry, attempt: 1, ack_id: None })
    }
}

/// The other process of a [`Bus`], with the settings of this side.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) bus: Box<dyn RemoteBus>,
    pub(super) codec: Codec,
    pub(super) limits: Limits,
}

impl Bus {
    /// Creates a bus whose topics are those of another process. `codec` is that of messages whose publication names
    /// none.
    pub fn remote(bus: impl RemoteBus, codec: Codec) -> Bus {
        let remote = Remote { bus: Box::new(bus), codec, limits: Limits::default() };
        Bus { side: Side::Remote(Arc::new(remote)) }
    }
}
