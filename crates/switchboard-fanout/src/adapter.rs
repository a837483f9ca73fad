//! The part of an application in an engine: a protocol of subscribers, and the topics behind it.

use crate::{
    close_reason::CloseReason,
    subscriber::{State, SubscriberId},
    subscribers::{BufferId, Subscribers},
};
use std::net::SocketAddr;
use switchboard_wire::Input;

/// Maps a protocol to topics: reads what subscribers send, and appends entries to broadcast buffers.
///
/// An engine owns one adapter, and calls it on its own thread, in turns of at most about a millisecond. No method may
/// block. Work that waits is spawned as a task, and its result comes back as a command.
pub trait Adapter: Send + 'static {
    /// A message of other threads to the adapter.
    type Command: Send + 'static;
    /// Properties of a connection that was handed to the engine.
    type Connection: Send + 'static;

    /// A connection was handed to the engine. Bytes that were read from it before arrive next.
    fn connected(&mut self, connected: Connected<Self::Connection>, subscribers: &mut Subscribers);

    /// Bytes arrived. The rest of `input` is kept until more arrive.
    ///
    /// # Errors
    /// The reason to close the connection, after what was sent to it is written. Nothing is read any more.
    fn received(
        &mut self,
        id: SubscriberId,
        input: &mut Input,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason>;

    /// A command arrived from another thread.
    fn command(&mut self, command: Self::Command, subscribers: &mut Subscribers);

    /// The timer of a subscriber is due.
    fn due(&mut self, id: SubscriberId, subscribers: &mut Subscribers);

    /// A subscriber was too slow: `lost` bytes of a buffer were dropped before it read them. It continues with the
    /// oldest frame that is held, after what this method sends to it, unless this method closes or detaches it.
    fn lagged(&mut self, id: SubscriberId, buffer: BufferId, lost: u64, subscribers: &mut Subscribers);

    /// The peer of a [paused](Subscribers::pause) subscriber has closed its sending side. What it sent before is still
    /// to be read. Not called for connections without a descriptor of their own, such as those with TLS.
    fn read_closed(&mut self, _id: SubscriberId, _subscribers: &mut Subscribers) {}

    /// Everything that was sent to a subscriber alone is written, after its socket was full.
    fn drained(&mut self, _id: SubscriberId, _subscribers: &mut Subscribers) {}

    /// A subscriber is gone, with the state that it had. Called once for each that connected.
    fn disconnected(
        &mut self,
        id: SubscriberId,
        reason: &CloseReason,
        state: State,
        subscribers: &mut Subscribers,
    );

    /// The engine drains: notify the subscribers. The engine closes them when its drain ends.
    fn draining(&mut self, _subscribers: &mut Subscribers) {}
}

/// A connection that an engine received.
#[derive(Debug)]
#[non_exhaustive]
pub struct Connected<C> {
    /// Its number in this engine.
    pub id: SubscriberId,
    /// Its address, if it has one.
    pub address: Option<SocketAddr>,
    /// Its properties, as handed over.
    pub connection: C,
}
