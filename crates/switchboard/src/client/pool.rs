//! The connections of a channel: a bounded group per address, shared by all callers.
//!
//! Each worker thread has its place in the group, so that a call and its connection live on one thread. A place
//! without a connection is filled by the first call that needs it; while that is under way others wait for it, and
//! after a failure calls fail at once until the back-off has passed.

use super::{
    Way,
    connection::{Connection, Ended, Task},
    options::Options,
};
use crate::{
    Compression, Result, Retry, Status,
    net::{self, Address, Io},
    runtime,
};
use std::{
    cell::{Cell, RefCell},
    fmt,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, sync::OwnedMutexGuard, task::JoinHandle};

/// The first pause after a failed connect; it doubles from there.
const BACKOFF_MIN: Duration = Duration::from_millis(50);

pub(super) struct Pool<C: Link = Connection> {
    addresses: Vec<Address>,
    /// For each address `connections` places.
    places: Vec<Arc<Place<C>>>,
    options: Options,
    /// What the pool is part of.
    way: Weak<Way>,
}

/// What a place holds: a connection that many callers share.
pub(super) trait Link: Send + Sync + Sized + 'static {
    /// Drives the connection and ends with it.
    type Task: Future<Output = Ended> + Send + 'static;

    /// Takes over an opened pipe to `address`.
    fn open(
        io: Box<dyn Io>,
        address: &Address,
        options: &Options,
        way: Weak<Way>,
    ) -> impl Future<Output = Result<(Arc<Self>, Self::Task)>> + Send;

    /// Whether new calls may use it.
    fn is_usable(&self) -> bool;

    /// Takes no further call; the connection closes when those in flight have ended.
    fn retire(&self);

    /// What this thread has found for the place of this key, or else what `find` finds.
    #[inline]
    fn near(_key: usize, find: impl FnOnce() -> Option<Arc<Self>>) -> Option<Arc<Self>> {
        find()
    }

    /// Ends once the server said what it takes, or the connection is over.
    fn settled(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

impl Link for Connection {
    type Task = Task;

    async fn open(
        io: Box<dyn Io>,
        address: &Address,
        options: &Options,
        way: Weak<Way>,
    ) -> Result<(Arc<Connection>, Task)> {
        Ok(Connection::new(io, address.to_string(), options, way))
    }

    async fn settled(&self) {
        poll_fn(|cx| self.poll_settled(cx)).await;
    }

    #[inline]
    fn is_usable(&self) -> bool {
        Connection::is_usable(self)
    }

    fn retire(&self) {
        Connection::retire(self);
    }

    #[inline]
    fn near(key: usize, find: impl FnOnce() -> Option<Arc<Connection>>) -> Option<Arc<Connection>> {
        NEAR.with_borrow_mut(|near| {
            // Places are some cache lines apart.
            let near = &mut near[key / 64 % NEAR_PLACES];
            // A connection that is usable is still that of its place: the next is only made when it is not.
            if near.0 == key
                && let Some(connection) = near.1.upgrade()
                && connection.is_usable()
            {
                return Some(connection);
            }
            let found = find()?;
            *near = (key, Arc::downgrade(&found));
            Some(found)
        })
    }
}

/// Places of which a thread remembers the connection.
const NEAR_PLACES: usize = 8;

struct Place<C> {
    current: Mutex<Option<Arc<C>>>,
    /// Held while a connection is being opened.
    dial: Arc<tokio::sync::Mutex<()>>,
    backoff: Mutex<Backoff>,
}

impl<C> Default for Place<C> {
    fn default() -> Self {
        Place { current: Mutex::default(), dial: Arc::default(), backoff: Mutex::default() }
    }
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
    /// Connections by the address of their place, found without a lock.
    static NEAR: RefCell<[(usize, Weak<Connection>); NEAR_PLACES]> =
        const { RefCell::new([const { (0, Weak::new()) }; NEAR_PLACES]) };
}

static NEXT_SEAT: AtomicUsize = AtomicUsize::new(0);

impl<C: Link> Pool<C> {
    pub(super) fn new(addresses: Vec<Address>, options: Options, way: Weak<Way>) -> Pool<C> {
        let places = (0..addresses.len() * options.connections).map(|_| Arc::default()).collect();
        Pool { addresses, places, options, way }
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// What every call brings.
    #[inline]
    pub(super) fn metadata(&self) -> crate::Metadata {
        self.options.metadata.0.clone()
    }

    pub(super) fn timeout(&self) -> Option<Duration> {
        self.options.timeout
    }

    /// How calls of this method are compressed.
    #[inline]
    pub(super) fn compression(&self, method: &str) -> Compression {
        self.options.compression.of(method)
    }

    /// A connection that is ready now; the addresses take turns.
    #[inline]
    pub(super) fn ready(&self) -> Option<Arc<C>> {
        let mut seat = SEAT.with(|seat| *seat);
        // A division costs as much as the rest.
        if seat >= self.options.connections {
            seat %= self.options.connections;
        }
        let mut at = seat;
        if self.addresses.len() > 1 {
            let turn = TURN.replace(TURN.get().wrapping_add(1)) % self.addresses.len();
            at += turn * self.options.connections;
        }
        let place = &self.places[at];
        C::near(Arc::as_ptr(place).addr(), || place.usable())
    }

    /// Opens the first connection.
    pub(super) async fn connect(&self) -> Result<()> {
        self.connection().await.map(drop)
    }

    /// A connection, opened if need be. One that is ready for any address is taken at once, so that an address that
    /// does not answer slows nobody down; else every address is tried, all at the same time.
    pub(super) async fn connection(&self) -> Result<Arc<C>> {
        let seat = SEAT.with(|seat| *seat) % self.options.connections;
        let (first, count) = (TURN.get(), self.addresses.len());
        let places = (0..count).map(|turn| (first + turn) % count);
        let places: Vec<_> =
            places.map(|at| (at, &self.places[at * self.options.connections + seat])).collect();
        if let Some(connection) = places.iter().find_map(|(_, place)| place.usable()) {
            for (address, place) in places {
                self.open_beside(address, place);
            }
            return Ok(connection);
        }
        let mut opening: Vec<_> =
            places.into_iter().map(|(address, place)| Box::pin(self.open(address, place))).collect();
        let mut last = None;
        poll_fn(|cx| {
            let mut at = 0;
            while let Some(open) = opening.get_mut(at) {
                match open.as_mut().poll(cx) {
                    Poll::Ready(Ok(connection)) => return Poll::Ready(Ok(connection)),
                    Poll::Ready(Err(status)) => {
                        last = Some(status);
                        drop(opening.swap_remove(at));
                    }
                    Poll::Pending => at += 1,
                }
            }
            match last.take_if(|_| opening.is_empty()) {
                Some(status) => Poll::Ready(Err(status)),
                None => Poll::Pending,
            }
        })
        .await
    }

    async fn open(&self, address: usize, place: &Arc<Place<C>>) -> Result<Arc<C>> {
        if let Some(connection) = place.usable() {
            return Ok(connection);
        }
        let dialling = place.dial.clone().lock_owned().await;
        if let Some(connection) = place.usable() {
            return Ok(connection);
        }
        if let Some(last) = place.backoff().pausing() {
            return Err(last);
        }
        if Handle::try_current().is_err() {
            return Err(Status::failed_precondition(
                "no tokio runtime on this thread; call from switchboard::run, or use switchboard::blocking",
            ));
        }
        let dialled = self.dial(address, place.clone(), dialling);
        dialled.await.unwrap_or_else(|_| {
            Err(Status::unavailable("the runtime ended while connecting, or the channel was cut"))
        })
    }

    /// Begins to open the connection of `place` without waiting for it, unless that is under way or has to pause.
    fn open_beside(&self, address: usize, place: &Arc<Place<C>>) {
        if place.usable().is_some() || place.backoff().pausing().is_some() || Handle::try_current().is_err() {
            return;
        }
        if let Ok(dialling) = place.dial.clone().try_lock_owned() {
            drop(self.dial(address, place.clone(), dialling));
        }
    }

    /// A task of its own: a caller with a short deadline must not begin again what it cannot finish.
    fn dial(
        &self,
        address: usize,
        place: Arc<Place<C>>,
        dialling: OwnedMutexGuard<()>,
    ) -> JoinHandle<Result<Arc<C>>> {
        let (address, options, way) =
            (self.addresses[address].clone(), self.options.clone(), self.way.clone());
        let cut = self.options.cut.clone();
        let dialled = crate::runtime::spawn(async move {
            let _dialling = dialling;
            if let Some(cut) = &options.cut {
                cut.check()?;
            }
            let opened = async {
                let io = net::dial(&address, &options.dialling, options.connect_timeout).await?;
                C::open(io, &address, &options, way).await
            };
            let (connection, task) =
                opened.await.inspect_err(|status| place.backoff().failed(status, options.backoff_max))?;
            let (at, max) = (place.clone(), options.backoff_max);
            let driven = crate::runtime::spawn(async move {
                // A server that accepts and closes has not answered either.
                match task.await {
                    Ended::Unheard(status) => at.backoff().failed(&status, max),
                    Ended::Heard => *at.backoff() = Backoff::default(),
                }
            });
            if let Some(cut) = &options.cut {
                cut.hold(driven.abort_handle());
            }
            if options.compression.is_on() {
                // One that says nothing gets plain messages.
                let _ = tokio::time::timeout(options.connect_timeout, connection.settled()).await;
            }
            *place.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.clone());
            Ok(connection)
        });
        if let Some(cut) = cut {
            cut.hold(dialled.abort_handle());
        }
        dialled
    }
}

#[cfg(test)]
impl<C: Link> Pool<C> {
    /// The connections that take calls now.
    pub(super) fn usable(&self) -> impl Iterator<Item = Arc<C>> {
        self.places.iter().filter_map(|place| place.usable())
    }
}

#[cfg(test)]
impl Pool {
    pub(super) fn left(&self) -> Vec<(&'static str, usize)> {
        self.usable().flat_map(|connection| connection.left()).collect()
    }
}

impl<C: Link> Drop for Pool<C> {
    fn drop(&mut self) {
        // Calls in flight go on to their end; then their connections close.
        for place in &self.places {
            if let Some(connection) = place.current.lock().unwrap_or_else(PoisonError::into_inner).take() {
                connection.retire();
            }
        }
    }
}

impl<C: Link> Place<C> {
    fn backoff(&self) -> MutexGuard<'_, Backoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn usable(&self) -> Option<Arc<C>> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().filter(|connection| connection.is_usable()).cloned()
    }
}

impl Backoff {
    fn failed(&mut self, status: &Status, max: Duration) {
        self.failures += 1;
        self.until = Some(crate::clock::now() + pause(self.failures, max));
        self.last = Some(status.clone().with_retry(Retry::Safe));
    }

    /// Why the last try failed, while the next has to wait.
    fn pausing(&self) -> Option<Status> {
        self.last.as_ref().filter(|_| self.until.is_some_and(|until| crate::clock::now() < until)).cloned()
    }
}

/// Doubles with each failure up to `max`; between half of it and the whole, so that clients do not come in step.
pub(crate) fn pause(failures: u32, max: Duration) -> Duration {
    let whole = BACKOFF_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(max);
    whole / 2 + whole.mul_f64(crate::clock::fraction() / 2.0)
}

impl<C: Link> fmt::Display for Pool<C> {
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
