//! PUBLISH of clients, and the acknowledgements.

use super::{
    adapter::{Command, MqttAdapter},
    clients::{Client, PendingAck},
    messages::{self, Incoming, NotTopic},
    shared::{RefusedPublish, Settings},
    subscribing::reason_of,
};
use crate::{responses::add, task::Task};
use std::{
    num::NonZeroU16,
    pin::pin,
    slice,
    task::{Context, Poll, Waker},
};
use switchboard_core::{Caller, Result, layer::BoxFuture};
use switchboard_fanout::{CloseReason, SubscriberId, Subscribers};
use switchboard_message::{Attempt, Topic};
use switchboard_wire::{
    Status,
    mqtt::{AckKind, Publish, QoS, Reason},
};

/// Outcome of a publication.
pub(super) enum Outcome {
    /// The bus has it; with the number of subscriptions that receive it, of clients and of others.
    Published(u32),
    /// The topic is durable, or makes its publishers wait.
    Waits(BoxFuture<'static, Result<()>>),
}

impl MqttAdapter {
    /// Publishes a message of a client, and acknowledges it when the bus has it.
    ///
    /// # Errors
    /// The reason to close a client before version 5 whose message is refused.
    pub(super) fn publish(
        &mut self,
        index: u32,
        publish: &Publish,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
        let Some(session) = client.session.as_mut() else { return Ok(()) };
        if let (QoS::ExactlyOnce, Some(packet_id)) = (publish.qos, publish.packet_id)
            && !session.received.insert(packet_id)
        {
            add(&self.shared.counters().repeated, 1);
            if !client.publishing.contains_key(&Some(packet_id)) {
                acknowledge(client, AckKind::PubRec, packet_id, Some((Reason::SUCCESS, String::new())));
                self.write_acks(index);
            }
            return Ok(());
        }
        let origin = session.has_no_local().then_some(session.number);
        let topic = match topic_of(client, publish) {
            Ok(topic) => topic,
            Err((reason, text)) => return self.refused(index, publish, reason, text),
        };
        let caller = client.caller.clone();
        let incoming = Incoming {
            qos: publish.qos,
            retain: publish.retain,
            properties: &publish.properties,
            payload: &publish.payload,
            origin,
        };
        match self.publish_entry(&topic, &incoming, caller.as_deref()) {
            Ok(Outcome::Published(receivers)) => {
                add(&self.shared.counters().published, 1);
                let is_unheard = receivers == 0;
                let reason = if is_unheard { Reason::NO_MATCHING_SUBSCRIBERS } else { Reason::SUCCESS };
                self.accepted(index, publish, reason);
                Ok(())
            }
            Ok(Outcome::Waits(publishing)) => {
                self.wait(index, publish, publishing, subscribers);
                Ok(())
            }
            Err(status) => {
                let reason = reason_of(&status, Reason::TOPIC_NAME_INVALID);
                self.refused(index, publish, reason, status.message())
            }
        }
    }

    /// Publishes an entry, and keeps it if it is to be retained.
    ///
    /// # Errors
    /// Returns the errors of the rules and of the bus.
    pub(super) fn publish_entry(
        &self,
        topic: &Topic,
        incoming: &Incoming<'_>,
        caller: Option<&Caller>,
    ) -> Result<Outcome> {
        let Settings { bus, rules, .. } = &self.shared.settings;
        let publication = messages::publication(incoming)?;
        rules.admit(topic.name(), caller, slice::from_ref(&publication))?;
        if incoming.retain {
            self.shared.retained().set(topic, incoming)?;
        }
        match bus.publish_encoded(topic, publication).attempt()? {
            Attempt::Published(_, receivers) => Ok(Outcome::Published(receivers)),
            Attempt::Durable(_) | Attempt::Waits(_) => {
                let (bus, topic) = (bus.clone(), topic.clone());
                let publication = messages::publication(incoming)?;
                let publishing = async move { bus.publish_encoded(&topic, publication).await.map(drop) };
                Ok(Outcome::Waits(Box::pin(publishing)))
            }
        }
    }

    /// Waits for the bus. The first poll passes the entry on, so that entries keep their order; the client is not read
    /// while more than its receive maximum waits.
    fn wait(
        &mut self,
        index: u32,
        publish: &Publish,
        mut publishing: BoxFuture<'static, Result<()>>,
        subscribers: &mut Subscribers,
    ) {
        let polled = pin!(&mut publishing).poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(outcome) = polled {
            return self.waited(index, publish.packet_id, publish.qos, outcome);
        }
        let Some(client) = self.clients.get_mut(index) else { return };
        let packet_id = publish.packet_id;
        let (id, engine) = (client.id, self.engine.clone());
        if let Some(packet_id) = packet_id {
            acknowledge(client, kind_of(publish.qos), packet_id, None);
        }
        let task = Task::spawn(async move {
            let outcome = publishing.await;
            // An engine that has ended has no clients.
            let _ = engine.send(Command::Published(id, packet_id, outcome)).await;
        });
        client.publishing.insert(packet_id, task);
        let is_full = client.publishing.len() >= usize::from(self.shared.settings.limits.receive_max);
        if publish.qos == QoS::AtMostOnce || is_full {
            client.is_paused = true;
            subscribers.pause(id);
        }
    }

