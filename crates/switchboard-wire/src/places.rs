//! The calls of a connection whose peer numbers them as it likes.

use crate::wire::CallId;

/// Places that are kept when no call is under way.
const KEPT: usize = 64;
/// Numbers from here on are of calls that nobody waits for.
const UNANSWERED_MIN: CallId = 1 << 31;

/// What is needed to answer each call, by the number that the driver knows it as.
#[derive(Debug)]
pub(crate) struct Places<T> {
    taken: Vec<Option<T>>,
    free: Vec<CallId>,
    next_unanswered: CallId,
}

impl<T> Default for Places<T> {
    fn default() -> Places<T> {
        Places { taken: Vec::new(), free: Vec::new(), next_unanswered: CallId::MAX }
    }
}

impl<T> Places<T> {
    /// A place for a call, from which its answer goes to its caller.
    #[inline]
    pub(crate) fn enter(&mut self, call: T) -> CallId {
        match self.free.pop() {
            Some(id) => {
                self.taken[id as usize] = Some(call);
                id
            }
            None => {
                self.taken.push(Some(call));
                self.taken.len() as CallId - 1
            }
        }
    }

    /// A number for a call that is not answered, and takes no place.
    pub(crate) fn unanswered(&mut self) -> CallId {
        let id = self.next_unanswered;
        self.next_unanswered = id.checked_sub(1).filter(|id| *id >= UNANSWERED_MIN).unwrap_or(CallId::MAX);
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

    /// Gives a place back: its call is answered.
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
