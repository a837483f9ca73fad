//! SUBSCRIBE and UNSUBSCRIBE.

use super::{
    adapter::MqttAdapter,
    feeds::{Encoding, Group, Key, Kind, Live, Member, Variant},
    messages::{self, NotTopic},
    session::{Grant, Resume, RetainedCursor, Subscription},
};
use std::num::NonZeroU16;
use switchboard_core::Result;
use switchboard_fanout::Subscribers;
use switchboard_message::Pattern;
use switchboard_wire::{
    Code, Status,
    mqtt::{PropertyId, QoS, Reason, RetainHandling, Subscribe, Unsubscribe, topic},
};

impl MqttAdapter {
    /// Adds the subscriptions of a SUBSCRIBE, or replaces their options.
    pub(super) fn subscribe(&mut self, index: u32, subscribe: &Subscribe, subscribers: &mut Subscribers) {
        let id = subscribe.properties.number(PropertyId::SubscriptionId);
        let mut reasons = Vec::with_capacity(subscribe.filters.len());
        for (filter, options) in &subscribe.filters {
            let grant = Grant { options: *options, id };
            let reason = match self.subscribe_filter(index, filter, grant, subscribers) {
                Ok(()) => Reason(options.qos.bits()),
                Err(reason) => reason,
            };
            reasons.push(reason);
        }
        self.suback(false, index, subscribe.packet_id, reasons);
        self.flush(index, subscribers);
        self.send_retained(index, subscribers);
    }

    fn suback(&mut self, is_unsubscribe: bool, index: u32, packet_id: NonZeroU16, reasons: Vec<Reason>) {
        let Some(client) = self.clients.get_mut(index) else { return };
        match is_unsubscribe {
            true => client.server.unsuback(packet_id, reasons, &mut self.out),
            false => client.server.suback(packet_id, reasons, &mut self.out),
        }
    }

    fn subscribe_filter(
        &mut self,
        index: u32,
        filter: &[u8],
        grant: Grant,
        subscribers: &mut Subscribers,
    ) -> Result<(), Reason> {
        let (group, names) = topic::shared(filter).map_err(|_| Reason::TOPIC_FILTER_INVALID)?;
        if !topic::is_filter(names) {
            return Err(Reason::TOPIC_FILTER_INVALID);
        }
        let topics = messages::pattern(names).map_err(|why| match why {
            NotTopic::Invalid => Reason::TOPIC_FILTER_INVALID,
            // Topics of servers, of which there are none.
            NotTopic::Reserved => Reason::NOT_AUTHORIZED,
        })?;
        let pattern = Pattern::new(&topics).map_err(|_| Reason::TOPIC_FILTER_INVALID)?;
        let Some(client) = self.clients.get_mut(index) else { return Err(Reason::UNSPECIFIED) };
        self.shared
            .settings
            .rules
            .may_subscribe(pattern, client.caller.as_deref())
            .map_err(|status| reason_of(&status, Reason::TOPIC_FILTER_INVALID))?;
        let max = self.shared.settings.subscriptions_max;
        let Some(session) = client.session.as_mut() else { return Err(Reason::UNSPECIFIED) };
        let count = session.subscriptions.len();
        let (mut is_new, mut known) = (true, None);
        if let Some(subscription) = session.subscription(filter) {
            is_new = std::mem::take(&mut subscription.is_lost);
            known = Some((subscription.grant, subscription.feed));
        }
        let resume = match known {
            Some((before, Some(feed))) => self.replace(index, filter, (before, feed), grant, subscribers),
            Some((_, None)) => Some(Resume::Head),
            None if count >= max => return Err(Reason::QUOTA_EXCEEDED),
            None => Some(Resume::Head),
        };
        if let Some(resume) = resume {
            let refused = |status: Status| reason_of(&status, Reason::TOPIC_FILTER_INVALID);
            let joined = self.join(index, filter, grant, resume, None, subscribers);
            let feed = joined.inspect_err(|_| self.forget(index, filter)).map_err(refused)?;
            let Some(session) = self.clients.get_mut(index).and_then(|client| client.session.as_mut()) else {
                return Err(Reason::UNSPECIFIED);
            };
            match session.subscription(filter) {
                Some(subscription) => (subscription.grant, subscription.feed) = (grant, Some(feed)),
                None => session.subscriptions.push(Subscription {
                    filter: filter.into(),
                    grant,
                    feed: Some(feed),
                    resume: Resume::Head,
                    is_lost: false,
                }),
            }
        }
        let sends_retained = match grant.options.retain_handling {
            RetainHandling::Always => true,
            RetainHandling::IfNew => is_new,
            RetainHandling::Never => false,
        };
        if sends_retained
            && group.is_none()
            && let Some(session) = self.clients.get_mut(index).and_then(|client| client.session.as_mut())
        {
            session.retained.retain(|cursor| *cursor.filter != *names);
            session.retained.push_back(RetainedCursor { filter: names.into(), grant, after: None });
        }
        Ok(())
    }

