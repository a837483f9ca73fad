//! Each call goes to the channel that its key belongs to.

use super::super::{
    Begin, Channel, calls::RawResponse, connection::Connection, kind::ChannelKind, streaming::StartedStream,
    unary,
};
use bytes::Bytes;
use std::{fmt, sync::Arc};
use switchboard_core::{Result, layer::BoxFuture, queue::Queue};
use switchboard_discovery::balance::partition_of;
use switchboard_wire::{Codec, Status};

type KeyOf = dyn Fn(&str, &[u8]) -> Option<Vec<u8>> + Send + Sync;

/// A channel that sends each call to the channel that its key belongs to, see [`Channel::partitioned`]. For calls of
/// all kinds.
#[derive(Clone)]
#[must_use = "it is a channel once it is built"]
pub struct Partitioned {
    channels: Vec<Channel>,
    key_of: Option<Arc<KeyOf>>,
}

impl Channel {
    /// Creates a channel that sends each call to one of these, always the same one for the same key: the one that jump
    /// consistent hashing selects for the FNV-1a hash of the key. A channel added at the end takes its share of the
    /// keys from the others, and moves no other keys. The key is the call's [`hash_key`](crate::UnaryCall::hash_key),
    /// or the result of [`key_of`](Partitioned::key_of) for its request; a call without a key is rejected.
    ///
    /// For calls that concern several partitions, use [`Channel::parallel`] with a map that splits the request.
    pub fn partitioned(channels: impl IntoIterator<Item = Channel>) -> Partitioned {
        Partitioned { channels: channels.into_iter().collect(), key_of: None }
    }
}

impl Partitioned {
    /// Sets the function that returns the key of calls without one, from the full name of the method and the encoded
    /// request.
    pub fn key_of(
        mut self,
        key_of: impl Fn(&str, &[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Partitioned {
        self.key_of = Some(Arc::new(key_of));
        self
    }

    /// Builds the channel.
    ///
    /// # Errors
    /// `InvalidArgument` without a channel.
    pub fn build(self) -> Result<Channel> {
        super::check(&self.channels)?;
        Ok(Channel(Arc::new(self)))
    }

    /// Creates the call on the channel that its key belongs to.
    ///
    /// # Errors
    /// `InvalidArgument` for a call without a key.
    fn part(&self, begin: &Begin, request: &[u8]) -> Result<Begin> {
        let own = begin.options.as_ref().and_then(|options| options.hash_key.as_ref());
        let count = self.channels.len();
        let at = match own {
            Some(key) => Some(partition_of(key, count)),
            None => {
                let found = self.key_of.as_ref().and_then(|key_of| key_of(begin.method.path, request));
                found.map(|key| partition_of(&key, count))
            }
        };
        let at = at.ok_or_else(|| {
            let text = format!(
                "{} goes to one of {count} partitions and has no key: set hash_key, or Partitioned::key_of",
                begin.method.path
            );
            Status::invalid_argument(text)
        })?;
        Ok(begin.part(&self.channels[at], begin.deadline(switchboard_core::clock::now())))
    }
}

impl ChannelKind for Partitioned {
    fn write_target(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("partitioned").field(&self.channels).finish()
    }

    fn prepare(&self, _begin: &mut Begin) -> Option<Arc<Connection>> {
        None
    }

    fn unary(self: Arc<Self>, begin: Begin, request: Bytes) -> BoxFuture<'static, Result<RawResponse>> {
        Box::pin(async move { unary::run(self.part(&begin, &request)?, request).await })
    }

    fn oneway(self: Arc<Self>, begin: Begin, request: Bytes) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { self.part(&begin, &request)?.oneway(request).await })
    }

    fn stream(
        self: Arc<Self>,
        begin: Begin,
        message: Option<Bytes>,
        outbound: Option<Arc<Queue>>,
    ) -> BoxFuture<'static, Result<StartedStream>> {
        Box::pin(async move {
            let part = self.part(&begin, message.as_deref().unwrap_or_default())?;
            part.stream(message, outbound).await
        })
    }

    fn codec(&self, preferred: Codec) -> Codec {
        super::codec(&self.channels, preferred)
    }

    #[cfg(feature = "auth")]
    fn add_hosts(&self, hosts: &mut Vec<String>) {
        super::add_hosts(&self.channels, hosts);
    }
}

impl fmt::Debug for Partitioned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partitioned").field("channels", &self.channels).finish_non_exhaustive()
    }
}
