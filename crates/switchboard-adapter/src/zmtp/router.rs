//! A ROUTER of the application: messages of peers, and messages to a peer by its identity.

use super::{adapter::ZmtpAdapter, feed::Command};
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    fmt,
    hash::{BuildHasher, RandomState},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use switchboard_core::Result;
use switchboard_fanout::{Handle, SubscriberId};
use switchboard_wire::{
    Status,
    zmtp::patterns::{Added, Routes},
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, TryAcquireError, futures::Notified, mpsc};

/// Limits of a [`ZmtpRouter`], and of a [`ZmtpDealer`](super::ZmtpDealer).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ZmtpRouterOptions {
    /// Received messages that wait for the application; default 1,000. Peers are not read meanwhile.
    pub received_messages_max: usize,
    /// Bytes of received messages that wait for the application; default 16 MiB. A larger message waits alone.
    pub received_bytes_max: usize,
    /// Bytes of messages that wait for one peer to read; default 512 KiB. Each message counts as at least 1 KiB, and a
    /// larger one waits alone.
    pub peer_bytes_max: usize,
}

impl Default for ZmtpRouterOptions {
    fn default() -> Self {
        ZmtpRouterOptions {
            received_messages_max: 1_000,
            received_bytes_max: 16 << 20,
            peer_bytes_max: 512 << 10,
        }
    }
}

/// A ROUTER: receives messages with the identity of their peer, and sends messages to a peer by its identity.
///
/// Peers are those of the types that [`Zmtp::router`](super::Zmtp::router) maps to it. A peer without an identity gets
/// a generated one. Identities are not authenticated: a second peer with the identity of a connected one is closed.
///
/// ```no_run
/// use switchboard_adapter::{SocketType, Zmtp, ZmtpRouterOptions};
/// use switchboard_message::Bus;
///
/// # async fn serve() -> switchboard_core::Result<()> {
/// let (zmtp, mut router) = Zmtp::new(Bus::new()).router([SocketType::Dealer], ZmtpRouterOptions::default());
/// // … Server::new().plugin(zmtp)
/// # drop(zmtp);
/// while let Some(message) = router.recv().await {
///     router.send(&message.identity, message.frames).await?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct ZmtpRouter {
    received: mpsc::Receiver<Queued>,
    sender: ZmtpRouterSender,
}

/// Sends messages to the peers of a [`ZmtpRouter`]. Cheap to clone.
#[derive(Clone)]
pub struct ZmtpRouterSender {
    peers: Arc<Peers>,
}

/// A message of a peer of a [`ZmtpRouter`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ZmtpRouterMessage {
    /// The identity of the peer.
    pub identity: Bytes,
    /// The frames, as the peer has sent them: those of a REQ begin with an empty one, which its reply needs as well.
    pub frames: Vec<Bytes>,
}

/// A message that waits for the application.
pub(super) struct Queued {
    pub(super) message: ZmtpRouterMessage,
    _room: OwnedSemaphorePermit,
}

/// The part of a router that plugins have.
#[derive(Clone)]
pub(super) struct Inlet {
    sender: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
    room_kib: usize,
    pub(super) peers: Arc<Peers>,
}

/// The connected peers of a router.
pub(super) struct Peers {
    table: Mutex<Table>,
    peer_kib_max: usize,
    /// Maximum number of peers: 1 for a PAIR.
    peers_max: usize,
    /// Notified when a peer is added.
    added: Notify,
}

struct Table {
    routes: Routes<u64>,
    /// By the number in `routes`.
    peers: BTreeMap<u64, Route>,
    next: u64,
    /// The peer to which a DEALER has sent its last message.
    last: u64,
}

/// A connected peer.
#[derive(Clone)]
pub(super) struct Route {
    engine: Handle<ZmtpAdapter>,
    id: SubscriberId,
    pub(super) room: Arc<Semaphore>,
}

