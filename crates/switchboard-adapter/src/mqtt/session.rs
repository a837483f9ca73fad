//! A session: what outlives a connection.

use super::messages::Stored;
use crate::task::Task;
use bytes::Bytes;
use std::{
    collections::{HashMap, VecDeque},
    num::NonZeroU16,
    sync::Arc,
};
use switchboard_core::Caller;
use switchboard_message::{Checkpoint, Position};
use switchboard_wire::mqtt::{FilterOptions, QoS, ReceivedIds, Window};

/// A session: its subscriptions, and the messages under way in both directions.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client_id: Bytes,
    /// Number in this server.
    pub(super) number: u64,
    /// The caller that created it: another one does not get it.
    pub(super) caller: Option<Arc<Caller>>,
    pub(super) subscriptions: Vec<Subscription>,
    pub(super) window: Window<InFlight>,
    pub(super) received: ReceivedIds,
    /// Retained messages that are still to be sent.
    pub(super) retained: VecDeque<RetainedCursor>,
    /// Messages of the client that wait for the bus, by packet identifier; at most one of QoS 0, which has none.
    pub(super) publishing: HashMap<Option<NonZeroU16>, Publishing>,
    /// The one of them before whose end no further message is read.
    pub(super) paused_by: Option<Option<NonZeroU16>>,
}

/// A message of a client that waits for the bus.
#[derive(Debug)]
pub(super) struct Publishing {
    pub(super) qos: QoS,
    /// It ends with the session.
    pub(super) _task: Task,
}

impl Session {
    pub(super) fn new(
        client_id: Bytes,
        number: u64,
        caller: Option<Arc<Caller>>,
        window_max: u16,
    ) -> Session {
        Session {
            client_id,
            number,
            caller,
            subscriptions: Vec::new(),
            window: Window::new(window_max),
            received: ReceivedIds::default(),
            retained: VecDeque::new(),
            publishing: HashMap::new(),
            paused_by: None,
        }
    }

    /// Makes the session a new one for its client, which sends what was not acknowledged as new messages.
    pub(super) fn restart(&mut self) {
        self.received = ReceivedIds::default();
        self.publishing.clear();
        self.paused_by = None;
        self.window.restart();
        self.subscriptions.iter_mut().for_each(|subscription| subscription.is_lost = true);
    }

    /// Removes a message that waited for the bus; returns its QoS.
    pub(super) fn completed(&mut self, packet_id: Option<NonZeroU16>) -> Option<QoS> {
        let publishing = self.publishing.remove(&packet_id)?;
        self.paused_by = self.paused_by.filter(|paused_by| *paused_by != packet_id);
        Some(publishing.qos)
    }

    pub(super) fn subscription(&mut self, filter: &[u8]) -> Option<&mut Subscription> {
        self.subscriptions.iter_mut().find(|subscription| *subscription.filter == *filter)
    }

    /// Returns whether one of the subscriptions does not want the messages of the session.
    pub(super) fn has_no_local(&self) -> bool {
        self.subscriptions.iter().any(|subscription| subscription.grant.options.no_local)
    }
}

/// A subscription of a session.
#[derive(Debug)]
pub(super) struct Subscription {
    /// The filter as the client has sent it.
    pub(super) filter: Box<[u8]>,
    pub(super) grant: Grant,
    /// The feed that it is a member of; of absent sessions only that of a shared subscription.
    pub(super) feed: Option<u32>,
    /// Where it continues.
    pub(super) resume: Resume,
    /// The client counts it as ended: a SUBSCRIBE is one of a new subscription.
    pub(super) is_lost: bool,
}

/// Progress in the retained messages that a subscription gets.
#[derive(Debug)]
pub(super) struct RetainedCursor {
    /// The filter, which is not that of a group.
    pub(super) filter: Box<[u8]>,
    pub(super) grant: Grant,
    /// Name of the last message.
    pub(super) after: Option<Box<str>>,
}

/// Options of a subscription, and its identifier.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Grant {
    pub(super) options: FilterOptions,
    pub(super) id: Option<u32>,
}

impl Grant {
    /// Returns the QoS of a message in the subscription.
    pub(super) fn qos(&self, published: QoS) -> QoS {
        published.min(self.options.qos)
    }
}

/// Progress of a subscription of QoS 1 or 2.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) enum Resume {
    /// With the next entry: QoS 0, and shared subscriptions.
    #[default]
    Head,
    /// After an entry of the only topic.
    Topic(Position),
    /// After the entries of all topics of a pattern.
    Pattern(Box<Checkpoint>),
}

/// A message of QoS 1 or 2 on the way to a client.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) stored: Stored,
    pub(super) retain: bool,
    /// Identifier of the subscription.
    pub(super) id: Option<u32>,
    /// The feed of a shared subscription, whose other members get it if the client does not.
    pub(super) group: Option<u32>,
}
