//! The connected devices of this process, by user, key and room.
//!
//! A device is in these tables from [`Registry::insert`] until its value is dropped, and a removal compares the number
//! of the session: the late end of an older connection does not remove a newer one.

use crate::disconnect::Disconnect;
use bytes::Bytes;
use foldhash::quality::RandomState;
use smallvec::SmallVec;
use std::{
    collections::{BTreeMap, HashMap},
    hash::BuildHasher,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::SystemTime,
};

/// Closes the connection of a device, from any thread. It must not block.
pub trait Closer: Send + Sync + 'static {
    /// Begins to close the connection.
    fn close(&self, order: Disconnect);
}

impl<F: Fn(Disconnect) + Send + Sync + 'static> Closer for F {
    fn close(&self, order: Disconnect) {
        self(order);
    }
}

/// A connected device.
pub(crate) struct Session {
    pub(crate) id: u64,
    /// Empty for a device without a user.
    pub(crate) user: Arc<str>,
    pub(crate) key: Arc<str>,
    pub(crate) protocol: &'static str,
    pub(crate) address: Option<Box<str>>,
    pub(crate) since: SystemTime,
    /// Information for the members of its rooms.
    pub(crate) info: Bytes,
    pub(crate) closer: Box<dyn Closer>,
    /// A newer connection has replaced it: it is closed soon, and is not counted.
    pub(crate) is_replaced: AtomicBool,
}

impl Session {
    /// Marks the session as replaced; returns false if it was already.
    fn replace(&self) -> bool {
        !self.is_replaced.swap(true, Ordering::Relaxed)
    }
}

pub(crate) type Members = BTreeMap<u64, Arc<Session>>;
type Sessions = SmallVec<[Arc<Session>; 1]>;

const SHARDS: usize = 16;

pub(crate) struct Registry {
    shards: [Shard; SHARDS],
    secret: RandomState,
    next: AtomicU64,
    pub(crate) devices: AtomicUsize,
    pub(crate) users: AtomicUsize,
    pub(crate) rooms: AtomicUsize,
    pub(crate) memberships: AtomicUsize,
}

#[derive(Default)]
struct Shard {
    users: Mutex<HashMap<Arc<str>, Sessions>>,
    keys: Mutex<HashMap<Arc<str>, Arc<Session>>>,
    rooms: Mutex<HashMap<Arc<str>, Members>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rules for a device that connects.
#[derive(Clone, Copy)]
pub(crate) struct ConnectRules {
    /// Devices of its user.
    pub(crate) max: usize,
    /// A further device is refused; otherwise it replaces the oldest.
    pub(crate) refuses: bool,
    /// The device, and not its verifier, has named the key: it cannot be that of another user.
    pub(crate) has_chosen_key: bool,
}

/// The reason why a device is not added.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Its user has this number of devices.
    TooMany(usize),
    /// A device of another user has the key.
    KeyOfAnother,
}

impl Registry {
    pub(crate) fn new() -> Registry {
        let count = AtomicUsize::default;
        Registry {
            shards: Default::default(),
            secret: RandomState::default(),
            // Sessions of different processes differ, and increase in each.
            next: AtomicU64::new(switchboard_core::clock::random() >> 16 << 16 >> 1),
            devices: count(),
            users: count(),
            rooms: count(),
            memberships: count(),
        }
    }

    fn shard(&self, name: &str) -> &Shard {
        &self.shards[self.secret.hash_one(name) as usize % SHARDS]
    }

