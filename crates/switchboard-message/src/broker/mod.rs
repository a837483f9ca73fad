//! Engines of a bus: the contract of a broker that keeps the entries of topics in another process.
//!
//! A bus with an engine publishes to it, and follows the topics that have a subscription in this process. A broker
//! appends, delivers live entries and reads; the bus does the rest: it compares positions after an interruption, fills
//! holes, drops known entries, and reports gaps. Groups, durable cursors, patterns and requests are not part
//! of the contract: on a bus with an engine they fail with `Unimplemented`.

use crate::log::{Gap, Position, Publication, Topic};
use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};
use switchboard_core::Result;
use switchboard_wire::Status;

/// Future of an operation of a broker.
pub type BrokerFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A broker that keeps the entries of topics. Each method may be called at any time, from any task of a tokio runtime.
///
/// Operations fail with `Unavailable` while the broker cannot be reached, after a time that the implementation limits.
/// They are cancel safe: a dropped [`append`](Self::append) may have appended all entries, or none.
pub trait Broker: fmt::Debug + Send + Sync + 'static {
    /// Returns the name of the engine and where it is, for messages; without credentials.
    fn name(&self) -> &str;

    /// Returns the features of the engine.
    fn capabilities(&self) -> Capabilities;

    /// Appends publications to a topic, in their order, all or none; resolves to the position of the last. A
    /// publication whose id is known within the engine's window is not appended again, and has its first position.
    ///
    /// # Errors
    /// `Unavailable` when the broker cannot be reached; the entries may have been appended. A retry is safe if each
    /// publication has an id.
    fn append<'a>(&'a self, topic: &'a Topic, publications: Vec<Publication>) -> BrokerFuture<'a, Position>;

    /// Begins to deliver the live entries of a topic, and resolves to the position of its newest entry, read
    /// afterwards: each later entry is delivered, in order; some may be delivered twice, and an engine that lost one
    /// shows it by the next [`previous`](StoredEntry::previous). A second subscription to the topic replaces the first.
    ///
    /// `known` is the newest position that this process has seen. An engine whose log has lost it begins a new epoch.
    fn subscribe<'a>(
        &'a self,
        topic: &'a Topic,
        known: Option<Position>,
        to: Mailbox,
    ) -> BrokerFuture<'a, Position>;

    /// Ends the delivery of a topic; called after its last local subscription. Returns at once.
    fn unsubscribe(&self, topic: &Topic);

    /// Reads entries that the engine keeps, at most `entries_max`.
    fn read<'a>(&'a self, topic: &'a Topic, from: ReadFrom, entries_max: usize) -> BrokerFuture<'a, Page>;
}

/// Features of an engine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Meaning of an accepted publication.
    pub accepted: Accepted,
    /// Several publications are appended at once, all or none; without it a batch has one.
    pub appends_batches: bool,
    /// A topic's offsets increase by 1.
    pub has_dense_offsets: bool,
    /// Entries are kept, so that holes are filled and subscriptions start before the newest one.
    pub has_history: bool,
    /// Each topic keeps a number of entries of its own; without it, topics share a log that is limited by age or size.
    pub has_history_per_topic: bool,
    /// Publications whose id is known are dropped.
    pub drops_duplicates: bool,
    /// Entries and positions outlive a restart of the engine.
    pub survives_restart: bool,
    /// Topics that one process follows at a time.
    pub topics_max: usize,
}

impl Capabilities {
    /// Creates the capabilities of an engine without batches, history, ids and durability.
    pub fn new(accepted: Accepted) -> Capabilities {
        Capabilities {
            accepted,
            appends_batches: false,
            has_dense_offsets: false,
            has_history: false,
            has_history_per_topic: false,
            drops_duplicates: false,
            survives_restart: false,
            topics_max: usize::MAX,
        }
    }
}

/// Meaning of an accepted publication.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Accepted {
    /// The engine has it, as its own configuration defines.
    Engine,
    /// It is in a file of the operating system.
    File,
    /// It is in the memory of the process.
    Memory,
    /// It is in a file that was synchronised with the disk.
    Synced,
}

/// First entry of a read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ReadFrom {
    /// The one after this position.
    After(Position),
    /// This number of the newest ones.
    Last(usize),
    /// The first one that is not older than this.
    Since(Duration),
}

/// Entries that an engine keeps.
#[derive(Debug)]
#[non_exhaustive]
pub struct Page {
    /// Position of the topic's newest entry; its offset is 0 before the first one. An engine whose topics share a log
    /// may return the position of the log's newest entry, and then sets `through`.
    pub head: Position,
    /// Entries between the start of the read and the first entry that the engine does not have any more.
    pub missing: Option<Gap>,
    /// The entries, in order and without a hole.
    pub entries: Vec<StoredEntry>,
    /// Offset up to which the page has all entries of the topic, also behind its last one; `None` if that is the last
    /// one.
    pub through: Option<u64>,
}

impl Page {
    /// Creates a page.
    pub fn new(head: Position, missing: Option<Gap>, entries: Vec<StoredEntry>) -> Page {
        Page { head, missing, entries, through: None }
    }

    /// Notes the offset up to which the page has all entries of the topic.
    #[must_use]
    pub fn complete_through(mut self, offset: u64) -> Page {
        self.through = Some(offset);
        self
    }
}

/// An entry of an engine.
#[derive(Debug)]
#[non_exhaustive]
pub struct StoredEntry {
    /// Its position.
    pub position: Position,
    /// Offset of the topic's entry before it; 0 if there was none.
    pub previous: u64,
    /// The message. `None` for a record that cannot be read, which is reported as lost.
    pub publication: Option<Publication>,
}

impl StoredEntry {
    /// Creates an entry.
    pub fn new(position: Position, previous: u64, publication: Option<Publication>) -> StoredEntry {
        StoredEntry { position, previous, publication }
    }
}

/// Event of a topic that a broker delivers.
#[derive(Debug)]
#[non_exhaustive]
pub enum LiveEvent {
    /// An entry was appended.
    Entry(StoredEntry),
    /// The delivery has ended: the bus subscribes again, after a pause.
    Interrupted(Status),
}

/// Receiver of the live events of one topic. It does not wait, so that a broker needs no queue for them.
#[derive(Clone)]
pub struct Mailbox(Arc<dyn Fn(LiveEvent) + Send + Sync>);

impl Mailbox {
    /// Creates a mailbox of a function, which must not block.
    pub fn new(deliver: impl Fn(LiveEvent) + Send + Sync + 'static) -> Mailbox {
        Mailbox(Arc::new(deliver))
    }

    /// Delivers an event.
    pub fn deliver(&self, event: LiveEvent) {
        (self.0)(event);
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailbox")
    }
}
