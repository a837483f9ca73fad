//! Subscriptions with a cursor of their own, to a topic or a pattern, which crash and continue.

use crate::{random::Random, world::World};
use std::{collections::HashMap, sync::Arc, time::Duration};
use switchboard_message::{Bus, Delivery, Gap, GapReason, Message, Position, Subscription};
use tokio::time::{sleep, timeout};

/// Progress of a reader in a topic.
#[derive(Default)]
struct Known {
    epoch: u64,
    /// The next offset; `None` before the first item, and after the end of a log.
    next: Option<u64>,
    /// Offsets of the present log that are missing, by gap.
    gaps: Vec<std::ops::Range<u64>>,
}

/// A reader of one topic or of a pattern.
pub(crate) struct Reader {
    world: Arc<World>,
    topics: &'static str,
    random: Random,
    known: HashMap<String, Known>,
    /// A topic that is continued after a crash.
    position: Option<Position>,
    received: u64,
    gaps: u64,
    resumes: u64,
}

/// Number of items of a reader.
#[derive(Default)]
pub(crate) struct Received {
    pub(crate) entries: u64,
    pub(crate) gaps: u64,
    pub(crate) resumes: u64,
}

impl Reader {
    pub(crate) fn new(world: Arc<World>, topics: &'static str, random: Random) -> Reader {
        let known = HashMap::new();
        Reader { world, topics, random, known, position: None, received: 0, gaps: 0, resumes: 0 }
    }

    /// Receives until the last entries of all topics; a reader of one topic crashes at random.
    pub(crate) async fn run(mut self, bus: Bus, mut subscription: Subscription<u64>) -> Received {
        while !self.is_complete() {
            let is_one_topic = !self.topics.contains('*');
            if is_one_topic && self.position.is_some() && self.random.percent(3) {
                drop(subscription);
                sleep(self.random.millis(0..=2_000)).await;
                subscription = self.resume(&bus).await;
                self.resumes += 1;
            }
            if self.random.percent(5) {
                sleep(self.random.millis(0..=self.random.one_of(&[100, 3_000]))).await;
            }
            // Nothing is to be received for a while, or the last entry was received already.
            let Ok(item) = timeout(Duration::from_secs(1), subscription.next()).await else { continue };
            match item.unwrap_or_else(|status| panic!("{}: {status}", self.topics)) {
                Some(Delivery::Entry(entry)) => self.entry(&entry),
                Some(Delivery::Gap(gap)) => self.gap(&gap),
                Some(_) => {}
                None => panic!("{} has ended", self.topics),
            }
        }
        self.check_complete();
        Received { entries: self.received, gaps: self.gaps, resumes: self.resumes }
    }

    /// Subscribes again after the last item, as after a crash.
    async fn resume(&self, bus: &Bus) -> Subscription<u64> {
        loop {
            let mut subscribe = bus.subscribe(self.topics);
            if let Some(position) = self.position {
                subscribe = subscribe.after(position);
            }
            match subscribe.await {
                Ok(subscription) => return subscription,
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn entry(&mut self, entry: &Message<u64>) {
        let (topic, position) = (entry.topic().name().to_owned(), entry.position());
        self.world.journal.seen(&topic, position, **entry);
        let known = self.known.entry(topic.clone()).or_default();
        if known.epoch != position.epoch {
            assert!(known.next.is_none(), "{}: {topic} {position}: another log without a gap", self.topics);
            *known = Known { epoch: position.epoch, next: Some(1), ..Known::default() };
        }
        if let Some(next) = known.next {
            assert_eq!(
                position.offset, next,
                "{}: {topic} {position}, a hole or an entry again",
                self.topics
            );
        }
        known.next = Some(position.offset + 1);
        self.position = Some(position);
        self.received += 1;
    }

    fn gap(&mut self, gap: &Gap) {
        self.gaps += 1;
        let topic = gap.topic.name().to_owned();
        self.world.journal.check_gap(gap, self.world.head(&topic, gap.epoch));
        let known = self.known.entry(topic).or_default();
        if known.epoch != gap.epoch {
            // A log that is not known begins with its first entry.
            let is_new = known.next.is_none() || gap.reason == GapReason::Epoch;
            assert!(is_new, "{}: {gap}: another log without a gap", self.topics);
            *known = Known { epoch: gap.epoch, next: Some(1), ..Known::default() };
        }
        if let Some(next) = known.next {
            assert_eq!(gap.range.start, next, "{}: {gap}: not the missing range", self.topics);
        }
        known.next = Some(gap.range.end);
        known.gaps.push(gap.range.clone());
        if gap.reason == GapReason::Epoch && gap.range.is_empty() && self.topics.contains('*') {
            // The end of the log that was known. The next one follows.
            known.next = None;
        }
        self.position = Some(Position { epoch: gap.epoch, offset: gap.range.end.saturating_sub(1) });
    }

    /// Returns whether the last entry of each topic was received or reported.
    fn is_complete(&self) -> bool {
        self.world.last.borrow().as_ref().is_some_and(|last| {
            last.iter().filter(|(topic, _)| self.world.matches(self.topics, topic)).all(|(topic, last)| {
                let known = self.known.get(topic);
                known.is_some_and(|known| {
                    known.epoch == last.epoch && known.next.is_some_and(|next| next > last.offset)
                })
            })
        })
    }

    /// Checks that each accepted entry of the present logs, up to the last ones, was received or reported.
    fn check_complete(&self) {
        let last = self.world.last.borrow().clone().unwrap();
        for (topic, known) in &self.known {
            let next = known.next.unwrap_or(1);
            let up_to =
                last.get(topic).filter(|last| last.epoch == known.epoch).map_or(0, |last| last.offset);
            for offset in self.world.journal.accepted_in(topic, known.epoch) {
                assert!(offset > up_to || offset < next, "{}: {topic} {offset} is missing", self.topics);
            }
            let total: u64 = known.gaps.iter().map(|gap| gap.end - gap.start).sum();
            assert!(total <= next, "{topic}: gaps {:?}", known.gaps);
        }
    }
}
