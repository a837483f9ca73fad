//! Each call to the channel that its key belongs to.

use super::{
    super::{Begin, Channel},
    Combined,
};
use crate::{Result, Status, balance::partition_of};
use std::{fmt, sync::Arc};

type KeyOf = dyn Fn(&str, &[u8]) -> Option<Vec<u8>> + Send + Sync;

/// A channel that sends each call to the channel that its key belongs to, see [`Channel::partitioned`]. Calls of all
/// kinds.
#[derive(Clone)]
#[must_use = "it is a channel once it is built"]
pub struct Partitioned {
    pub(super) channels: Vec<Channel>,
    key_of: Option<Arc<KeyOf>>,
}

impl Channel {
    /// A channel that sends each call to one of these, always the same one for the same key: the one that jump
    /// consistent hashing chooses for the FNV-1a hash of the key. One that is added at the end takes its share of the
    /// keys from the others, and moves nothing else. A call's [`hash_key`](crate::UnaryCall::hash_key) is its key, or
    /// what [`key_of`](Partitioned::key_of) finds in its request; a call without a key is refused.
    ///
    /// For calls that concern several partitions there is [`Channel::parallel`] with a map that splits the request.
    pub fn partitioned(channels: impl IntoIterator<Item = Channel>) -> Partitioned {
        Partitioned { channels: channels.into_iter().collect(), key_of: None }
    }
}

impl Partitioned {
    /// Finds the keys of calls that bring none, by the full name of the method and the encoded request.
    pub fn key_of(
        mut self,
        key_of: impl Fn(&str, &[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Partitioned {
        self.key_of = Some(Arc::new(key_of));
        self
    }

    /// The channel.
    ///
    /// # Errors
    /// `InvalidArgument` without any channel.
    pub fn build(self) -> Result<Channel> {
        Combined::Partitioned(self).into_channel()
    }

    /// The channel of a call.
    ///
    /// # Errors
    /// `InvalidArgument` for one without a key.
    pub(super) fn of(&self, begin: &Begin, request: &[u8]) -> Result<&Channel> {
        let own = begin.asked.as_ref().and_then(|asked| asked.hash_key.as_ref());
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
        Ok(&self.channels[at])
    }
}

impl fmt::Debug for Partitioned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partitioned").field("channels", &self.channels).finish_non_exhaustive()
    }
}
