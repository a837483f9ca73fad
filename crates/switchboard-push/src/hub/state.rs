//! State that all clones of a hub share.

use super::{Heartbeat, HubLimits, rate::Rate, registry::Registry};
use crate::{
    control,
    counters::{Counters, HubStats, add, read},
    room::Rooms,
    tickets::Tickets,
    verifier::Verifier,
};
use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};
use switchboard::{Result, Status};
use switchboard_message::{Attempt, Bus, Pattern, Position, Publication, Topic};
use switchboard_wire::Retry;
use tokio::sync::{mpsc, watch};

/// Settings of the rooms of a pattern.
pub(crate) struct RoomClass {
    /// Pattern of the names of rooms; `None` for all.
    pub(crate) pattern: Option<Pattern>,
    pub(crate) settings: Rooms,
    /// Entries that devices publish to one room.
    pub(crate) rate: Option<Rate>,
}

impl RoomClass {
    pub(crate) fn new(pattern: Option<Pattern>, settings: Rooms) -> RoomClass {
        let rate = settings.rate.map(|rate| Rate::new(rate, u32::MAX));
        RoomClass { pattern, settings, rate }
    }
}

/// State of a hub.
pub(crate) struct State {
    pub(crate) bus: Bus,
    /// The topics are in an engine: publications wait for it.
    pub(crate) is_shared: bool,
    /// The last one is for all rooms.
    pub(crate) classes: Vec<RoomClass>,
    pub(crate) verifiers: Arc<[Box<dyn Verifier>]>,
    pub(crate) registry: Registry,
    pub(crate) counters: Arc<Counters>,
    pub(crate) limits: HubLimits,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) user_rate: Rate,
    /// Lines about refused devices: one for each address and minute.
    pub(crate) audit_rate: Arc<Rate>,
    pub(crate) broadcast_rate: Rate,
    /// Number of this process.
    pub(crate) node: u64,
    pub(crate) has_events: bool,
    /// Sequence number of the last event.
    pub(crate) events: Mutex<u64>,
    pub(crate) events_topic: Topic,
    pub(crate) all_topic: Topic,
    /// The topics of users keep entries.
    pub(crate) has_user_history: bool,
    /// Signs resume tokens.
    pub(crate) tickets: Tickets,
    pub(crate) resume_window: Duration,
    /// Number of drains of servers of the hub: each ends the streams of devices that are connected.
    pub(crate) closing: watch::Sender<u64>,
    /// Publications to an engine that nothing waits for.
    pub(crate) outgoing: Option<mpsc::Sender<(Topic, Publication)>>,
}

impl State {
    /// Returns the settings of a room.
    pub(crate) fn class_of(&self, room: &str) -> &RoomClass {
        let matches = |class: &&RoomClass| class.pattern.as_ref().is_none_or(|pattern| pattern.matches(room));
        let last = self.classes.len() - 1;
        self.classes.iter().find(matches).unwrap_or(&self.classes[last])
    }

    /// Publishes, and counts it.
    pub(crate) async fn publish(&self, topic: &Topic, publication: Publication) -> Result<Position> {
        self.check(std::slice::from_ref(&publication))?;
        let position = self.bus.publish_encoded(topic, publication).await?;
        add(&self.counters.published, 1);
        Ok(position)
    }

    /// Publishes several entries: all, or none.
    pub(crate) async fn publish_batch(
        &self,
        topic: &Topic,
        publications: Vec<Publication>,
    ) -> Result<Position> {
        publications.iter().try_for_each(State::check_control)?;
        self.check(&publications)?;
        let count = publications.len() as u64;
        let position = self.bus.publish_batch_encoded(topic, publications).await?;
        add(&self.counters.published, count);
        Ok(position)
    }

    /// Checks that an entry of the application is no order.
    pub(crate) fn check_control(publication: &Publication) -> Result<()> {
        if control::is_control(&publication.headers) {
            let text = format!("the header {} of an entry is reserved; omit it", control::CONTROL);
            return Err(Status::invalid_argument(text));
        }
        Ok(())
    }

    fn check(&self, publications: &[Publication]) -> Result<()> {
        let max = self.limits.entry_bytes_max;
        match publications.iter().map(Publication::encoded_len).find(|bytes| *bytes > max) {
            Some(bytes) => Err(Status::resource_exhausted(format!(
                "the entry has {bytes} bytes; the limit of the hub is entry_bytes_max={max}"
            ))),
            None => Ok(()),
        }
    }

    /// Publishes without a wait and without a position: orders and events.
    ///
    /// # Errors
    /// Returns the errors of the bus, and `ResourceExhausted` if the queue to the engine is full.
    pub(crate) fn post(&self, topic: &Topic, publication: Publication) -> Result<()> {
        if let Some(outgoing) = &self.outgoing {
            return outgoing.try_send((topic.clone(), publication)).map_err(|_| {
                Status::resource_exhausted("the queue to the engine of the hub is full; it has 4096 entries")
                    .with_retry(Retry::Safe)
            });
        }
        match self.bus.publish_encoded(topic, publication).attempt()? {
            Attempt::Published(..) => Ok(()),
            Attempt::Durable(publishing) => publishing.later(),
            Attempt::Waits(_) => Err(Status::resource_exhausted(format!(
                "topic \"{topic}\" makes its publishers wait, which orders and events cannot"
            ))),
        }
    }

    pub(crate) fn stats(&self) -> HubStats {
        let gauge = |count: &std::sync::atomic::AtomicUsize| count.load(Ordering::Relaxed) as u64;
        let (registry, counters) = (&self.registry, &self.counters);
        HubStats {
            devices: gauge(&registry.devices),
            users: gauge(&registry.users),
            rooms: gauge(&registry.rooms),
            memberships: gauge(&registry.memberships),
            connected: read(&counters.connected),
            refused: read(&counters.refused),
            published: read(&counters.published),
            events_lost: read(&counters.events_lost),
        }
    }
}
