//! Sets of subscriptions, each with a broadcast buffer: a client reads one buffer, in which its messages have the order
//! of the entries.
//!
//! Clients with the same few subscriptions and the same version of the protocol share a set. A client with many has one
//! of its own, which is changed in place.

use super::{peer::Subscriptions, sources::Sources};
use crate::shared_sets::{Joined, SHARED_MAX, SharedSets};
use bytes::Bytes;
use switchboard_fanout::{SubscriberId, Subscribers};
use switchboard_wire::{
    Outbox, Outgoing,
    resp::{SubscriptionKind, Version, write_message, write_pattern_message},
};

/// The sets of an engine.
#[derive(Debug, Default)]
pub(super) struct Sets {
    sets: SharedSets<Content, Content>,
    /// Memory of a message that is encoded.
    scratch: Outbox,
    found: Vec<u32>,
}

/// Version of the members of a set, and the numbers of its sources, in order.
type Content = (Version, Box<[u32]>);

impl Sets {
    /// Moves a client to the set of its subscriptions, after they or its version have changed. It gets what was
    /// appended for it before. Returns false if a part of that was dropped already, because the client is too slow.
    pub(super) fn settle(
        &mut self,
        id: SubscriberId,
        own: &mut Subscriptions,
        version: Version,
        sources: &mut Sources,
        subscribers: &mut Subscribers,
    ) -> bool {
        let mut wanted: Box<[u32]> = own.all.as_slice().into();
        wanted.sort_unstable();
        let old = own.set.and_then(|number| Some((number, self.sets.get(number)?)));
        let changes_in_place = wanted.len() > SHARED_MAX
            && old.is_some_and(|(_, set)| !set.is_shared() && set.content.0 == version);
        let old = old.map(|(number, set)| (number, set.buffer));
        let mut is_complete = true;
        if let (Some((number, buffer)), true) = (old, changes_in_place) {
            is_complete = subscribers.leave_buffer(id, buffer);
            self.change(number, wanted, sources);
            subscribers.attach(id, buffer);
        } else {
            own.set = (!wanted.is_empty()).then(|| self.enter(version, &wanted, sources, subscribers));
            if let Some((number, buffer)) = old {
                is_complete = subscribers.leave_buffer(id, buffer);
                self.leave(number, sources, subscribers);
            }
            if let Some(set) = own.set.and_then(|number| self.sets.get(number)) {
                subscribers.attach(id, set.buffer);
            }
        }
        own.left.drain(..).for_each(|source| sources.release(source));
        (own.is_changed, own.version) = (false, version);
        is_complete
    }

    /// Adds a member to the set of these sources.
    fn enter(
        &mut self,
        version: Version,
        wanted: &[u32],
        sources: &mut Sources,
        subscribers: &mut Subscribers,
    ) -> u32 {
        let key = (wanted.len() <= SHARED_MAX).then(|| (version, wanted.into()));
        match self.sets.join(key, || (version, wanted.into()), subscribers) {
            Joined::Known(number) => number,
            Joined::Created(number) => {
                for source in wanted {
                    if let Some(source) = sources.get_mut(*source) {
                        source.sets.insert(number);
                    }
                }
                number
            }
        }
    }

    /// Changes the sources of a set that is not shared.
    fn change(&mut self, number: u32, wanted: Box<[u32]>, sources: &mut Sources) {
        let Some(set) = self.sets.get_mut(number) else { return };
        let (_, own) = &mut set.content;
        for gone in own.iter().filter(|source| wanted.binary_search(source).is_err()) {
            if let Some(source) = sources.get_mut(*gone) {
                source.sets.remove(&number);
            }
        }
        for source in &wanted {
            if let Some(source) = sources.get_mut(*source) {
                source.sets.insert(number);
            }
        }
        *own = wanted;
    }

    /// Removes a member of a set. The last one closes it.
    pub(super) fn leave(&mut self, number: u32, sources: &mut Sources, subscribers: &mut Subscribers) {
        let Some((_, own)) = self.sets.leave(number, subscribers) else { return };
        for source in &own {
            if let Some(source) = sources.get_mut(*source) {
                source.sets.remove(&number);
            }
        }
    }

    /// Sends an entry to all clients with a subscription to its topic. Returns the number of messages that were
    /// appended to buffers.
    pub(super) fn deliver(
        &mut self,
        topic: &str,
        entry: &Bytes,
        sources: &mut Sources,
        subscribers: &mut Subscribers,
    ) -> u64 {
        let mut found = std::mem::take(&mut self.found);
        sources.matching(topic, &mut found);
        let mut appended = 0;
        for source in found.drain(..).filter_map(|number| sources.get(number)) {
            // Encoded once for each version.
            let mut encoded: [Option<Bytes>; 2] = [None, None];
            for number in &source.sets {
                let Some(set) = self.sets.get(*number) else { continue };
                let (buffer, (version, _)) = (set.buffer, &set.content);
                let index = usize::from(*version == Version::Resp3);
                let message = encoded[index].get_or_insert_with(|| {
                    let (out, topic) = (&mut self.scratch, topic.as_bytes());
                    let payload = Outgoing::Lent(entry);
                    match source.kind {
                        SubscriptionKind::Pattern => {
                            write_pattern_message(*version, &source.name, topic, payload, out);
                        }
                        kind => write_message(*version, kind, topic, payload, out),
                    }
                    Bytes::from(out.take_all())
                });
                subscribers.append(buffer, &[], message);
                appended += 1;
            }
        }
        self.found = found;
        appended
    }
}