    /// Replaces the options of a subscription, without a gap. Returns where it continues if it needs another feed.
    fn replace(
        &mut self,
        index: u32,
        filter: &[u8],
        (before, feed): (Grant, u32),
        grant: Grant,
        subscribers: &mut Subscribers,
    ) -> Option<Resume> {
        if before == grant {
            return None;
        }
        let is_live = grant.options.qos == QoS::AtMostOnce;
        let current = self.feeds.get_mut(feed)?;
        let continued = current.resume();
        let resume = match &mut current.kind {
            // Its entries that were not read yet come first, also with QoS 0.
            Kind::Own(member) => {
                member.grant = grant;
                None
            }
            Kind::Group(group) => {
                let own = group.members.iter_mut().find(|member| member.client == index);
                own.into_iter().for_each(|member| member.grant = grant);
                None
            }
            // The feed continues without members until the client joins it again.
            Kind::Live(_) if is_live => {
                self.leave_variant(feed, index, before, true, subscribers);
                Some(Resume::Head)
            }
            Kind::Live(_) => {
                self.leave_variant(feed, index, before, true, subscribers);
                self.close_unused(feed, subscribers);
                Some(continued)
            }
        };
        let session = self.clients.get_mut(index).and_then(|client| client.session.as_mut());
        if let Some(subscription) = session.and_then(|session| session.subscription(filter)) {
            subscription.grant = grant;
        }
        resume
    }

    /// Removes a subscription from its session.
    fn forget(&mut self, index: u32, filter: &[u8]) {
        if let Some(session) = self.clients.get_mut(index).and_then(|client| client.session.as_mut()) {
            session.subscriptions.retain(|subscription| *subscription.filter != *filter);
        }
    }

    /// Ends the subscriptions of an UNSUBSCRIBE.
    pub(super) fn unsubscribe(
        &mut self,
        index: u32,
        unsubscribe: &Unsubscribe,
        subscribers: &mut Subscribers,
    ) {
        let mut reasons = Vec::with_capacity(unsubscribe.filters.len());
        for filter in &unsubscribe.filters {
            let Some(client) = self.clients.get_mut(index) else { return };
            let Some(session) = client.session.as_mut() else { return };
            // Retained messages of a shared subscription are not sent.
            session.retained.retain(|cursor| *cursor.filter != **filter);
            let known = session.subscription(filter);
            let Some((grant, feed)) = known.map(|known| (known.grant, known.feed)) else {
                reasons.push(Reason::NO_SUBSCRIPTION_EXISTED);
                continue;
            };
            if let Some(feed) = feed {
                match self.feeds.get(feed).map(|feed| &feed.kind) {
                    Some(Kind::Group(_)) => {
                        self.leave_group(feed, index);
                        self.drop_group_reference(feed, subscribers);
                    }
                    Some(Kind::Live(_)) => self.leave_live(feed, index, grant, subscribers),
                    Some(Kind::Own(_)) => drop(self.feeds.close(feed, subscribers)),
                    None => {}
                }
            }
            self.forget(index, filter);
            reasons.push(Reason::SUCCESS);
        }
        self.suback(true, index, unsubscribe.packet_id, reasons);
    }

    /// Adds a member to the feed of a filter of QoS 0.
    ///
    /// # Errors
    /// That of the bus.
    pub(super) fn join_live(
        &mut self,
        key: Key,
        member: Member,
        subscribers: &mut Subscribers,
    ) -> Result<u32> {
        let index = match self.feeds.find(&key) {
            Some(index) => index,
            None => {
                let bus = &self.shared.settings.bus;
                self.feeds.open(bus, key, Kind::Live(Live::default()), Resume::Head)?
            }
        };
        let encoding = self.encoding(&member);
        let Some(client) = self.clients.get(member.client) else { return Ok(index) };
        let Some(Kind::Live(live)) = self.feeds.get_mut(index).map(|feed| &mut feed.kind) else {
            return Ok(index);
        };
        match encoding {
            None => live.singles.push(member),
            Some(encoding) => {
                let known = live.variants.iter().find(|variant| variant.encoding == encoding);
                let buffer = match known {
                    Some(variant) => variant.buffer,
                    None => {
                        let buffer = subscribers.open_buffer();
                        live.variants.push(Variant { encoding, buffer });
                        buffer
                    }
                };
                subscribers.attach(client.id, buffer);
            }
        }
        Ok(index)
    }

