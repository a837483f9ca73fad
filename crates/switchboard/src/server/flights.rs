//! The calls that wait in handlers, for whoever wants to see them or has to end them.
//!
//! Calls of the native wire and of JSON-RPC connections are in the hands of their connection's task, which is asked
//! for them when somebody wants to see them; until then this costs nothing. Those on HTTP have no such task, so each
//! that waits is listed, by worker.

#[cfg(feature = "http")]
use super::Shared;
use crate::{Peer, metrics::Wire};
use std::{sync::Arc, time::Instant};
#[cfg(feature = "http")]
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    task::Waker,
};
use switchboard_wire::MethodId;

/// Calls that are shown of one connection, or of one worker's HTTP, at most.
pub(crate) const SHOWN_MAX: usize = 1000;

/// A call that waits.
#[derive(Clone)]
pub(crate) struct Flight {
    pub(crate) method: MethodId,
    pub(crate) wire: Wire,
    pub(crate) peer: Arc<Peer>,
    pub(crate) began: Instant,
    pub(crate) deadline: Option<Instant>,
    /// `handler`, or `replies` once it streams them.
    pub(crate) stage: &'static str,
}

/// The calls on HTTP that wait, by worker.
#[cfg(feature = "http")]
pub(crate) struct Flights(Vec<Mutex<Listed>>);

#[cfg(feature = "http")]
#[derive(Default)]
struct Listed {
    places: Vec<Option<(Flight, Waker)>>,
    free: Vec<usize>,
}

#[cfg(feature = "http")]
impl Flights {
    pub(crate) fn new(shards: usize) -> Flights {
        Flights((0..shards.max(1)).map(|_| Mutex::default()).collect())
    }

    fn of(&self, shard: usize) -> MutexGuard<'_, Listed> {
        self.0[shard % self.0.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a call; the place is to be given back.
    pub(crate) fn enter(&self, shard: usize, flight: Flight, waker: Waker) -> usize {
        let mut listed = self.of(shard);
        let entry = Some((flight, waker));
        match listed.free.pop() {
            Some(place) => {
                listed.places[place] = entry;
                place
            }
            None => {
                listed.places.push(entry);
                listed.places.len() - 1
            }
        }
    }

    pub(crate) fn leave(&self, shard: usize, place: usize) {
        let mut listed = self.of(shard);
        let left = listed.places[place].take();
        listed.free.push(place);
        if listed.free.len() == listed.places.len() {
            *listed = Listed::default();
        }
        drop(listed);
        drop(left);
    }

    /// Up to `SHOWN_MAX` of each worker.
    pub(crate) fn shown(&self) -> Vec<Flight> {
        let mut shown = Vec::new();
        for shard in 0..self.0.len() {
            let listed = self.of(shard);
            let calls = listed.places.iter().flatten().map(|(flight, _)| flight.clone());
            shown.extend(calls.take(SHOWN_MAX));
        }
        shown
    }

    /// Has every call look whether it is to end.
    pub(crate) fn wake_all(&self) {
        for shard in 0..self.0.len() {
            let wakers: Vec<_> =
                self.of(shard).places.iter().flatten().map(|(_, waker)| waker.clone()).collect();
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(feature = "http")]
impl Shared {
    /// Calls that wait, the oldest first, and how many connections did not answer in time: their workers are busy.
    pub(crate) async fn calls(&self, patience: std::time::Duration) -> (Vec<Flight>, usize) {
        let asked: Vec<_> = {
            let open = self.open();
            let busy = open.values().filter(|open| open.wakes.parked() > 0);
            busy.take(ASKED_MAX).map(|open| open.wakes.clone()).collect()
        };
        let (tell, mut told) = tokio::sync::mpsc::channel(asked.len().max(1));
        for wakes in &asked {
            wakes.ask(tell.clone());
        }
        drop(tell);
        let mut calls = self.flights.shown();
        let mut missing = asked.len();
        let gather = async {
            while let Some(shown) = told.recv().await {
                missing -= 1;
                calls.extend::<Vec<Flight>>(shown);
                keep_oldest(&mut calls);
            }
            // Connections that ended meanwhile have dropped the question.
            missing = 0;
        };
        // Without an answer they are counted below.
        let _ = tokio::time::timeout(patience, gather).await;
        keep_oldest(&mut calls);
        (calls, missing)
    }
}

/// Connections that are asked at once.
#[cfg(feature = "http")]
const ASKED_MAX: usize = 10_000;

#[cfg(feature = "http")]
fn keep_oldest(calls: &mut Vec<Flight>) {
    calls.sort_by_key(|call| call.began);
    calls.truncate(SHOWN_MAX);
}
