//! Commands of clients: publications, subscriptions, and their ends.

use super::{
    adapter::NatsAdapter,
    feeds::Member,
    messages::{self, NotTopic},
    reply_subjects,
    shared::Settings,
};
use crate::responses::add;
use bytes::Bytes;
use std::{
    future::Future,
    num::NonZeroU64,
    pin::pin,
    slice,
    task::{Context, Poll, Waker},
};
use switchboard_fanout::Subscribers;
use switchboard_message::{Pattern, Topic};
use switchboard_wire::{
    Code, Status,
    nats::{Deliveries, ErrorKind, Message},
};

/// Start of the subjects of services.
const SERVICES: &[u8] = b"$SRV.";

impl NatsAdapter {
    /// Publishes a message, or calls a service if it is a request to one.
    pub(super) fn publish(&mut self, index: u32, message: Message, subscribers: &mut Subscribers) {
        if message.reply.is_some() && self.respond(index, &message) {
            return;
        }
        if let Some(reply_to) = reply_subjects::reply_to(&message.subject) {
            return self.reply(index, &reply_to, message);
        }
        let Some(client) = self.clients.get_mut(index) else { return };
        let origin = client.origin();
        let topic = client.topic(&message.subject).cloned();
        let reply = message.reply.as_ref().map(|reply| messages::topic(reply)).transpose();
        let (topic, reply) = match (topic, reply) {
            (Ok(topic), Ok(reply)) => (topic, reply),
            (Err(NotTopic::Reserved), Ok(Some(reply))) => return self.no_responders(index, &message, &reply),
            (Err(why), _) | (_, Err(why)) => return self.refuse(index, why, &message.subject),
        };
        let caller = client.caller.clone();
        if let Some(reply) = &reply
            && !self.may_reply(index, &message, reply)
        {
            return;
        }
        // The bus has an order in each topic. Subscriptions with wildcards get what this engine publishes to several
        // topics in its order, too, because they are read before the topic changes.
        if self.last_topic.as_ref() != Some(&topic) {
            if self.unread > 0 {
                self.deliver_ready(subscribers);
            }
            self.last_topic = Some(topic.clone());
        }
        let subject = message.subject.clone();
        let request = reply.clone().map(|reply| (message.reply.clone(), reply));
        let Settings { bus, rules, counters, .. } = &self.shared.settings;
        let published = messages::publication(message, reply, origin).and_then(|publication| {
            rules.admit(topic.name(), caller.as_deref(), slice::from_ref(&publication))?;
            crate::publish::publish(bus, &topic, publication, "clients of NATS")
        });
        match published {
            Ok(receivers) => {
                add(&counters.published, 1);
                if let (Some(0), Some((Some(reply), topic))) = (receivers, request)
                    && self.send_no_responders(index, &reply, &topic)
                {
                    add(&self.shared.settings.counters.no_responders, 1);
                }
            }
            Err(status) => self.refused(index, &subject, &status),
        }
    }

