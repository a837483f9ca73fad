//! Sink: receives results, recognises duplicates, acknowledges.

use super::{lost, task_of};
use crate::Result;
use bytes::Bytes;
use std::{
    collections::{HashSet, VecDeque},
    ops::Deref,
};
use switchboard_message::{Delivery, Message, Position, Subscription};

/// Receives the results of a pipeline. Dropping it leaves its unacknowledged results to another sink, or to a later
/// one.
#[derive(Debug)]
pub struct Sink<R> {
    results: Subscription<R>,
    seen: Seen,
    stats: SinkStats,
}

/// Counters of a [`Sink`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct SinkStats {
    /// Results that were received.
    pub received: u64,
    /// Results among them that were flagged as duplicates.
    pub duplicates: u64,
}

impl<R> Sink<R> {
    pub(super) fn new(results: Subscription<R>, remembered_max: usize) -> Sink<R> {
        Sink { results, seen: Seen::new(remembered_max), stats: SinkStats::default() }
    }

    /// Receives the next result; `None` after the bus has closed the subscription. Cancel safe.
    ///
    /// # Errors
    /// Returns the errors of [`Worker::next`](super::Worker::next), for results.
    pub async fn next(&mut self) -> Result<Option<Outcome<R>>> {
        loop {
            return match self.results.next().await? {
                Some(Delivery::Entry(message)) => {
                    let is_known = message.entry().id().is_some_and(|id| !self.seen.add(id));
                    let is_duplicate = is_known || message.attempt() > 1;
                    self.stats.received += 1;
                    self.stats.duplicates += u64::from(is_duplicate);
                    Ok(Some(Outcome { message, is_duplicate }))
                }
                Some(Delivery::Gap(gap)) => Err(lost(&gap)),
                Some(_) => continue,
                None => Ok(None),
            };
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> SinkStats {
        self.stats
    }
}

/// Result of a task. Dereferences to its content.
#[derive(Debug)]
pub struct Outcome<R> {
    message: Message<R>,
    is_duplicate: bool,
}

impl<R> Outcome<R> {
    /// Returns true if the sink has received the result before, or may have: it was delivered to a sink that did not
    /// acknowledge it.
    pub fn is_duplicate(&self) -> bool {
        self.is_duplicate
    }

    /// Returns the position of the task; `None` for a result that no [`Worker`](super::Worker) has published.
    pub fn task(&self) -> Option<Position> {
        self.message.entry().id().and_then(|id| task_of(id))
    }

    /// Acknowledges the result: it is not delivered again. Returns false if it was acknowledged before.
    pub fn ack(&self) -> bool {
        self.message.ack()
    }
}

impl<R> Deref for Outcome<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.message
    }
}

/// The latest ids.
#[derive(Debug)]
struct Seen {
    ids: HashSet<Bytes>,
    by_age: VecDeque<Bytes>,
    max: usize,
}

impl Seen {
    fn new(max: usize) -> Seen {
        Seen { ids: HashSet::new(), by_age: VecDeque::new(), max }
    }

    /// Adds an id; returns false if it is known.
    fn add(&mut self, id: &Bytes) -> bool {
        if self.ids.contains(id) {
            return false;
        }
        if self.by_age.len() == self.max
            && let Some(oldest) = self.by_age.pop_front()
        {
            self.ids.remove(&oldest);
        }
        // A copy: the id may share the buffer of a message.
        let id = Bytes::copy_from_slice(id);
        self.ids.insert(id.clone());
        self.by_age.push_back(id);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::result_id;

    #[test]
    fn the_oldest_ids_are_forgotten() {
        let mut seen = Seen::new(2);
        let id = |text: &'static str| Bytes::from_static(text.as_bytes());
        assert!(seen.add(&id("a")) && seen.add(&id("b")) && !seen.add(&id("a")));
        assert!(seen.add(&id("c")) && seen.add(&id("a")) && !seen.add(&id("c")));
        assert_eq!((seen.ids.len(), seen.by_age.len()), (2, 2));
    }

    #[test]
    fn ids_of_results_name_their_task() {
        let task = Position { epoch: u64::MAX - 1, offset: 258 };
        assert_eq!(task_of(&result_id(task)), Some(task));
        for length in (0..40).filter(|length| *length != 16) {
            assert_eq!(task_of(&vec![1; length]), None);
        }
    }
}
