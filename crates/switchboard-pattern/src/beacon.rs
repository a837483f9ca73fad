//! Beacon: nodes of one network discover each other by UDP, as in ZRE ([RFC 36](https://rfc.zeromq.org/spec/36/)) and
//! Zyre.
//!
//! A node sends a beacon of 22 bytes at an interval: its UUID, and the port at which it accepts connections of ZeroMQ.
//! The address is that of the datagram. A node that ends sends port 0.
//!
//! Nothing is sent before an address was named: [`BeaconBuilder::broadcast`] for the network, as ZRE does, or
//! [`BeaconBuilder::to`]. Beacons are not authenticated: anyone in the network can announce a node, so connect with a
//! mechanism that authenticates it.

mod frame;
mod peers;

pub use frame::BeaconFrame;
pub use peers::{BeaconPeer, LeaveReason};

use crate::{Error, ErrorKind, Result, task::Task};
use peers::{Heard, Peers};
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use switchboard_core::clock;
use tokio::{
    net::UdpSocket,
    sync::broadcast::{self, error::RecvError},
    time::MissedTickBehavior,
};

/// Port of beacons, assigned by IANA.
pub const BEACON_PORT: u16 = 5670;

/// Events that a receiver may lag behind.
const EVENTS_MAX: usize = 1024;
/// Addresses to which beacons are sent.
const TARGETS_MAX: usize = 64;

/// A node that sends beacons, receives those of others, and knows which nodes are present.
///
/// ```
/// use std::time::Duration;
/// use switchboard_pattern::beacon::{Beacon, BeaconEvent};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let listener = Beacon::builder(5555).listen("127.0.0.1:0".parse()?).start().await?;
/// let mut events = listener.events();
/// let node = Beacon::builder(7777)
///     .listen("127.0.0.1:0".parse()?)
///     .to(listener.address()) // on a network: .broadcast()
///     .interval(Duration::from_millis(20))
///     .start()
///     .await?;
/// let Some(BeaconEvent::Joined(peer)) = events.next().await else { panic!("no peer") };
/// assert_eq!((peer.id, peer.endpoint()), (node.id(), "tcp://127.0.0.1:7777".to_owned()));
/// node.stop().await; // announces its end
/// assert!(matches!(events.next().await, Some(BeaconEvent::Left(..))));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Beacon {
    shared: Arc<Shared>,
    address: SocketAddr,
    targets: Vec<SocketAddr>,
    frame: BeaconFrame,
    task: Task,
}

#[derive(Debug)]
struct Shared {
    socket: UdpSocket,
    state: Mutex<State>,
    events: broadcast::Sender<BeaconEvent>,
}

#[derive(Debug)]
struct State {
    peers: Peers,
    stats: BeaconStats,
}

/// Event of a [`Beacon`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum BeaconEvent {
    /// A peer is present, or has another address than before.
    Joined(BeaconPeer),
    /// The receiver of events was too slow: compare with [`Beacon::peers`].
    Lagged(u64),
    /// A peer is gone.
    Left(BeaconPeer, LeaveReason),
}

/// Receives the events of a [`Beacon`]. A slow receiver loses the oldest of 1024 events.
#[derive(Debug)]
pub struct BeaconEvents(broadcast::Receiver<BeaconEvent>);

impl BeaconEvents {
    /// Returns the next event; `None` once the beacon has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<BeaconEvent> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(count)) => Some(BeaconEvent::Lagged(count)),
            Err(RecvError::Closed) => None,
        }
    }
}

/// Counters of a [`Beacon`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct BeaconStats {
    /// Peers that are present.
    pub peers: usize,
    /// Beacons that were sent, one for each address.
    pub sent: u64,
    /// Beacons that could not be sent, such as without a network.
    pub failed: u64,
    /// Beacons of peers that were received.
    pub received: u64,
    /// Datagrams that are no beacon.
    pub invalid: u64,
    /// Beacons of further peers beyond `peers_max`.
    pub refused: u64,
}

