//! Last values by topic, within limits.

use bytes::Bytes;
use std::{collections::BTreeMap, ops::Bound};
use switchboard_socket::Message;

/// Last values. The topics are in order, so that a prefix is a range.
#[derive(Debug)]
pub(super) struct Values {
    by_topic: BTreeMap<Bytes, Value>,
    /// Topics by the number of their last update, the oldest first.
    by_age: BTreeMap<u64, Bytes>,
    topics_max: usize,
    bytes_max: usize,
    bytes: usize,
    updates: u64,
    pub(super) evicted: u64,
    pub(super) too_large: u64,
}

#[derive(Debug)]
struct Value {
    message: Message,
    update: u64,
}

impl Values {
    pub(super) fn new(topics_max: usize, bytes_max: usize) -> Values {
        Values {
            by_topic: BTreeMap::new(),
            by_age: BTreeMap::new(),
            topics_max,
            bytes_max,
            bytes: 0,
            updates: 0,
            evicted: 0,
            too_large: 0,
        }
    }

    /// Keeps a message as the last one of its topic, as a copy: a received one shares a read buffer.
    pub(super) fn keep(&mut self, message: &Message) {
        let Some(topic) = message.frames().first() else { return };
        self.remove(topic);
        if message.size_bytes() > self.bytes_max {
            self.too_large += 1;
            return;
        }
        while self.by_topic.len() >= self.topics_max || self.bytes + message.size_bytes() > self.bytes_max {
            let Some((_, oldest)) = self.by_age.pop_first() else { break };
            self.remove(&oldest);
            self.evicted += 1;
        }
        let message = message.detached();
        let topic = message.frames()[0].clone();
        self.updates += 1;
        self.bytes += message.size_bytes();
        self.by_age.insert(self.updates, topic.clone());
        self.by_topic.insert(topic, Value { message, update: self.updates });
    }

    fn remove(&mut self, topic: &[u8]) {
        if let Some(value) = self.by_topic.remove(topic) {
            self.by_age.remove(&value.update);
            self.bytes -= value.message.size_bytes();
        }
    }

    pub(super) fn last(&self, topic: &[u8]) -> Option<Message> {
        self.by_topic.get(topic).map(|value| value.message.clone())
    }

    /// Returns the values of the topics with a prefix, in the order of the topics.
    pub(super) fn matching<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = &'a Message> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let from = self.by_topic.range::<[u8], _>(from);
        from.take_while(move |(topic, _)| topic.starts_with(prefix)).map(|(_, value)| &value.message)
    }

    pub(super) fn topics(&self) -> usize {
        self.by_topic.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(values: &Values, prefix: &str) -> Vec<String> {
        let text = |message: &Message| String::from_utf8(message.body().to_vec()).unwrap();
        values.matching(prefix.as_bytes()).map(text).collect()
    }

    #[test]
    fn the_last_value_of_each_topic_is_found_by_prefix() {
        let mut values = Values::new(10, 1000);
        for (topic, body) in [("a/1", "x"), ("a/2", "y"), ("b", "z"), ("a/1", "w")] {
            values.keep(&Message::from([topic, body]));
        }
        assert_eq!(bodies(&values, "a/"), ["w", "y"]);
        assert_eq!(bodies(&values, ""), ["w", "y", "z"]);
        assert_eq!(bodies(&values, "c"), Vec::<String>::new());
        assert_eq!((values.topics(), values.bytes()), (3, 10));
    }

    #[test]
    fn the_value_that_was_not_updated_for_the_longest_time_is_removed_at_a_limit() {
        let mut values = Values::new(2, 1000);
        for topic in ["a", "b", "a", "c"] {
            values.keep(&Message::from([topic, topic]));
        }
        assert_eq!((bodies(&values, ""), values.evicted), (vec!["a".to_owned(), "c".to_owned()], 1));
        let mut values = Values::new(9, 8);
        for topic in ["a", "b", "c"] {
            values.keep(&Message::from([topic, "xx"]));
        }
        assert_eq!((values.topics(), values.bytes(), values.evicted), (2, 6, 1));
    }

    #[test]
    fn a_message_above_the_limit_removes_the_value_that_it_replaces() {
        let mut values = Values::new(9, 8);
        values.keep(&Message::from(["a", "x"]));
        values.keep(&Message::from(["a", "0123456789"]));
        assert_eq!((values.topics(), values.bytes(), values.too_large), (0, 0, 1));
    }

    /// Any operations keep the limits, and the indexes agree.
    #[test]
    fn any_messages_keep_the_limits() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut values = Values::new(1 + random.usize(..5), random.usize(..40));
            for _ in 0..200 {
                let frames = random.usize(..4);
                let frame = |random: &mut fastrand::Rng| vec![random.u8(..4); random.usize(..9)];
                values.keep(&Message::new((0..frames).map(|_| frame(&mut random)).collect::<Vec<_>>()));
                let bytes: usize = values.matching(b"").map(Message::size_bytes).sum();
                assert_eq!((bytes, values.by_age.len()), (values.bytes(), values.topics()), "seed {seed}");
                assert!(values.bytes <= values.bytes_max && values.topics() <= values.topics_max);
            }
        }
    }
}
