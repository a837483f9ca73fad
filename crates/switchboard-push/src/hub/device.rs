//! Connected devices.

use super::{
    Hub,
    limits::DeviceLimit,
    rate::OwnRate,
    registry::{Closer, ConnectRules, Refusal, Session},
    state::State,
};
use crate::{
    accepts::Accepts,
    control::{self, Control},
    counters::add,
    disconnect::{Disconnect, DisconnectReason},
    identity::Identity,
    names,
    start::Start,
};
use bytes::Bytes;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};
use switchboard::{Result, Status};
use switchboard_core::clock;
use switchboard_message::{Attempt, Position, Publication, Topic};
use switchboard_wire::Retry;

/// Properties of a device that connects.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Connect {
    /// Name of the protocol.
    pub protocol: &'static str,
    /// Key that the device chose; that of its [`Identity`] takes precedence. `None`: the hub chooses one. A chosen key
    /// that a connected device of another user has is refused.
    pub key: Option<String>,
    /// Operations that it accepts.
    pub accepts: Accepts,
    /// Address of the peer, for pages.
    pub address: Option<String>,
    /// Information for the members of its rooms; at most 1 KiB.
    pub info: Bytes,
    /// Where it begins in the entries of its user; default the next one.
    pub user_start: Start,
}

/// Difference of the clocks of two processes, in milliseconds.
const CLOCKS_DIFFER_MS: u64 = 2_000;
/// Bytes of [`Connect::info`].
const INFO_BYTES_MAX: usize = 1_024;

impl Connect {
    /// Creates the properties of a device without a key.
    pub fn new(protocol: &'static str) -> Connect {
        Connect { protocol, ..Connect::default() }
    }

    /// Sets the key that the device chose.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Connect {
        self.key = Some(key.into()).filter(|key| !key.is_empty());
        self
    }

    /// Sets the operations that it accepts.
    #[must_use]
    pub fn accepts(mut self, accepts: Accepts) -> Connect {
        self.accepts = accepts;
        self
    }

    /// Sets the address of the peer.
    #[must_use]
    pub fn address(mut self, address: impl Into<String>) -> Connect {
        self.address = Some(address.into());
        self
    }

    /// Sets where it begins in the entries of its user.
    #[must_use]
    pub fn user_start(mut self, start: Start) -> Connect {
        self.user_start = start;
        self
    }

    /// Sets the information for the members of its rooms.
    #[must_use]
    pub fn info(mut self, info: impl Into<Bytes>) -> Connect {
        self.info = info.into();
        self
    }
}

/// A connected device, which its adapter owns. It is disconnected when this value is dropped.
///
/// No method blocks or waits, except the future that [`publish`](Self::publish) may return.
pub struct Device {
    hub: Hub,
    session: Arc<Session>,
    identity: Identity,
    accepts: Accepts,
    rooms: Vec<Member>,
    reason: Option<DisconnectReason>,
    changes: OwnRate,
    publications: OwnRate,
    key_topic: Topic,
    user_topic: Option<Topic>,
    /// The device, and not its verifier, has named the key.
    has_chosen_key: bool,
    /// The order of this connection has arrived: a later one is of a newer connection.
    is_announced: bool,
}

/// A room of a device.
struct Member {
    name: Arc<str>,
    topic: Topic,
}

/// A room that a device has joined.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Joined {
    /// The topic to subscribe to.
    pub topic: Topic,
    /// Set if the device was a member already.
    pub is_known: bool,
}

