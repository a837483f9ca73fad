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

use super::{Begin, CallOptions, Channel};
use bytes::Bytes;
use std::time::Instant;
use switchboard_core::Result;
use switchboard_wire::{Codec, Status};

/// # Errors
/// `InvalidArgument` for a combination without channels.
fn check(channels: &[Channel]) -> Result<()> {
    match channels {
        [] => Err(Status::invalid_argument("a combination of channels needs at least one channel")),
        _ => Ok(()),
    }
}

/// The codec that all channels support: where they differ, that of a channel that does not support `preferred`.
fn codec(channels: &[Channel], preferred: Codec) -> Codec {
    let mut codecs = channels.iter().map(|channel| channel.codec(preferred));
    codecs.find(|codec| *codec != preferred).unwrap_or(preferred)
}

#[cfg(feature = "auth")]
fn add_hosts(channels: &[Channel], hosts: &mut Vec<String>) {
    for channel in channels {
        channel.0.add_hosts(hosts);
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
