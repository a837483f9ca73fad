//! Rooms, users, keys and all devices, as the application addresses them.

use super::{
    presence::{self, DeviceInfo, MembersPage},
    publish::{Publish, encoded},
    state::State,
};
use crate::{control::Control, disconnect::DisconnectReason, names};
use bytes::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use switchboard::{Result, Status};
use switchboard_message::{HistoryPage, Pattern, Position, Publication, Topic};

/// The members of a room; see [`Hub::room`](super::Hub::room).
#[derive(Clone)]
pub struct Room<'a> {
    state: &'a State,
    name: String,
}

/// The devices of a user; see [`Hub::user`](super::Hub::user).
#[derive(Clone)]
pub struct User<'a> {
    state: &'a State,
    id: String,
}

/// The device with a key; see [`Hub::key`](super::Hub::key).
#[derive(Clone)]
pub struct Key<'a> {
    state: &'a State,
    key: String,
}

/// All devices; see [`Hub::all`](super::Hub::all).
#[derive(Clone)]
pub struct All<'a> {
    state: &'a State,
}

/// The rooms of a pattern; see [`Hub::rooms`](super::Hub::rooms).
#[derive(Clone)]
pub struct RoomPattern<'a> {
    state: &'a State,
    pattern: Result<Pattern>,
}

impl<'a> Room<'a> {
    pub(super) fn new(state: &'a State, name: String) -> Room<'a> {
        Room { state, name }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Publishes a message.
    pub fn publish<T: Serialize>(&self, message: &T) -> Publish<'a> {
        Publish::new(self.state, names::room(&self.name), encoded(message))
    }

    /// Publishes an encoded message.
    pub fn publish_encoded(&self, publication: Publication) -> Publish<'a> {
        Publish::new(self.state, names::room(&self.name), Ok(publication))
    }

    /// Publishes several encoded messages: all, or none. Returns the position of the last.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid name, and the errors of the bus.
    pub async fn publish_batch(&self, publications: Vec<Publication>) -> Result<Position> {
        self.state.publish_batch(&names::room(&self.name)?, publications).await
    }

    /// Returns the number of members in this process.
    pub fn count(&self) -> usize {
        self.state.registry.with_room(&self.name, |members| members.map_or(0, BTreeMap::len))
    }

    /// Returns at most `max` members in this process, in the order of their connections, after a session of the page
    /// before.
    pub fn members(&self, after: Option<u64>, max: usize) -> MembersPage {
        let max = max.min(self.state.limits.page_max);
        self.state.registry.with_room(&self.name, |members| presence::page(members, after, max))
    }

    /// Reads at most `max` entries that the room keeps: those after a position, or the last.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid name, and the errors of the bus. `NotFound` for a room without entries
    /// and members.
    pub async fn history(&self, after: Option<Position>, max: usize) -> Result<HistoryPage<Bytes>> {
        let topic = names::room(&self.name)?;
        let mut history = self.state.bus.history_with(&topic, |_, bytes| Ok(bytes)).limit(max);
        if let Some(after) = after {
            history = history.after(after);
        }
        history.await
    }

    /// Returns the topic.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid name.
    pub fn topic(&self) -> Result<Topic> {
        names::room(&self.name)
    }
}

/// Some of the rooms of a pattern, in the order of their names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct RoomsPage {
    /// Names, with the numbers of members.
    pub rooms: Vec<(String, usize)>,
    /// The name after which the next page begins; `None` at the end.
    pub next: Option<String>,
}

/// Publishes an order to a topic of devices.
fn order(state: &State, topic: &Topic, order: &Control) -> Result<()> {
    state.post(topic, order.publication())
}

impl<'a> User<'a> {
    pub(super) fn new(state: &'a State, id: String) -> User<'a> {
        User { state, id }
    }

    /// Publishes a message to all devices of the user.
    pub fn publish<T: Serialize>(&self, message: &T) -> Publish<'a> {
        Publish::new(self.state, names::user(&self.id), encoded(message))
    }