impl Device {
    pub(super) fn connect(
        hub: &Hub,
        identity: Identity,
        connect: Connect,
        closer: Box<dyn Closer>,
    ) -> Result<Device> {
        let state = &hub.state;
        let user_topic = (!identity.user.is_empty()).then(|| names::user(&identity.user)).transpose()?;
        let verified = identity.key.clone().filter(|key| !key.is_empty());
        let has_chosen_key = verified.is_none();
        let named = verified.or(connect.key).filter(|key| !key.is_empty());
        let key = named.unwrap_or_else(|| format!("{:016x}{:016x}", clock::random(), clock::random()));
        let key_topic = names::key(&key)?;
        if connect.info.len() > INFO_BYTES_MAX {
            let bytes = connect.info.len();
            let text = format!("the info of a device has {bytes} bytes; the limit is {INFO_BYTES_MAX}");
            return Err(Status::resource_exhausted(text));
        }
        if is_past(identity.expires_at) {
            return Err(Status::unauthenticated("the credentials have expired"));
        }
        let max = state.limits.devices_max;
        if state.registry.devices.load(Ordering::Relaxed) >= max {
            let text = format!("the hub has {max} devices; the limit is devices_max={max}");
            return Err(Status::resource_exhausted(text).with_retry(Retry::Safe));
        }
        let session = Arc::new(Session {
            id: state.registry.next_session(),
            user: identity.user.as_str().into(),
            key: key.into(),
            protocol: connect.protocol,
            address: connect.address.map(String::into_boxed_str),
            since: clock::time_of_day(),
            info: connect.info,
            closer,
            is_replaced: AtomicBool::new(false),
        });
        let (max, refuses) = match state.limits.devices_per_user {
            DeviceLimit::Unlimited => (usize::MAX, false),
            DeviceLimit::Refuse(max) => (max.max(1), true),
            DeviceLimit::ReplaceOldest(max) => (max.max(1), false),
        };
        let rules = ConnectRules { max, refuses, has_chosen_key };
        let replaced = state.registry.insert(&session, rules).map_err(|refusal| match refusal {
            Refusal::TooMany(count) => Status::resource_exhausted(format!(
                "user \"{}\" has {count} devices; the limit is devices_per_user={max}",
                session.user
            )),
            Refusal::KeyOfAnother => Status::permission_denied(format!(
                "key \"{}\" is that of a connected device of another user; connect with another key, or with a \
                 token that names this one",
                session.key
            )),
        })?;
        for older in replaced {
            let text = "a newer connection has replaced this one";
            older.closer.close(Disconnect::new(DisconnectReason::Replaced, text));
        }
        add(&state.counters.connected, 1);
        state.device_event("connected", &session, None);
        Ok(Device {
            hub: hub.clone(),
            session,
            identity,
            accepts: connect.accepts,
            rooms: Vec::new(),
            reason: None,
            changes: OwnRate::default(),
            publications: OwnRate::default(),
            key_topic,
            user_topic,
            has_chosen_key,
            is_announced: false,
        })
    }

    fn state(&self) -> &State {
        &self.hub.state
    }

    /// Returns the hub.
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Returns the number of this connection. It differs from that of every other connection of the hub, also on other
    /// processes, and is larger than those before it in this process.
    pub fn session(&self) -> u64 {
        self.session.id
    }

    /// Returns the key.
    pub fn key(&self) -> &str {
        &self.session.key
    }

    /// Returns the verified owner.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the information for the members of its rooms.
    pub fn info(&self) -> &Bytes {
        &self.session.info
    }

    /// Returns the operations that it accepts.
    pub fn accepts(&self) -> &Accepts {
        &self.accepts
    }

    /// Changes the operations that it accepts; the adapter then subscribes again with another encoding key.
    pub fn set_accepts(&mut self, accepts: Accepts) {
        self.accepts = accepts;
    }

    /// Returns the topics that every connection subscribes to, from the next entry on: of its key, of its user, and of
    /// all devices. Subscribe before [`announce`](Self::announce).
    pub fn own_topics(&self) -> impl Iterator<Item = &Topic> {
        let all = &self.hub.state.all_topic;
        std::iter::once(&self.key_topic).chain(&self.user_topic).chain(std::iter::once(all))
    }

    /// Publishes to the topic of the key that this connection has it now, so that an older one on another process is
    /// closed. Call it once the [own topics](Self::own_topics) are subscribed. Does nothing with topics of this
    /// process,
    /// where the older one is closed already.
    ///
    /// # Errors
    /// `ResourceExhausted` if the queue to the engine is full.
    pub fn announce(&self) -> Result<()> {
        if !self.state().is_shared {
            return Ok(());
        }
        let order = Control::Connected {
            session: self.session.id,
            at_ms: control::ms(self.session.since),
            user: self.has_chosen_key.then(|| self.session.user.to_string()),
        };
        self.state().post(&self.key_topic, order.publication())
    }

    /// Reads an order that arrived on one of the own topics; returns one that the adapter executes. An order of another
    /// connection with this key becomes [`Control::Close`], if it is newer.
    pub fn order(&mut self, order: Control) -> Option<Control> {
        let Control::Connected { session, at_ms, user } = order else { return Some(order) };
        if session == self.session.id {
            self.is_announced = true;
            return None;
        }
        // On another process, a device of another user has chosen the key.
        if user.is_some_and(|user| *user != *self.session.user) {
            return None;
        }
        let text = "a newer connection has replaced this one".to_owned();
        // The order of this connection may have been missed, if its subscription began late.
        let is_newer = at_ms > control::ms(self.session.since).saturating_add(CLOCKS_DIFFER_MS);
        (self.is_announced || is_newer).then_some(Control::Close { reason: DisconnectReason::Replaced, text })
    }

    /// Returns the rooms that it is in, with their topics.
    pub fn rooms(&self) -> impl Iterator<Item = (&str, &Topic)> {
        self.rooms.iter().map(|member| (&*member.name, &member.topic))
    }