impl Beacon {
    /// Returns the settings of a node that accepts connections at a port.
    pub fn builder(port: u16) -> BeaconBuilder {
        BeaconBuilder {
            port,
            id: None,
            listen: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, BEACON_PORT),
            is_broadcast: false,
            targets: Vec::new(),
            interval: Duration::from_secs(1),
            expire_after: Duration::from_secs(30),
            peers_max: 1024,
        }
    }

    /// Returns the UUID of this node.
    pub fn id(&self) -> [u8; 16] {
        self.frame.id
    }

    /// Returns the address at which beacons are received.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the peers that are present, in the order of their UUIDs.
    pub fn peers(&self) -> Vec<BeaconPeer> {
        self.shared.lock().peers.present()
    }

    /// Returns a receiver of the events from now on.
    pub fn events(&self) -> BeaconEvents {
        BeaconEvents(self.shared.events.subscribe())
    }

    /// Returns the counters.
    pub fn stats(&self) -> BeaconStats {
        let state = self.shared.lock();
        BeaconStats { peers: state.peers.len(), ..state.stats }
    }

    /// Announces the end of this node. Dropping the beacon does so as well, if the network takes the datagram at once.
    pub async fn stop(mut self) {
        let end = BeaconFrame { port: 0, ..self.frame };
        // Not again when the value is dropped.
        let targets = std::mem::take(&mut self.targets);
        // No beacon follows the end.
        self.task.abort();
        self.task.ended().await;
        self.shared.send(end, &targets).await;
    }
}

impl Drop for Beacon {
    fn drop(&mut self) {
        self.task.abort();
        let end = BeaconFrame { port: 0, ..self.frame }.to_bytes();
        for target in &self.targets {
            // Best effort: peers expire a silent node.
            let _ = self.shared.socket.try_send_to(&end, *target);
        }
    }
}

/// Settings of a [`Beacon`].
#[derive(Debug)]
#[must_use = "a beacon does not run before `start`"]
pub struct BeaconBuilder {
    port: u16,
    id: Option<[u8; 16]>,
    listen: SocketAddrV4,
    is_broadcast: bool,
    targets: Vec<SocketAddr>,
    interval: Duration,
    expire_after: Duration,
    peers_max: usize,
}

impl BeaconBuilder {
    /// Sets the UUID; default a random one.
    pub fn id(mut self, id: [u8; 16]) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets the address at which beacons are received; default port 5670 at all addresses, which the nodes of a machine
    /// share.
    pub fn listen(mut self, address: SocketAddrV4) -> Self {
        self.listen = address;
        self
    }

    /// Sends beacons to all nodes of the network, at the port of [`listen`](Self::listen). Off by default.
    pub fn broadcast(mut self) -> Self {
        self.is_broadcast = true;
        self
    }

    /// Sends beacons to another address: of a node, or of a directed broadcast. At most 64.
    pub fn to(mut self, address: SocketAddr) -> Self {
        self.targets.push(address);
        self
    }

    /// Sets the pause between two beacons; default 1 s, at least 10 ms.
    pub fn interval(mut self, pause: Duration) -> Self {
        self.interval = pause.max(Duration::from_millis(10));
        self
    }

    /// Sets the time without a beacon after which a peer is gone; default 30 s.
    pub fn expire_after(mut self, limit: Duration) -> Self {
        self.expire_after = limit;
        self
    }

    /// Sets the number of peers; default 1,024. Beacons of further ones are counted and dropped.
    pub fn peers_max(mut self, peers: usize) -> Self {
        self.peers_max = peers;
        self
    }

