//! Frames of pushes.

use super::{
    settings::Context,
    stats::{Counters, count},
};
use crate::{
    accepts::{Accepts, of_headers},
    feeds::Encoder,
    names,
};
use bytes::Bytes;
use std::sync::Arc;
use switchboard_fanout::SubscriberId;
use switchboard_message::{Message, Topic};
use switchboard_wire::{
    Outbox,
    goim::{Push, PushForm},
};

/// Pushes in one container, as in goim.
const CONTAINER_PUSHES_MAX: usize = 20;

/// Parameters that determine the bytes of pushes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Key {
    pub(super) form: PushForm,
    pub(super) accepts: Accepts,
}

/// Encodes entries as pushes.
pub(super) struct PushEncoder {
    default_operation: i32,
    is_strict_legacy: bool,
    closes_lagged: bool,
    counters: Arc<Counters>,
}

impl PushEncoder {
    pub(super) fn new(context: &Context) -> PushEncoder {
        let settings = &context.settings;
        PushEncoder {
            default_operation: settings.default_operation,
            is_strict_legacy: settings.is_strict_legacy,
            closes_lagged: settings.closes_lagged,
            counters: context.counters.clone(),
        }
    }
}

impl Encoder for PushEncoder {
    type Key = Key;

    fn admits(&self, key: &Key, entry: &Message<Bytes>) -> bool {
        let is_unfiltered = self.is_strict_legacy && names::room_of(entry.topic().name()).is_some();
        is_unfiltered || key.accepts.admits(of_headers(entry.headers()))
    }

    fn encode(&mut self, key: &Key, entries: &[&Message<Bytes>], out: &mut Outbox) {
        for entries in entries.chunks(CONTAINER_PUSHES_MAX) {
            let push =
                |entry: &&'_ Message<Bytes>| of_headers(entry.headers()).unwrap_or(self.default_operation);
            let pushes: Vec<Push<'_>> =
                entries.iter().map(|entry| Push { operation: push(entry), payload: entry }).collect();
            // An entry that no packet can have is left out, which the hub counts.
            let _ = key.form.write(&pushes, out.tail());
        }
    }

    fn stays_after_lag(&mut self, _id: SubscriberId, _topic: &Topic) -> bool {
        if self.closes_lagged {
            return false;
        }
        count(&self.counters.lagged);
        true
    }
}