    /// Returns whether it is in a room.
    pub fn is_in(&self, room: &str) -> bool {
        self.rooms.iter().any(|member| *member.name == *room)
    }

    /// Joins a room that the device has named. The adapter subscribes to the topic in the result.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid name, `PermissionDenied` if the room does not admit the device,
    /// `ResourceExhausted` for more rooms than `rooms_per_device_max`, more members than the room may have, or more
    /// changes than `room_changes_per_s`.
    pub fn join(&mut self, room: &str) -> Result<Joined> {
        self.count_change()?;
        let is_member = self.is_in(room);
        let settings = &self.state().class_of(room).settings;
        if !is_member && !settings.join.admits(&self.identity, room, false) {
            return Err(Status::permission_denied(format!("this device may not join room \"{room}\"")));
        }
        self.join_by_server(room)
    }

    /// Joins a room because the server or the token of the device wants it, whatever the room admits.
    ///
    /// # Errors
    /// Returns the errors of [`join`](Self::join), except `PermissionDenied` and that of the rate.
    pub fn join_by_server(&mut self, room: &str) -> Result<Joined> {
        if let Some(known) = self.rooms.iter().find(|member| *member.name == *room) {
            return Ok(Joined { topic: known.topic.clone(), is_known: true });
        }
        let topic = names::room(room)?;
        let state = self.state();
        let max = state.limits.rooms_per_device_max;
        if self.rooms.len() >= max {
            let text = format!("the device is in {max} rooms; the limit is rooms_per_device_max={max}");
            return Err(Status::resource_exhausted(text));
        }
        let (name, settings) = (Arc::<str>::from(room), &state.class_of(room).settings);
        let joined = |members| {
            if members == 1 {
                state.room_event("occupied", room);
            }
            if settings.presence {
                state.member_event("joined", &self.session, room);
            }
        };
        if !state.registry.join(&name, &self.session, settings.members_max, joined) {
            let max = settings.members_max;
            let text = format!("room \"{room}\" has {max} members; the limit is members_max={max}");
            return Err(Status::resource_exhausted(text));
        }
        self.rooms.push(Member { name, topic: topic.clone() });
        Ok(Joined { topic, is_known: false })
    }

    /// Leaves a room; returns its topic, which the adapter unsubscribes from. `None` if the device is not in the room.
    ///
    /// # Errors
    /// `ResourceExhausted` for more changes than `room_changes_per_s`.
    pub fn leave(&mut self, room: &str) -> Result<Option<Topic>> {
        self.count_change()?;
        Ok(self.leave_by_server(room))
    }

    /// Leaves a room because the server wants it.
    pub fn leave_by_server(&mut self, room: &str) -> Option<Topic> {
        let at = self.rooms.iter().position(|member| *member.name == *room)?;
        let member = self.rooms.swap_remove(at);
        self.left(&member.name);
        Some(member.topic)
    }

    fn left(&self, room: &str) {
        let state = self.state();
        let settings = &state.class_of(room).settings;
        state.registry.leave(room, &self.session, |members| {
            if settings.presence {
                state.member_event("left", &self.session, room);
            }
            if members == 0 {
                state.room_event("empty", room);
            }
        });
    }

    fn count_change(&mut self) -> Result<()> {
        let rate = self.state().limits.room_changes_per_s;
        self.changes.take(rate).map_err(|pause| {
            let text = format!("the device changes rooms more often than room_changes_per_s={rate}");
            Status::resource_exhausted(text).with_retry(Retry::After(pause))
        })
    }

    /// Checks whether the device may list the members and the history of a room.
    ///
    /// # Errors
    /// `PermissionDenied`.
    pub fn may_list(&self, room: &str) -> Result<()> {
        let settings = &self.state().class_of(room).settings;
        match settings.presence && settings.list.admits(&self.identity, room, self.is_in(room)) {
            true => Ok(()),
            false => Err(Status::permission_denied(format!("this device may not list room \"{room}\""))),
        }
    }

    /// Checks whether the device may read the history of a room: its members may.
    ///
    /// # Errors
    /// `PermissionDenied`.
    pub fn may_read(&self, room: &str) -> Result<()> {
        let settings = &self.state().class_of(room).settings;
        match self.is_in(room) || settings.join.admits(&self.identity, room, false) {
            true => Ok(()),
            false => Err(Status::permission_denied(format!("this device may not read room \"{room}\""))),
        }
    }

