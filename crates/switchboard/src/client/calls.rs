//! The calls in flight on one client connection.
//!
//! A call's number on the wire is its place and a generation, so that a late reply to a call that has ended
//! never reaches its successor.

use crate::{
    Metadata, Status,
    compression::Message,
    stream::{Batch, Queue},
};
use bytes::Bytes;
use std::{mem, sync::Arc, task::Waker, time::Instant};

/// Bits of the place: a million calls in flight.
const PLACE_BITS: u32 = 20;

#[derive(Default)]
pub(super) struct Calls {
    places: Vec<Place>,
    free: Vec<u32>,
}

/// One cache line.
pub(super) struct Place {
    generation: u16,
    pub(super) deadline: Option<Instant>,
    pub(super) state: State,
}

/// How far a call is; the usual ones are small and moved as little as can be.
pub(super) enum State {
    /// There is no call.
    Free,
    /// A call that waits for its only reply, and its caller.
    Waiting(Option<Waker>),
    /// The usual answer: a message and nothing beside it. Its caller was woken.
    Answered(Bytes),
    /// A call with one reply of which came anything else.
    Unusual(Box<Unusual>),
    /// Nothing comes back.
    Oneway,
    /// Messages go both ways until both ends have ended.
    Stream(Box<Stream>),
}

/// Parts of an answer are put here as they come; `end` comes last.
#[derive(Default)]
pub(super) struct Unusual {
    pub(super) waker: Option<Waker>,
    pub(super) item: Option<Message>,
    pub(super) head: Metadata,
    pub(super) trailers: Metadata,
    pub(super) end: Option<Result<(), Status>>,
}

pub(super) struct Stream {
    pub(super) inbound: Arc<Queue>,
    /// Requests that are still to be sent; none once the direction has ended.
    pub(super) outbound: Option<Arc<Queue>>,
    /// What was taken out of them and not sent yet.
    pub(super) batch: Batch,
    pub(super) credit: i64,
    /// It is in the list of streams that may have something to send.
    pub(super) due: bool,
}

impl Stream {
    /// Puts the stream into the list of those that may have something to send; once, however often it gets credit.
    pub(super) fn note_due(&mut self, id: u32, due: &mut Vec<u32>) {
        if !std::mem::replace(&mut self.due, true) {
            due.push(id);
        }
    }
}

/// What came back for a unary call.
pub(super) struct Answer {
    pub(super) item: Message,
    pub(super) head: Metadata,
    pub(super) trailers: Metadata,
    /// How often the call was sent.
    pub(super) attempts: u32,
}

impl Calls {
    /// Finds a place for a call; its number.
    #[inline]
    pub(super) fn insert(&mut self, state: State) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, deadline: None, state: State::Free });
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[at as usize];
        place.state = state;
        at | u32::from(place.generation) << PLACE_BITS
    }

    /// The place of a call in flight.
    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Place> {
        let place = self.places.get_mut((id & ((1 << PLACE_BITS) - 1)) as usize)?;
        (u32::from(place.generation) == id >> PLACE_BITS && !matches!(place.state, State::Free))
            .then_some(place)
    }

    /// Takes a call out; its place is for the next one.
    #[inline]
    pub(super) fn remove(&mut self, id: u32) -> Option<State> {
        let place = self.get_mut(id)?;
        place.generation = (place.generation + 1) % (1 << (32 - PLACE_BITS));
        place.deadline = None;
        let state = mem::replace(&mut place.state, State::Free);
        self.free.push(id & ((1 << PLACE_BITS) - 1));
        Some(state)
    }

    /// Takes a call out if it has the usual answer.
    #[inline(always)]
    pub(super) fn take_answered(&mut self, id: u32) -> Option<Bytes> {
        let at = id & ((1 << PLACE_BITS) - 1);
        let place = self.places.get_mut(at as usize)?;
        let State::Answered(item) = &mut place.state else { return None };
        if u32::from(place.generation) != id >> PLACE_BITS {
            return None;
        }
        let item = mem::take(item);
        place.generation = (place.generation + 1) % (1 << (32 - PLACE_BITS));
        place.deadline = None;
        place.state = State::Free;
        self.free.push(at);
        Some(item)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Every call in flight.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Place)> {
        let in_flight = |(_, place): &(usize, &mut Place)| !matches!(place.state, State::Free);
        self.places.iter_mut().enumerate().filter(in_flight).map(|(at, place)| {
            let id = at as u32 | u32::from(place.generation) << PLACE_BITS;
            (id, place)
        })
    }
}

impl State {
    /// The parts of an answer that is more than one message; none if the call is of another kind or has its answer.
    pub(super) fn unusual(&mut self) -> Option<&mut Unusual> {
        if let State::Waiting(waker) = self {
            let waker = waker.take();
            *self = State::Unusual(Box::new(Unusual { waker, ..Unusual::default() }));
        }
        match self {
            State::Unusual(parts) if parts.end.is_none() => Some(parts),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_numbers_do_not_reach_the_successor() {
        let waiting = || State::Waiting(Some(Waker::noop().clone()));
        let mut calls = Calls::default();
        let first = calls.insert(waiting());
        assert!(calls.remove(first).is_some());
        let second = calls.insert(waiting());
        assert_ne!(first, second);
        assert!(calls.get_mut(first).is_none() && calls.remove(first).is_none());
        assert!(calls.take_answered(second).is_none(), "it has no answer yet");
        calls.get_mut(second).unwrap().state = State::Answered(Bytes::from_static(b"a"));
        assert!(calls.take_answered(first).is_none());
        assert_eq!(calls.len(), 1);
        assert_eq!(calls.take_answered(second).unwrap(), "a");
        assert_eq!((calls.len(), calls.iter_mut().count()), (0, 0));
    }

    #[test]
    fn a_place_is_one_cache_line() {
        assert_eq!(size_of::<Place>(), 64);
    }
}
