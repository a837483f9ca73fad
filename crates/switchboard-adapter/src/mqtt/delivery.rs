//! Delivery of entries of the bus to the subscriptions of clients.

use super::{
    adapter::{Command, MqttAdapter},
    clients::ROOM_BYTES,
    feeds::{Kind, Live, Member},
    messages::{self, Stored},
    retained::Next,
    session::InFlight,
};
use crate::responses::add;
use std::task::Poll;
use switchboard_fanout::Subscribers;
use switchboard_message::{Delivery, Message};
use switchboard_wire::mqtt::{EncodedPublish, OutgoingPublish, Properties, QoS, SendError, Version};

/// Entries that are delivered in a row, before other connections are served, and their bytes.
const ENTRIES_MAX: usize = 1024;
const BYTES_MAX: usize = 1 << 20;
/// Names of retained messages that are compared with a filter in a row.
const NAMES_MAX: usize = 4096;

/// The member that gets the next entry of a feed.
#[derive(Clone, Copy)]
enum Target {
    /// All subscriptions of QoS 0.
    Live,
    /// One member, and whether it is of a group.
    Member(Member, bool),
}

/// Entries and bytes that the rest of a turn may deliver.
struct Budget {
    entries: usize,
    bytes: usize,
}

impl Budget {
    fn is_exhausted(&self) -> bool {
        self.entries == 0 || self.bytes == 0
    }
}

impl MqttAdapter {
    /// Delivers the entries of the feeds that have some.
    pub(super) fn deliver_ready(&mut self, subscribers: &mut Subscribers) {
        self.unread = 0;
        let mut ready = std::mem::take(&mut self.ready);
        self.feeds.ready.take(&mut ready);
        let mut budget = Budget { entries: ENTRIES_MAX, bytes: BYTES_MAX };
        let mut unfinished = None;
        for index in ready.drain(..) {
            let is_exhausted = budget.is_exhausted();
            if !self.deliver_feed(index, &mut budget, subscribers) {
                match is_exhausted {
                    true => self.feeds.requeue(index),
                    false => unfinished = Some(index),
                }
            }
        }
        // The feed that has used the budget is behind those that got nothing.
        if let Some(index) = unfinished {
            self.feeds.requeue(index);
        }
        self.ready = ready;
    }

    /// Delivers the entries of a feed. Returns false if the budget ends before them.
    fn deliver_feed(&mut self, index: u32, budget: &mut Budget, subscribers: &mut Subscribers) -> bool {
        if let Some(feed) = self.feeds.get(index) {
            feed.dequeued();
        }
        while let Some(target) = self.target(index, subscribers) {
            let Some(feed) = self.feeds.get_mut(index) else { return true };
            if budget.is_exhausted() {
                return false;
            }
            budget.entries -= 1;
            if let Kind::Group(group) = &mut feed.kind
                && let Some(stored) = group.pending.pop_front()
            {
                self.deliver_target(index, target, &stored, subscribers);
                continue;
            }
            let Poll::Ready(item) = feed.poll() else { return true };
            match item {
                Some(Ok(Delivery::Entry(message))) => {
                    budget.bytes = budget.bytes.saturating_sub(message.len());
                    self.deliver(index, target, &message, subscribers);
                }
                Some(Ok(Delivery::Gap(gap))) => {
                    add(&self.shared.counters().missed, gap.missing.unwrap_or(0));
                    tracing::debug!("mqtt: {gap}");
                }
                Some(Ok(_)) => {}
                Some(Err(status)) => tracing::debug!("mqtt: a subscription of the bus: {status}"),
                None => {
                    // The topic closes slow readers.
                    if let Err(status) = self.feeds.begin_again(index, &self.shared.settings.bus) {
                        tracing::warn!("mqtt: a topic is not read any more: {status}");
                        return true;
                    }
                }
            }
        }
        true
    }

    /// Returns where the next entry of a feed goes. Without room, the feed is read again when a member has some.
    fn target(&mut self, index: u32, subscribers: &mut Subscribers) -> Option<Target> {
        let feed = self.feeds.get_mut(index)?;
        let member = match &mut feed.kind {
            Kind::Live(_) => return Some(Target::Live),
            Kind::Own(member) => {
                let member = *member;
                if Self::member_has_room(self.clients.get(member.client), member.grant.options.qos) {
                    return Some(Target::Member(member, false));
                }
                feed.is_stalled = true;
                self.clients.get_mut(member.client)?.stall(index);
                self.wait_for_room(member.client, subscribers);
                return None;
            }
            Kind::Group(group) => {
                let count = group.members.len();
                let in_turn =
                    (0..count).map(|step| group.next.wrapping_add(step).checked_rem(count).unwrap_or(0));
                let mut with_room = in_turn.filter(|at| {
                    let member = group.members[*at];
                    Self::member_has_room(self.clients.get(member.client), member.grant.options.qos)
                });
                with_room.next().map(|at| (at, group.members[at]))
            }
        };
        let Kind::Group(group) = &mut feed.kind else { return None };
        if let Some((at, member)) = member {
            group.next = at.wrapping_add(1);
            return Some(Target::Member(member, true));
        }
        feed.is_stalled = true;
        let members: Vec<_> = group.members.iter().map(|member| member.client).collect();
        for client in members {
            if let Some(client) = self.clients.get_mut(client) {
                client.stall(index);
            }
            self.wait_for_room(client, subscribers);
        }
        None
    }

    fn deliver(
        &mut self,
        index: u32,
        target: Target,
        message: &Message<bytes::Bytes>,
        subscribers: &mut Subscribers,
    ) {
        let stored = Stored::new(&self.shared.settings.bus, message);
        self.deliver_target(index, target, &stored, subscribers);
    }