    /// Publishes to a room on behalf of the device. The position is ready at once for topics of this process.
    ///
    /// # Errors
    /// `PermissionDenied` if the room does not admit publications of the device, `ResourceExhausted` for an entry that
    /// is too large and for more entries than the rates of the device, its user and the room allow; `InvalidArgument`
    /// for a header that is reserved.
    pub fn publish(&mut self, room: &str, publication: Publication) -> Result<Publishing> {
        let admitted = self.admit(room, &publication);
        if admitted.is_err() {
            add(&self.state().counters.rejected, 1);
        }
        let topic = admitted?;
        let state = self.hub.state.clone();
        if !state.is_shared {
            let attempt = state.bus.publish_encoded(&topic, super::builder::copy(&publication)).attempt()?;
            if let Attempt::Published(position, _) = attempt {
                add(&state.counters.published, 1);
                return Ok(Publishing::Done(position));
            }
        }
        Ok(Publishing::Waits(Box::pin(async move { state.publish(&topic, publication).await })))
    }

    /// Checks a publication; returns the topic.
    fn admit(&mut self, room: &str, publication: &Publication) -> Result<Topic> {
        let topic = names::room(room)?;
        let (is_member, limits) = (self.is_in(room), self.state().limits);
        let class = self.hub.state.class_of(room);
        if !class.settings.publish.admits(&self.identity, room, is_member) {
            return Err(Status::permission_denied(format!("this device may not publish to room \"{room}\"")));
        }
        State::check_control(publication)?;
        let (bytes, max) = (publication.encoded_len(), class.settings.entry_bytes_max);
        if bytes > max {
            let text =
                format!("the entry has {bytes} bytes; the limit of room \"{room}\" is entry_bytes_max={max}");
            return Err(Status::resource_exhausted(text));
        }
        let refused = |limit: &str, rate: f64, pause: Duration| {
            let text = format!("more entries per second than {limit}={rate}");
            Status::resource_exhausted(text).with_retry(Retry::After(pause))
        };
        let rate = limits.publications_per_s;
        self.publications.take(rate).map_err(|pause| refused("publications_per_s", rate, pause))?;
        let user = &*self.session.user;
        if !user.is_empty() {
            let rate = &self.hub.state.user_rate;
            let over = |pause| refused("user_publications_per_s", rate.per_second, pause);
            rate.take(user, 1).map_err(over)?;
        }
        if let Some(rate) = &class.rate {
            let limit = format!("the rate of room \"{room}\"");
            rate.take(room, 1).map_err(|pause| refused(&limit, rate.per_second, pause))?;
        }
        Ok(topic)
    }

    /// Replaces the credentials by newer ones of the same user, which extends the time of the connection.
    ///
    /// # Errors
    /// `PermissionDenied` for another user, `Unauthenticated` if they have expired.
    pub fn refresh(&mut self, identity: Identity) -> Result<()> {
        if identity.user != self.identity.user {
            let text = "the new credentials belong to another user; connect again with them";
            return Err(Status::permission_denied(text));
        }
        if is_past(identity.expires_at) {
            return Err(Status::unauthenticated("the credentials have expired"));
        }
        self.identity = identity;
        Ok(())
    }

    /// Returns the time until the credentials expire: the adapter then closes the connection with
    /// [`DisconnectReason::Expired`]. `None` if they do not expire.
    pub fn expires_in(&self) -> Option<Duration> {
        let at = self.identity.expires_at?;
        Some(at.duration_since(clock::time_of_day()).unwrap_or_default())
    }

    /// Disconnects the device, with the reason for counters and events. Without this call, the reason is
    /// [`DisconnectReason::Peer`].
    pub fn disconnect(mut self, reason: DisconnectReason) {
        self.reason = Some(reason);
    }
}

fn is_past(time: Option<SystemTime>) -> bool {
    time.is_some_and(|time| time <= clock::time_of_day())
}

impl Drop for Device {
    fn drop(&mut self) {
        for member in std::mem::take(&mut self.rooms) {
            self.left(&member.name);
        }
        let (state, reason) = (self.state(), self.reason.unwrap_or(DisconnectReason::Peer));
        state.registry.remove(&self.session);
        state.counters.disconnected(reason);
        state.device_event("disconnected", &self.session, Some(reason));
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("session", &self.session.id)
            .field("user", &self.session.user)
            .field("key", &self.session.key)
            .field("protocol", &self.session.protocol)
            .finish_non_exhaustive()
    }
}

/// A publication of a device.
// closed: adapters handle each case
pub enum Publishing {
    /// It is accepted, at this position.
    Done(Position),
    /// Its outcome takes time. Nothing is published before the future is polled.
    Waits(std::pin::Pin<Box<dyn Future<Output = Result<Position>> + Send>>),
}

impl fmt::Debug for Publishing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Publishing::Done(position) => f.debug_tuple("Done").field(position).finish(),
            Publishing::Waits(_) => f.write_str("Waits"),
        }
    }
}
