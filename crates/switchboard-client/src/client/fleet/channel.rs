//! A fleet as a kind of channel.

use super::{EndpointStats, Explanation, Fleet, calls, calls::First, streams};
use crate::client::{
    Begin,
    calls::RawResponse,
    connection::Connection,
    kind::{ChannelKind, Selection},
    layered::RequiredCallShape,
    pool::Pool,
    streaming::StartedStream,
};
use bytes::Bytes;
use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};
use switchboard_core::{Payload, Result, clock::random, layer::BoxFuture, queue::Queue};
use switchboard_wire::{Codec, Kind};

impl ChannelKind for Fleet {
    fn write_target(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = self.shared.set().clone();
        for (at, endpoint) in set.endpoints.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { "," }, endpoint.address())?;
        }
        Ok(())
    }

    #[inline]
    fn prepare(&self, begin: &mut Begin) -> Option<Arc<Connection>> {
        let options = self.shared.base.options();
        begin.metadata = options.metadata.0.clone();
        begin.timeout = options.timeout;
        begin.compression = options.compression.of(begin.method.path);
        if self.shared.policy.gives_keys && begin.method.kind() == Kind::Unary && !begin.is_idempotent() {
            begin.set_key(format!("{:016x}{:016x}", random(), random()));
        }
        None
    }

    #[inline]
    fn select(&self, begin: &Begin, request: &Payload) -> Selection {
        // Each attempt of such a call is logged.
        if begin.attempt_log().is_some() {
            return Selection::Unselected;
        }
        if let Err(status) = self.shared.check_min_working(begin.method.path) {
            return Selection::Rejected(status);
        }
        let whole = request.one().unwrap_or_else(|| request.whole().into());
        let Some(permit) = self.shared.choose(begin, &whole, &[]) else { return Selection::Unselected };
        if !self.shared.policy.hedges()
            && let Some(connection) = permit.member().link.channel.0.pool().and_then(Pool::ready)
        {
            return Selection::Ready(permit, connection);
        }
        Selection::Chosen(permit)
    }

    fn unary(self: Arc<Self>, begin: Begin, request: Bytes) -> BoxFuture<'static, Result<RawResponse>> {
        Box::pin(calls::unary(self.shared.clone(), begin, request, First::Nothing))
    }

    fn oneway(self: Arc<Self>, begin: Begin, request: Bytes) -> BoxFuture<'static, Result<()>> {
        Box::pin(streams::oneway(self.shared.clone(), begin, request))
    }

    fn stream(
        self: Arc<Self>,
        begin: Begin,
        message: Option<Bytes>,
        outbound: Option<Arc<Queue>>,
    ) -> BoxFuture<'static, Result<StartedStream>> {
        Box::pin(streams::stream(self.shared.clone(), begin, message, outbound))
    }

    /// Connects to all members and waits for the first.
    fn connect(&self) -> BoxFuture<'_, Result<()>> {
        // Each attempt ends with the connect timeout, so this wait ends with the last of the first attempts.
        Box::pin(self.shared.wait_connected(None))
    }

    fn codec(&self, preferred: Codec) -> Codec {
        let shared = &self.shared;
        let codec = shared.base.options().codec(preferred);
        if !shared.has_foreign.load(Ordering::Relaxed) {
            return codec;
        }
        shared.set().foreign.as_ref().map_or(codec, |member| member.link.channel.codec(codec))
    }

    fn required_shape(&self) -> RequiredCallShape {
        self.shared.base.options().required_shape()
    }

    fn endpoints(&self) -> Vec<EndpointStats> {
        self.stats()
    }

    fn explain(&self, explanation: &mut Explanation, key: Option<&[u8]>) {
        self.add_to(explanation, key);
    }

    fn logs_attempts(&self) -> bool {
        true
    }

    #[cfg(feature = "auth")]
    fn add_hosts(&self, hosts: &mut Vec<String>) {
        let set = self.shared.set().clone();
        for member in &set.members {
            member.link.channel.0.add_hosts(hosts);
        }
    }

    #[cfg(any(test, feature = "simulation"))]
    fn left(&self) -> Vec<(&'static str, usize)> {
        self.shared.set().members.iter().flat_map(|member| member.link.channel.left()).collect()
    }

    fn fleet(&self) -> Option<&Fleet> {
        Some(self)
    }
}
