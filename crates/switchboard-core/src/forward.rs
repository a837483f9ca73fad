//! Entries of a log, such as those of a subscription, that senders and pushers pass on to callers.

use crate::Result;
use bytes::Bytes;
use futures_core::Stream;
use std::future::Future;
use switchboard_wire::Codec;

/// A source of entries for [`Sender::forward`](crate::Sender::forward) and
/// [`Pusher::forward`](crate::Pusher::forward): a subscription of a bus, begun or not.
///
/// The source decides about entries that are missing. That of a bus ends with `DataLoss` and the range, unless the
/// application handles gaps.
pub trait Forward {
    /// The decoded message of an entry.
    type Message;
    /// An entry.
    type Entry: ForwardEntry<Message = Self::Message>;
    /// The entries, in order.
    type Entries: Stream<Item = Result<Self::Entry>>;

    /// Begins to read.
    ///
    /// # Errors
    /// The subscription is refused.
    fn entries(self) -> impl Future<Output = Result<Self::Entries>> + Send;
}

/// An entry of a [`Forward`] source.
pub trait ForwardEntry {
    /// The decoded message.
    type Message;

    /// Returns the name of its topic.
    fn topic(&self) -> &str;

    /// Returns the message as it was published.
    fn encoded(&self) -> (Codec, &Bytes);

    /// Returns the decoded message.
    fn message(&self) -> &Self::Message;

    /// Records that the entry is in the queue of its receiver, which acknowledges it.
    fn forwarded(&self);
}
