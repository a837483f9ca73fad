//! Progress of a remote subscription: where it begins again after a lost connection, and which entries are repeated.
//!
//! A subscription to one topic continues after the position of its last entry. One to a pattern continues after a
//! [`Checkpoint`], which is exact whichever topics match; the positions of the topics that it has seen make the ranges
//! of gaps exact, and say which topics have ended with a restarted server. A group has its cursor at the server.

use crate::{
    convert,
    v1::{self, subscribe_request::Start},
};
use std::collections::{HashMap, VecDeque};
use switchboard_message::{Checkpoint, Gap, GapReason, Position, Topic, remote::RemoteEntry};

/// Topics of a pattern whose positions a subscription knows. Gaps of further topics begin with offset 1, and their end
/// with a restarted server is not reported.
const TOPICS_MAX: usize = 10_000;

/// State of a subscription that outlives its connection.
#[derive(Debug)]
pub(super) struct Progress {
    /// Start that the application has requested.
    start: Option<Start>,
    is_pattern: bool,
    is_group: bool,
    /// The stream begins with its outcome: `recovered`, or gaps.
    awaits_outcome: bool,
    /// The application knows the outcome of its own start.
    has_outcome: bool,
    /// Position of the newest entry of the topic.
    position: Option<Position>,
    checkpoint: Option<Checkpoint>,
    /// Checkpoint of the stream that awaits its outcome.
    next_checkpoint: Option<Checkpoint>,
    /// Positions of the topics of a pattern.
    topics: HashMap<Topic, Position>,
    /// Gaps of topics whose logs have ended.
    ended: VecDeque<Gap>,
}

impl Progress {
    pub(super) fn new(start: Option<Start>, is_pattern: bool, is_group: bool) -> Progress {
        Progress {
            start,
            is_pattern,
            is_group,
            awaits_outcome: false,
            has_outcome: false,
            position: None,
            checkpoint: None,
            next_checkpoint: None,
            topics: HashMap::new(),
            ended: VecDeque::new(),
        }
    }

    /// Returns the start of the next attempt.
    pub(super) fn next_start(&self) -> Option<Start> {
        let resumed = match (&self.checkpoint, self.position) {
            (Some(checkpoint), _) => Some(Start::Resume(convert::from_checkpoint(checkpoint).into())),
            (None, Some(position)) => Some(Start::After(convert::position(position).into())),
            (None, None) => None,
        };
        resumed.or_else(|| self.start.clone())
    }

    /// Notes the first event of a stream.
    pub(super) fn started(&mut self, started: v1::Started) {
        let start = self.next_start();
        let has_outcome = matches!(start, Some(Start::After(_) | Start::Resume(_) | Start::Since(_)));
        // The server keeps the gaps of a group until a member receives them.
        self.awaits_outcome = has_outcome && !self.is_group;
        self.has_outcome |= !self.awaits_outcome;
        if self.is_pattern {
            let next = started.checkpoint.into_option().map(convert::to_checkpoint);
            if let (Some(known), Some(next)) = (&self.checkpoint, &next)
                && known.epoch != next.epoch
            {
                self.end_topics();
            }
            self.next_checkpoint = next;
            if !self.awaits_outcome {
                self.adopt_checkpoint();
            }
        } else if !self.awaits_outcome {
            // With an outcome to come, the position would be behind a gap that the application does not know.
            let position = started.position.into_option().map(|position| convert::to_position(&position));
            self.position = position.or(self.position);
        }
    }

