//! Delivery of entries of the bus to the subscriptions of clients.

use super::{
    adapter::NatsAdapter,
    feeds::Member,
    messages,
    peer::{Client, Clients, Place},
    reply_subjects,
    shared::SlowConsumer,
};
use crate::responses::add;
use bytes::Bytes;
use std::{ops::Range, task::Poll};
use switchboard_fanout::{CloseReason, Subscribers};
use switchboard_message::{Delivery, Message};
use switchboard_wire::nats::{EncodedMessage, ErrorKind, OutgoingMessage, subject};

/// Entries that are delivered in a row, before other connections are served, and their bytes.
const ENTRIES_MAX: usize = 1024;
const BYTES_MAX: usize = 1 << 20;
/// Bytes that wait for a member of a queue group, at which others get the next entries.
const ROOM_BYTES: usize = 256 << 10;

impl NatsAdapter {
    /// Delivers the entries of the feeds that have some.
    pub(super) fn deliver_ready(&mut self, subscribers: &mut Subscribers) {
        self.unread = 0;
        let mut ready = std::mem::take(&mut self.ready);
        self.feeds.ready.take(&mut ready);
        let (mut entries, mut bytes) = (0, 0);
        for index in ready.drain(..) {
            while let Some(feed) = self.feeds.get_mut(index) {
                if entries >= ENTRIES_MAX || bytes >= BYTES_MAX {
                    feed.requeue();
                    break;
                }
                let Poll::Ready(item) = feed.poll() else { break };
                entries += 1;
                match item {
                    Some(Ok(Delivery::Entry(message))) => {
                        bytes += message.len();
                        self.deliver(index, &message, subscribers);
                    }
                    Some(Ok(Delivery::Gap(gap))) => {
                        add(&self.shared.settings.counters.missed, gap.missing.unwrap_or(0));
                    }
                    Some(Ok(_)) => {}
                    Some(Err(status)) => tracing::debug!("nats: a subscription of the bus: {status}"),
                    None => {
                        // The topic closes slow readers. What was missed is not known.
                        if let Err(status) = self.feeds.begin_again(index, &self.shared.settings.bus) {
                            tracing::warn!("nats: a topic is not read any more: {status}");
                            break;
                        }
                    }
                }
            }
        }
        self.ready = ready;
    }

    /// Sends an entry to the subscriptions of a feed: to all of them, or to the next one of a queue group.
    fn deliver(&mut self, index: u32, message: &Message<Bytes>, subscribers: &mut Subscribers) {
        let counters = &self.shared.settings.counters;
        let entry = message.entry();
        let Ok(subject) = subject::subject_of(message.topic().name()) else {
            return add(&counters.undeliverable, 1);
        };
        let reply = message
            .reply_to()
            .and_then(|topic| reply_subjects::subject(topic).or_else(|| subject::subject_of(topic).ok()));
        let headers = messages::headers(entry, &self.shared.settings.limits);
        let outgoing = OutgoingMessage {
            subject: subject.as_bytes(),
            reply: reply.as_deref().map(str::as_bytes),
            headers: headers.as_ref(),
            payload: entry.bytes().into(),
        };
        let Ok(encoded) = EncodedMessage::new(&outgoing) else { return add(&counters.undeliverable, 1) };
        let origin = messages::origin(entry);
        let Some(feed) = self.feeds.get_mut(index) else { return };
        let mut ended = std::mem::take(&mut self.ended);
        let is_group = feed.is_group();
        let members = if is_group {
            choose(&mut feed.next, &feed.members, &self.clients, origin)
        } else {
            0..feed.members.len()
        };
        for at in members {
            let Some(member) = feed.members.get_mut(at) else { break };
            let Some(client) = self.clients.get_mut(member.client) else { continue };
            if origin.is_some_and(|origin| origin == client.number) {
                continue;
            }
            if client.is_slow {
                add(&counters.dropped, 1);
                continue;
            }
            let mut sent = Ok(());
            let waiting = subscribers
                .send(client.id, |out| sent = client.server.send_encoded(&member.sid, &encoded, out));
            client.waiting = waiting;
            if sent.is_err() {
                add(&counters.undeliverable, 1);
                continue;
            }
            add(&counters.delivered, u64::from(waiting > 0));
            if member.deliveries.deliver() {
                ended.push(at as u32);
            }
            if waiting >= self.shared.settings.options.outbox_bytes_max {
                add(&counters.slow_consumers, 1);
                slow_consumer(client, self.shared.settings.slow_consumers, subscribers);
            }
        }
        // From the last one on: a removal moves the last one.
        for at in ended.drain(..).rev() {
            self.remove_member(Place { feed: index, member: at });
        }
        self.ended = ended;
    }

    /// Removes a subscription of a client from its feed.
    pub(super) fn remove_member(&mut self, place: Place) {
        let removed = self.feeds.get(place.feed).and_then(|feed| feed.members.get(place.member as usize));
        if let Some(Member { client, sid, .. }) = removed
            && let Some(client) = self.clients.get_mut(*client)
        {
            client.subscriptions.remove(sid);
        }
        if let Some(moved) = self.feeds.leave(place.feed, place.member)
            && let Some(client) = self.clients.get_mut(moved.client)
            && let Some(known) = client.subscriptions.get_mut(&moved.sid)
        {
            *known = place;
        }
    }
}

/// Returns the member of a queue group that gets the next entry: in turn among those for which few bytes wait, or among
/// all if there is none. A client that published the entry and does not want it back is no member for it.
fn choose(next: &mut usize, members: &[Member], clients: &Clients, origin: Option<u64>) -> Range<usize> {
    let count = members.len();
    let client = |at: usize| members.get(at).and_then(|member| clients.get(member.client));
    let has_room =
        |client: &Client| client.waiting < ROOM_BYTES && !client.is_slow && client.server.is_open();
    let in_turn = (0..count).map(|step| (*next).wrapping_add(step).checked_rem(count).unwrap_or(0));
    let others = in_turn.filter(|at| origin.is_none() || client(*at).map(|client| client.number) != origin);
    let with_room = others.clone().find(|at| client(*at).is_some_and(has_room));
    let Some(chosen) = with_room.or_else(|| others.clone().next()) else { return 0..0 };
    *next = chosen.wrapping_add(1);
    chosen..chosen.saturating_add(1)
}

/// Closes a client for which too many bytes wait, or has it miss messages.
fn slow_consumer(client: &mut Client, policy: SlowConsumer, subscribers: &mut Subscribers) {
    tracing::debug!(client = client.number, "slow consumer: {} bytes wait", client.waiting);
    match policy {
        SlowConsumer::Drop => client.is_slow = true,
        SlowConsumer::Close => {
            subscribers.send(client.id, |out| client.server.close(ErrorKind::SlowConsumer, out));
            subscribers.close(client.id, CloseReason::Lagged);
        }
    }
}