    fn deliver_target(&mut self, index: u32, target: Target, stored: &Stored, subscribers: &mut Subscribers) {
        match target {
            Target::Live => self.deliver_live(index, stored, subscribers),
            Target::Member(member, is_group) => {
                if let Some(client) = self.clients.get_mut(member.client) {
                    client.served = Some(index);
                }
                let retain = member.grant.options.retain_as_published && stored.retain();
                self.send(member, stored, retain, is_group.then_some(index), subscribers);
            }
        }
    }

    /// Sends a message to all subscriptions of QoS 0 with a filter.
    fn deliver_live(&mut self, index: u32, stored: &Stored, subscribers: &mut Subscribers) {
        let counters = &self.shared.settings.counters;
        let Some(name) = messages::name(stored.topic.name()) else { return add(&counters.undeliverable, 1) };
        let limits = &self.shared.settings.limits;
        let Some(Kind::Live(Live { variants, singles })) = self.feeds.get(index).map(|feed| &feed.kind)
        else {
            return;
        };
        let (is_retained, none) = (stored.retain(), Properties::default());
        let properties =
            variants.iter().any(|variant| variant.encoding.is_v5).then(|| stored.properties(limits));
        for variant in variants {
            let version = if variant.encoding.is_v5 { Version::V5 } else { Version::V3_1_1 };
            let properties = properties.as_ref().filter(|_| variant.encoding.is_v5).unwrap_or(&none);
            let outgoing = OutgoingPublish {
                retain: variant.encoding.retain_as_published && is_retained,
                subscription_id: variant.encoding.id,
                ..stored.outgoing(&name, properties)
            };
            let head = EncodedPublish::new(outgoing, version).head();
            subscribers.append(variant.buffer, &head, stored.entry.bytes());
            add(&counters.delivered, 1);
        }
        for member in singles.clone() {
            let retain = member.grant.options.retain_as_published && is_retained;
            self.send(member, stored, retain, None, subscribers);
        }
    }

    /// Sends a message to one subscription. One of QoS 1 or 2 needs room in the window of the client.
    pub(super) fn send(
        &mut self,
        member: Member,
        stored: &Stored,
        retain: bool,
        group: Option<u32>,
        subscribers: &mut Subscribers,
    ) {
        let (limits, counters) = (&self.shared.settings.limits, &self.shared.settings.counters);
        let Some(client) = self.clients.get_mut(member.client) else { return };
        let Some(session) = client.session.as_mut() else { return };
        if member.grant.options.no_local && stored.is_from(session.number) || stored.is_expired() {
            return;
        }
        let Some(name) = messages::name(stored.topic.name()) else { return add(&counters.undeliverable, 1) };
        let qos = member.grant.qos(stored.qos());
        let properties = match client.server.version().is_v5() {
            true => stored.properties(limits),
            false => Properties::default(),
        };
        let subscription_id = member.grant.id;
        let outgoing =
            OutgoingPublish { qos, retain, subscription_id, ..stored.outgoing(&name, &properties) };
        let packet_id = match qos {
            QoS::AtMostOnce => {
                if client.waiting >= ROOM_BYTES {
                    client.waiting = subscribers.send(client.id, |_| {});
                }
                if client.waiting >= self.shared.settings.options.outbox_bytes_max / 2 {
                    return add(&counters.dropped, 1);
                }
                None
            }
            _ => {
                let message = InFlight { stored: stored.clone(), retain, id: subscription_id, group };
                let Some(packet_id) = session.window.begin(qos, message) else { return };
                Some(packet_id)
            }
        };
        let mut sent = Ok(());
        client.waiting =
            subscribers.send(client.id, |out| sent = client.server.publish(&outgoing, packet_id, out));
        match sent {
            Ok(()) => add(&counters.delivered, 1),
            Err(SendError::TooLarge) => {
                add(&counters.undeliverable, 1);
                packet_id.and_then(|packet_id| session.window.cancel(packet_id));
            }
            // The session keeps it for the next connection.
            Err(_) => {}
        }
    }

    /// Sends retained messages to the subscriptions of a client that are new, as far as it has room.
    pub(super) fn send_retained(&mut self, index: u32, subscribers: &mut Subscribers) {
        let mut names = NAMES_MAX;
        loop {
            let Some(client) = self.clients.get_mut(index) else { return };
            let Some(cursor) = client.session.as_ref().and_then(|session| session.retained.front()) else {
                return;
            };
            let (grant, needs_window) = (cursor.grant, cursor.grant.options.qos != QoS::AtMostOnce);
            if !client.has_room(needs_window) {
                return self.wait_for_room(index, subscribers);
            }
            if names == 0 {
                // A later turn continues, unless the mailbox of the engine is full.
                client.is_rechecked |= self.engine.try_send(Command::Room(client.id)).is_ok();
                if client.is_rechecked {
                    return;
                }
                names = NAMES_MAX;
            }
            let found = self.shared.retained().next(&cursor.filter, cursor.after.as_deref(), &mut names);
            let Some(session) = client.session.as_mut() else { return };
            let (name, stored) = match found {
                Next::After(name) => (name, None),
                Next::End => {
                    session.retained.pop_front();
                    continue;
                }
                Next::Found(name, stored) => (name, Some(stored)),
            };
            if let Some(cursor) = session.retained.front_mut() {
                cursor.after = Some(name);
            }
            let Some(stored) = stored else { continue };
            self.send(Member { client: index, grant }, &stored, true, None, subscribers);
        }
    }
}