    /// Returns how the messages of a subscription are encoded, if it can share their bytes.
    fn encoding(&self, member: &Member) -> Option<Encoding> {
        let server = &self.clients.get(member.client)?.server;
        let Grant { options, id } = member.grant;
        (server.accepts_any_size() && !options.no_local).then(|| Encoding {
            is_v5: server.version().is_v5(),
            retain_as_published: options.retain_as_published,
            id,
        })
    }

    /// Removes a member from the feed of a filter of QoS 0; the last one ends it.
    pub(super) fn leave_live(&mut self, feed: u32, index: u32, grant: Grant, subscribers: &mut Subscribers) {
        self.leave_variant(feed, index, grant, false, subscribers);
        self.close_unused(feed, subscribers);
    }

    /// Removes a member from the feed of a filter of QoS 0. Messages that were encoded for it are sent to it, or are
    /// dropped.
    fn leave_variant(
        &mut self,
        feed: u32,
        index: u32,
        grant: Grant,
        is_sent: bool,
        subscribers: &mut Subscribers,
    ) {
        let encoding = self.encoding(&Member { client: index, grant });
        let Some(client) = self.clients.get(index) else { return };
        let Some(Kind::Live(live)) = self.feeds.get_mut(feed).map(|feed| &mut feed.kind) else { return };
        live.singles.retain(|member| member.client != index);
        if let Some(encoding) = encoding
            && let Some(variant) = live.variants.iter().find(|variant| variant.encoding == encoding)
        {
            match is_sent {
                true => drop(subscribers.leave_buffer(client.id, variant.buffer)),
                false => subscribers.detach(client.id, variant.buffer),
            }
        }
        live.variants.retain(|variant| {
            let is_used = subscribers.members(variant.buffer) > 0;
            if !is_used {
                subscribers.close_buffer(variant.buffer);
            }
            is_used
        });
    }

    /// Ends a feed of QoS 0 without members.
    fn close_unused(&mut self, feed: u32, subscribers: &mut Subscribers) {
        let Some(Kind::Live(live)) = self.feeds.get(feed).map(|feed| &feed.kind) else { return };
        if live.variants.is_empty() && live.singles.is_empty() {
            self.feeds.close(feed, subscribers);
        }
    }

    /// Adds a member to a group. `known` is the group, if the session already counts in it.
    ///
    /// # Errors
    /// That of the bus.
    pub(super) fn join_group(&mut self, key: Key, member: Member, known: Option<u32>) -> Result<u32> {
        let index = match self.feeds.find(&key) {
            Some(index) => index,
            None => {
                let kind = Kind::Group(Group::default());
                self.feeds.open(&self.shared.settings.bus, key, kind, Resume::Head)?
            }
        };
        if let Some(feed) = self.feeds.get_mut(index)
            && let Kind::Group(group) = &mut feed.kind
        {
            group.members.push(member);
            group.references = group.references.saturating_add(usize::from(known != Some(index)));
        }
        self.feeds.requeue(index);
        Ok(index)
    }

    /// Removes a client from the members of a group, in which its session still counts.
    pub(super) fn leave_group(&mut self, feed: u32, index: u32) {
        if let Some(Kind::Group(group)) = self.feeds.get_mut(feed).map(|feed| &mut feed.kind) {
            group.members.retain(|member| member.client != index);
        }
    }

    /// Ends the part of a session in a group; the last one ends the group.
    pub(super) fn drop_group_reference(&mut self, feed: u32, subscribers: &mut Subscribers) {
        let Some(Kind::Group(group)) = self.feeds.get_mut(feed).map(|feed| &mut feed.kind) else { return };
        group.references = group.references.saturating_sub(1);
        if group.references == 0 {
            self.feeds.close(feed, subscribers);
        }
    }
}

/// Returns the reason code of an error of the bus or of a rule.
pub(super) fn reason_of(status: &Status, invalid: Reason) -> Reason {
    match status.code() {
        Code::InvalidArgument => invalid,
        Code::PermissionDenied | Code::Unauthenticated => Reason::NOT_AUTHORIZED,
        Code::ResourceExhausted => Reason::QUOTA_EXCEEDED,
        _ => Reason::UNSPECIFIED,
    }
}
