//! The connections of a channel: a bounded group per address, shared by all callers.
//!
//! Each worker thread has its place in the group, so that a call and its connection live on one thread. A place
//! without a connection is filled by the first call that needs it; while that is under way others wait for it, and
//! after a failure calls fail at once until the back-off has passed.

use super::{connection::Connection, options::Options};
use crate::{Result, Status, net, net::Address, runtime};
use std::{
    cell::Cell,
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::runtime::Handle;

/// The first pause after a failed connect; it doubles from there.
const BACKOFF_MIN: Duration = Duration::from_millis(50);

pub(super) struct Pool {
    addresses: Vec<Address>,
    /// For each address `connections` places.
    places: Vec<Arc<Place>>,
    options: Options,
}

#[derive(Default)]
struct Place {
    current: Mutex<Option<Arc<Connection>>>,
    /// Held while a connection is being opened.
    dial: Arc<tokio::sync::Mutex<Backoff>>,
}

#[derive(Default)]
struct Backoff {
    failures: u32,
    until: Option<Instant>,
    last: Option<Status>,
}

thread_local! {
    /// Which place of a group this thread uses, and which address comes next.
    static SEAT: usize = runtime::worker_index().unwrap_or_else(|| NEXT_SEAT.fetch_add(1, Ordering::Relaxed));
    static TURN: Cell<usize> = const { Cell::new(0) };
}

static NEXT_SEAT: AtomicUsize = AtomicUsize::new(0);

impl Pool {
    pub(super) fn new(addresses: Vec<Address>, options: Options) -> Pool {
        let places = (0..addresses.len() * options.connections).map(|_| Arc::default()).collect();
        Pool { addresses, places, options }
    }

    pub(super) fn timeout(&self) -> Option<Duration> {
        self.options.timeout
    }

    /// A connection that is ready now; the addresses take turns.
    #[inline]
    pub(super) fn ready(&self) -> Option<Arc<Connection>> {
        let seat = SEAT.with(|seat| *seat) % self.options.connections;
        if self.addresses.len() == 1 {
            return self.places[seat].usable();
        }
        let turn = TURN.replace(TURN.get().wrapping_add(1)) % self.addresses.len();
        self.places[turn * self.options.connections + seat].usable()
    }

    /// Opens the first connection.
    pub(super) async fn connect(&self) -> Result<()> {
        self.connection().await.map(drop)
    }

    /// A connection, opened if need be; every address is tried once.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>> {
        let seat = SEAT.with(|seat| *seat) % self.options.connections;
        let first = TURN.get();
        let mut last = None;
        for turn in first..first + self.addresses.len() {
            let at = turn % self.addresses.len();
            match self.open(at, at * self.options.connections + seat).await {
                Ok(connection) => return Ok(connection),
                Err(status) => last = Some(status),
            }
        }
        Err(last.unwrap_or_else(|| Status::invalid_argument("the channel has no address")))
    }

    async fn open(&self, address: usize, place: usize) -> Result<Arc<Connection>> {
        let place = &self.places[place];
        if let Some(connection) = place.usable() {
            return Ok(connection);
        }
        let mut backoff = place.dial.clone().lock_owned().await;
        if let Some(connection) = place.usable() {
            return Ok(connection);
        }
        if let (Some(until), Some(last)) = (backoff.until, &backoff.last) {
            if Instant::now() < until {
                return Err(last.clone());
            }
        }
        if Handle::try_current().is_err() {
            return Err(Status::failed_precondition(
                "no tokio runtime on this thread; call from switchboard::run, or use switchboard::blocking",
            ));
        }
        let (address, options, place) =
            (self.addresses[address].clone(), self.options.clone(), place.clone());
        // A task of its own: a caller with a short deadline must not begin again what it cannot finish.
        let dialled = tokio::spawn(async move {
            match net::dial(&address, options.connect_timeout).await {
                Ok(io) => {
                    let (connection, task) =
                        Connection::new(io, address.to_string(), options.limits.wire(), options.keepalive);
                    *place.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.clone());
                    *backoff = Backoff::default();
                    tokio::spawn(task);
                    Ok(connection)
                }
                Err(status) => {
                    backoff.failures += 1;
                    backoff.until = Some(Instant::now() + pause(backoff.failures, options.backoff_max));
                    backoff.last = Some(status.clone());
                    Err(status)
                }
            }
        });
        dialled.await.unwrap_or_else(|_| Err(Status::unavailable("the runtime ended while connecting")))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Calls in flight go on to their end; then their connections close.
        for place in &self.places {
            if let Some(connection) = place.current.lock().unwrap_or_else(PoisonError::into_inner).take() {
                connection.retire();
            }
        }
    }
}

impl Place {
    #[inline]
    fn usable(&self) -> Option<Arc<Connection>> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().filter(|connection| connection.is_usable()).cloned()
    }
}

/// Doubles with each failure up to `max`; between half of it and the whole, so that clients do not come in step.
fn pause(failures: u32, max: Duration) -> Duration {
    let whole = BACKOFF_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(max);
    let random = RandomState::new().hash_one(failures) % 1024;
    whole / 2 + whole.mul_f64(random as f64 / 2048.0)
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, address) in self.addresses.iter().enumerate() {
            write!(f, "{}{address}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_most_and_differ() {
        let max = Duration::from_secs(5);
        for failures in 1..40 {
            let pause = pause(failures, max);
            let whole = BACKOFF_MIN.saturating_mul(1 << (failures - 1).min(16)).min(max);
            assert!(pause >= whole / 2 && pause <= whole, "{failures}: {pause:?}");
        }
    }
}