    /// Publishes an encoded message to all devices of the user.
    pub fn publish_encoded(&self, publication: Publication) -> Publish<'a> {
        Publish::new(self.state, names::user(&self.id), Ok(publication))
    }

    /// Publishes several encoded messages to all devices of the user: all, or none. Returns the position of the last.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid id, and the errors of the bus.
    pub async fn publish_batch(&self, publications: Vec<Publication>) -> Result<Position> {
        self.state.publish_batch(&names::user(&self.id)?, publications).await
    }

    /// Disconnects all devices of the user, after the entries that were published to the user before.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid id, `ResourceExhausted` if the queue to the engine is full.
    pub fn close(&self, text: impl Into<String>) -> Result<()> {
        let close = Control::Close { reason: DisconnectReason::Closed, text: text.into() };
        order(self.state, &names::user(&self.id)?, &close)
    }

    /// Disconnects all devices of the user, with the address of another server.
    ///
    /// # Errors
    /// Returns the errors of [`close`](Self::close).
    pub fn redirect(&self, address: impl Into<String>) -> Result<()> {
        let close = Control::Close { reason: DisconnectReason::Redirected, text: address.into() };
        order(self.state, &names::user(&self.id)?, &close)
    }

    /// Has all devices of the user join a room, whatever the room admits.
    ///
    /// # Errors
    /// Returns the errors of [`close`](Self::close).
    pub fn join(&self, room: impl Into<String>) -> Result<()> {
        let room = room.into();
        names::room(&room)?;
        order(self.state, &names::user(&self.id)?, &Control::Join { room })
    }

    /// Has all devices of the user leave a room.
    ///
    /// # Errors
    /// Returns the errors of [`close`](Self::close).
    pub fn leave(&self, room: impl Into<String>) -> Result<()> {
        order(self.state, &names::user(&self.id)?, &Control::Leave { room: room.into() })
    }

    /// Returns the devices of the user in this process, the oldest first.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        self.state.registry.user(&self.id).iter().map(|session| DeviceInfo::from(&**session)).collect()
    }

    /// Returns whether the user has a device in this process.
    pub fn is_online(&self) -> bool {
        !self.state.registry.user(&self.id).is_empty()
    }
}

impl<'a> Key<'a> {
    pub(super) fn new(state: &'a State, key: String) -> Key<'a> {
        Key { state, key }
    }

    /// Publishes a message to the device.
    pub fn publish<T: Serialize>(&self, message: &T) -> Publish<'a> {
        Publish::new(self.state, names::key(&self.key), encoded(message))
    }

    /// Publishes an encoded message to the device.
    pub fn publish_encoded(&self, publication: Publication) -> Publish<'a> {
        Publish::new(self.state, names::key(&self.key), Ok(publication))
    }

    /// Publishes several encoded messages to the device: all, or none. Returns the position of the last.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid key, and the errors of the bus.
    pub async fn publish_batch(&self, publications: Vec<Publication>) -> Result<Position> {
        self.state.publish_batch(&names::key(&self.key)?, publications).await
    }

    /// Disconnects the device, after the entries that were published to its key before.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid key, `ResourceExhausted` if the queue to the engine is full.
    pub fn close(&self, text: impl Into<String>) -> Result<()> {
        let close = Control::Close { reason: DisconnectReason::Closed, text: text.into() };
        order(self.state, &names::key(&self.key)?, &close)
    }

    /// Disconnects the device, with the address of another server.
    ///
    /// # Errors
    /// Returns the errors of [`close`](Self::close).
    pub fn redirect(&self, address: impl Into<String>) -> Result<()> {
        let close = Control::Close { reason: DisconnectReason::Redirected, text: address.into() };
        order(self.state, &names::key(&self.key)?, &close)
    }

    /// Has the device join a room, whatever the room admits.
    ///
    /// # Errors
    /// Returns the errors of [`close`](Self::close).
    pub fn join(&self, room: impl Into<String>) -> Result<()> {
        let room = room.into();
        names::room(&room)?;
        order(self.state, &names::key(&self.key)?, &Control::Join { room })
    }

    /// Has the device leave a room.
    ///
    /// # Errors
    /// Returns the errors of [`close`](Self::close).
    pub fn leave(&self, room: impl Into<String>) -> Result<()> {
        order(self.state, &names::key(&self.key)?, &Control::Leave { room: room.into() })
    }

    /// Returns the device, if it is connected to this process.
    pub fn device(&self) -> Option<DeviceInfo> {
        self.state.registry.key(&self.key).map(|session| DeviceInfo::from(&*session))
    }
}