    pub(crate) fn next_session(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Adds a device. Returns those that it replaces: the older one with its key, and the oldest of its user above
    /// `max`. Each is returned once.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub(crate) fn insert(&self, session: &Arc<Session>, rules: ConnectRules) -> Result<Sessions, Refusal> {
        let ConnectRules { max, refuses, has_chosen_key } = rules;
        let mut replaced = Sessions::new();
        // The lock of the keys is always taken before that of the users.
        let mut keys = lock(&self.shard(&session.key).keys);
        if has_chosen_key && keys.get(&session.key).is_some_and(|known| known.user != session.user) {
            return Err(Refusal::KeyOfAnother);
        }
        if !session.user.is_empty() {
            let mut users = lock(&self.shard(&session.user).users);
            let devices = users.entry(session.user.clone()).or_default();
            // A new connection of a device that is connected already needs no room of its own.
            let is_other =
                |known: &Session| known.key != session.key && !known.is_replaced.load(Ordering::Relaxed);
            let others = devices.iter().filter(|known| is_other(known)).count();
            if others >= max && refuses {
                if devices.is_empty() {
                    users.remove(&session.user);
                }
                return Err(Refusal::TooMany(others));
            }
            if devices.is_empty() {
                self.users.fetch_add(1, Ordering::Relaxed);
            }
            let above = (others + 1).saturating_sub(max);
            let oldest = devices.iter().filter(|known| is_other(known)).take(above);
            replaced.extend(oldest.cloned());
            devices.push(session.clone());
        }
        let older = keys.insert(session.key.clone(), session.clone());
        drop(keys);
        replaced.extend(older);
        replaced.retain(|known| known.replace());
        self.devices.fetch_add(1, Ordering::Relaxed);
        Ok(replaced)
    }

