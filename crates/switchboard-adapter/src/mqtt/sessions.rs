//! All sessions by client identifier: of connected clients, and of absent ones with their time limits.

use super::session::Session;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use switchboard_wire::mqtt::Will;

/// The sessions of an engine.
#[derive(Default)]
pub(super) struct Sessions {
    slots: HashMap<Bytes, Slot>,
    /// Absent sessions in the order in which their clients left.
    ages: BTreeMap<u64, Bytes>,
    /// When something is to happen to an absent session, with its age.
    due: BTreeSet<(u64, u64)>,
    next_age: u64,
}

enum Slot {
    /// Index of the client.
    Connected(u32),
    Absent(u64, Box<Absent>),
}

/// The session of an absent client.
pub(super) struct Absent {
    pub(super) session: Box<Session>,
    /// Nanoseconds on the clock of the process.
    pub(super) expires_at: u64,
    /// The will, and the time at which it is published.
    pub(super) will: Option<(Will, u64)>,
}

impl Absent {
    fn due_at(&self) -> u64 {
        self.will.as_ref().map_or(self.expires_at, |(_, at)| self.expires_at.min(*at))
    }
}

impl Sessions {
    /// Returns the client that has the session.
    pub(super) fn connected(&self, client_id: &[u8]) -> Option<u32> {
        match self.slots.get(client_id) {
            Some(Slot::Connected(index)) => Some(*index),
            _ => None,
        }
    }

    /// Returns the session of an absent client.
    pub(super) fn absent(&self, client_id: &[u8]) -> Option<&Absent> {
        match self.slots.get(client_id) {
            Some(Slot::Absent(_, absent)) => Some(absent),
            _ => None,
        }
    }

    /// Returns the session of an absent client, to change it.
    pub(super) fn absent_mut(&mut self, client_id: &[u8]) -> Option<&mut Absent> {
        match self.slots.get_mut(client_id) {
            Some(Slot::Absent(_, absent)) => Some(absent),
            _ => None,
        }
    }

    /// Notes the client that has the session.
    pub(super) fn connect(&mut self, client_id: Bytes, index: u32) {
        self.slots.insert(client_id, Slot::Connected(index));
    }

    /// Removes the session of a client.
    pub(super) fn remove(&mut self, client_id: &[u8]) {
        self.take(client_id);
    }

    /// Takes the session of an absent client.
    pub(super) fn take(&mut self, client_id: &[u8]) -> Option<Absent> {
        match self.slots.remove(client_id)? {
            Slot::Connected(_) => None,
            Slot::Absent(age, absent) => {
                self.ages.remove(&age);
                self.due.remove(&(absent.due_at(), age));
                Some(*absent)
            }
        }
    }

    /// Keeps the session of a client that has left.
    pub(super) fn keep(&mut self, absent: Absent) {
        let client_id = absent.session.client_id.clone();
        self.next_age = self.next_age.saturating_add(1);
        let age = self.next_age;
        self.ages.insert(age, client_id.clone());
        self.due.insert((absent.due_at(), age));
        self.slots.insert(client_id, Slot::Absent(age, Box::new(absent)));
    }

    /// Returns the number of absent sessions.
    pub(super) fn absent_count(&self) -> usize {
        self.ages.len()
    }

    /// Takes the session whose client is absent for the longest time.
    pub(super) fn take_oldest(&mut self) -> Option<Absent> {
        let client_id = self.ages.values().next()?.clone();
        self.take(&client_id)
    }

    /// Takes a session to which something is to happen now.
    pub(super) fn take_due(&mut self, now: u64) -> Option<Absent> {
        let (at, age) = *self.due.first()?;
        if at > now {
            return None;
        }
        let client_id = self.ages.get(&age)?.clone();
        self.take(&client_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absent(client_id: &'static str, expires_at: u64, will_at: Option<u64>) -> Absent {
        let session = Box::new(Session::new(Bytes::from_static(client_id.as_bytes()), 1, None, 1));
        Absent { session, expires_at, will: will_at.map(|at| (Will::default(), at)) }
    }

    #[test]
    fn absent_sessions_come_back_are_due_or_are_the_oldest() {
        let mut sessions = Sessions::default();
        for (id, expires_at, will_at) in
            [("a", 50, None), ("b", 30, None), ("c", 90, Some(20)), ("d", 40, None)]
        {
            sessions.keep(absent(id, expires_at, will_at));
        }
        sessions.connect(Bytes::from_static(b"e"), 7);
        assert_eq!((sessions.connected(b"e"), sessions.connected(b"a")), (Some(7), None));
        assert_eq!(sessions.absent_count(), 4);
        assert!(
            sessions.take(b"d").is_some() && sessions.take(b"d").is_none() && sessions.take(b"e").is_none()
        );
        let mut id = |now| sessions.take_due(now).map(|absent| absent.session.client_id);
        assert_eq!((id(19), id(30), id(30), id(30)), (None, Some("c".into()), Some("b".into()), None));
        assert_eq!(sessions.take_oldest().map(|absent| absent.session.client_id), Some("a".into()));
        assert!(sessions.take_oldest().is_none() && sessions.absent_count() == 0);
        assert!(sessions.ages.is_empty() && sessions.due.is_empty() && sessions.slots.is_empty());
    }
}
