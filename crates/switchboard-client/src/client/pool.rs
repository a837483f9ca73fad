//! The connections of a channel: a bounded group per address, shared by all callers.
//!
//! Each worker thread has its slot in the group, so that a call and its connection run on one thread. The first call
//! that needs a slot without a connection opens one; concurrent calls wait for it, and after a failure calls fail at
//! once until the back-off has passed.

use super::{
    connection::{Connection, ConnectionEnd, Task},
    kind::ChannelKind,
    options::Options,
};
use std::{
    cell::{Cell, RefCell},
    fmt,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};
use switchboard_core::{Compression, Result, backoff, runtime};
use switchboard_net::net::{self, Address, Io};
use switchboard_wire::{Retry, Status};
use tokio::{runtime::Handle, sync::OwnedMutexGuard, task::JoinHandle};

pub(super) struct Pool<C: Link = Connection> {
    addresses: Vec<Address>,
    /// `connections` slots for each address.
    slots: Vec<Arc<ConnectionSlot<C>>>,
    options: Options,
    /// The channel that owns the pool.
    owner: Weak<dyn ChannelKind>,
}

/// A connection in a slot, which many callers share.
pub(super) trait Link: Send + Sync + Sized + 'static {
    /// Future that drives the connection and ends with it.
    type Task: Future<Output = ConnectionEnd> + Send + 'static;

    /// Creates a connection over an opened transport to `address`.
    fn open(
        io: Box<dyn Io>,
        address: &Address,
        options: &Options,
        owner: Weak<dyn ChannelKind>,
    ) -> impl Future<Output = Result<(Arc<Self>, Self::Task)>> + Send;

    /// Returns true when new calls may use it.
    fn is_usable(&self) -> bool;

    /// Rejects further calls; the connection closes when those in flight have ended.
    fn retire(&self);

    /// Returns the connection that this thread has cached for the slot with this key, or else the result of `find`.
    #[inline]
    fn cached(_key: usize, find: impl FnOnce() -> Option<Arc<Self>>) -> Option<Arc<Self>> {
        find()
    }

    /// Completes when the server has sent its settings, or the connection has ended.
    fn settings_received(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

impl Link for Connection {
    type Task = Task;

    async fn open(
        io: Box<dyn Io>,
        address: &Address,
        options: &Options,
        owner: Weak<dyn ChannelKind>,
    ) -> Result<(Arc<Connection>, Task)> {
        Ok(Connection::new(io, address, options, owner))
    }

    async fn settings_received(&self) {
        poll_fn(|cx| self.poll_settings(cx)).await;
    }

    #[inline]
    fn is_usable(&self) -> bool {
        Connection::is_usable(self)
    }

    fn retire(&self) {
        Connection::retire(self);
    }

    #[inline]
    fn cached(key: usize, find: impl FnOnce() -> Option<Arc<Connection>>) -> Option<Arc<Connection>> {
        CACHED.with_borrow_mut(|cached| {
            // Slots are some cache lines apart.
            let cached = &mut cached[key / 64 % CACHED_SLOTS];
            // A usable connection is still that of its slot: the next one is only opened when it is not.
            if cached.0 == key
                && let Some(connection) = cached.1.upgrade()
                && connection.is_usable()
            {
                return Some(connection);
            }
            let found = find()?;
            *cached = (key, Arc::downgrade(&found));
            Some(found)
        })
    }
}

/// Number of slots whose connection a thread caches.
const CACHED_SLOTS: usize = 8;

struct ConnectionSlot<C> {
    current: Mutex<Option<Arc<C>>>,
    /// True when the pool was dropped: a connection that is being opened closes. Written under the lock of `current`.
    dropped: AtomicBool,
    /// Held while a connection is being opened.
    dial: Arc<tokio::sync::Mutex<()>>,
    backoff: Mutex<Backoff>,
}

impl<C> Default for ConnectionSlot<C> {
    fn default() -> Self {
        ConnectionSlot {
            current: Mutex::default(),
            dropped: AtomicBool::new(false),
            dial: Arc::default(),
            backoff: Mutex::default(),
        }
    }
}

#[derive(Default)]
struct Backoff {
    failures: u32,
    until: Option<Instant>,
    last: Option<Status>,
}

// Of the thread: a channel is cloned and shared by threads, and each of them uses its own connections without a lock.
thread_local! {
    /// Index of the slot in each group that this thread uses, and the counter that selects the address.
    static SLOT_INDEX: usize = runtime::worker_index().unwrap_or_else(|| {
        NEXT_SLOT_INDEX.fetch_add(1, Ordering::Relaxed)
    });
    static NEXT_ADDRESS: Cell<usize> = const { Cell::new(0) };
    /// Connections by the address of their slot, found without a lock.
    static CACHED: RefCell<[(usize, Weak<Connection>); CACHED_SLOTS]> =
        const { RefCell::new([const { (0, Weak::new()) }; CACHED_SLOTS]) };
}

static NEXT_SLOT_INDEX: AtomicUsize = AtomicUsize::new(0);

impl<C: Link> Pool<C> {
    pub(super) fn new(addresses: Vec<Address>, options: Options, owner: Weak<dyn ChannelKind>) -> Pool<C> {
        let slots = (0..addresses.len() * options.connections).map(|_| Arc::default()).collect();
        Pool { addresses, slots, options, owner }
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// Metadata that every call has.
    #[inline]
    pub(super) fn metadata(&self) -> switchboard_wire::Metadata {
        self.options.metadata.0.clone()
    }

    pub(super) fn timeout(&self) -> Option<Duration> {
        self.options.timeout
    }

    /// Compression of calls of this method.
    #[inline]
    pub(super) fn compression(&self, method: &str) -> Compression {
        self.options.compression.of(method)
    }

    #[cfg(feature = "auth")]
    /// Adds the hosts of its servers, and those that they may name for second connections.
    pub(super) fn add_hosts(&self, hosts: &mut Vec<String>) {
        hosts.extend(self.addresses.iter().map(|address| match address {
            Address::Tcp(host, _)
            | Address::Tls(host, _)
            | Address::WebSocket(host, ..)
            | Address::WebSocketTls(host, ..) => host.clone(),
            // Memory and Unix sockets are on this machine.
            _ => "localhost".to_owned(),
        }));
        hosts.extend(self.options.file_hosts.iter().cloned());
    }

    /// Returns a connection that is ready now; the addresses are used in turn.
    #[inline]
    pub(super) fn ready(&self) -> Option<Arc<C>> {
        let mut slot_index = SLOT_INDEX.with(|slot_index| *slot_index);
        // A division costs as much as the rest.
        if slot_index >= self.options.connections {
            slot_index %= self.options.connections;
        }
        let mut at = slot_index;
        if self.addresses.len() > 1 {
            let turn = NEXT_ADDRESS.replace(NEXT_ADDRESS.get().wrapping_add(1)) % self.addresses.len();
            at += turn * self.options.connections;
        }
        let slot = &self.slots[at];
        C::cached(Arc::as_ptr(slot).addr(), || slot.usable())
    }

    /// Opens the first connection.
    pub(super) async fn connect(&self) -> Result<()> {
        self.connection().await.map(drop)
    }

    /// Returns a connection, opened if needed. A ready connection to any address is used at once, so that an address
    /// that does not respond delays no call; otherwise all addresses are tried at the same time.
    pub(super) async fn connection(&self) -> Result<Arc<C>> {
        let slot_index = SLOT_INDEX.with(|slot_index| *slot_index) % self.options.connections;
        let (first, count) = (NEXT_ADDRESS.get(), self.addresses.len());
        let slots = (0..count).map(|turn| (first + turn) % count);
        let slots: Vec<_> =
            slots.map(|at| (at, &self.slots[at * self.options.connections + slot_index])).collect();
        if let Some(connection) = slots.iter().find_map(|(_, slot)| slot.usable()) {
            for (address, slot) in slots {
                self.open_beside(address, slot);
            }
            return Ok(connection);
        }
        let mut opening: Vec<_> =
            slots.into_iter().map(|(address, slot)| Box::pin(self.open(address, slot))).collect();
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

    async fn open(&self, address: usize, slot: &Arc<ConnectionSlot<C>>) -> Result<Arc<C>> {
        if let Some(connection) = slot.usable() {
            return Ok(connection);
        }
        let dialling = slot.dial.clone().lock_owned().await;
        if let Some(connection) = slot.usable() {
            return Ok(connection);
        }
        if let Some(last) = slot.backoff().pausing() {
            return Err(last);
        }
        if Handle::try_current().is_err() {
            return Err(Status::failed_precondition(
                "no tokio runtime on this thread; call from switchboard::run, or use switchboard::blocking",
            ));
        }
        let dialled = self.dial(address, slot.clone(), dialling);
        dialled.await.unwrap_or_else(|_| {
            Err(Status::unavailable(
                "the runtime ended while connecting, or the connections of the channel were aborted",
            ))
        })
    }

    /// Starts opening the connection of `slot` without waiting for it, unless it is being opened or in back-off.
    fn open_beside(&self, address: usize, slot: &Arc<ConnectionSlot<C>>) {
        if slot.usable().is_some() || slot.backoff().pausing().is_some() || Handle::try_current().is_err() {
            return;
        }
        if let Ok(dialling) = slot.dial.clone().try_lock_owned() {
            drop(self.dial(address, slot.clone(), dialling));
        }
    }

    /// Connects in its own task, so that a caller with a short deadline does not abort the attempt.
    fn dial(
        &self,
        address: usize,
        slot: Arc<ConnectionSlot<C>>,
        dialling: OwnedMutexGuard<()>,
    ) -> JoinHandle<Result<Arc<C>>> {
        let (address, options, owner) =
            (self.addresses[address].clone(), self.options.clone(), self.owner.clone());
        let aborter = self.options.aborter.clone();
        let dialled = switchboard_core::runtime::spawn(async move {
            let _dialling = dialling;
            if let Some(aborter) = &options.aborter {
                aborter.check()?;
            }
            let opened = async {
                let io = net::dial(&address, &options.dialling, options.connect_timeout).await?;
                C::open(io, &address, &options, owner).await
            };
            let (connection, task) =
                opened.await.inspect_err(|status| slot.backoff().failed(status, options.backoff_max))?;
            let (at, max) = (slot.clone(), options.backoff_max);
            let driven = switchboard_core::runtime::spawn(async move {
                // A server that accepts and closes without a response counts as failed.
                match task.await {
                    ConnectionEnd::Silent(status) => at.backoff().failed(&status, max),
                    ConnectionEnd::Responded => *at.backoff() = Backoff::default(),
                }
            });
            if let Some(aborter) = &options.aborter {
                aborter.track(driven.abort_handle());
            }
            if options.compression.is_on() {
                // A server that sends no settings gets uncompressed messages.
                let _ = tokio::time::timeout(options.connect_timeout, connection.settings_received()).await;
            }
            slot.set(&connection);
            Ok(connection)
        });
        if let Some(aborter) = aborter {
            aborter.track(dialled.abort_handle());
        }
        dialled
    }
}

#[cfg(any(test, feature = "simulation"))]
impl<C: Link> Pool<C> {
    /// The connections that take calls now.
    pub(super) fn usable(&self) -> impl Iterator<Item = Arc<C>> {
        self.slots.iter().filter_map(|slot| slot.usable())
    }
}

impl<C: Link> Drop for Pool<C> {
    fn drop(&mut self) {
        // Calls in flight continue to their end; then their connections close.
        for slot in &self.slots {
            let mut current = slot.current.lock().unwrap_or_else(PoisonError::into_inner);
            slot.dropped.store(true, Ordering::Relaxed);
            if let Some(connection) = current.take() {
                connection.retire();
            }
        }
    }
}

impl<C: Link> ConnectionSlot<C> {
    fn backoff(&self) -> MutexGuard<'_, Backoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the connection of the slot; when the pool was dropped meanwhile, the connection closes.
    fn set(&self, connection: &Arc<C>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if self.dropped.load(Ordering::Relaxed) {
            connection.retire();
        } else {
            *current = Some(connection.clone());
        }
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
        self.until = Some(switchboard_core::clock::after(
            switchboard_core::clock::now(),
            backoff::pause(self.failures, backoff::CONNECT_MIN, max),
        ));
        self.last = Some(status.clone().with_retry(Retry::Safe));
    }

    /// The error of the last attempt, while the next one has to wait.
    fn pausing(&self) -> Option<Status> {
        self.last
            .as_ref()
            .filter(|_| self.until.is_some_and(|until| switchboard_core::clock::now() < until))
            .cloned()
    }
}

impl<C: Link> fmt::Display for Pool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, address) in self.addresses.iter().enumerate() {
            write!(f, "{}{address}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}
