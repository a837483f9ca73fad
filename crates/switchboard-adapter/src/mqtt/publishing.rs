//! PUBLISH of clients, and the acknowledgements.

use super::{
    adapter::{Command, MqttAdapter},
    clients::{Client, PendingAck},
    messages::{self, Incoming, NotTopic},
    retained::Retention,
    session::Publishing,
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
use switchboard_core::{Caller, Result, clock, layer::BoxFuture};
use switchboard_fanout::{CloseReason, Subscribers};
use switchboard_message::{Attempt, Topic};
use switchboard_wire::{
    Status,
    mqtt::{AckKind, Publish, QoS, Reason},
};

/// Outcome of a publication.
pub(super) enum Outcome {
    /// The bus has it; with the number of subscriptions that receive it, of clients and of others.
    Published(u32),
    /// The topic is durable: its entries have the order in which the futures are polled first.
    Durable(BoxFuture<'static, Result<()>>),
    /// The topic makes its publishers wait: its entries have the order in which the futures end.
    Blocked(BoxFuture<'static, Result<()>>),
}

impl MqttAdapter {
    /// Publishes a message of a client, and acknowledges it when the bus has it.
    ///
    /// # Errors
    /// The reason to close a client before version 5 whose message is refused.
    pub(super) fn publish(&mut self, index: u32, publish: &Publish) -> Result<(), CloseReason> {
        if self.repeats(index, publish) {
            add(&self.shared.counters().repeated, 1);
            return Ok(());
        }
        let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
        let Some(session) = client.session.as_mut() else { return Ok(()) };
        let origin = session.has_no_local().then_some(session.number);
        let (qos, packet_id) = (publish.qos, publish.packet_id);
        let topic = match topic_of(client, publish) {
            Ok(topic) => topic,
            Err((reason, text)) => return self.refused(index, qos, packet_id, reason, text),
        };
        let caller = client.caller.clone();
        let incoming = Incoming {
            qos,
            retain: publish.retain,
            properties: &publish.properties,
            payload: &publish.payload,
            origin,
        };
        match self.publish_entry(&topic, &incoming, caller.as_deref()) {
            Ok(Outcome::Published(receivers)) => {
                let is_unheard = receivers == 0;
                let reason = if is_unheard { Reason::NO_MATCHING_SUBSCRIBERS } else { Reason::SUCCESS };
                self.accepted(index, qos, packet_id, reason);
                Ok(())
            }
            Ok(Outcome::Durable(publishing)) => self.wait(index, qos, packet_id, publishing, false),
            Ok(Outcome::Blocked(publishing)) => self.wait(index, qos, packet_id, publishing, true),
            Err(status) => self.refused_by_bus(index, qos, packet_id, &status),
        }
    }

    /// Returns whether a client repeats a message that the bus has, or that waits for it. The acknowledgement of the
    /// latter follows when the bus has it.
    fn repeats(&mut self, index: u32, publish: &Publish) -> bool {
        let Some(packet_id) = publish.packet_id else { return false };
        let Some(client) = self.clients.get_mut(index) else { return false };
        let Some(session) = client.session.as_mut() else { return false };
        if session.publishing.contains_key(&Some(packet_id)) {
            if !client.awaits_outcome(packet_id) {
                acknowledge(client, kind_of(publish.qos), packet_id, None);
            }
            return true;
        }
        if publish.qos != QoS::ExactlyOnce || session.received.insert(packet_id) {
            return false;
        }
        acknowledge(client, AckKind::PubRec, packet_id, Some((Reason::SUCCESS, String::new())));
        self.write_acks(index);
        true
    }

    /// Publishes an entry. One that is to be retained is when the bus has accepted it.
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
        let retention = match incoming.retain {
            true => Some(Retention::new(&self.shared, topic, messages::publication(incoming)?)?),
            false => None,
        };
        let is_durable = match bus.publish_encoded(topic, publication).attempt()? {
            Attempt::Published(_, receivers) => {
                retention.map_or(Ok(()), Retention::store)?;
                return Ok(Outcome::Published(receivers));
            }
            Attempt::Durable(_) => true,
            Attempt::Waits(_) => false,
        };
        let (bus, topic) = (bus.clone(), topic.clone());
        let publication = messages::publication(incoming)?;
        let publishing: BoxFuture<'static, Result<()>> = Box::pin(async move {
            bus.publish_encoded(&topic, publication).await?;
            retention.map_or(Ok(()), Retention::store)
        });
        Ok(if is_durable { Outcome::Durable(publishing) } else { Outcome::Blocked(publishing) })
    }

    /// Waits for the bus. The first poll passes an entry of a durable topic on, so that entries keep their order. The
    /// client is not read while one of its messages waits for room in a topic, or one of QoS 0 waits.
    ///
    /// # Errors
    /// The reason to close a client before version 5 whose message is refused.
    fn wait(
        &mut self,
        index: u32,
        qos: QoS,
        packet_id: Option<NonZeroU16>,
        mut publishing: BoxFuture<'static, Result<()>>,
        is_blocked: bool,
    ) -> Result<(), CloseReason> {
        match pin!(&mut publishing).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => {
                self.accepted(index, qos, packet_id, Reason::SUCCESS);
                return Ok(());
            }
            Poll::Ready(Err(status)) => return self.refused_by_bus(index, qos, packet_id, &status),
            Poll::Pending => {}
        }
        let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
        if let Some(packet_id) = packet_id {
            acknowledge(client, kind_of(qos), packet_id, None);
        }
        let Some(session) = client.session.as_mut() else { return Ok(()) };
        let (client_id, number) = (session.client_id.clone(), session.number);
        let engine = self.engine.clone();
        let task = Task::spawn(async move {
            let outcome = publishing.await;
            // An engine that has ended has no clients.
            let _ = engine.send(Command::Published { client_id, number, packet_id, outcome }).await;
        });
        session.publishing.insert(packet_id, Publishing { qos, _task: task });
        if is_blocked || packet_id.is_none() {
            session.paused_by = Some(packet_id);
        }
        Ok(())
    }

    /// Stops or continues reading a client: a message of it waits and later ones must not overtake it, or as many
    /// messages as the receive maximum wait for the bus or for their acknowledgement.
    pub(super) fn pause_while_full(&mut self, index: u32, subscribers: &mut Subscribers) {
        let max = usize::from(self.shared.settings.limits.receive_max.max(1));
        let Some(client) = self.clients.get_mut(index) else { return };
        let Some(session) = client.session.as_ref() else { return };
        let is_full = session.paused_by.is_some() || session.publishing.len().max(client.acks.len()) >= max;
        match (is_full, std::mem::replace(&mut client.is_paused, is_full)) {
            (true, false) => subscribers.pause(client.id),
            (false, true) => {
                // It was not read, so that it was not silent.
                client.heard_at = clock::now_ns();
                subscribers.resume(client.id);
            }
            _ => {}
        }
    }

    /// The bus has accepted a message that waited, or has refused it. The client may be absent: it repeats the message.
    pub(super) fn published(
        &mut self,
        (client_id, number): (&[u8], u64),
        packet_id: Option<NonZeroU16>,
        outcome: Result<(), Status>,
        subscribers: &mut Subscribers,
    ) {
        let index = self.sessions.connected(client_id);
        let connected = index.and_then(|index| self.clients.get_mut(index)?.session.as_mut());
        let session =
            connected.or_else(|| self.sessions.absent_mut(client_id).map(|absent| &mut absent.session));
        let Some(session) = session.filter(|session| session.number == number) else { return };
        let Some(qos) = session.completed(packet_id) else { return };
        if let (Err(_), QoS::ExactlyOnce, Some(packet_id)) = (&outcome, qos, packet_id) {
            session.received.remove(packet_id);
        }
        let client = index.and_then(|index| self.clients.get(index));
        let is_awaited = client.is_some_and(|client| packet_id.is_none_or(|id| client.awaits_outcome(id)));
        let Some(index) = index.filter(|_| is_awaited) else {
            let counters = self.shared.counters();
            add(if outcome.is_err() { &counters.refused } else { &counters.published }, 1);
            if let Some(index) = index {
                self.pause_while_full(index, subscribers);
            }
            return;
        };
        let ended = match outcome {
            Ok(()) => {
                self.accepted(index, qos, packet_id, Reason::SUCCESS);
                Ok(())
            }
            Err(status) => self.refused_by_bus(index, qos, packet_id, &status),
        };
        self.pause_while_full(index, subscribers);
        self.flush(index, subscribers);
        if let (Err(why), Some(client)) = (ended, self.clients.get(index)) {
            subscribers.close(client.id, why);
        }
    }

    /// The bus has a message.
    fn accepted(&mut self, index: u32, qos: QoS, packet_id: Option<NonZeroU16>, reason: Reason) {
        add(&self.shared.counters().published, 1);
        if let (Some(packet_id), Some(client)) = (packet_id, self.clients.get_mut(index)) {
            acknowledge(client, kind_of(qos), packet_id, Some((reason, String::new())));
            self.write_acks(index);
        }
    }

    fn refused_by_bus(
        &mut self,
        index: u32,
        qos: QoS,
        packet_id: Option<NonZeroU16>,
        status: &Status,
    ) -> Result<(), CloseReason> {
        let reason = reason_of(status, Reason::TOPIC_NAME_INVALID);
        self.refused(index, qos, packet_id, reason, status.message())
    }

    /// Refuses a message: with its reason in version 5, and by the policy before.
    fn refused(
        &mut self,
        index: u32,
        qos: QoS,
        packet_id: Option<NonZeroU16>,
        reason: Reason,
        text: &str,
    ) -> Result<(), CloseReason> {
        add(&self.shared.counters().refused, 1);
        let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
        tracing::debug!("mqtt: a message of client {:?} is refused: {text}", client.id);
        let is_v5 = client.server.version().is_v5();
        let is_closed = !is_v5 && self.shared.settings.refused_publications == RefusedPublish::Close;
        if let (true, QoS::ExactlyOnce, Some(packet_id), Some(session)) =
            (is_v5 || is_closed, qos, packet_id, client.session.as_mut())
        {
            session.received.remove(packet_id);
        }
        if is_closed {
            client.server.close(reason, &mut self.out);
            return Err(CloseReason::Violation { name: "refused", text: text.to_owned().into() });
        }
        let Some(packet_id) = packet_id else { return Ok(()) };
        acknowledge(client, kind_of(qos), packet_id, Some((reason, text.to_owned())));
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
