//! The end of connections and of sessions: the state that is kept, wills, and time limits.

use super::{
    adapter::{Command, MqttAdapter},
    clients::Client,
    feeds::Kind,
    messages::{self, Incoming},
    publishing::Outcome,
    session::Session,
    sessions::Absent,
};
use crate::{responses::add, task::Task};
use std::{sync::Arc, time::Duration};
use switchboard_core::{Caller, clock};
use switchboard_fanout::Subscribers;
use switchboard_wire::mqtt::{QoS, Will};
use tokio::time::sleep;

/// Period of the engine's own timer, for absent sessions.
const TICK: Duration = Duration::from_secs(1);

impl MqttAdapter {
    /// A connection has ended.
    pub(super) fn ended(&mut self, index: u32, subscribers: &mut Subscribers) {
        self.leave(index, subscribers);
        self.clients.remove(index);
        self.deliver_ready(subscribers);
    }

    /// Takes the session of a client whose connection ends: it is kept for its time, or ends. The will is published, at
    /// once or after its delay.
    pub(super) fn leave(&mut self, index: u32, subscribers: &mut Subscribers) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let Some(mut session) = client.session.take() else { return };
        let (will, caller, expiry) = (client.will.take(), client.caller.take(), client.session_expiry);
        let is_kept = expiry != Some(0);
        self.leave_feeds(index, &mut session, is_kept, subscribers);
        session.retained.retain(|cursor| cursor.grant.options.qos != QoS::AtMostOnce);
        self.sessions.remove(&session.client_id);
        let now = clock::now_ns();
        let max = self.shared.settings.session_expiry_max;
        let kept_for = expiry.map_or(max, |seconds| Duration::from_secs(seconds.into()).min(max));
        let mut delayed = None;
        if let Some(will) = will {
            let delay = Duration::from_secs(will.delay().into()).min(kept_for);
            match is_kept && !delay.is_zero() {
                true => delayed = Some((will, now.saturating_add(delay.as_nanos() as u64))),
                false => self.publish_will(&will, caller.as_ref()),
            }
        }
        if !is_kept {
            return self.end_groups(&session, subscribers);
        }
        let expires_at = now.saturating_add(u64::try_from(kept_for.as_nanos()).unwrap_or(u64::MAX));
        self.sessions.keep(Absent { session, expires_at, will: delayed });
        if self.sessions.absent_count() > self.shared.settings.sessions_max
            && let Some(oldest) = self.sessions.take_oldest()
        {
            add(&self.shared.counters().evicted, 1);
            self.end_session(&oldest, subscribers);
        }
        self.tick_while_needed();
    }

    /// Ends the membership of a session's subscriptions, and notes where they continue.
    fn leave_feeds(
        &mut self,
        index: u32,
        session: &mut Session,
        is_kept: bool,
        subscribers: &mut Subscribers,
    ) {
        for subscription in &mut session.subscriptions {
            let Some(feed) = subscription.feed else { continue };
            match self.feeds.get(feed).map(|feed| (&feed.kind, feed.resume())) {
                Some((Kind::Own(_), resume)) => {
                    if is_kept {
                        subscription.resume = resume;
                    }
                    self.feeds.close(feed, subscribers);
                    subscription.feed = None;
                }
                Some((Kind::Live(_), _)) => {
                    self.leave_live(feed, index, subscription.grant, subscribers);
                    subscription.feed = None;
                }
                // The session still counts in the group.
                Some((Kind::Group(_), _)) => self.leave_group(feed, index),
                None => subscription.feed = None,
            }
        }
        // Other members of a group get what this one has not acknowledged.
        for message in session.window.take_messages(|message| message.group.is_some()) {
            let Some(feed) = message.group.and_then(|feed| self.feeds.get_mut(feed)) else { continue };
            if let Kind::Group(group) = &mut feed.kind {
                group.pending.push_back(message.stored);
                feed.requeue();
            }
        }
    }

    /// Ends the subscriptions of a session in groups.
    fn end_groups(&mut self, session: &Session, subscribers: &mut Subscribers) {
        for feed in session.subscriptions.iter().filter_map(|subscription| subscription.feed) {
            self.drop_group_reference(feed, subscribers);
        }
    }

    /// Ends the session of an absent client. A will that is delayed is published now.
    pub(super) fn end_session(&mut self, absent: &Absent, subscribers: &mut Subscribers) {
        if let Some((will, _)) = &absent.will {
            self.publish_will(will, absent.session.caller.as_ref());
        }
        self.end_groups(&absent.session, subscribers);
    }

    fn publish_will(&mut self, will: &Will, caller: Option<&Arc<Caller>>) {
        let counters = self.shared.settings.counters.clone();
        let Ok(topic) = messages::topic(&will.topic) else { return add(&counters.refused, 1) };
        let incoming = Incoming {
            // What the connection of a killed client says is to arrive.
            qos: will.qos,
            retain: will.retain,
            properties: &will.properties,
            payload: &will.payload,
            origin: None,
        };
        match self.publish_entry(&topic, &incoming, caller.map(|caller| &**caller)) {
            Ok(outcome) => {
                add(&counters.wills, 1);
                if let Outcome::Durable(publishing) | Outcome::Blocked(publishing) = outcome {
                    // Nothing waits for its outcome.
                    let task = async move {
                        if let Err(status) = publishing.await {
                            tracing::warn!("mqtt: a will is lost: {status}");
                        }
                    };
                    switchboard_core::runtime::spawn(task);
                }
            }
            Err(status) => {
                add(&counters.refused, 1);
                tracing::debug!("mqtt: a will is refused: {status}");
            }
        }
    }

    /// Handles the absent sessions whose time has come.
    pub(super) fn tick(&mut self, subscribers: &mut Subscribers) {
        let now = clock::now_ns();
        while let Some(mut absent) = self.sessions.take_due(now) {
            if absent.expires_at <= now {
                add(&self.shared.counters().expired, 1);
                self.end_session(&absent, subscribers);
                continue;
            }
            if let Some((will, _)) = absent.will.take() {
                self.publish_will(&will, absent.session.caller.as_ref());
            }
            self.sessions.keep(absent);
        }
        self.tick_while_needed();
    }

    /// Runs the timer while sessions are absent.
    fn tick_while_needed(&mut self) {
        if self.sessions.absent_count() == 0 {
            self.ticker = None;
        } else if self.ticker.is_none() {
            let engine = self.engine.clone();
            self.ticker = Some(Task::spawn(async move {
                loop {
                    sleep(TICK).await;
                    if engine.send(Command::Tick).await.is_err() {
                        return;
                    }
                }
            }));
        }
    }

    /// Returns whether a client has a room for a member of a group with this QoS.
    pub(super) fn member_has_room(client: Option<&Client>, qos: QoS) -> bool {
        client.is_some_and(|client| client.has_room(qos != QoS::AtMostOnce))
    }
}
