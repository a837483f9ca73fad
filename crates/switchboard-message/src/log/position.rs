//! Positions in a log, and missing parts of it.

use super::Topic;
use std::{fmt, ops::Range};

/// Place of an entry in the log of its topic.
///
/// The epoch identifies the log: another epoch means another log, whose offsets are unrelated. Offsets begin with 1 and
/// increase by 1. Position `{ epoch, offset: 0 }` is before the first entry.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Position {
    /// Identifier of the log.
    pub epoch: u64,
    /// Number of the entry.
    pub offset: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{}", self.epoch, self.offset)
    }
}

/// Progress of a subscription to a pattern: the sequence number, in each shard of the logs, up to which it has received
/// the entries. A later subscription can continue [after it](crate::Subscribe::resume), whichever topics match.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// Identifier of the logs: that of another process, or of another bus, differs.
    pub epoch: u64,
    /// Sequence number of each shard.
    pub sequences: Vec<u64>,
}

impl Checkpoint {
    /// Creates a checkpoint of what another process has stored.
    pub fn new(epoch: u64, sequences: Vec<u64>) -> Checkpoint {
        Checkpoint { epoch, sequences }
    }

    /// Notes an entry that was received. Numbers of shards that do not exist are ignored.
    pub fn advance(&mut self, shard: u32, sequence: u64) {
        if let Some(known) = self.sequences.get_mut(shard as usize) {
            *known = sequence.max(*known);
        }
    }
}

/// Entries of a topic that a subscription does not receive.
///
/// ```
/// # use switchboard_message::{Bus, Delivery, GapReason, TopicOptions};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> switchboard_core::Result<()> {
/// let bus = Bus::builder().topics("t", TopicOptions::new().backlog(2))?.build();
/// let mut slow = bus.subscribe::<i32>("t").await?;
/// bus.publish_batch("t", &[1, 2, 3, 4, 5]).await?;
/// let Some(Delivery::Gap(gap)) = slow.next().await? else { panic!("no gap") };
/// assert_eq!((gap.range, gap.missing, gap.reason), (1..4, Some(3), GapReason::Lagged));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Gap {
    /// The topic.
    pub topic: Topic,
    /// Identifier of the log that the range is in.
    pub epoch: u64,
    /// Offsets of the missing entries. The next entry of the topic has the offset `range.end` or a later one. For
    /// [`GapReason::Lost`], the log ended before `range.start`: later entries have offsets from there on.
    pub range: Range<u64>,
    /// Number of the missing entries; `None` if some in the range were replaced by a newer entry of their key, or if
    /// they were in another log.
    pub missing: Option<u64>,
    /// Reason why they are missing.
    pub reason: GapReason,
}

impl Gap {
    /// Creates a gap that another process has reported.
    pub fn new(topic: Topic, epoch: u64, range: Range<u64>, missing: Option<u64>, reason: GapReason) -> Gap {
        Gap { topic, epoch, range, missing, reason }
    }

    /// Extends the gap by the one that follows it directly; returns false if another one follows.
    pub(super) fn extend(&mut self, next: &Gap) -> bool {
        let follows = self.range.end == next.range.start && self.reason == next.reason;
        if !follows || self.epoch != next.epoch || self.topic != next.topic {
            return false;
        }
        self.range.end = next.range.end;
        self.missing = self.missing.zip(next.missing).map(|(first, second)| first.saturating_add(second));
        true
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gap { topic, range, reason, .. } = self;
        write!(f, "entries {}..{} of topic \"{topic}\" are missing: {reason}", range.start, range.end)
    }
}

/// Reason why entries are missing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum GapReason {
    /// The position belongs to another log.
    Epoch,
    /// The history no longer contained them (count, bytes or age), or their own expiry had passed.
    Expired,
    /// The subscription was slower than the topic's backlog allows.
    Lagged,
    /// The log does not contain a position that it once had.
    Lost,
}

impl GapReason {
    /// All of them, in the order of their names.
    pub(crate) const ALL: [GapReason; 4] =
        [GapReason::Epoch, GapReason::Expired, GapReason::Lagged, GapReason::Lost];

    /// Returns the name in lower case, for metrics.
    pub fn name(self) -> &'static str {
        match self {
            GapReason::Epoch => "epoch",
            GapReason::Expired => "expired",
            GapReason::Lagged => "lagged",
            GapReason::Lost => "lost",
        }
    }
}

impl fmt::Display for GapReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
