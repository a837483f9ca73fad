//! The open streams of a connection, by number.

use std::collections::HashMap;

/// Number of places that a table begins with, and the most that it grows to. Both are powers of two.
const PLACES_MIN: usize = 16;
const PLACES_MAX: usize = 4096;
/// Number of streams that are remembered after this side reset them.
const RESETS_MAX: usize = 256;

/// States of the open streams.
///
/// The numbers of a side grow by two, so a stream has the place `number / 2`, modulo the number of places. The table
/// grows when a place is taken by an open stream and a quarter of the places is in use. Otherwise the earlier stream
/// moves to a map, so that a few long streams do not extend the table.
#[derive(Debug)]
pub struct Streams<T> {
    places: Vec<Place<T>>,
    /// Streams whose place was needed by a later one.
    old: HashMap<u32, T>,
    open: usize,
}

#[derive(Debug)]
struct Place<T> {
    /// The last stream of this place; 0 for none. It remains after the stream has ended.
    number: u32,
    state: Option<T>,
}

impl<T> Default for Streams<T> {
    fn default() -> Streams<T> {
        Streams { places: Vec::new(), old: HashMap::new(), open: 0 }
    }
}

impl<T> Streams<T> {
    #[inline]
    fn place(&self, number: u32) -> usize {
        (number >> 1) as usize & self.places.len().wrapping_sub(1)
    }

    /// Returns the number of open streams.
    #[inline]
    pub fn len(&self) -> usize {
        self.open
    }

    /// Returns true if no stream is open.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.open == 0
    }

    /// Bytes of the table, beside what the states refer to.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        self.places.len() * size_of::<Place<T>>() + self.old.len() * size_of::<(u32, T)>()
    }

    /// Adds a stream whose number was not used before.
    #[inline]
    pub fn insert(&mut self, number: u32, state: T) {
        let place = self.place(number);
        match self.places.get_mut(place) {
            Some(place) if place.state.is_none() => *place = Place { number, state: Some(state) },
            _ => self.insert_with_room(number, state),
        }
        self.open += 1;
    }

    #[cold]
    fn insert_with_room(&mut self, number: u32, state: T) {
        while self.places.len() < PLACES_MAX && 4 * self.open >= self.places.len() {
            self.grow();
            let place = self.place(number);
            if self.places[place].state.is_none() {
                self.places[place] = Place { number, state: Some(state) };
                return;
            }
        }
        let place = self.place(number);
        let before = std::mem::replace(&mut self.places[place], Place { number, state: Some(state) });
        if let Place { number, state: Some(state) } = before {
            self.old.insert(number, state);
        }
    }

    /// Doubles the number of places. Open streams that had different places have different places again.
    fn grow(&mut self) {
        let places = (2 * self.places.len()).clamp(PLACES_MIN, PLACES_MAX);
        let mut before = std::mem::take(&mut self.places);
        self.places.resize_with(places, || Place { number: 0, state: None });
        // Those that have ended do not replace open ones.
        before.sort_unstable_by_key(|place| place.state.is_some());
        for place in before {
            let at = self.place(place.number);
            if place.number != 0 {
                self.places[at] = place;
            }
        }
    }

    /// Returns the state of an open stream.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        match self.places.get(self.place(number)) {
            Some(place) if place.number == number && place.state.is_some() => place.state.as_ref(),
            _ if self.old.is_empty() => None,
            _ => self.old.get(&number),
        }
    }

    /// Returns the state of an open stream, mutably.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let place = self.place(number);
        match self.places.get_mut(place) {
            Some(place) if place.number == number && place.state.is_some() => place.state.as_mut(),
            _ if self.old.is_empty() => None,
            _ => self.old.get_mut(&number),
        }
    }

    /// Removes an open stream.
    #[inline]
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let place = self.place(number);
        let removed = match self.places.get_mut(place) {
            Some(place) if place.number == number && place.state.is_some() => place.state.take(),
            _ if self.old.is_empty() => None,
            _ => self.old.remove(&number),
        };
        self.open -= usize::from(removed.is_some());
        removed
    }

    /// Returns true if the stream was open and has ended, as far as the table remembers it: until its place is used
    /// again.
    pub fn has_ended(&self, number: u32) -> bool {
        self.places
            .get(self.place(number))
            .is_some_and(|place| place.number == number && place.state.is_none())
    }

    /// Returns the open streams, in no order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let places = self.places.iter_mut();
        let placed = places.filter_map(|place| Some((place.number, place.state.as_mut()?)));
        placed.chain(self.old.iter_mut().map(|(number, state)| (*number, state)))
    }
}

