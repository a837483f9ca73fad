//! Limits of a bus.

use std::time::Duration;

/// Limits of a [`Bus`](crate::Bus). An operation that a limit refuses fails with `ResourceExhausted` and
/// the name of the limit.
///
/// ```
/// let mut limits = switchboard_message::Limits::default();
/// limits.entry_bytes_max = 64 << 10;
/// let bus = switchboard_message::Bus::builder().limits(limits).build();
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Unread entries of one topic beyond its history; default 1,024. The topic's [`SlowReader`](crate::SlowReader)
    /// defines the behaviour at this limit. Topics may set their own; at least 1. Beside these entries, each
    /// subscription without a group holds at most 64 entries, or 64 KiB and one entry, that it has taken and not
    /// delivered.
    pub backlog_entries_max: usize,
    /// Bytes of these entries; default 8 MiB.
    pub backlog_bytes_max: usize,
    /// Entries of one batch; default 1,024.
    pub batch_entries_max: usize,
    /// Publication ids that one topic remembers; default 1,024. The oldest are forgotten first.
    pub dedup_ids_max: usize,
    /// Period in which a topic recognises a publication id; default 2 minutes.
    pub dedup_window: Duration,
    /// Period that a durable cursor without a connected member is kept at least; default 7 days. Older ones are removed
    /// when `durable_cursors_max` is reached, in other shards at most once a second.
    pub durable_age_max: Duration,
    /// Durable cursors; default 100,000. That of a pattern counts in each of the 16 shards.
    pub durable_cursors_max: usize,
    /// Bytes of one entry with its key, id and headers; default 1 MiB.
    pub entry_bytes_max: usize,
    /// Bytes of one key, of one publication id, or of one name of a group; default 256.
    pub key_bytes_max: usize,
    /// Replies that one request or survey collects; default 1,024.
    pub replies_max: usize,
    /// Bytes of the entries that one of the 16 shards keeps, and of the publication ids that its topics remember;
    /// default 64 MiB. Expired entries, and ids whose window has passed, are removed first.
    pub shard_bytes_max: usize,
    /// Subscriptions of the bus; default 1,000,000.
    pub subscriptions_max: usize,
    /// Topics of the bus; default 1,000,000. At this limit, topics without entries, cursors and publication ids are
    /// removed, at most once a second.
    pub topics_max: usize,
    /// Entries that one member of a group holds unacknowledged; default 64, at least 1. The member receives no more
    /// until it has acknowledged one. A subscription may set a smaller number. Groups hold these entries, and those
    /// that are to be delivered again; they are not counted in `shard_bytes_max`.
    pub unacknowledged_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            backlog_entries_max: 1_024,
            backlog_bytes_max: 8 << 20,
            batch_entries_max: 1_024,
            dedup_ids_max: 1_024,
            dedup_window: Duration::from_secs(120),
            durable_age_max: Duration::from_secs(7 * 86_400),
            durable_cursors_max: 100_000,
            entry_bytes_max: 1 << 20,
            key_bytes_max: 256,
            replies_max: 1_024,
            shard_bytes_max: 64 << 20,
            subscriptions_max: 1_000_000,
            topics_max: 1_000_000,
            unacknowledged_max: 64,
        }
    }
}
