//! Numbers for calls whose peers number them as they like.

use crate::wire::CallId;

/// Places that are kept when none is taken.
const KEPT: usize = 64;
/// Calls without an answer are numbered from the other end, as far as here: far more than can wait at once.
const ONEWAY_MIN: CallId = CallId::MAX / 2;

/// What answers need of the calls under way; the place of a call is its [`CallId`].
#[derive(Debug)]
pub(crate) struct Places<T> {
    taken: Vec<Option<T>>,
    free: Vec<CallId>,
    next_oneway: CallId,
}

impl<T> Default for Places<T> {
    fn default() -> Places<T> {
        Places { taken: Vec::new(), free: Vec::new(), next_oneway: CallId::MAX }
    }
}

impl<T> Places<T> {
    /// A place for a call that is to be answered.
    #[inline]
    pub(crate) fn enter(&mut self, call: T) -> CallId {
        match self.free.pop() {
            Some(id) => {
                self.taken[id as usize] = Some(call);
                id
            }
            None => {
                self.taken.push(Some(call));
                (self.taken.len() - 1) as CallId
            }
        }
    }

    /// A number for a call that is not answered, and that none in a place has.
    pub(crate) fn oneway(&mut self) -> CallId {
        let id = self.next_oneway;
        self.next_oneway =
            self.next_oneway.checked_sub(1).filter(|id| *id >= ONEWAY_MIN).unwrap_or(CallId::MAX);
        id
    }

    /// The call in this place.
    #[inline]
    pub(crate) fn get(&self, id: CallId) -> Option<&T> {
        self.taken.get(id as usize)?.as_ref()
    }

    /// The call in this place, to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: CallId) -> Option<&mut T> {
        self.taken.get_mut(id as usize)?.as_mut()
    }

    /// Gives the place back: its call is answered.
    #[inline]
    pub(crate) fn leave(&mut self, id: CallId) -> Option<T> {
        let call = self.taken.get_mut(id as usize)?.take()?;
        self.free.push(id);
        if self.free.len() == self.taken.len() && self.taken.len() > KEPT {
            (self.taken, self.free) = (Vec::new(), Vec::new());
        }
        Some(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_and_given_back_once() {
        let mut places = Places::default();
        assert_eq!((places.enter('a'), places.enter('b')), (0, 1));
        assert_eq!((places.leave(0), places.leave(0), places.leave(7)), (Some('a'), None, None));
        assert_eq!((places.enter('c'), places.get_mut(2)), (0, None));
        assert_eq!((places.get(0), places.get(2)), (Some(&'c'), None));
        let all: Vec<_> = (0..200).map(|_| places.enter('d')).collect();
        for id in all.into_iter().chain([0, 1]) {
            assert!(places.leave(id).is_some());
        }
        assert_eq!(places.taken.capacity(), 0);
        assert_eq!((places.oneway(), places.oneway()), (CallId::MAX, CallId::MAX - 1));
    }
}
