//! Pending calls of a connection whose peer chooses the call numbers.

use crate::wire::{CallId, MachineMemory};

/// Number of slots that are kept when no call is in flight.
const KEPT: usize = 64;
/// Numbers from here on belong to calls without a reply.
const UNANSWERED_MIN: CallId = 1 << 31;

/// State that a machine keeps of a call until its response.
pub(crate) trait Entry {
    /// Returns the bytes that the entry refers to; they do not change while the call is in flight.
    fn bytes(&self) -> usize;
}

/// State of each pending call, by the number that the driver uses.
#[derive(Debug)]
pub(crate) struct PendingCalls<T> {
    taken: Vec<Option<T>>,
    free: Vec<CallId>,
    /// Bytes that the entries refer to.
    bytes: usize,
    next_unanswered: CallId,
}

impl<T> Default for PendingCalls<T> {
    fn default() -> PendingCalls<T> {
        PendingCalls { taken: Vec::new(), free: Vec::new(), bytes: 0, next_unanswered: CallId::MAX }
    }
}

impl<T: Entry> PendingCalls<T> {
    /// Stores a call and returns the number of its slot.
    #[inline]
    pub(crate) fn enter(&mut self, call: T) -> CallId {
        self.bytes += call.bytes();
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

    /// Returns a number for a call without a reply, which uses no slot.
    pub(crate) fn unanswered(&mut self) -> CallId {
        let id = self.next_unanswered;
        self.next_unanswered = id.checked_sub(1).filter(|id| *id >= UNANSWERED_MIN).unwrap_or(CallId::MAX);
        id
    }

    /// Returns the call in this slot.
    #[inline]
    pub(crate) fn get(&self, id: CallId) -> Option<&T> {
        self.taken.get(id as usize)?.as_ref()
    }

    /// Returns the call in this slot, mutably.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: CallId) -> Option<&mut T> {
        self.taken.get_mut(id as usize)?.as_mut()
    }

    /// Releases the slot of a call and returns its state.
    #[inline]
    pub(crate) fn leave(&mut self, id: CallId) -> Option<T> {
        let call = self.taken.get_mut(id as usize)?.take()?;
        self.bytes -= call.bytes();
        self.free.push(id);
        if self.free.len() == self.taken.len() && self.taken.len() > KEPT {
            (self.taken, self.free) = (Vec::new(), Vec::new());
        }
        Some(call)
    }

    /// Returns the number of stored calls and the bytes of their entries.
    #[inline]
    pub(crate) fn memory(&self) -> MachineMemory {
        let calls = self.taken.len() - self.free.len();
        MachineMemory { calls, bytes: calls * size_of::<Option<T>>() + self.bytes }
    }
}
