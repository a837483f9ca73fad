//! The calls in flight on one client connection.
//!
//! A call's number on the wire is its place and a generation, so that a late reply to a call that has ended
//! never reaches its successor.

use crate::{Metadata, Status, stream::Queue};
use bytes::Bytes;
use std::{sync::Arc, task::Waker, time::Instant};

/// Bits of the place: a million calls in flight.
const PLACE_BITS: u32 = 20;

#[derive(Default)]
pub(super) struct Calls {
    places: Vec<Place>,
    free: Vec<u32>,
    len: usize,
}

struct Place {
    generation: u16,
    entry: Option<Entry>,
}

pub(super) struct Entry {
    pub(super) deadline: Option<Instant>,
    pub(super) state: State,
}

pub(super) enum State {
    /// Waits for its only reply, or has it and its caller was woken.
    Unary(Unary),
    /// Messages go both ways until both ends have ended.
    Stream(Stream),
}

/// Parts are put here as they come; `end` comes last.
#[derive(Default)]
pub(super) struct Unary {
    pub(super) waker: Option<Waker>,
    pub(super) item: Option<Bytes>,
    pub(super) head: Option<Box<Metadata>>,
    pub(super) trailers: Option<Box<Metadata>>,
    pub(super) end: Option<Result<(), Status>>,
}

pub(super) struct Stream {
    pub(super) inbound: Arc<Queue>,
    /// Requests that are still to be sent; none once the direction has ended.
    pub(super) outbound: Option<Arc<Queue>>,
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
    pub(super) item: Bytes,
    pub(super) head: Option<Box<Metadata>>,
    pub(super) trailers: Option<Box<Metadata>>,
}

impl Calls {
    #[inline]
    pub(super) fn insert(&mut self, entry: Entry) -> u32 {
        self.len += 1;
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, entry: None });
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[at as usize];
        place.entry = Some(entry);
        at | u32::from(place.generation) << PLACE_BITS
    }

    fn place(&mut self, id: u32) -> Option<&mut Place> {
        let at = id & ((1 << PLACE_BITS) - 1);
        let place = self.places.get_mut(at as usize)?;
        (u32::from(place.generation) == id >> PLACE_BITS).then_some(place)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Entry> {
        self.place(id)?.entry.as_mut()
    }

    #[inline]
    pub(super) fn remove(&mut self, id: u32) -> Option<Entry> {
        let place = self.place(id)?;
        let entry = place.entry.take()?;
        place.generation = (place.generation + 1) % (1 << (32 - PLACE_BITS));
        self.len -= 1;
        self.free.push(id & ((1 << PLACE_BITS) - 1));
        Some(entry)
    }

    /// As [`remove`](Self::remove), for a call of which nothing is wanted any more.
    #[inline]
    pub(super) fn discard(&mut self, id: u32) {
        let Some(place) = self.place(id) else { return };
        if place.entry.is_some() {
            place.entry = None;
            place.generation = (place.generation + 1) % (1 << (32 - PLACE_BITS));
            self.len -= 1;
            self.free.push(id & ((1 << PLACE_BITS) - 1));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Every call in flight.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Entry)> {
        self.places.iter_mut().enumerate().filter_map(|(at, place)| {
            let id = at as u32 | u32::from(place.generation) << PLACE_BITS;
            place.entry.as_mut().map(|entry| (id, entry))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_numbers_do_not_reach_the_successor() {
        let entry = || Entry { deadline: None, state: State::Unary(Unary::default()) };
        let mut calls = Calls::default();
        let first = calls.insert(entry());
        assert!(calls.remove(first).is_some());
        let second = calls.insert(entry());
        assert_ne!(first, second);
        assert!(calls.get_mut(first).is_none() && calls.remove(first).is_none());
        assert!(calls.get_mut(second).is_some());
        assert_eq!(calls.len(), 1);
    }
}