impl<'a> All<'a> {
    pub(super) fn new(state: &'a State) -> All<'a> {
        All { state }
    }

    /// Publishes a message to all devices, on all processes, at most `broadcasts_per_s`.
    pub fn publish<T: Serialize>(&self, message: &T) -> Publish<'a> {
        Publish::new(self.state, Ok(self.state.all_topic.clone()), encoded(message)).broadcast()
    }

    /// Publishes an encoded message to all devices.
    pub fn publish_encoded(&self, publication: Publication) -> Publish<'a> {
        Publish::new(self.state, Ok(self.state.all_topic.clone()), Ok(publication)).broadcast()
    }
}

impl<'a> RoomPattern<'a> {
    pub(super) fn new(state: &'a State, pattern: &str) -> RoomPattern<'a> {
        let pattern = names::rooms(pattern).and_then(|_| Pattern::new(pattern));
        RoomPattern { state, pattern }
    }

    /// Returns the rooms with a member in this process, at most `max`, with their numbers of members.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid pattern.
    pub fn list(&self, max: usize) -> Result<Vec<(String, usize)>> {
        let pattern = self.pattern.clone()?;
        let found = self.state.registry.rooms_where(max, |name| pattern.matches(name));
        Ok(found.into_iter().map(|(name, members)| (name.to_string(), members)).collect())
    }

    /// Returns at most `max` rooms in the order of their names, after the last one of the page before. Visits all
    /// rooms.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid pattern.
    pub fn page(&self, after: &str, max: usize) -> Result<RoomsPage> {
        let pattern = self.pattern.clone()?;
        let later = |name: &str| name > after && pattern.matches(name);
        let mut found = self.state.registry.rooms_where(usize::MAX, later);
        found.sort_unstable();
        let has_more = found.len() > max;
        found.truncate(max);
        let last = found.last().map(|(name, _)| name.to_string()).filter(|_| has_more);
        let rooms = found.into_iter().map(|(name, members)| (name.to_string(), members)).collect();
        Ok(RoomsPage { rooms, next: last })
    }

    /// Publishes a message to each of the rooms, as separate entries; returns their number.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid pattern, `ResourceExhausted` for more rooms than `rooms_per_publication_max`,
    /// before anything is published; the errors of the bus, after some rooms may have the entry.
    pub async fn publish<T: Serialize>(&self, message: &T) -> Result<usize> {
        self.publish_encoded(encoded(message)?).await
    }

    /// Publishes an encoded message to each of the rooms; returns their number.
    ///
    /// # Errors
    /// Returns the errors of [`publish`](Self::publish).
    pub async fn publish_encoded(&self, publication: Publication) -> Result<usize> {
        let max = self.state.limits.rooms_per_publication_max;
        let rooms = self.list(max.saturating_add(1))?;
        if rooms.len() > max {
            let text =
                format!("the pattern matches over {max} rooms; the limit is rooms_per_publication_max={max}");
            return Err(Status::resource_exhausted(text));
        }
        for (name, _) in &rooms {
            State::check_control(&publication)?;
            self.state.publish(&names::room(name)?, super::builder::copy(&publication)).await?;
        }
        Ok(rooms.len())
    }
}