    /// Replies to a request of this process.
    fn reply(&mut self, index: u32, reply_to: &str, message: Message) {
        let subject = message.subject.clone();
        let bus = &self.shared.settings.bus;
        let replied = messages::publication(message, None, None).and_then(|reply| {
            let replying = pin!(bus.reply_to(reply_to, reply));
            match replying.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(replied) => replied,
                Poll::Pending => Err(Status::resource_exhausted("the requester does not read its replies")),
            }
        });
        match replied {
            Ok(()) => add(&self.shared.settings.counters.published, 1),
            Err(status) => self.refused(index, &subject, &status),
        }
    }

    /// The bus has refused a message.
    fn refused(&mut self, index: u32, subject: &[u8], status: &Status) {
        add(&self.shared.settings.counters.refused, 1);
        tracing::debug!("nats: a message to {} is dropped: {status}", subject.escape_ascii());
        let Some(client) = self.clients.get_mut(index) else { return };
        match status.code() {
            Code::PermissionDenied | Code::Unauthenticated => {
                client.server.deny(ErrorKind::PublishDenied, subject, &mut self.out);
            }
            Code::InvalidArgument if client.server.options().pedantic => {
                client.server.deny(ErrorKind::InvalidSubject, b"", &mut self.out);
            }
            _ => {}
        }
    }

    /// Returns whether a client may publish to the topic for the replies to its request; else the request is refused.
    fn may_reply(&mut self, index: u32, message: &Message, reply: &Topic) -> bool {
        let caller = self.clients.get(index).and_then(|client| client.caller.as_deref());
        let Err(status) = self.shared.settings.rules.may_publish(reply.name(), caller) else { return true };
        self.refused(index, message.reply.as_deref().unwrap_or_default(), &status);
        false
    }

    /// Refuses a publication to a subject that is no topic.
    fn refuse(&mut self, index: u32, why: NotTopic, subject: &[u8]) {
        add(&self.shared.settings.counters.invalid_subjects, 1);
        let Some(client) = self.clients.get_mut(index) else { return };
        match why {
            NotTopic::Reserved => client.server.deny(ErrorKind::PublishDenied, subject, &mut self.out),
            NotTopic::Invalid if client.server.options().pedantic => {
                client.server.deny(ErrorKind::InvalidSubject, b"", &mut self.out);
            }
            NotTopic::Invalid => {}
        }
    }

    /// A request to a reserved subject, which nothing subscribes to: clients ask for features in this way.
    fn no_responders(&mut self, index: u32, message: &Message, reply: &Topic) {
        let Some(subject) = message.reply.clone() else { return };
        if !self.send_no_responders(index, &subject, reply) {
            self.refuse(index, NotTopic::Reserved, &message.subject);
        }
    }

    /// Sends the status 503 to the subscription of a client for its replies; returns false if it has none, or does not
    /// accept it.
    fn send_no_responders(&mut self, index: u32, reply: &[u8], topic: &Topic) -> bool {
        let Some(client) = self.clients.get_mut(index) else { return false };
        let mut subscriptions = client.subscriptions.iter();
        let matching = subscriptions.find(|(_, place)| {
            self.feeds.get(place.feed).is_some_and(|feed| feed.pattern.matches(topic.name()))
        });
        let Some(sid) = matching.map(|(sid, _)| sid.clone()) else { return false };
        client.server.no_responders(&sid, reply, &mut self.out).unwrap_or(false)
    }

    /// Adds a subscription.
    pub(super) fn subscribe(&mut self, index: u32, subject: &[u8], queue: Option<&[u8]>, sid: Bytes) {
        let settings = &self.shared.settings;
        let Some(client) = self.clients.get_mut(index) else { return };
        if client.subscriptions.contains_key(&sid) {
            return;
        }
        if client.subscriptions.len() as u64 >= u64::from(settings.subscriptions_max) {
            return client.server.deny(ErrorKind::Subscriptions, b"", &mut self.out);
        }
        let queue = queue.map(std::str::from_utf8).transpose();
        let (topics, queue) = match (messages::pattern(subject), queue) {
            (Ok(topics), Ok(queue)) => (topics, queue),
            (Err(NotTopic::Reserved), _) => {
                add(&settings.counters.invalid_subjects, 1);
                return client.server.deny(ErrorKind::SubscribeDenied, subject, &mut self.out);
            }
            (Err(NotTopic::Invalid), _) | (_, Err(_)) => {
                add(&settings.counters.invalid_subjects, 1);
                return client.server.deny(ErrorKind::InvalidSubject, b"", &mut self.out);
            }
        };
        let member = Member { client: index, sid: sid.clone(), deliveries: Deliveries::default() };
        let allowed = Pattern::new(&topics)
            .and_then(|pattern| settings.rules.may_subscribe(pattern, client.caller.as_deref()));
        match allowed.and_then(|()| self.feeds.enter(&settings.bus, &topics, queue, member)) {
            Ok(place) => {
                client.subscriptions.insert(sid, place);
            }
            Err(status) => {
                add(&settings.counters.invalid_subjects, u64::from(status.code() == Code::InvalidArgument));
                let subject_text = subject.escape_ascii();
                tracing::debug!("nats: a subscription to {subject_text} is refused: {status}");
                let (kind, subject) = match status.code() {
                    Code::InvalidArgument => (ErrorKind::InvalidSubject, &[][..]),
                    Code::ResourceExhausted => (ErrorKind::Subscriptions, &[][..]),
                    _ => (ErrorKind::SubscribeDenied, subject),
                };
                client.server.deny(kind, subject, &mut self.out);
            }
        }
    }

    /// Ends a subscription at once, or after a number of messages.
    pub(super) fn unsubscribe(&mut self, index: u32, sid: &[u8], max: Option<NonZeroU64>) {
        let Some(place) = self.clients.get(index).and_then(|client| client.subscriptions.get(sid).copied())
        else {
            return;
        };
        let feed = self.feeds.get_mut(place.feed);
        let member = feed.and_then(|feed| feed.members.get_mut(place.member as usize));
        if member.is_some_and(|member| member.deliveries.unsubscribe(max)) {
            self.remove_member(place);
        }
    }

    /// Responds to a request that a service of the server or the protocol of services serves; returns false for
    /// others.
    fn respond(&mut self, index: u32, message: &Message) -> bool {
        let is_about_services = message.subject.starts_with(SERVICES);
        let method = if is_about_services { None } else { self.method(&message.subject) };
        if !is_about_services && method.is_none() {
            return false;
        }
        let Some(Ok(reply)) = message.reply.as_ref().map(|reply| messages::topic(reply)) else {
            return false;
        };
        if !self.may_reply(index, message, &reply) {
            return true;
        }
        match method {
            Some(method) => self.call(index, method, message, reply),
            None => {
                let responses = self.shared.micro.respond(&message.subject);
                if responses.is_empty() {
                    return false;
                }
                for response in responses {
                    self.shared.reply(&reply, response);
                }
            }
        }
        true
    }
}
