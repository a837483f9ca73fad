//! Expected state of the topics, and of what each subscription has received.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use switchboard_message::{Delivery, Gap, GapReason, Position};

/// Entries that topics have accepted, by topic and epoch.
#[derive(Default)]
pub(crate) struct Published {
    logs: HashMap<(String, u64), Vec<Record>>,
    /// Epoch of the newest log of each topic.
    epochs: HashMap<String, u64>,
}

pub(crate) struct Record {
    pub(crate) value: u64,
    pub(crate) time: u64,
    pub(crate) expires_at: u64,
}

impl Published {
    pub(crate) fn add(&mut self, topic: &str, position: Position, record: Record) {
        let log = self.logs.entry((topic.to_owned(), position.epoch)).or_default();
        log.push(record);
        assert_eq!(position.offset, log.len() as u64, "offsets of {topic} are dense");
        self.epochs.insert(topic.to_owned(), position.epoch);
    }

    pub(crate) fn log(&self, topic: &str, epoch: u64) -> &[Record] {
        self.logs.get(&(topic.to_owned(), epoch)).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn newest(&self, topic: &str) -> Option<Position> {
        let epoch = *self.epochs.get(topic)?;
        Some(Position { epoch, offset: self.log(topic, epoch).len() as u64 })
    }

    pub(crate) fn logs(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.logs.iter().map(|((topic, epoch), log)| (topic.as_str(), *epoch, log.len() as u64))
    }

    /// Checks that the bus had a reason to lose these entries. `kept` is the number of entries that the topic keeps for
    /// subscriptions that are behind, `history` the number that it keeps for later ones.
    pub(crate) fn check_gap(&self, gap: &Gap, now: u64, limits: TopicLimits) {
        let log = self.log(gap.topic.name(), gap.epoch);
        let after = log.len() as u64 + 1 - gap.range.end;
        assert!(gap.range.start < gap.range.end, "{gap}");
        assert_eq!(gap.missing, Some(gap.range.end - gap.range.start), "{gap}");
        match gap.reason {
            GapReason::Lagged => {
                assert!(!limits.waits, "publishers wait: {gap}");
                assert!(after >= limits.backlog.max(limits.history), "{after} newer entries: {gap}");
            }
            GapReason::Expired => {
                for offset in gap.range.clone() {
                    let record = &log[offset as usize - 1];
                    let is_old = now.saturating_sub(record.time) > limits.age;
                    let newer = log.len() as u64 - offset;
                    assert!(record.expires_at <= now || is_old || newer >= limits.history, "{offset}: {gap}");
                }
            }
            reason => panic!("{reason}: {gap}"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TopicLimits {
    pub(crate) backlog: u64,
    pub(crate) history: u64,
    pub(crate) age: u64,
    pub(crate) waits: bool,
}

/// Next offsets of an own subscription.
#[derive(Default)]
pub(crate) struct OwnModel {
    next: HashMap<(String, u64), u64>,
}

impl OwnModel {
    pub(crate) fn start(&mut self, topic: &str, epoch: u64, next: u64) {
        self.next.insert((topic.to_owned(), epoch), next);
    }

    fn next(&mut self, topic: &str, epoch: u64) -> &mut u64 {
        self.next.entry((topic.to_owned(), epoch)).or_insert(1)
    }

    /// Checks one item: the next entry in its order, or a gap that begins with it.
    pub(crate) fn receive(
        &mut self,
        delivery: &Delivery<u64>,
        published: &Published,
        now: u64,
        limits: impl Fn(&str) -> TopicLimits,
    ) {
        match delivery {
            Delivery::Entry(message) => {
                let (topic, position) = (message.topic().name(), message.position());
                let next = self.next(topic, position.epoch);
                assert_eq!(position.offset, *next, "order of {topic}");
                *next += 1;
                let record = &published.log(topic, position.epoch)[position.offset as usize - 1];
                assert_eq!(record.value, **message);
            }
            Delivery::Gap(gap) => {
                let next = self.next(gap.topic.name(), gap.epoch);
                assert_eq!(gap.range.start, *next, "{gap}");
                *next = gap.range.end;
                published.check_gap(gap, now, limits(gap.topic.name()));
            }
            other => panic!("{other:?}"),
        }
    }

    /// Checks that the subscription has received every entry, or a gap for it.
    pub(crate) fn check_complete(
        &mut self,
        published: &Published,
        matches: impl Fn(&str) -> bool,
        since: &Started,
    ) {
        for (topic, epoch, entries) in published.logs() {
            if matches(topic) && !since.is_before(topic, epoch, entries) {
                assert_eq!(*self.next(topic, epoch), entries + 1, "lost entries of {topic}");
            }
        }
    }
}

/// Heads of all logs when a subscription began.
pub(crate) struct Started(HashMap<(String, u64), u64>);

impl Started {
    pub(crate) fn now(published: &Published) -> Started {
        Started(
            published.logs().map(|(topic, epoch, entries)| ((topic.to_owned(), epoch), entries)).collect(),
        )
    }

    /// Returns the offset of the first entry after the start.
    pub(crate) fn first(&self, topic: &str, epoch: u64) -> u64 {
        self.0.get(&(topic.to_owned(), epoch)).map_or(1, |entries| entries + 1)
    }

    /// Returns whether the log has no entry after the start.
    pub(crate) fn is_before(&self, topic: &str, epoch: u64, entries: u64) -> bool {
        entries < self.first(topic, epoch)
    }
}

/// Deliveries of a group.
#[derive(Default)]
pub(crate) struct GroupModel {
    entries: BTreeMap<(String, u64, u64), State>,
    /// Newest offset that was delivered the first time.
    newest: HashMap<(String, u64), u64>,
}

#[derive(Default)]
struct State {
    deliveries: u32,
    /// Acknowledged, reported as missing, or a dead letter.
    is_done: bool,
}

impl GroupModel {
    pub(crate) fn deliver(&mut self, topic: &str, position: Position, attempt: u32, attempts_max: u32) {
        let state = self.entries.entry((topic.to_owned(), position.epoch, position.offset)).or_default();
        assert!(!state.is_done, "{topic} {position} was delivered after its end");
        state.deliveries += 1;
        assert_eq!(state.deliveries, attempt, "{topic} {position}");
        assert!(attempt <= attempts_max, "{topic} {position}");
        if attempt == 1 {
            let newest = self.newest.entry((topic.to_owned(), position.epoch)).or_default();
            assert!(position.offset > *newest, "order of first deliveries of {topic}");
            *newest = position.offset;
        }
    }

    pub(crate) fn finish(&mut self, topic: &str, position: Position) {
        let state = self.entries.entry((topic.to_owned(), position.epoch, position.offset)).or_default();
        assert!(!state.is_done, "{topic} {position} ended twice");
        state.is_done = true;
    }

    pub(crate) fn gap(&mut self, gap: &Gap) {
        for offset in gap.range.clone() {
            self.finish(gap.topic.name(), Position { epoch: gap.epoch, offset });
        }
    }

    /// Entries whose end was not seen: with as many as there are dead letters, none is lost.
    pub(crate) fn open(&self) -> BTreeSet<(String, u64, u64)> {
        let open = self.entries.iter().filter(|(_, state)| !state.is_done);
        open.map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn deliveries(&self, key: &(String, u64, u64)) -> u32 {
        self.entries.get(key).map_or(0, |state| state.deliveries)
    }

    /// Checks that each entry after the start was delivered, or is in a gap.
    pub(crate) fn check_complete(
        &self,
        published: &Published,
        matches: impl Fn(&str) -> bool,
        since: &Started,
    ) {
        for (topic, epoch, entries) in published.logs().filter(|(topic, ..)| matches(topic)) {
            for offset in since.first(topic, epoch)..=entries {
                let key = (topic.to_owned(), epoch, offset);
                assert!(self.entries.contains_key(&key), "{topic} {offset} was not delivered");
            }
        }
    }
}