    /// Opens the socket, and starts the node on the runtime of this thread.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] for port 0, which means the end of a node, and above 64 addresses;
    /// [`ErrorKind::Socket`] if the address cannot be bound.
    pub async fn start(mut self) -> Result<Beacon> {
        if self.port == 0 {
            let text = "a node with port 0 accepts no connections; name the port of its socket";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let (socket, address) = self.open().map_err(|error| {
            Error::io(&format!("beacons cannot be received at udp://{}", self.listen), error)
        })?;
        if self.is_broadcast {
            self.targets.push((Ipv4Addr::BROADCAST, address.port()).into());
        }
        if self.targets.len() > TARGETS_MAX {
            let text = format!("beacons go to {} addresses; the limit is {TARGETS_MAX}", self.targets.len());
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let id = self.id.unwrap_or_else(|| {
            let random = u128::from(clock::random()) << 64 | u128::from(clock::random());
            // Version 4 and the variant of RFC 9562.
            (random & !(0xF << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62).to_be_bytes()
        });
        let frame = BeaconFrame { id, port: self.port };
        let peers = Peers::new(id, self.peers_max, self.expire_after);
        let state = Mutex::new(State { peers, stats: BeaconStats::default() });
        let shared = Arc::new(Shared { socket, state, events: broadcast::channel(EVENTS_MAX).0 });
        let task = Task::spawn(run(shared.clone(), frame, self.targets.clone(), self.interval));
        Ok(Beacon { shared, address, targets: self.targets, frame, task })
    }

    fn open(&self) -> std::io::Result<(UdpSocket, SocketAddr)> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        // The nodes of a machine share a port, and each receives the broadcasts. A port of the system's choice is not
        // shared: it could be that of another node.
        let is_shared = self.listen.port() != 0;
        socket.set_reuse_address(is_shared)?;
        #[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos"))))]
        socket.set_reuse_port(is_shared)?;
        socket.set_broadcast(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SocketAddr::from(self.listen).into())?;
        let socket = UdpSocket::from_std(socket.into())?;
        let address = socket.local_addr()?;
        Ok((socket, address))
    }
}

async fn run(shared: Arc<Shared>, frame: BeaconFrame, targets: Vec<SocketAddr>, interval: Duration) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // One byte more than a beacon: a longer datagram is recognised.
    let mut buffer = [0; BeaconFrame::BYTES + 1];
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                shared.send(frame, &targets).await;
                shared.expire();
            }
            received = shared.socket.recv_from(&mut buffer) => match received {
                Ok((length, from)) => shared.hear(buffer.get(..length).unwrap_or_default(), from),
                // Such as the report that an earlier beacon reached no port.
                Err(error) => {
                    tracing::debug!(%error, "a beacon was not received");
                    tokio::task::yield_now().await;
                }
            },
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn emit(&self, event: BeaconEvent) {
        // Without a receiver the event has no reader.
        let _ = self.events.send(event);
    }

    async fn send(&self, frame: BeaconFrame, targets: &[SocketAddr]) {
        for target in targets {
            let sent = self.socket.send_to(&frame.to_bytes(), *target).await;
            let mut state = self.lock();
            match sent {
                Ok(_) => state.stats.sent += 1,
                Err(_) => state.stats.failed += 1,
            }
        }
    }

    fn hear(&self, datagram: &[u8], from: SocketAddr) {
        let mut state = self.lock();
        let Some(frame) = BeaconFrame::from_bytes(datagram) else {
            state.stats.invalid += 1;
            return;
        };
        let event = match state.peers.hear(frame, from.ip(), clock::now()) {
            Heard::Own => return,
            Heard::Full => {
                state.stats.refused += 1;
                return;
            }
            Heard::Known => None,
            Heard::Joined(peer) => Some(BeaconEvent::Joined(peer)),
            Heard::Left(peer) => Some(BeaconEvent::Left(peer, LeaveReason::Announced)),
        };
        state.stats.received += 1;
        event.into_iter().for_each(|event| self.emit(event));
    }

    fn expire(&self) {
        let mut state = self.lock();
        for peer in state.peers.expire(clock::now()) {
            self.emit(BeaconEvent::Left(peer, LeaveReason::Silent));
        }
    }
}
