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
use switchboard_core::{Result, clock};
use switchboard_message::{Bus, Delivery, Publication, Subscription, Topic};
use switchboard_wire::{Status, mqtt::topic};

/// Memory of a retained message beside its payload and its name.
const MESSAGE_BYTES: usize = 512;
/// Period in which expired messages are removed once, in nanoseconds.
const SWEEP_NS: u64 = 1_000_000_000;

/// The retained messages, by topic. Entries of the log arrive when they are looked up.
pub(super) struct Retained {
    bus: Bus,
    topic: Topic,
    subscription: Subscription<Bytes>,
    /// By topic name of MQTT.
    messages: BTreeMap<Box<str>, Stored>,
    max: usize,
    /// Bytes of the messages, and their limit.
    bytes: usize,
    bytes_max: usize,
    /// Time at which expired messages were removed last.
    swept_at: u64,
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
    /// `ResourceExhausted` at the limits of topics and bytes.
    pub(super) fn new(shared: &Arc<Shared>, topic: &Topic, publication: Publication) -> Result<Retention> {
        let number = shared.retained().begin(topic, &publication.bytes)?;
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
    pub(super) fn new(bus: Bus, max: usize, bytes_max: usize) -> Result<Retained> {
        let topic = Topic::new(RETAINED)?;
        let subscription = begin(&bus, &topic)?;
        let mut retained = Retained {
            bus,
            topic,
            subscription,
            messages: BTreeMap::new(),
            max,
            bytes: 0,
            bytes_max,
            swept_at: 0,
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
        if let Some(former) = self.messages.remove(&*name) {
            self.bytes = self.bytes.saturating_sub(bytes_of(&name, former.entry.bytes()));
        }
        let bytes = bytes_of(&name, message.entry().bytes());
        if !message.entry().bytes().is_empty() && self.has_room(1, bytes) {
            self.bytes = self.bytes.saturating_add(bytes);
            let stored = Stored { topic: topic.clone(), ..Stored::new(&self.bus, message) };
            self.messages.insert(name.into(), stored);
        }
    }

    /// Returns whether further topics can have a message, and further bytes.
    fn has_room(&self, topics: usize, bytes: usize) -> bool {
        self.messages.len().saturating_add(topics) <= self.max
            && self.bytes.saturating_add(bytes) <= self.bytes_max
    }

    /// Removes expired messages, at most once a second. The log keeps them until others take their place.
    fn sweep(&mut self) {
        let now = clock::now_ns();
        if self.swept_at > 0 && now.saturating_sub(self.swept_at) < SWEEP_NS {
            return;
        }
        self.swept_at = now;
        let bytes = &mut self.bytes;
        self.messages.retain(|name, stored| {
            let is_kept = !stored.is_expired();
            if !is_kept {
                *bytes = bytes.saturating_sub(bytes_of(name, stored.entry.bytes()));
            }
            is_kept
        });
    }

    /// Begins a publication with RETAIN; returns its number.
    ///
    /// # Errors
    /// `ResourceExhausted` at the limits of topics and bytes.
    fn begin(&mut self, topic: &Topic, payload: &Bytes) -> Result<u64> {
        self.update();
        if !payload.is_empty() {
            self.admit(topic, payload)?;
        }
        self.newest = self.newest.saturating_add(1);
        let waiting = self.waiting.entry(topic.name().into()).or_default();
        waiting.count = waiting.count.saturating_add(1);
        Ok(self.newest)
    }

    /// Checks the limits for a message. One in the place of another needs room for its own bytes only.
    fn admit(&mut self, topic: &Topic, payload: &Bytes) -> Result<()> {
        let Some(name) = messages::name(topic.name()) else { return Ok(()) };
        let former = self.messages.get(&*name).map_or(0, |stored| bytes_of(&name, stored.entry.bytes()));
        let bytes = bytes_of(&name, payload).saturating_sub(former);
        let is_further = !self.waiting.contains_key(topic.name()) && !self.is_known(topic.name());
        let topics = if is_further { self.awaited().saturating_add(1) } else { 0 };
        if !self.has_room(topics, bytes) {
            self.sweep();
        }
        let text = if !self.has_room(topics, 0) {
            format!("{} topics have a retained message, as many as may (retained_max)", self.max)
        } else if !self.has_room(0, bytes) {
            format!(
                "the retained messages have {} of {} bytes (retained_bytes_max)",
                self.bytes, self.bytes_max
            )
        } else {
            return Ok(());
        };
        Err(Status::resource_exhausted(text))
    }

    /// Returns the number of topics that get their first message.
    fn awaited(&self) -> usize {
        let waiting = self.waiting.keys().filter(|name| !self.is_known(name)).count();
        let submitted = self.submitted.iter().filter(|name| !self.messages.contains_key(*name)).count();
        waiting.saturating_add(submitted)
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

    /// Looks for the next message that a filter matches, in the order of the names: after one, or the first. Compares
    /// at most `names_max` names.
    pub(super) fn next(&mut self, filter: &[u8], after: Option<&str>, names_max: &mut usize) -> Next {
        self.update();
        let Ok(filter) = std::str::from_utf8(filter) else { return Next::End };
        let Some(wildcard) = filter.find(['+', '#']) else {
            let found = self.messages.get_key_value(filter).filter(|_| after.is_none());
            return found.filter(|(_, stored)| !stored.is_expired()).map_or(Next::End, pair);
        };
        // "a/#" matches "a" as well.
        let prefix = filter[..wildcard].trim_end_matches('/');
        let start = match after {
            Some(after) => Bound::Excluded(after),
            None => Bound::Included(prefix),
        };
        for (name, stored) in self.messages.range::<str, _>((start, Bound::Unbounded)) {
            if !name.starts_with(prefix) {
                break;
            }
            if topic::matches(filter.as_bytes(), name.as_bytes()) && !stored.is_expired() {
                return pair((name, stored));
            }
            *names_max = names_max.saturating_sub(1);
            if *names_max == 0 {
                return Next::After(name.clone());
            }
        }
        Next::End
    }
}

/// Outcome of [`Retained::next`].
pub(super) enum Next {
    /// No name up to this one matches.
    After(Box<str>),
    End,
    Found(Box<str>, Stored),
}

fn bytes_of(name: &str, payload: &Bytes) -> usize {
    name.len().saturating_add(payload.len()).saturating_add(MESSAGE_BYTES)
}

fn pair((name, stored): (impl AsRef<str>, &Stored)) -> Next {
    Next::Found(name.as_ref().into(), stored.clone())
}

fn begin(bus: &Bus, topic: &Topic) -> Result<Subscription<Bytes>> {
    feed::begin(bus.subscribe_encoded(topic).last(usize::MAX))
}
