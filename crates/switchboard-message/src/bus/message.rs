//! Items of a subscription.

use super::{
    Bus, Publishing, Side,
    local::REPLY_PREFIX,
    remote::{RemoteEntry, Settled},
};
use crate::log::{Entry, Gap, Position, Publication, TakenEntry, Topic, shard_of};
use bytes::Bytes;
use serde::Serialize;
use std::{fmt, ops::Deref};
use switchboard_core::{Result, codec};
use switchboard_wire::{Codec, Metadata, Status};

/// Item of a [`Subscription`](super::Subscription).
#[derive(Debug)]
#[non_exhaustive]
pub enum Delivery<T> {
    /// A message.
    Entry(Message<T>),
    /// Messages that the subscription does not receive.
    Gap(Gap),
    /// No entry is missing since the position or time at which the subscription begins.
    Recovered,
}

/// A message of a topic. Dereferences to the decoded message.
pub struct Message<T> {
    message: T,
    taken: TakenEntry,
    /// For the acknowledgement, and for the reply.
    origin: Option<Origin>,
}

/// Where a message comes from. Small: messages are moved several times.
enum Origin {
    Bus(Bus),
    /// With the id of the delivery in the other process.
    Delivery(Box<(Bus, Box<str>)>),
}

impl<T> Message<T> {
    /// Decodes an entry.
    pub(super) fn decode(
        taken: TakenEntry,
        bus: &Bus,
        decode: fn(Codec, Bytes) -> Result<T>,
    ) -> Result<Message<T>> {
        match decode(taken.entry.codec(), taken.entry.bytes().clone()) {
            Ok(message) => {
                let needs_bus = taken.group.is_some() || taken.entry.reply_to().is_some();
                Ok(Message { message, taken, origin: needs_bus.then(|| Origin::Bus(bus.clone())) })
            }
            Err(status) => {
                let (topic, offset) = (&taken.topic, taken.position.offset);
                let text = format!("entry {offset} of topic \"{topic}\": {}", status.message());
                Err(Status::new(status.code(), text).with_source(status))
            }
        }
    }

    /// Decodes an entry of another process.
    pub(super) fn decode_remote(
        delivered: RemoteEntry,
        bus: &Bus,
        decode: fn(Codec, Bytes) -> Result<T>,
    ) -> Result<Message<T>> {
        let RemoteEntry { topic, position, entry, attempt, ack_id } = delivered;
        let taken = TakenEntry { topic, position, entry, sequence: 0, attempt, group: None };
        let mut message = Message::decode(taken, bus, decode)?;
        if let Some(ack_id) = ack_id {
            message.origin = Some(Origin::Delivery(Box::new((bus.clone(), ack_id))));
        }
        Ok(message)
    }

    /// Returns the topic.
    pub fn topic(&self) -> &Topic {
        &self.taken.topic
    }

    /// Returns the position in the topic. A later subscription can continue [after it](super::Subscribe::after).
    pub fn position(&self) -> Position {
        self.taken.position
    }

    /// Returns the entry: the encoded message, its key and its id.
    pub fn entry(&self) -> &Entry {
        &self.taken.entry
    }

    /// Returns the names and values that accompany the message.
    pub fn headers(&self) -> &Metadata {
        self.taken.entry.headers()
    }

    /// Returns the number of this delivery, from 1.
    pub fn attempt(&self) -> u32 {
        self.taken.attempt
    }

    /// Returns the decoded message. An unacknowledged entry is delivered again after its period.
    pub fn into_inner(self) -> T {
        self.message
    }

    /// Acknowledges the message: its group does not deliver it again. An acknowledgement after the period counts as
    /// well, also while another member holds the message. Returns false if it was acknowledged before, if it became a
    /// dead letter, if the group has ended, or if the subscription does not acknowledge.
    ///
    /// In another process, it is acknowledged in the background, and true says that this will be tried. A message whose
    /// acknowledgement is lost with the connection is delivered again.
    pub fn ack(&self) -> bool {
        self.settle(Settled::Acknowledged)
    }

    /// Makes the message available to the members of its group at once. Returns false if it was acknowledged, if its
    /// period has passed and it is available or delivered again, or if the subscription does not acknowledge. In
    /// another process as for [`ack`](Self::ack).
    pub fn reject(&self) -> bool {
        self.settle(Settled::Rejected)
    }

    fn settle(&self, outcome: Settled) -> bool {
        match (self.bus().map(|bus| &bus.side), &self.origin) {
            (Some(Side::Remote(remote)), Some(Origin::Delivery(delivery))) => {
                remote.bus.settle(&delivery.1, outcome)
            }
            (Some(Side::Local(local)), _) => self.taken.token().is_some_and(|token| match outcome {
                Settled::Acknowledged => local.log.acknowledge(token, local.now()),
                Settled::Rejected => local.log.reject(token, local.now()),
            }),
            _ => false,
        }
    }

    fn bus(&self) -> Option<&Bus> {
        self.origin.as_ref().map(|origin| match origin {
            Origin::Bus(bus) => bus,
            Origin::Delivery(delivery) => &delivery.0,
        })
    }

    /// Returns the shard of the topic, and the sequence number in it: progress of a subscription to a pattern.
    #[doc(hidden)]
    pub fn sequence(&self) -> (u32, u64) {
        (shard_of(self.taken.topic.hash()), self.taken.sequence)
    }

    /// Identifies the requester for a reply from another process.
    #[doc(hidden)]
    pub fn reply_to(&self) -> Option<&str> {
        self.taken.entry.reply_to().map(Topic::name)
    }

    /// Returns whether the sender of the message waits for a reply.
    pub fn expects_reply(&self) -> bool {
        self.taken.entry.reply_to().is_some()
    }

    /// Replies to a request, in its codec.
    ///
    /// # Errors
    /// `FailedPrecondition` for a message that is not a request, `NotFound` if the requester no longer waits, and the
    /// errors of the codec.
    pub async fn reply<R: Serialize>(&self, reply: &R) -> Result<()> {
        let codec = self.taken.entry.codec();
        self.reply_encoded(codec, codec::serde::encode(reply, codec)?).await
    }

    /// Replies to a request with an encoded message.
    ///
    /// # Errors
    /// Returns the errors of [`reply`](Self::reply).
    pub async fn reply_encoded(&self, codec: Codec, bytes: Bytes) -> Result<()> {
        let Some((bus, to)) = self.bus().zip(self.taken.entry.reply_to()) else {
            let text = format!("the message of topic \"{}\" expects no reply", self.topic());
            return Err(Status::failed_precondition(text));
        };
        let reply = Publication::new(codec, bytes);
        match &bus.side {
            // A topic of the requester's choice, as requesters of other protocols have.
            Side::Local(_) if !to.name().starts_with(REPLY_PREFIX) => {
                Publishing::new(bus, to.into(), Ok(reply)).await.map(drop)
            }
            _ => bus.reply_to(to.name(), reply).await,
        }
    }
}

impl<T> Deref for Message<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.message
    }
}

impl<T: fmt::Debug> fmt::Debug for Message<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("topic", self.topic())
            .field("position", &self.position())
            .field("message", &self.message)
            .finish()
    }
}
