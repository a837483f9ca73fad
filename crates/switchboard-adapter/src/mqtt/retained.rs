//! Retained messages: a view of the log that keeps the newest one of each topic.

use super::{
    messages::{self, Incoming, Stored},
    shared::RETAINED,
};
use crate::{feed, publish};
use bytes::Bytes;
use futures_core::Stream;
use std::{
    collections::BTreeMap,
    ops::Bound,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use switchboard_core::Result;
use switchboard_message::{Bus, Delivery, Subscription, Topic};
use switchboard_wire::{Status, mqtt::topic};

/// The retained messages, by topic. Entries of the log arrive when they are looked up.
pub(super) struct Retained {
    bus: Bus,
    topic: Topic,
    subscription: Subscription<Bytes>,
    /// By topic name of MQTT.
    messages: BTreeMap<Box<str>, Stored>,
    max: usize,
}

impl Retained {
    /// Reads the log.
    ///
    /// # Errors
    /// Returns the errors of the bus.
    pub(super) fn new(bus: Bus, max: usize) -> Result<Retained> {
        let topic = Topic::new(RETAINED)?;
        let subscription = begin(&bus, &topic)?;
        let mut retained = Retained { bus, topic, subscription, messages: BTreeMap::new(), max };
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
        if message.entry().bytes().is_empty() {
            self.messages.remove(&*name);
        } else if self.messages.len() < self.max || self.messages.contains_key(&*name) {
            let stored = Stored { topic: topic.clone(), ..Stored::new(&self.bus, message) };
            self.messages.insert(name.into(), stored);
        }
    }

    /// Stores the message of a topic; one without a payload removes it.
    ///
    /// # Errors
    /// `ResourceExhausted` for a further topic at the limit, and the errors of the bus.
    pub(super) fn set(&mut self, topic: &Topic, incoming: &Incoming<'_>) -> Result<()> {
        self.update();
        let is_known = messages::name(topic.name()).is_some_and(|name| self.messages.contains_key(&*name));
        if incoming.payload.is_empty() && !is_known {
            return Ok(());
        }
        if !is_known && self.messages.len() >= self.max {
            let text = format!("{} topics have a retained message, as many as may (retained_max)", self.max);
            return Err(Status::resource_exhausted(text));
        }
        let mut publication = messages::publication(incoming)?;
        publication.key = Bytes::copy_from_slice(topic.name().as_bytes());
        publish::publish(&self.bus, &self.topic, publication, "clients of MQTT")?;
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