impl Route {
    /// Sends a message for which there is room; returns it if the engine has ended.
    pub(super) async fn send(
        &self,
        frames: Vec<Bytes>,
        permit: OwnedSemaphorePermit,
    ) -> std::result::Result<(), Vec<Bytes>> {
        match self.engine.send(Command::Route(self.id, frames, permit)).await {
            Err(Command::Route(_, frames, _)) => Err(frames),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Sends a message for which there is room; returns it if the mailbox of the engine is full.
    pub(super) fn try_send(
        &self,
        frames: Vec<Bytes>,
        permit: OwnedSemaphorePermit,
    ) -> std::result::Result<(), Vec<Bytes>> {
        let sent = self.engine.try_send(Command::Route(self.id, frames, permit));
        match sent.map_err(switchboard_fanout::NotSent::into_command) {
            Err(Command::Route(_, frames, _)) => Err(frames),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

impl ZmtpRouter {
    /// Creates a router, and the part of it that its plugin has.
    pub(super) fn new(options: ZmtpRouterOptions) -> (ZmtpRouter, Inlet) {
        ZmtpRouter::with_peers_max(options, usize::MAX)
    }

    /// Creates a router with at most `peers_max` peers.
    pub(super) fn with_peers_max(options: ZmtpRouterOptions, peers_max: usize) -> (ZmtpRouter, Inlet) {
        let (sender, received) = mpsc::channel(options.received_messages_max.max(1));
        // No peer can guess the generated identity of another one.
        let first = RandomState::new().hash_one(0) as u32;
        let table = Table { routes: Routes::new(first), peers: BTreeMap::new(), next: 0, last: 0 };
        let (peer_kib_max, added) = (kib(options.peer_bytes_max), Notify::new());
        let peers = Arc::new(Peers { table: Mutex::new(table), peer_kib_max, peers_max, added });
        let room_kib = kib(options.received_bytes_max);
        let inlet =
            Inlet { sender, room: Arc::new(Semaphore::new(room_kib)), room_kib, peers: peers.clone() };
        (ZmtpRouter { received, sender: ZmtpRouterSender { peers } }, inlet)
    }

    /// Returns the next message of any peer; `None` when the plugin and its servers are gone. Messages of a peer are in
    /// their order. Peers are not read while the application does not receive: see
    /// [`received_messages_max`](ZmtpRouterOptions::received_messages_max).
    ///
    /// Cancel safe: a dropped `recv` loses no message.
    pub async fn recv(&mut self) -> Option<ZmtpRouterMessage> {
        self.received.recv().await.map(|queued| queued.message)
    }

    /// Returns the queue of messages, and the peers, for a DEALER.
    pub(super) fn into_parts(self) -> (mpsc::Receiver<Queued>, Arc<Peers>) {
        (self.received, self.sender.peers)
    }

    /// Returns a handle that sends to the peers.
    pub fn sender(&self) -> ZmtpRouterSender {
        self.sender.clone()
    }

    /// Sends a message to a peer; see [`ZmtpRouterSender::send`].
    ///
    /// # Errors
    /// Returns the errors of [`ZmtpRouterSender::send`].
    pub async fn send(&self, identity: &[u8], frames: Vec<Bytes>) -> Result<()> {
        self.sender.send(identity, frames).await
    }
}

impl ZmtpRouterSender {
    /// Sends a message to the peer with this identity, as soon as the peer has room. It is lost if the peer disconnects
    /// before it has read it.
    ///
    /// Cancel safe: a dropped `send` has sent nothing, or the whole message.
    ///
    /// # Errors
    /// `NotFound` if no peer with this identity is connected, `InvalidArgument` for a message without frames.
    pub async fn send(&self, identity: &[u8], frames: Vec<Bytes>) -> Result<()> {
        let route = self.peers.find(identity)?;
        let permits = self.peers.permits(&frames)?;
        let room = route.room.clone().acquire_many_owned(permits).await;
        let sent = route.send(frames, room.map_err(|_| unknown(identity))?).await;
        sent.map_err(|_| unknown(identity))
    }

    /// Sends a message to the peer with this identity, unless too much waits for the peer.
    ///
    /// # Errors
    /// Returns the errors of [`send`](Self::send); `ResourceExhausted` if the peer has no room.
    pub fn try_send(&self, identity: &[u8], frames: Vec<Bytes>) -> Result<()> {
        let Route { engine, id, room } = self.peers.find(identity)?;
        let permits = self.peers.permits(&frames)?;
        let permit = room.try_acquire_many_owned(permits).map_err(|why| match why {
            TryAcquireError::Closed => unknown(identity),
            TryAcquireError::NoPermits => {
                let (identity, max) = (identity.escape_ascii(), self.peers.peer_kib_max);
                let text = format!(
                    "peer \"{identity}\" reads too slowly: {max} KiB of messages wait for it (peer_bytes_max)"
                );
                Status::resource_exhausted(text)
            }
        })?;
        let sent = engine.try_send(Command::Route(id, frames, permit));
        sent.map_err(|refused| Status::resource_exhausted(refused.to_string()))
    }

    /// Returns whether a peer with this identity is connected.
    pub fn is_connected(&self, identity: &[u8]) -> bool {
        self.peers.lock().routes.find(identity).is_some()
    }

    /// Returns the number of connected peers.
    pub fn peers(&self) -> usize {
        self.peers.len()
    }
}

impl Peers {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, identity: &[u8]) -> Result<Route> {
        let table = self.lock();
        let route = table.routes.find(identity).and_then(|number| table.peers.get(&number));
        route.cloned().ok_or_else(|| unknown(identity))
    }

    /// Returns true for a PAIR, which has one peer.
    pub(super) fn is_single(&self) -> bool {
        self.peers_max == 1
    }

    /// Returns the number of peers.
    pub(super) fn len(&self) -> usize {
        self.lock().routes.len()
    }

    /// Returns the peers in turn, after the one that had the last message of a DEALER.
    pub(super) fn in_turn(&self) -> Vec<(u64, Route)> {
        let table = self.lock();
        let after = table.peers.range((Bound::Excluded(table.last), Bound::Unbounded));
        let turn = after.chain(table.peers.range(..=table.last));
        turn.map(|(number, route)| (*number, route.clone())).collect()
    }

    /// Returns the next peer that has room, after the one that had the last message of a DEALER, and its room. Looks at
    /// one peer if it has room, and at all of them if none has.
    pub(super) fn next_with_room(&self, permits: u32) -> Option<(u64, Route, OwnedSemaphorePermit)> {
        let table = self.lock();
        let after = table.peers.range((Bound::Excluded(table.last), Bound::Unbounded));
        after.chain(table.peers.range(..=table.last)).find_map(|(number, route)| {
            let permit = route.room.clone().try_acquire_many_owned(permits).ok()?;
            Some((*number, route.clone(), permit))
        })
    }

    /// Records which peer had the last message of a DEALER.
    pub(super) fn set_last(&self, number: u64) {
        self.lock().last = number;
    }

    /// Returns a future that is ready when a peer is added after this call.
    pub(super) fn added(&self) -> Notified<'_> {
        self.added.notified()
    }

    /// Returns the KiB of room that a message needs.
    ///
    /// # Errors
    /// `InvalidArgument` for a message without frames.
    pub(super) fn permits(&self, frames: &[Bytes]) -> Result<u32> {
        if frames.is_empty() {
            return Err(Status::invalid_argument(
                "a message has no frames; send at least one, which may be empty",
            ));
        }
        Ok(permits(frames, self.peer_kib_max))
    }

    /// Adds a peer; returns its number and its identity.
    ///
    /// # Errors
    /// The text of the error, if another peer has the identity, or if there are as many peers as there may be.
    pub(super) fn add(
        &self,
        identity: &Bytes,
        engine: Handle<ZmtpAdapter>,
        id: SubscriberId,
    ) -> std::result::Result<(u64, Bytes), String> {
        let mut table = self.lock();
        if table.routes.len() >= self.peers_max {
            return Err("PAIR has a peer already; the type talks to exactly one".to_owned());
        }
        let number = table.next;
        match table.routes.add(identity, number) {
            Added::Added(identity) => {
                table.next = number.wrapping_add(1);
                let room = Arc::new(Semaphore::new(self.peer_kib_max));
                table.peers.insert(number, Route { engine, id, room });
                drop(table);
                self.added.notify_waiters();
                Ok((number, identity))
            }
            Added::Ignored | Added::Replaced(..) => {
                Err(format!("another connected peer has the identity \"{}\"", identity.escape_ascii()))
            }
        }
    }

    /// Removes a peer, and ends the sends that wait for it.
    pub(super) fn remove(&self, number: u64, identity: &[u8]) {
        let mut table = self.lock();
        if table.routes.remove(identity, number)
            && let Some(route) = table.peers.remove(&number)
        {
            route.room.close();
        }
    }
}

impl Inlet {
    /// Passes a message to the application. Returns what waits if it has no room.
    ///
    /// # Errors
    /// The application has dropped its router.
    pub(super) fn deliver(
        &self,
        message: ZmtpRouterMessage,
    ) -> std::result::Result<Option<ZmtpRouterMessage>, RouterGone> {
        if self.sender.is_closed() {
            return Err(RouterGone);
        }
        let permits = permits(&message.frames, self.room_kib);
        let Ok(room) = self.room.clone().try_acquire_many_owned(permits) else { return Ok(Some(message)) };
        match self.sender.try_send(Queued { message, _room: room }) {
            Ok(()) => Ok(None),
            Err(mpsc::error::TrySendError::Full(queued)) => Ok(Some(queued.message)),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(RouterGone),
        }
    }

    /// Passes a message to the application as soon as it has room.
    pub(super) async fn deliver_later(&self, message: ZmtpRouterMessage) {
        let permits = permits(&message.frames, self.room_kib);
        let Ok(room) = self.room.clone().acquire_many_owned(permits).await else { return };
        // Without a router the peer is closed with its next message.
        let _ = self.sender.send(Queued { message, _room: room }).await;
    }
}

/// The application has dropped its router.
#[derive(Debug)]
pub(super) struct RouterGone;

fn kib(bytes: usize) -> usize {
    bytes.div_ceil(1024).clamp(1, Semaphore::MAX_PERMITS)
}

/// Returns the KiB that a message counts as.
fn permits(frames: &[Bytes], max: usize) -> u32 {
    let bytes: usize = frames.iter().map(Bytes::len).sum();
    u32::try_from(kib(bytes).min(max)).unwrap_or(u32::MAX)
}

fn unknown(identity: &[u8]) -> Status {
    let identity = &identity[..identity.len().min(255)];
    Status::not_found(format!("no connected peer has the identity \"{}\"", identity.escape_ascii()))
}

impl fmt::Debug for ZmtpRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZmtpRouter").field("peers", &self.sender.peers()).finish_non_exhaustive()
    }
}

impl fmt::Debug for ZmtpRouterSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZmtpRouterSender").field("peers", &self.peers()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Inlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inlet").finish_non_exhaustive()
    }
}
