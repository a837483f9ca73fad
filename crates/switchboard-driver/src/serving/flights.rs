//! Calls that wait in handlers, for the admin page and for the end of a drain.
//!
//! Calls of sans-io wires are owned by their connection's task, which reports them on request; without a
//! request this costs nothing. Calls on HTTP and of plugins have no such task, so each waiting call is listed, by
//! worker.

#[cfg(feature = "http")]
use super::ServerState;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    task::Waker,
};
use switchboard_net::connection::{Flight, SHOWN_MAX};

/// Waiting calls on HTTP and of plugins, by worker.
pub struct Flights(Vec<Mutex<Listed>>);

/// The place of a waiting call in its list.
pub struct Place {
    index: usize,
    /// A copy of the waker in the list.
    waker: Waker,
}

#[derive(Default)]
struct Listed {
    places: Vec<Option<(Flight, Waker)>>,
    free: Vec<usize>,
}

impl Flights {
    /// Creates an empty list for each worker.
    pub fn new(shards: usize) -> Flights {
        Flights((0..shards.max(1)).map(|_| Mutex::default()).collect())
    }

    fn of(&self, shard: usize) -> MutexGuard<'_, Listed> {
        self.0[shard % self.0.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a call; the returned place must be released with `leave`.
    pub fn enter(&self, shard: usize, flight: Flight, waker: &Waker) -> Place {
        let mut listed = self.of(shard);
        let entry = Some((flight, waker.clone()));
        let index = match listed.free.pop() {
            Some(index) => {
                listed.places[index] = entry;
                index
            }
            None => {
                listed.places.push(entry);
                listed.places.len() - 1
            }
        };
        Place { index, waker: waker.clone() }
    }

    /// Sets the waker of a call: each poll may have another. Takes the lock only if it does.
    pub fn set_waker(&self, shard: usize, place: &mut Place, waker: &Waker) {
        if place.waker.will_wake(waker) {
            return;
        }
        place.waker = waker.clone();
        let mut listed = self.of(shard);
        let entry = listed.places.get_mut(place.index).and_then(Option::as_mut);
        let before = entry.map(|(_, known)| std::mem::replace(known, waker.clone()));
        drop(listed);
        drop(before);
    }

    /// Removes a call.
    pub fn leave(&self, shard: usize, place: &Place) {
        let mut listed = self.of(shard);
        let left = listed.places[place.index].take();
        listed.free.push(place.index);
        if listed.free.len() == listed.places.len() {
            *listed = Listed::default();
        }
        drop(listed);
        drop(left);
    }

    /// Returns up to `SHOWN_MAX` calls of each worker.
    pub fn shown(&self) -> Vec<Flight> {
        let mut shown = Vec::new();
        for shard in 0..self.0.len() {
            let listed = self.of(shard);
            let calls = listed.places.iter().flatten().map(|(flight, _)| flight.clone());
            shown.extend(calls.take(SHOWN_MAX));
        }
        shown
    }

    /// Wakes all listed calls, so that each checks whether it must end.
    pub fn wake_all(&self) {
        for shard in 0..self.0.len() {
            let wakers: Vec<_> =
                self.of(shard).places.iter().flatten().map(|(_, waker)| waker.clone()).collect();
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(feature = "http")]
impl ServerState {
    /// Returns the waiting calls, the oldest first, and the number of connections that did not report in time
    /// because their workers are busy.
    pub async fn calls(&self, patience: std::time::Duration) -> (Vec<Flight>, usize) {
        let queried: Vec<_> = {
            let open = self.open();
            let busy = open.values().filter(|open| open.wakes.parked() > 0);
            busy.take(QUERIES_MAX).map(|open| open.wakes.clone()).collect()
        };
        let (sender, mut reports) = tokio::sync::mpsc::channel(queried.len().max(1));
        for wakes in &queried {
            wakes.request_report(sender.clone());
        }
        drop(sender);
        let mut calls = self.flights.shown();
        let mut missing = queried.len();
        let gather = async {
            while let Some(shown) = reports.recv().await {
                missing -= 1;
                calls.extend::<Vec<Flight>>(shown);
                keep_oldest(&mut calls);
            }
            // Connections that ended meanwhile have dropped their sender.
            missing = 0;
        };
        // Connections without a report are counted in `missing`.
        let _ = tokio::time::timeout(patience, gather).await;
        keep_oldest(&mut calls);
        (calls, missing)
    }
}

/// Maximum number of connections queried at once.
#[cfg(feature = "http")]
const QUERIES_MAX: usize = 10_000;

#[cfg(feature = "http")]
fn keep_oldest(calls: &mut Vec<Flight>) {
    calls.sort_by_key(|call| call.began);
    calls.truncate(SHOWN_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
            mpsc,
        },
        task::Wake,
        time::{Duration, Instant},
    };
    use switchboard_core::Peer;
    use switchboard_wire::{MethodId, WireId};

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Woken {
        fn waker() -> (Arc<Woken>, Waker) {
            let woken = Arc::new(Woken::default());
            (woken.clone(), Waker::from(woken))
        }

        fn count(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn flight() -> Flight {
        Flight {
            method: MethodId(0),
            wire: WireId::GRPC,
            peer: Arc::new(Peer::without_connection(WireId::GRPC, "local".to_owned())),
            began: Instant::now(),
            deadline: None,
            stage: "handler",
        }
    }

    #[test]
    fn a_parked_call_is_woken_by_the_waker_of_its_last_poll() {
        let flights = Flights::new(2);
        let ((first, before), (second, after), (third, other)) =
            (Woken::waker(), Woken::waker(), Woken::waker());
        let mut place = flights.enter(1, flight(), &before);
        let neighbour = flights.enter(1, flight(), &other);
        flights.set_waker(1, &mut place, &after);
        drop(before);
        assert_eq!(Arc::strong_count(&first), 1, "the former waker is kept");
        flights.wake_all();
        assert_eq!((first.count(), second.count(), third.count()), (0, 1, 1));
        flights.leave(1, &place);
        flights.wake_all();
        assert_eq!((second.count(), third.count(), flights.shown().len()), (1, 2, 1));
        flights.leave(1, &neighbour);
        assert!(flights.shown().is_empty());
    }

    #[test]
    fn a_poll_with_the_same_waker_takes_no_lock() {
        let flights = Arc::new(Flights::new(1));
        let (_, waker) = Woken::waker();
        let mut place = flights.enter(0, flight(), &waker);
        let locked = flights.of(0);
        let (done, is_done) = mpsc::channel();
        let other = flights.clone();
        std::thread::spawn(move || {
            other.set_waker(0, &mut place, &waker.clone());
            let _ = done.send(());
        });
        is_done.recv_timeout(Duration::from_secs(20)).expect("the lock is not taken");
        drop(locked);
    }
}