    /// Returns whether the application receives this entry.
    pub(super) fn accepts(&mut self, entry: &RemoteEntry, (shard, sequence): (u32, u64)) -> bool {
        self.end_outcome();
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.advance(shard, sequence);
        }
        let known = match self.is_pattern {
            false => self.position,
            true => self.topics.get(&entry.topic).copied(),
        };
        // A group delivers entries again, also older ones than those that it has delivered.
        let is_repeated = known.is_some_and(|known| {
            known.epoch == entry.position.epoch && entry.position.offset <= known.offset
        });
        if let Some(known) = known.filter(|known| self.is_pattern && known.epoch != entry.position.epoch) {
            // The topic was removed and created again while there was no connection.
            self.ended.push_back(ended(entry.topic.clone(), known));
        }
        if !is_repeated {
            self.note(&entry.topic, entry.position);
        }
        !is_repeated || self.is_group
    }

    /// Returns a gap as the application receives it.
    pub(super) fn gap(&mut self, mut gap: Gap) -> Option<Gap> {
        let known = self.topics.get(&gap.topic).copied().filter(|known| known.epoch == gap.epoch);
        if let Some(known) = known.filter(|_| self.awaits_outcome && gap.reason == GapReason::Expired) {
            // The server does not know where this subscription was in the topic.
            gap.range.start = gap.range.start.max(known.offset.saturating_add(1));
            if gap.range.is_empty() {
                return None;
            }
        }
        let next = match gap.reason {
            // The log ended before the range, and continues from its beginning.
            GapReason::Lost => gap.range.start,
            _ => gap.range.end,
        };
        self.note(&gap.topic, Position { epoch: gap.epoch, offset: next.saturating_sub(1) });
        if !self.is_pattern {
            self.end_outcome();
        }
        self.has_outcome = true;
        Some(gap)
    }

    /// Returns whether the application receives the outcome `recovered`: not after each new connection.
    pub(super) fn recovered(&mut self, position: Option<Position>) -> bool {
        self.end_outcome();
        if !self.is_pattern {
            self.position = self.position.or(position);
        }
        !std::mem::replace(&mut self.has_outcome, true)
    }

    /// Returns a gap of a topic whose log has ended, which the application receives before the next entry.
    pub(super) fn next_ended(&mut self) -> Option<Gap> {
        self.ended.pop_front()
    }

    fn note(&mut self, topic: &Topic, position: Position) {
        if !self.is_pattern {
            self.position = Some(position);
        } else if !self.is_group && (self.topics.len() < TOPICS_MAX || self.topics.contains_key(topic)) {
            self.topics.insert(topic.clone(), position);
        }
    }

    fn end_outcome(&mut self) {
        self.awaits_outcome = false;
        self.adopt_checkpoint();
    }

    fn adopt_checkpoint(&mut self) {
        if let Some(next) = self.next_checkpoint.take() {
            self.checkpoint = Some(next);
        }
    }

    /// Reports each known topic, in the order of the names: the server has other logs.
    fn end_topics(&mut self) {
        let mut topics: Vec<_> = self.topics.drain().collect();
        topics.sort_unstable_by(|(a, _), (b, _)| a.name().cmp(b.name()));
        self.ended.extend(topics.into_iter().map(|(topic, last)| ended(topic, last)));
    }
}

