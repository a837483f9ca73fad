//! Sets of subscribers with the same few subscriptions: each set has one broadcast buffer, and its members read it.

use std::{collections::HashMap, hash::Hash};
use switchboard_fanout::{BufferId, Subscribers};

/// Subscriptions of a set that is shared. A subscriber with more has a set of its own, which is changed in place.
pub(crate) const SHARED_MAX: usize = 16;

/// The sets of an engine by number. `K` is what the members of a shared set have in common, `T` what a set stores.
#[derive(Debug)]
pub(crate) struct SharedSets<K, T> {
    sets: Vec<Option<Set<K, T>>>,
    free: Vec<u32>,
    shared: HashMap<K, u32>,
}

/// A set of subscribers.
#[derive(Debug)]
pub(crate) struct Set<K, T> {
    /// The buffer that the members read.
    pub(crate) buffer: BufferId,
    members: usize,
    /// `None` if the set belongs to one subscriber.
    key: Option<K>,
    pub(crate) content: T,
}

impl<K, T> Set<K, T> {
    pub(crate) fn is_shared(&self) -> bool {
        self.key.is_some()
    }
}

/// A member has joined a set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Joined {
    /// The set with this number exists for it.
    Created(u32),
    /// The set with this number had other members.
    Known(u32),
}

impl<K, T> Default for SharedSets<K, T> {
    fn default() -> Self {
        SharedSets { sets: Vec::new(), free: Vec::new(), shared: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash, T> SharedSets<K, T> {
    pub(crate) fn get(&self, number: u32) -> Option<&Set<K, T>> {
        self.sets.get(number as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Set<K, T>> {
        self.sets.get_mut(number as usize)?.as_mut()
    }

    /// Adds a member to the set with this key, and creates the set and its buffer if there is none. Without a key, the
    /// set belongs to the member alone.
    pub(crate) fn join(
        &mut self,
        key: Option<K>,
        content: impl FnOnce() -> T,
        subscribers: &mut Subscribers,
    ) -> Joined {
        if let Some(known) = key.as_ref().and_then(|key| self.shared.get(key)).copied()
            && let Some(set) = self.get_mut(known)
        {
            set.members += 1;
            return Joined::Known(known);
        }
        let set = Set { buffer: subscribers.open_buffer(), members: 1, key: key.clone(), content: content() };
        let number = self.free.pop().unwrap_or_else(|| {
            self.sets.push(None);
            (self.sets.len() - 1) as u32
        });
        self.sets[number as usize] = Some(set);
        if let Some(key) = key {
            self.shared.insert(key, number);
        }
        Joined::Created(number)
    }

    /// Removes a member of a set. The last one closes the buffer; then the content is returned.
    pub(crate) fn leave(&mut self, number: u32, subscribers: &mut Subscribers) -> Option<T> {
        let set = self.get_mut(number)?;
        set.members -= 1;
        if set.members > 0 {
            return None;
        }
        let Set { buffer, key, content, .. } = self.sets[number as usize].take()?;
        if let Some(key) = key {
            self.shared.remove(&key);
        }
        subscribers.close_buffer(buffer);
        self.free.push(number);
        Some(content)
    }
}