    /// The bus has accepted a message that waited, or has refused it.
    pub(super) fn published(
        &mut self,
        id: SubscriberId,
        packet_id: Option<NonZeroU16>,
        outcome: Result<(), Status>,
        subscribers: &mut Subscribers,
    ) {
        let Some(index) = self.clients.index(id, subscribers) else { return };
        let Some(client) = self.clients.get_mut(index) else { return };
        client.publishing.remove(&packet_id);
        let kind = client.acks.iter().find(|ack| Some(ack.packet_id) == packet_id).map(|ack| ack.kind);
        let qos = match kind {
            Some(AckKind::PubAck) => QoS::AtLeastOnce,
            Some(_) => QoS::ExactlyOnce,
            None => QoS::AtMostOnce,
        };
        if std::mem::take(&mut client.is_paused) {
            subscribers.resume(id);
        }
        self.waited(index, packet_id, qos, outcome);
        self.flush(index, subscribers);
    }

    fn waited(&mut self, index: u32, packet_id: Option<NonZeroU16>, qos: QoS, outcome: Result<(), Status>) {
        let counters = self.shared.settings.counters.clone();
        let outcome = match outcome {
            Ok(()) => {
                add(&counters.published, 1);
                (Reason::SUCCESS, String::new())
            }
            Err(status) => {
                add(&counters.refused, 1);
                (reason_of(&status, Reason::TOPIC_NAME_INVALID), status.message().to_owned())
            }
        };
        let (QoS::AtLeastOnce | QoS::ExactlyOnce, Some(packet_id)) = (qos, packet_id) else { return };
        let Some(client) = self.clients.get_mut(index) else { return };
        if qos == QoS::ExactlyOnce
            && outcome.0.is_error()
            && let Some(session) = client.session.as_mut()
        {
            session.received.remove(packet_id);
        }
        acknowledge(client, kind_of(qos), packet_id, Some(outcome));
        self.write_acks(index);
    }

    fn accepted(&mut self, index: u32, publish: &Publish, reason: Reason) {
        if let (Some(packet_id), Some(client)) = (publish.packet_id, self.clients.get_mut(index)) {
            acknowledge(client, kind_of(publish.qos), packet_id, Some((reason, String::new())));
            self.write_acks(index);
        }
    }

    /// Refuses a message: with its reason in version 5, and by the policy before.
    fn refused(
        &mut self,
        index: u32,
        publish: &Publish,
        reason: Reason,
        text: &str,
    ) -> Result<(), CloseReason> {
        add(&self.shared.counters().refused, 1);
        tracing::debug!("mqtt: a message to {} is refused: {text}", publish.topic.escape_ascii());
        let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
        let is_v5 = client.server.version().is_v5();
        if !is_v5 && self.shared.settings.refused_publications == RefusedPublish::Close {
            client.server.close(reason, &mut self.out);
            return Err(CloseReason::Violation { name: "refused", text: text.to_owned().into() });
        }
        let Some(packet_id) = publish.packet_id else { return Ok(()) };
        if is_v5
            && publish.qos == QoS::ExactlyOnce
            && let Some(session) = client.session.as_mut()
        {
            session.received.remove(packet_id);
        }
        acknowledge(client, kind_of(publish.qos), packet_id, Some((reason, text.to_owned())));
        self.write_acks(index);
        Ok(())
    }

    /// The client releases the identifier of a message of QoS 2.
    pub(super) fn released(&mut self, index: u32, packet_id: NonZeroU16) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let is_known = client.session.as_mut().is_some_and(|session| session.received.remove(packet_id));
        let reason = if is_known { Reason::SUCCESS } else { Reason::PACKET_ID_NOT_FOUND };
        client.server.acknowledge(AckKind::PubComp, packet_id, reason, "", &mut self.out);
    }

    /// Writes the acknowledgements up to the first one that waits: they have the order of the messages.
    fn write_acks(&mut self, index: u32) {
        let Some(client) = self.clients.get_mut(index) else { return };
        while let Some(PendingAck { kind, packet_id, outcome: Some((reason, text)) }) = client.acks.front() {
            client.server.acknowledge(*kind, *packet_id, *reason, text, &mut self.out);
            client.acks.pop_front();
        }
    }
}

fn kind_of(qos: QoS) -> AckKind {
    if qos == QoS::ExactlyOnce { AckKind::PubRec } else { AckKind::PubAck }
}

/// Adds an acknowledgement, or sets the outcome of one that waits.
fn acknowledge(client: &mut Client, kind: AckKind, packet_id: NonZeroU16, outcome: Option<(Reason, String)>) {
    let waiting = client.acks.iter_mut().find(|ack| ack.packet_id == packet_id && ack.outcome.is_none());
    match waiting {
        Some(ack) if outcome.is_some() => ack.outcome = outcome,
        _ => client.acks.push_back(PendingAck { kind, packet_id, outcome }),
    }
}

/// Returns the topic of a message. Most clients publish to the same one again.
fn topic_of(client: &mut Client, publish: &Publish) -> Result<Topic, (Reason, &'static str)> {
    if let Some((_, topic)) = client.last.as_ref().filter(|(name, _)| *name == publish.topic) {
        return Ok(topic.clone());
    }
    let topic = messages::topic(&publish.topic).map_err(|why| match why {
        NotTopic::Invalid => (Reason::TOPIC_NAME_INVALID, "the name is longer than the topics of the bus"),
        NotTopic::Reserved => (Reason::NOT_AUTHORIZED, "names that begin with $ are reserved"),
    })?;
    client.last = Some((bytes::Bytes::copy_from_slice(&publish.topic), topic.clone()));
    Ok(topic)
}
