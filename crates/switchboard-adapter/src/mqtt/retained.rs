//! Retained messages: a view of the log that keeps the newest one of each topic.

use super::{
    messages::{self, Stored},
    shared::{RETAINED, Shared},
};
use crate::{feed, publish};
use bytes::Bytes;
use futures_core::Stream;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use switchboard_core::Result;
use switchboard_message::{Bus, Delivery, Publication, Subscription, Topic};
use switchboard_wire::{Status, mqtt::topic};

/// The retained messages, by topic. Entries of the log arrive when they are looked up.
pub(super) struct Retained {
    bus: Bus,
    topic: Topic,
    subscription: Subscription<Bytes>,
    /// By topic name of MQTT.
    messages: BTreeMap<Box<str>, Stored>,
    max: usize,
    /// Names of entries that a durable log does not have yet.
    submitted: BTreeSet<Box<str>>,
    /// Publications of messages that are to be retained, while the bus has not accepted them, by topic.
    waiting: HashMap<Box<str>, Waiting>,
    /// Number of the newest publication.
    newest: u64,
}

/// Publications to a topic that wait for the bus.
#[derive(Default)]
struct Waiting {
    count: usize,
    /// Number of the newest one that was stored.
    stored: u64,
}

/// A message that is retained as soon as the bus has accepted its publication. The order of the publications decides
/// which one is the newest, not that of their ends.
pub(super) struct Retention {
    shared: Arc<Shared>,
    topic: Topic,
    number: u64,
    publication: Option<Publication>,
}

impl Retention {
    /// Begins a publication with RETAIN.
    ///
    /// # Errors
    /// `ResourceExhausted` for a further topic at the limit.
    pub(super) fn new(shared: &Arc<Shared>, topic: &Topic, publication: Publication) -> Result<Retention> {
        let number = shared.retained().begin(topic, publication.bytes.is_empty())?;
        Ok(Retention { shared: shared.clone(), topic: topic.clone(), number, publication: Some(publication) })
    }

    /// Retains the message, which the bus has accepted. One without a payload removes that of the topic.
    ///
    /// # Errors
    /// Returns the errors of the bus with the retained messages.
    pub(super) fn store(mut self) -> Result<()> {
        let publication = self.publication.take();
        self.shared.retained().end(&self.topic, self.number, publication)
    }
}

impl Drop for Retention {
    fn drop(&mut self) {
        if self.publication.is_some() {
            // Without a publication nothing fails.
            let _ = self.shared.retained().end(&self.topic, self.number, None);
        }
    }
}

impl Retained {
    /// Reads the log.
    ///
    /// # Errors
    /// Returns the errors of the bus.
    pub(super) fn new(bus: Bus, max: usize) -> Result<Retained> {
        let topic = Topic::new(RETAINED)?;
        let subscription = begin(&bus, &topic)?;
        let mut retained = Retained {
            bus,
            topic,
            subscription,
            messages: BTreeMap::new(),
            max,
            submitted: BTreeSet::new(),
            waiting: HashMap::new(),
            newest: 0,
        };
        retained.update();
        Ok(retained)
    }

    /// Reads what was added to the log.
    fn update(&mut self) {
        loop {
            let polled = Pin::new(&mut self.subscription).poll_next(&mut Context::from_waker(Waker::noop()));
            match polled {
                Poll::Ready(Some(Ok(Delivery::Entry(message)))) => self.apply(&message),
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => match begin(&self.bus, &self.topic) {
                    Ok(subscription) => self.subscription = subscription,
                    Err(status) => return tracing::warn!("mqtt: retained messages are not read: {status}"),
                },
                Poll::Pending => return,
            }
        }
    }

    fn apply(&mut self, message: &switchboard_message::Message<Bytes>) {
        let key = message.entry().key().and_then(|key| std::str::from_utf8(key).ok());
        let Some(topic) = key.and_then(|key| Topic::new(key).ok()) else { return };
        let Some(name) = messages::name(topic.name()) else { return };
        self.submitted.remove(&*name);
        if message.entry().bytes().is_empty() {
            self.messages.remove(&*name);
        } else if self.messages.len() < self.max || self.messages.contains_key(&*name) {
            let stored = Stored { topic: topic.clone(), ..Stored::new(&self.bus, message) };
            self.messages.insert(name.into(), stored);
        }
    }