    /// Removes a device, which is in no room any more.
    pub(crate) fn remove(&self, session: &Session) {
        {
            let mut keys = lock(&self.shard(&session.key).keys);
            if keys.get(&session.key).is_some_and(|known| known.id == session.id) {
                keys.remove(&session.key);
            }
        }
        if !session.user.is_empty() {
            let mut users = lock(&self.shard(&session.user).users);
            if let Some(devices) = users.get_mut(&session.user) {
                devices.retain(|known| known.id != session.id);
                if devices.is_empty() {
                    users.remove(&session.user);
                    self.users.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        self.devices.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds a member to a room. `joined` is called under the lock of the room with the number of members, so that the
    /// order of events is that of the changes. Returns false if the room has `max` members.
    pub(crate) fn join(
        &self,
        room: &Arc<str>,
        session: &Arc<Session>,
        max: usize,
        joined: impl FnOnce(usize),
    ) -> bool {
        let mut rooms = lock(&self.shard(room).rooms);
        let members = rooms.entry(room.clone()).or_default();
        if members.len() >= max {
            if members.is_empty() {
                rooms.remove(room);
            }
            return false;
        }
        if members.is_empty() {
            self.rooms.fetch_add(1, Ordering::Relaxed);
        }
        members.insert(session.id, session.clone());
        self.memberships.fetch_add(1, Ordering::Relaxed);
        joined(members.len());
        true
    }

    /// Removes a member; `left` is called under the lock of the room with the number of members.
    pub(crate) fn leave(&self, room: &str, session: &Session, left: impl FnOnce(usize)) {
        let mut rooms = lock(&self.shard(room).rooms);
        let Some(members) = rooms.get_mut(room) else { return };
        if members.remove(&session.id).is_none() {
            return;
        }
        self.memberships.fetch_sub(1, Ordering::Relaxed);
        left(members.len());
        if members.is_empty() {
            rooms.remove(room);
            self.rooms.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Reads the members of a room.
    pub(crate) fn with_room<T>(&self, room: &str, read: impl FnOnce(Option<&Members>) -> T) -> T {
        read(lock(&self.shard(room).rooms).get(room))
    }

    /// Returns the devices of a user, the oldest first.
    pub(crate) fn user(&self, user: &str) -> Sessions {
        lock(&self.shard(user).users).get(user).cloned().unwrap_or_default()
    }

    /// Returns the device with a key.
    pub(crate) fn key(&self, key: &str) -> Option<Arc<Session>> {
        lock(&self.shard(key).keys).get(key).cloned()
    }

    /// Returns the names of rooms that match, and their numbers of members, at most `max`.
    pub(crate) fn rooms_where(&self, max: usize, matches: impl Fn(&str) -> bool) -> Vec<(Arc<str>, usize)> {
        let mut found = Vec::new();
        for shard in &self.shards {
            // The names are shared, and compared without the lock.
            let names: Vec<_> =
                lock(&shard.rooms).iter().map(|(name, members)| (name.clone(), members.len())).collect();
            found.extend(names.into_iter().filter(|(name, _)| matches(name)));
            if found.len() >= max {
                found.truncate(max);
                break;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(registry: &Registry, user: &str, key: &str) -> Arc<Session> {
        Arc::new(Session {
            id: registry.next_session(),
            user: user.into(),
            key: key.into(),
            protocol: "test",
            address: None,
            since: SystemTime::UNIX_EPOCH,
            info: Bytes::new(),
            closer: Box::new(|_: Disconnect| {}),
            is_replaced: AtomicBool::new(false),
        })
    }

    fn rules(max: usize, refuses: bool) -> ConnectRules {
        ConnectRules { max, refuses, has_chosen_key: true }
    }

    #[test]
    fn the_late_end_of_an_older_connection_removes_nothing_else() {
        let registry = Registry::new();
        let (old, new) = (session(&registry, "ali", "phone"), session(&registry, "ali", "phone"));
        assert!(registry.insert(&old, rules(9, true)).is_ok_and(|replaced| replaced.is_empty()));
        let replaced = registry.insert(&new, rules(9, true)).ok().unwrap();
        assert_eq!(replaced[0].id, old.id);
        registry.remove(&old);
        assert_eq!(registry.key("phone").unwrap().id, new.id);
        assert_eq!(registry.user("ali").len(), 1);
        registry.remove(&new);
        assert!(registry.key("phone").is_none() && registry.user("ali").is_empty());
        assert_eq!(registry.devices.load(Ordering::Relaxed), 0);
        assert_eq!(registry.users.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_user_has_a_limit_of_devices() {
        let registry = Registry::new();
        let [a, b, c] = ["a", "b", "c"].map(|key| session(&registry, "ali", key));
        for device in [&a, &b] {
            assert!(registry.insert(device, rules(2, true)).is_ok());
        }
        assert!(
            registry.insert(&c, rules(2, true)).is_err_and(|refusal| matches!(refusal, Refusal::TooMany(2)))
        );
        let again = session(&registry, "ali", "a");
        assert!(registry.insert(&again, rules(2, true)).is_ok(), "the same device again");
        registry.remove(&a);
        let replaced = registry.insert(&c, rules(2, false)).ok().unwrap();
        assert_eq!(replaced.iter().map(|old| old.id).collect::<Vec<_>>(), [b.id]);
    }

    /// The replaced devices are closed later: a further one replaces others.
    #[test]
    fn connections_in_a_row_do_not_exceed_the_limit() {
        let registry = Registry::new();
        let devices = ["a", "b", "c", "d"].map(|key| session(&registry, "ali", key));
        let mut replaced = Vec::new();
        for device in &devices {
            replaced.extend(registry.insert(device, rules(1, false)).unwrap().iter().map(|old| old.id));
        }
        assert_eq!(replaced, [devices[0].id, devices[1].id, devices[2].id]);
        let again = session(&registry, "ali", "d");
        let replaced = registry.insert(&again, rules(1, false)).unwrap();
        assert_eq!(replaced.iter().map(|old| old.id).collect::<Vec<_>>(), [devices[3].id]);
        let other = session(&registry, "ali", "e");
        assert!(matches!(registry.insert(&other, rules(2, true)), Ok(none) if none.is_empty()));
    }

    #[test]
    fn rooms_exist_while_they_have_members() {
        let registry = Registry::new();
        let device = session(&registry, "", "k");
        let room: Arc<str> = "live/7".into();
        let mut counts = Vec::new();
        assert!(registry.join(&room, &device, 1, |count| counts.push(count)));
        let other = session(&registry, "", "o");
        assert!(!registry.join(&room, &other, 1, |count| counts.push(count)));
        assert_eq!(registry.rooms_where(9, |name| name.starts_with("live")), [(room.clone(), 1)]);
        registry.leave(&room, &other, |count| counts.push(count));
        registry.leave(&room, &device, |count| counts.push(count));
        assert_eq!(counts, [1, 0]);
        assert!(registry.with_room(&room, |members| members.is_none()));
        assert_eq!(registry.rooms.load(Ordering::Relaxed), 0);
    }
}
