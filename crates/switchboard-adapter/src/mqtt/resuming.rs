//! The subscriptions of a session that is continued, and its messages that are sent again.

use super::{
    adapter::MqttAdapter,
    clients::ROOM_BYTES,
    feeds::{Feed, Key, Kind, Member},
    messages,
    session::{Grant, Resume},
};
use crate::responses::add;
use switchboard_fanout::Subscribers;
use switchboard_message::GapReason;
use switchboard_wire::mqtt::{AckKind, OutgoingPublish, Properties, QoS, Reason, Resend, SendError, topic};

/// Reason and number of the entries that a session misses.
pub(super) type SessionGap = (GapReason, Option<u64>);

impl MqttAdapter {
    /// Begins the subscriptions of a client's session where they ended; returns the gap.
    pub(super) fn resume_feeds(&mut self, index: u32, subscribers: &mut Subscribers) -> Option<SessionGap> {
        let count = self.clients.get(index)?.session.as_ref()?.subscriptions.len();
        let mut gap: Option<SessionGap> = None;
        for at in 0..count {
            let session = self.clients.get_mut(index).and_then(|client| client.session.as_mut());
            let Some(subscription) = session.and_then(|session| session.subscriptions.get_mut(at)) else {
                break;
            };
            let (filter, grant) = (subscription.filter.clone(), subscription.grant);
            let resume = std::mem::take(&mut subscription.resume);
            let known = subscription.feed.take();
            // The caller may have lost the right since.
            let allowed = self.may_subscribe(index, &filter);
            let joined = allowed.and_then(|()| self.join(index, &filter, grant, resume, known, subscribers));
            let missing = match joined {
                Ok(feed) => {
                    let session = self.clients.get_mut(index).and_then(|client| client.session.as_mut());
                    if let Some(subscription) = session.and_then(|session| session.subscriptions.get_mut(at))
                    {
                        subscription.feed = Some(feed);
                    }
                    let is_own = |kind: &Kind| matches!(kind, Kind::Own(_));
                    self.feeds.get_mut(feed).filter(|feed| is_own(&feed.kind)).and_then(Feed::outcome)
                }
                Err(status) => {
                    tracing::warn!("mqtt: a subscription cannot be continued: {status}");
                    if let Some(group) = known {
                        self.drop_group_reference(group, subscribers);
                    }
                    Some((GapReason::Lost, None))
                }
            };
            gap = match (gap, missing) {
                (Some((reason, count)), Some((_, more))) => {
                    Some((reason, count.zip(more).map(|(count, more)| count.saturating_add(more))))
                }
                (gap, missing) => gap.or(missing),
            };
        }
        gap
    }

    /// Checks the right of a client to a filter that it has subscribed to before.
    fn may_subscribe(&self, index: u32, filter: &[u8]) -> switchboard_core::Result<()> {
        let names = topic::shared(filter).map_or(filter, |(_, names)| names);
        let Ok(topics) = messages::pattern(names) else { return Ok(()) };
        let caller = self.clients.get(index).and_then(|client| client.caller.as_deref());
        self.shared.settings.rules.may_subscribe(&*topics, caller)
    }

    /// Makes a client a member of the feed of a filter, which begins with the first member. `known` is that of a shared
    /// subscription which the session already counts in. Returns the feed.
    ///
    /// # Errors
    /// That of the bus.
    pub(super) fn join(
        &mut self,
        index: u32,
        filter: &[u8],
        grant: Grant,
        resume: Resume,
        known: Option<u32>,
        subscribers: &mut Subscribers,
    ) -> switchboard_core::Result<u32> {
        let invalid = || switchboard_wire::Status::invalid_argument("the filter is not valid");
        let (group, names) = topic::shared(filter).map_err(|_| invalid())?;
        let topics = messages::pattern(names).map_err(|_| invalid())?;
        let member = Member { client: index, grant };
        if let Some(group) = group {
            let group = std::str::from_utf8(group).map_err(|_| invalid())?;
            let key = Key::Group(group.into(), (&*topics).into());
            return self.join_group(key, member, known);
        }
        if grant.options.qos != QoS::AtMostOnce {
            let number = self.clients.get(index).and_then(|client| client.session.as_ref());
            let key = Key::Own(number.map_or(0, |session| session.number), (&*topics).into());
            return self.feeds.open(&self.shared.settings.bus, key, Kind::Own(member), resume);
        }
        self.join_live(Key::Live((&*topics).into()), member, subscribers)
    }

    /// Sends the messages of a session again, as far as the receive maximum and the outbox of the client allow.
    pub(super) fn redeliver(&mut self, index: u32, subscribers: &mut Subscribers) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let Some(session) = client.session.as_mut() else { return };
        let (limits, counters) = (&self.shared.settings.limits, &self.shared.settings.counters);
        let mut too_large = Vec::new();
        while client.waiting < ROOM_BYTES {
            let Some(resend) = session.window.next_resend() else { break };
            let (packet_id, qos, dup, message) = match resend {
                Resend::Publish { packet_id, qos, dup, message } => (packet_id, qos, dup, message),
                Resend::Release(packet_id) => {
                    client.waiting = subscribers.send(client.id, |out| {
                        client.server.acknowledge(AckKind::PubRel, packet_id, Reason::SUCCESS, "", out);
                    });
                    continue;
                }
            };
            let Some(name) = messages::name(message.stored.topic.name()) else { continue };
            let properties = match client.server.version().is_v5() {
                true => message.stored.properties(limits),
                false => Properties::default(),
            };
            let outgoing = OutgoingPublish {
                dup,
                qos,
                retain: message.retain,
                subscription_id: message.id,
                ..message.stored.outgoing(&name, &properties)
            };
            let mut sent = Ok(());
            client.waiting = subscribers.send(client.id, |out| {
                sent = client.server.publish(&outgoing, Some(packet_id), out);
            });
            match sent {
                Ok(()) => add(&counters.redelivered, 1),
                Err(SendError::TooLarge) => too_large.push(packet_id),
                Err(_) => break,
            }
        }
        for packet_id in too_large {
            add(&counters.undeliverable, 1);
            session.window.cancel(packet_id);
        }
        if session.window.is_resending() {
            self.wait_for_room(index, subscribers);
        }
    }
}