/// The last 256 streams that this side has reset: their peer may have sent frames before it received the reset, which
/// are read and dropped.
#[derive(Debug, Default)]
pub struct Resets {
    numbers: Vec<u32>,
    next: usize,
}

impl Resets {
    /// Adds a stream.
    pub fn add(&mut self, number: u32) {
        if self.numbers.len() < RESETS_MAX {
            self.numbers.push(number);
        } else {
            self.numbers[self.next] = number;
            self.next = (self.next + 1) % RESETS_MAX;
        }
    }

    /// Returns true if the stream is one of the last that this side has reset.
    pub fn has(&self, number: u32) -> bool {
        self.numbers.contains(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_found_whatever_their_gaps_and_ages() {
        let (mut streams, mut model) = (Streams::default(), HashMap::new());
        let mut number = 1u32;
        for step in 0..40_000u32 {
            number += 2 * (1 + if step % 97 == 0 { step } else { step % 3 });
            streams.insert(number, step);
            model.insert(number, step);
            // A few stay open for ever, the others for a while.
            let ends = number.saturating_sub(2 * (step % 50));
            if step % 4000 != 0 && ends % 256 != 1 {
                assert_eq!(streams.remove(ends), model.remove(&ends), "{ends}");
                assert_eq!(streams.get(ends), None);
            }
            assert_eq!(streams.len(), model.len());
        }
        assert!(streams.places.len() <= PLACES_MAX && !streams.old.is_empty());
        let mut open: Vec<_> = streams.iter_mut().map(|(number, state)| (number, *state)).collect();
        let mut expected: Vec<_> = model.iter().map(|(number, state)| (*number, *state)).collect();
        open.sort_unstable();
        expected.sort_unstable();
        assert_eq!(open, expected);
        for (number, state) in expected {
            assert_eq!(streams.get(number), Some(&state));
            assert_eq!(streams.get_mut(number).copied(), Some(state));
            assert_eq!(streams.remove(number), Some(state));
        }
        assert!(streams.is_empty());
    }

    #[test]
    fn a_long_stream_does_not_extend_the_table() {
        let mut streams = Streams::default();
        streams.insert(1, ());
        for number in (3..20_001).step_by(2) {
            streams.insert(number, ());
            assert!(streams.get(1).is_some() && streams.remove(number).is_some());
        }
        assert_eq!((streams.len(), streams.places.len(), streams.old.len()), (1, PLACES_MIN, 1));
        for number in (20_001..22_001).step_by(2) {
            streams.insert(number, ());
        }
        assert!((1000..=PLACES_MAX).contains(&streams.places.len()));
        assert!((20_001..22_001).step_by(2).all(|number| streams.remove(number).is_some()));
        assert_eq!(streams.remove(1), Some(()));
    }

    #[test]
    fn the_last_streams_are_remembered_after_their_end() {
        let (mut streams, mut resets) = (Streams::default(), Resets::default());
        for number in (1..2001).step_by(2) {
            streams.insert(number, ());
            streams.remove(number);
            resets.add(number);
        }
        assert!(streams.has_ended(1999) && !streams.has_ended(2001) && !streams.has_ended(1));
        assert!(resets.has(1999) && resets.has(1999 - 2 * 255) && !resets.has(1999 - 2 * 256));
        assert_eq!(streams.places.len(), PLACES_MIN);
    }
}