    /// Begins a publication with RETAIN; returns its number.
    ///
    /// # Errors
    /// `ResourceExhausted` for a further topic at the limit.
    fn begin(&mut self, topic: &Topic, is_removal: bool) -> Result<u64> {
        self.update();
        if !is_removal && !self.waiting.contains_key(topic.name()) && !self.is_known(topic.name()) {
            let waiting = self.waiting.keys().filter(|name| !self.is_known(name)).count();
            let submitted = self.submitted.iter().filter(|name| !self.messages.contains_key(*name)).count();
            if self.messages.len().saturating_add(waiting).saturating_add(submitted) >= self.max {
                let text =
                    format!("{} topics have a retained message, as many as may (retained_max)", self.max);
                return Err(Status::resource_exhausted(text));
            }
        }
        self.newest = self.newest.saturating_add(1);
        let waiting = self.waiting.entry(topic.name().into()).or_default();
        waiting.count = waiting.count.saturating_add(1);
        Ok(self.newest)
    }

    /// Ends a publication with RETAIN: with its message if the bus has accepted it.
    ///
    /// # Errors
    /// Returns the errors of the bus with the retained messages.
    fn end(&mut self, topic: &Topic, number: u64, publication: Option<Publication>) -> Result<()> {
        let Some(waiting) = self.waiting.get_mut(topic.name()) else { return Ok(()) };
        waiting.count = waiting.count.saturating_sub(1);
        let publication = publication.filter(|_| number > waiting.stored);
        if publication.is_some() {
            waiting.stored = number;
        }
        if waiting.count == 0 {
            self.waiting.remove(topic.name());
        }
        publication.map_or(Ok(()), |publication| self.set(topic, publication))
    }

    /// Returns whether the log has a message of a topic, or will have one.
    fn is_known(&self, topic: &str) -> bool {
        messages::name(topic)
            .is_some_and(|name| self.messages.contains_key(&*name) || self.submitted.contains(&*name))
    }

    /// Stores the message of a topic; one without a payload removes it.
    fn set(&mut self, topic: &Topic, mut publication: Publication) -> Result<()> {
        self.update();
        if publication.bytes.is_empty() && !self.is_known(topic.name()) {
            return Ok(());
        }
        publication.key = Bytes::copy_from_slice(topic.name().as_bytes());
        let receivers = publish::publish(&self.bus, &self.topic, publication, "clients of MQTT")?;
        if let (None, Some(name)) = (receivers, messages::name(topic.name())) {
            self.submitted.insert(name.into());
        }
        self.update();
        Ok(())
    }

    /// Returns the next message that a filter matches, in the order of the names: after one, or the first.
    pub(super) fn next(&mut self, filter: &[u8], after: Option<&str>) -> Option<(Box<str>, Stored)> {
        self.update();
        if !filter.iter().any(|byte| matches!(byte, b'+' | b'#')) {
            let name = std::str::from_utf8(filter).ok().filter(|_| after.is_none())?;
            return self.messages.get_key_value(name).filter(|(_, stored)| !stored.is_expired()).map(pair);
        }
        let start = match after {
            Some(after) => Bound::Excluded(after),
            None => Bound::Unbounded,
        };
        let rest = self.messages.range::<str, _>((start, Bound::Unbounded));
        let mut found = rest.filter(|(name, _)| topic::matches(filter, name.as_bytes()));
        found.find(|(_, stored)| !stored.is_expired()).map(pair)
    }
}

fn pair((name, stored): (impl AsRef<str>, &Stored)) -> (Box<str>, Stored) {
    (name.as_ref().into(), stored.clone())
}

fn begin(bus: &Bus, topic: &Topic) -> Result<Subscription<Bytes>> {
    feed::begin(bus.subscribe_encoded(topic).last(usize::MAX))
}
