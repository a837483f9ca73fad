//! Channels that combine channels, like those of brpc: a call goes to all of them at once ([`Parallel`]), to one and on
//! failure to another ([`Selective`]), or to the one that its key belongs to ([`Partitioned`]).
//!
//! The result is a [`Channel`]: generated clients work on it, and it can be part of another combination. The metadata,
//! deadline and options of a call apply to all calls made for it; dropping the call drops these.

mod parallel;
mod partitioned;
mod selective;

pub use parallel::{Parallel, Part};
pub use partitioned::Partitioned;
pub use selective::Selective;

use super::{Begin, CallOptions, Channel, ChannelKind, calls::RawResponse, streaming::StartedStream, unary};
use bytes::Bytes;
use std::{fmt, sync::Arc, time::Instant};
use switchboard_core::{Result, queue::Queue};
use switchboard_wire::{Codec, Status};

/// A combination of channels.
pub(super) enum Combined {
    Parallel(Parallel),
    Partitioned(Partitioned),
    Selective(Selective),
}

impl Combined {
    /// # Errors
    /// `InvalidArgument` for a combination without channels.
    fn into_channel(self) -> Result<Channel> {
        if self.channels().is_empty() {
            return Err(Status::invalid_argument("a combination of channels needs at least one channel"));
        }
        Ok(Channel(Arc::new(ChannelKind::Combined(self))))
    }

    pub(super) fn channels(&self) -> &[Channel] {
        match self {
            Combined::Parallel(parallel) => &parallel.channels,
            Combined::Partitioned(partitioned) => &partitioned.channels,
            Combined::Selective(selective) => &selective.channels,
        }
    }

    /// The codec that all channels support: where they differ, that of a channel that does not support `preferred`.
    pub(super) fn codec(&self, preferred: Codec) -> Codec {
        let codecs = self.channels().iter().map(|channel| channel.codec(preferred));
        codecs.into_iter().find(|codec| *codec != preferred).unwrap_or(preferred)
    }

    pub(super) async fn unary(&self, begin: Begin, request: Bytes) -> Result<RawResponse> {
        match self {
            Combined::Parallel(parallel) => parallel.unary(&begin, &request).await,
            Combined::Partitioned(partitioned) => {
                let channel = partitioned.of(&begin, &request)?;
                unary::run(begin.part(channel, begin.deadline(switchboard_core::clock::now())), request).await
            }
            Combined::Selective(selective) => selective.unary(&begin, &request).await,
        }
    }

    pub(super) async fn oneway(&self, begin: Begin, request: Bytes) -> Result<()> {
        match self {
            Combined::Parallel(parallel) => parallel.oneway(&begin, &request).await,
            Combined::Partitioned(partitioned) => {
                let channel = partitioned.of(&begin, &request)?;
                begin.part(channel, begin.deadline(switchboard_core::clock::now())).oneway(request).await
            }
            Combined::Selective(selective) => selective.oneway(&begin, &request).await,
        }
    }

    pub(super) async fn stream(
        &self,
        begin: Begin,
        message: Option<Bytes>,
        outbound: Option<Arc<Queue>>,
    ) -> Result<StartedStream> {
        match self {
            Combined::Parallel(_) => {
                let text =
                    "parallel channels do not support streams: use calls with one request and one reply";
                Err(Status::unimplemented(text))
            }
            Combined::Partitioned(partitioned) => {
                let channel = partitioned.of(&begin, message.as_deref().unwrap_or_default())?;
                begin
                    .part(channel, begin.deadline(switchboard_core::clock::now()))
                    .stream(message, outbound)
                    .await
            }
            Combined::Selective(selective) => selective.stream(&begin, message, outbound).await,
        }
    }
}

impl Begin {
    /// Creates this call on one of the channels, with the earlier of `deadline` and that channel's own timeout.
    fn part(&self, channel: &Channel, deadline: Option<Instant>) -> Begin {
        let mut part = channel.begin(self.method, self.codec);
        let own = std::mem::replace(&mut part.metadata, self.metadata.clone());
        for (name, value) in own.iter().filter(|(name, _)| self.metadata.value(name).is_none()) {
            // When both together exceed the limit, the metadata of the call is kept and that of the channel left out.
            let _ = part.metadata.insert(name, value.clone());
        }
        let left =
            deadline.map(|deadline| deadline.saturating_duration_since(switchboard_core::clock::now()));
        part.timeout = match (left, part.timeout) {
            (Some(left), Some(own)) => Some(left.min(own)),
            (left, own) => left.or(own),
        };
        if self.compression != switchboard_core::Compression::None {
            part.compression = self.compression;
        }
        part.reply_bytes_max = self.reply_bytes_max;
        if let Some(CallOptions { hash_key, idempotent, keyed, attempt_log: _, oneway: _ }) =
            self.options.as_deref()
        {
            let options = part.options();
            options.hash_key = hash_key.clone();
            options.idempotent |= idempotent;
            options.keyed |= keyed;
        }
        part
    }

    async fn oneway(self, request: Bytes) -> Result<()> {
        super::OnewayCall::new(self, Ok(request)).await
    }
}

impl fmt::Display for Combined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Combined::Parallel(_) => "parallel",
            Combined::Partitioned(_) => "partitioned",
            Combined::Selective(_) => "selective",
        };
        f.debug_tuple(kind).field(&self.channels()).finish()
    }
}
