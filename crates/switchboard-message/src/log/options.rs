//! Options of a topic: history, the behaviour for slow readers, and storage.

use std::time::Duration;

/// Entries that a log keeps for later subscriptions. The default keeps none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct History {
    /// Number of entries.
    pub entries_max: usize,
    /// Their bytes, with about 128 per entry for the log itself.
    pub bytes_max: usize,
    /// Their age.
    pub age_max: Duration,
}

impl Default for History {
    fn default() -> Self {
        History { entries_max: 0, bytes_max: 8 << 20, age_max: Duration::MAX }
    }
}

/// Behaviour of a topic when its slowest cursor is behind by the whole backlog.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum SlowReader {
    /// The subscription ends with `ResourceExhausted`, after the gap. A group receives the gap and continues.
    Close,
    /// A new entry replaces the older one of its key. Entries without an older one remove the oldest entry, which is
    /// reported as a gap.
    KeepNewest,
    /// The oldest entry is removed; the subscription receives the gap and continues.
    #[default]
    Notify,
    /// The publisher waits at most this long for the slowest cursor, and then fails with `ResourceExhausted`.
    Wait(Duration),
}

/// Where the entries of a topic are when a publication is *accepted*: when its future resolves, and subscriptions
/// receive the entry.
///
/// Topics other than [`Memory`](Storage::Memory) are *durable*: they need a bus that is
/// [opened on a folder](crate::BusBuilder::open).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Storage {
    /// In the memory of the process.
    #[default]
    Memory,
    /// In a file, perhaps in the page cache alone: accepted entries survive the end of the process, also by a signal. A
    /// crash of the machine may lose the newest; the topic then begins a new epoch, and readers receive a gap.
    File,
    /// In a file, after `fdatasync`: accepted entries survive a crash of the machine. Publications that wait at the
    /// same time share one `fdatasync`.
    Synced,
}

/// Options of a topic.
///
/// ```
/// # use std::time::Duration;
/// # use switchboard_message::{Bus, SlowReader, TopicOptions};
/// let chat = TopicOptions::new().history(100, Duration::from_secs(300));
/// let prices = TopicOptions::new().history(10_000, Duration::MAX).conflate();
/// let jobs = TopicOptions::new().slow_reader(SlowReader::Wait(Duration::from_secs(5)));
/// let bus = Bus::builder().topics("chat/>", chat)?.topics("prices", prices)?.topics("jobs/>", jobs)?.build();
/// # Ok::<_, switchboard_wire::Status>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TopicOptions {
    pub(super) history: History,
    pub(super) slow_reader: SlowReader,
    pub(super) conflates: bool,
    pub(super) backlog_entries_max: Option<usize>,
    pub(super) backlog_bytes_max: Option<usize>,
    pub(super) storage: Storage,
}

impl TopicOptions {
    /// Creates the options of a topic without history, whose slow readers receive gaps.
    pub fn new() -> TopicOptions {
        TopicOptions::default()
    }

    /// Keeps this many entries, not older than `age_max`, for later subscriptions. Other entries are delivered while a
    /// subscription has not read them: until then, later subscriptions that start before them receive them as well. The
    /// memory of old entries is released when the topic is used again, when its shard is full, or by
    /// [`Bus::remove_unused`](crate::Bus::remove_unused).
    #[must_use]
    pub fn history(mut self, entries_max: usize, age_max: Duration) -> TopicOptions {
        self.history.entries_max = entries_max;
        self.history.age_max = age_max;
        self
    }

    /// Limits the bytes of the history; default 8 MiB.
    #[must_use]
    pub fn history_bytes(mut self, bytes_max: usize) -> TopicOptions {
        self.history.bytes_max = bytes_max;
        self
    }

    /// Keeps only the newest entry of each key.
    #[must_use]
    pub fn conflate(mut self) -> TopicOptions {
        self.conflates = true;
        self
    }

    /// Sets the behaviour for slow readers.
    #[must_use]
    pub fn slow_reader(mut self, slow_reader: SlowReader) -> TopicOptions {
        self.slow_reader = slow_reader;
        self
    }

    /// Limits the unread entries beyond the history; the default is that of [`Limits`](crate::Limits). At least 1.
    #[must_use]
    pub fn backlog(mut self, entries_max: usize) -> TopicOptions {
        self.backlog_entries_max = Some(entries_max.max(1));
        self
    }

    /// Limits the bytes of the unread entries beyond the history. A single entry is always accepted.
    #[must_use]
    pub fn backlog_bytes(mut self, bytes_max: usize) -> TopicOptions {
        self.backlog_bytes_max = Some(bytes_max);
        self
    }

    /// Sets where accepted entries are; default [`Storage::Memory`]. A durable topic needs a
    /// [history](Self::history): after a restart, it has the entries of its history.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use switchboard_message::{Bus, FileOptions, Storage, TopicOptions};
    /// # fn main() -> switchboard_core::Result<()> {
    /// let orders = TopicOptions::new().history(100_000, Duration::MAX).storage(Storage::Synced);
    /// let files = FileOptions::new("/var/lib/desk/topics");
    /// let bus = Bus::builder().topics("orders/>", orders)?.open(files)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn storage(mut self, storage: Storage) -> TopicOptions {
        self.storage = storage;
        self
    }

    /// The entries of the topic are in files.
    pub(crate) fn is_durable(&self) -> bool {
        self.storage != Storage::Memory
    }

    /// Returns whether the topic keeps entries.
    pub fn has_history(&self) -> bool {
        self.history.entries_max > 0
    }

    /// Returns where accepted entries are.
    pub(crate) fn at(&self) -> Storage {
        self.storage
    }

    /// Returns the history.
    pub(crate) fn kept(&self) -> &History {
        &self.history
    }

    /// Only the newest entry of each key is kept.
    pub(crate) fn conflates(&self) -> bool {
        self.conflates
    }

    /// The log looks up entries by key.
    pub(crate) fn is_keyed(&self) -> bool {
        self.conflates || self.slow_reader == SlowReader::KeepNewest
    }
}