/// Returns the gap of a log that has ended: entries after the last received one may be missing.
fn ended(topic: Topic, last: Position) -> Gap {
    let next = last.offset.saturating_add(1);
    Gap::new(topic, last.epoch, next..next, None, GapReason::Epoch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard::Codec;
    use switchboard_message::Publication;

    fn entry(topic: &str, epoch: u64, offset: u64) -> RemoteEntry {
        let position = Position { epoch, offset };
        RemoteEntry::new(topic, position, Publication::new(Codec::Raw, "x"), None).unwrap()
    }

    fn gap(epoch: u64, range: std::ops::Range<u64>, reason: GapReason) -> Gap {
        Gap::new(Topic::new("t").unwrap(), epoch, range, None, reason)
    }

    fn started(epoch: u64, sequences: &[u64]) -> v1::Started {
        let position = convert::position(Position { epoch, offset: 4 }).into();
        let checkpoint = v1::Checkpoint { epoch, sequences: sequences.to_vec(), ..Default::default() };
        v1::Started { position, checkpoint: checkpoint.into(), ..Default::default() }
    }

    fn after(progress: &Progress) -> (u64, u64) {
        match progress.next_start() {
            Some(Start::After(position)) => (position.epoch, position.offset),
            start => panic!("{start:?}"),
        }
    }

    #[test]
    fn a_topic_continues_after_its_last_entry_or_gap() {
        let mut progress = Progress::new(None, false, false);
        progress.started(started(7, &[]));
        assert_eq!(after(&progress), (7, 4));
        assert!(progress.accepts(&entry("t", 7, 5), (0, 0)));
        assert!(!progress.accepts(&entry("t", 7, 5), (0, 0)), "a repeated entry");
        assert_eq!(after(&progress), (7, 5));
        assert!(progress.gap(gap(7, 6..9, GapReason::Lagged)).is_some());
        assert_eq!(after(&progress), (7, 8));
        assert!(progress.gap(gap(7, 3..9, GapReason::Lost)).is_some());
        assert_eq!(after(&progress), (7, 2), "the log continues from the beginning of the range");
        progress.started(started(8, &[]));
        assert!(progress.gap(gap(8, 1..3, GapReason::Epoch)).is_some());
        assert_eq!(after(&progress), (8, 2));
    }

    #[test]
    fn the_outcome_of_a_start_is_awaited_before_the_position_is_known() {
        let start = Start::After(convert::position(Position { epoch: 7, offset: 1 }).into());
        let mut progress = Progress::new(Some(start), false, false);
        progress.started(started(7, &[]));
        assert_eq!(after(&progress), (7, 1), "the gap up to 4 may not have been received");
        assert!(progress.recovered(Some(Position { epoch: 7, offset: 1 })));
        progress.started(started(7, &[]));
        assert!(!progress.recovered(None), "the application knows the outcome");
    }

    #[test]
    fn gaps_of_a_pattern_begin_after_the_last_entry_of_their_topic() {
        let mut progress = Progress::new(None, true, false);
        progress.started(started(7, &[3, 3]));
        assert!(progress.accepts(&entry("t", 1, 5), (1, 9)));
        let Some(Start::Resume(checkpoint)) = progress.next_start() else { panic!("no checkpoint") };
        assert_eq!((checkpoint.epoch, &checkpoint.sequences[..]), (7, &[3, 9][..]));
        progress.started(started(7, &[3, 9]));
        let missing = progress.gap(gap(1, 1..9, GapReason::Expired)).unwrap();
        assert_eq!(missing.range, 6..9);
        // The connection was lost before another event: the server reports the gap again.
        progress.started(started(7, &[3, 9]));
        assert!(progress.gap(gap(1, 1..9, GapReason::Expired)).is_none());
        assert!(progress.accepts(&entry("t", 1, 9), (1, 14)));
    }

    #[test]
    fn topics_of_a_restarted_server_are_reported_once() {
        let mut progress = Progress::new(None, true, false);
        progress.started(started(7, &[0]));
        assert!(progress.accepts(&entry("t", 1, 5), (0, 1)));
        progress.started(started(8, &[0]));
        let ended = progress.next_ended().unwrap();
        assert_eq!((ended.epoch, ended.range.clone(), ended.reason), (1, 6..6, GapReason::Epoch));
        assert!(progress.next_ended().is_none());
        assert!(!progress.recovered(None));
        assert!(progress.accepts(&entry("t", 2, 1), (0, 1)), "an offset of another log");
        assert!(progress.next_ended().is_none());
        // The topic was removed and created again while there was no connection.
        progress.started(started(8, &[1]));
        assert!(progress.accepts(&entry("t", 3, 1), (0, 9)));
        assert_eq!(progress.next_ended().unwrap().epoch, 2);
    }

    #[test]
    fn topics_of_a_restarted_server_are_reported_in_the_order_of_their_names() {
        let mut progress = Progress::new(None, true, false);
        progress.started(started(7, &[0]));
        for topic in 0..50 {
            assert!(progress.accepts(&entry(&format!("t/{topic:02}"), 1, 5), (0, 1)));
        }
        progress.started(started(8, &[0]));
        let names = std::iter::from_fn(|| progress.next_ended()).map(|gap| gap.topic.name().to_owned());
        let names: Vec<_> = names.collect();
        assert!(names.len() == 50 && names.is_sorted(), "{names:?}");
    }

    #[test]
    fn a_group_continues_after_its_newest_entry() {
        let mut progress = Progress::new(None, false, true);
        progress.started(started(7, &[]));
        assert!(progress.accepts(&entry("t", 7, 9), (0, 0)));
        assert!(progress.accepts(&entry("t", 7, 8), (0, 0)), "delivered again");
        assert_eq!(after(&progress), (7, 9));
    }
}
