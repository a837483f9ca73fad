//! The contract of a kind of channel.
//!
//! A [`Channel`](super::Channel) is a shared [`ChannelKind`]. A new kind is a file with a type that implements this
//! trait, and a function that creates its channel; no other file names the kind. These kinds exist:
//!
//! | type | calls go to |
//! | --- | --- |
//! | [`Pool`] | the connections of one address; the wire is a state machine |
//! | `Http` | the connections of one address; the wire runs on HTTP |
//! | [`Fleet`] | one of several endpoints |
//! | `Parallel`, `Partitioned`, `Selective` | other channels |
//! | [`Layered`] | the layers of a channel, then that channel |
//! | `Local` | a service of this process |
//!
//! # Cost of a call
//!
//! A unary call makes one dynamic call, of [`prepare`](ChannelKind::prepare), when a connection is ready, and a second
//! one, of [`select`](ChannelKind::select), on a fleet. Neither allocates. Other calls are sent by a boxed future.

use super::{
    Begin,
    calls::RawResponse,
    connection::Connection,
    fleet::{EndpointPermit, EndpointStats, Explanation, Fleet},
    layered::{Layered, RequiredCallShape},
    pool::Pool,
    streaming::StartedStream,
};
use bytes::Bytes;
use std::{fmt, sync::Arc};
use switchboard_core::{Payload, Result, layer::BoxFuture, queue::Queue};
use switchboard_wire::{Codec, Status};

/// A kind of channel.
pub(super) trait ChannelKind: Send + Sync + 'static {
    /// Writes the target of the channel, for messages.
    fn write_target(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Sets what calls of this channel have unless they choose otherwise: metadata, timeout, compression. Returns the
    /// connection that the call is sent on, if there is one and it is ready.
    fn prepare(&self, begin: &mut Begin) -> Option<Arc<Connection>>;

    /// Selects the endpoint of a unary call that is sent now, without waiting.
    fn select(&self, _begin: &Begin, _request: &Payload) -> Selection {
        Selection::Unselected
    }

    /// Sends a unary call and waits for its reply, which is decompressed. Dropping the future cancels the call.
    fn unary(self: Arc<Self>, begin: Begin, request: Bytes) -> BoxFuture<'static, Result<RawResponse>>;

    /// Sends a one-way call; completes once it is sent.
    fn oneway(self: Arc<Self>, begin: Begin, request: Bytes) -> BoxFuture<'static, Result<()>>;

    /// Sends a call with streams: its only request is `message`, or else its requests are in `outbound`.
    fn stream(
        self: Arc<Self>,
        begin: Begin,
        message: Option<Bytes>,
        outbound: Option<Arc<Queue>>,
    ) -> BoxFuture<'static, Result<StartedStream>>;

    /// Waits for the first connection.
    fn connect(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns true when a call could be sent now.
    fn is_ready(&self) -> bool {
        true
    }

    /// The codec that calls use where generated code prefers `preferred`.
    fn codec(&self, preferred: Codec) -> Codec;

    /// Properties of calls that the wire must know before the first message.
    fn required_shape(&self) -> RequiredCallShape {
        RequiredCallShape::Kind
    }

    /// Statistics of its endpoints.
    fn endpoints(&self) -> Vec<EndpointStats> {
        Vec::new()
    }

    /// Adds to `explanation` how a call with this key would be routed.
    fn explain(&self, _explanation: &mut Explanation, _key: Option<&[u8]>) {}

    /// Returns true when it adds its attempts to the log of an [explained](super::UnaryCall::explained) call; other
    /// kinds make one attempt.
    fn logs_attempts(&self) -> bool {
        false
    }

    /// Adds the hosts that its servers may name for second connections.
    #[cfg(feature = "auth")]
    fn add_hosts(&self, hosts: &mut Vec<String>);

    /// Resources held for calls; all counts are zero when there are no calls.
    #[cfg(any(test, feature = "simulation"))]
    fn left(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }

    /// The connections that its calls are sent on, where the wire is a state machine.
    fn pool(&self) -> Option<&Pool> {
        None
    }

    /// The fleet, whose endpoints a call may go to all at once.
    fn fleet(&self) -> Option<&Fleet> {
        None
    }

    /// The layers, to which further ones are added.
    fn layered(&self) -> Option<&Layered> {
        None
    }
}

/// The endpoint of a unary call.
pub(super) enum Selection {
    /// A permit of the endpoint, and its connection, which is ready.
    Ready(EndpointPermit, Arc<Connection>),
    /// A permit of the endpoint, which has to connect first.
    Chosen(EndpointPermit),
    /// None yet: [`unary`](ChannelKind::unary) sends the call.
    Unselected,
    /// None: the call must not be sent.
    Rejected(Status),
}
