//! Accepting connections, detecting their protocol, and starting their drivers.

mod speaking_first;

use super::{listening::Resolved, mismatch};
use bytes::BytesMut;
use std::{
    future::poll_fn,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::Poll,
    time::Duration,
};
#[cfg(feature = "tls")]
use switchboard_core::Limits;
use switchboard_core::{
    Peer, clock,
    metrics::{ConnectionCounters, ConnectionProtocol, PeerCount, next_id},
    runtime,
};
use switchboard_driver::{
    driver::{Accepted, DynConnection, LINGER, NativeConnection},
    serving::{Open, PluginConnectionCount, ServerState},
};
#[cfg(feature = "tls")]
use switchboard_net::net::tls::{self, Acceptor, Plaintext};
use switchboard_net::{
    connection::{Aging, Wakes},
    net::{Io, Listener, Pipe},
    plugin::PluginConnection,
};
#[cfg(feature = "http")]
use switchboard_wire::http2::server as http2;
use switchboard_wire::{
    WireId, WireSet,
    sniff::{self, Protocol, Sniffed},
    spec::ServerSetup,
};
#[cfg(feature = "tls")]
use tokio::io::AsyncWriteExt;
use tokio::{
    io::AsyncReadExt,
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

/// Pause after a failed accept, which usually means that there are no free file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Time limit for closing a TLS connection.
#[cfg(feature = "tls")]
const CLOSE: Duration = Duration::from_secs(1);
/// Buffer size of a connection before its protocol is detected.
const FIRST_BYTES: usize = 512;

/// State for HTTP connections, beside that of the server.
#[cfg(feature = "http")]
pub(super) type Http = Arc<switchboard_http::http::HttpState>;
#[cfg(not(feature = "http"))]
#[derive(Clone)]
pub(super) struct Http;

/// Connections that wait in the kernel when a server stops, as far as they are accepted.
const QUEUED_MAX: usize = 4096;
/// Time without a connection after which none waits: long enough for the runtime to look at the listener.
const QUEUED_PAUSE: Duration = Duration::from_millis(1);
/// Time for all of them. Callers that connect all the time do not hold up a stop.
const QUEUED_TIME: Duration = Duration::from_millis(100);

/// The tasks that accept connections. Dropping it ends them at once.
pub(super) struct Acceptors {
    /// True if the acceptors take the connections that wait in the kernel before they end.
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Acceptors {
    pub(super) fn new() -> Acceptors {
        Acceptors { stop: watch::Sender::new(false), tasks: Vec::new() }
    }

    /// Accepts connections of a listener until the server stops.
    pub(super) fn add(
        &mut self,
        listener: Listener,
        shared: Arc<ServerState>,
        http: Http,
        resolved: Resolved,
    ) {
        let task = run(listener, shared, http, resolved, self.stop.subscribe());
        self.tasks.push(runtime::spawn(task));
    }

    /// Ends the acceptors and closes their listeners. Connections that wait in the kernel are reset then: with
    /// `takes_queued`, they are accepted before, so that their calls get a response.
    pub(super) async fn end(self, takes_queued: bool) {
        self.stop.send_replace(takes_queued);
        for task in self.tasks {
            // An acceptor that panicked has ended, too.
            let _ = task.await;
        }
    }
}

/// Accepts connections until the server stops.
async fn run(
    mut listener: Listener,
    shared: Arc<ServerState>,
    http: Http,
    resolved: Resolved,
    mut stopped: watch::Receiver<bool>,
) {
    let resolved = Arc::new(resolved);
    let enter = |(pipe, address, socket): (Pipe, String, Option<SocketAddr>)| {
        let counted = shared.counts_sockets.then(|| Arc::new(ConnectionCounters::new(pipe.local(), socket)));
        let mut peer = Peer::connected(address, socket);
        peer.wires = resolved.wires;
        peer.counts = counted;
        peer.memory = Some(shared.memory.clone());
        peer.connection = next_id();
        peer.strict_fields = shared.strict_fields;
        peer.extensions = shared.extensions.clone();
        accept(pipe, peer, &shared, http.clone(), &resolved);
    };
    loop {
        let accepted = tokio::select! {
            biased;
            stop = stopped.changed() => {
                if stop.is_ok() && *stopped.borrow() {
                    accept_queued(&mut listener, enter).await;
                }
                return;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(accepted) => enter(accepted),
            Err(error) => {
                tracing::warn!("accept: {error}; trying again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Accepts the connections that wait in the kernel.
async fn accept_queued(listener: &mut Listener, enter: impl Fn((Pipe, String, Option<SocketAddr>))) {
    let end = clock::after(clock::now(), QUEUED_TIME);
    for _ in 0..QUEUED_MAX {
        match timeout(QUEUED_PAUSE, listener.accept()).await {
            Ok(Ok(accepted)) if clock::now() < end => enter(accepted),
            _ => return,
        }
    }
}

fn accept(pipe: Pipe, mut peer: Peer, shared: &Arc<ServerState>, http: Http, resolved: &Arc<Resolved>) {
    shared.metrics.accepted.fetch_add(1, Ordering::Relaxed);
    if !shared.guarding.admits(&peer) {
        return;
    }
    let wakes = Arc::new(Wakes::default());
    let key = peer.connection;
    {
        let mut open = shared.open();
        let connections = open.len() + shared.plugins.connections();
        if connections as u64 >= shared.live.connections_max.value() {
            tracing::warn!(peer = %peer.address, "closed: {connections} connections are open (connections_max)");
            return;
        }
        let (socket, address) = (peer.counts.clone(), peer.address.as_str().into());
        let (wakes, began) = (wakes.clone(), clock::now());
        open.insert(key, Open { wakes, abort_handle: None, socket, address, began, protocol: None });
    }
    let tally = shared.metrics.peers.enter(peer.socket.map(|socket| socket.ip()), &peer.address);
    peer.tally = Some(tally.clone());
    let (listed, resolved) = (Listed { key, shared: shared.clone(), tally }, resolved.clone());
    let abort_handle = runtime::deal(move |shard| async move {
        match pipe.adopt() {
            Ok(io) => serve(io, peer, listed.shared.clone(), http, &resolved, wakes, shard).await,
            Err(error) => tracing::warn!(peer = %peer.address, "closed: {error}"),
        }
        drop(listed);
    });
    match shared.open().get_mut(&key) {
        Some(open) => open.abort_handle = Some(abort_handle),
        // All connections were aborted meanwhile, or this one has ended already.
        None => abort_handle.abort(),
    }
}

/// Removes the connection from the list when its task ends for any reason.
struct Listed {
    key: u64,
    shared: Arc<ServerState>,
    tally: Arc<PeerCount>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.tally.leave();
        let open = self.shared.open().remove(&self.key);
        if let Some(protocol) = open.as_ref().and_then(|open| open.protocol) {
            self.shared.metrics.end(protocol);
        }
        if let Some(socket) = open.and_then(|open| open.socket) {
            self.shared.last_started.advance(socket.last_started());
        }
    }
}

/// A connection after protocol detection.
struct Detected {
    protocol: Protocol,
    io: Box<dyn Io>,
    /// Bytes read for the detection.
    first: BytesMut,
    peer: Peer,
    /// The server has sent its first bytes, before TLS.
    is_greeted: bool,
}

/// Detects the protocol of the peer and runs it to the end.
async fn serve(
    io: Box<dyn Io>,
    peer: Peer,
    shared: Arc<ServerState>,
    http: Http,
    resolved: &Resolved,
    wakes: Arc<Wakes>,
    shard: usize,
) {
    // Boxed, like every branch except the native wire: otherwise idle connections would reserve space for all
    // of them.
    let Some(detected) = Box::pin(begin(io, peer, &shared, resolved, &wakes)).await else { return };
    if !resolved.enables(detected.protocol) && !serves_pages(&http, detected.protocol) {
        return Box::pin(mismatch::disabled(
            detected.io,
            detected.protocol,
            &detected.peer,
            &shared,
            resolved,
        ))
        .await;
    }
    if let Some(protocol) = connection_protocol(detected.protocol) {
        shared.speaks(detected.peer.connection, protocol);
    }
    let Ok(connected) = shared.guarding.connect(&detected.peer) else { return };
    match detected.protocol {
        Protocol::Wire(WireId::NATIVE) => {
            let connect = NativeConnection::new;
            let (connection, aging) =
                speak(WireId::NATIVE, detected, connect, &shared, resolved, wakes, shard);
            match aging {
                None => connection.await,
                // Boxed, or every connection would reserve space for the timers.
                Some(aging) => Box::pin(aging.until_old(connection)).await,
            }
        }
        // Other wires are boxed, since most connections are native.
        Protocol::Wire(wire) => {
            let Some(server) = wire.spec().server else {
                return hand_over(wire, detected, connected, &shared, resolved, shard);
            };
            let (encodings, table) = (shared.compression.encodings(), shared.table.clone());
            let connect = |accepted: Accepted| {
                let limits = accepted.settings.wire();
                DynConnection::new(accepted, server(ServerSetup { limits, table, encodings }))
            };
            run_erased(speak(wire, detected, connect, &shared, resolved, wakes, shard)).await;
        }
        #[cfg(feature = "http")]
        Protocol::Http2 if resolved.http2_machine && resolved.wires.has(WireId::GRPC) => {
            let connect = |accepted: Accepted| http2_machine(accepted, &shared);
            run_erased(speak(WireId::GRPC, detected, connect, &shared, resolved, wakes, shard)).await;
        }
        #[cfg(feature = "http")]
        Protocol::Http1 | Protocol::Http2 => {
            let settings = resolved.limits.clone();
            let Detected { io, first: input, peer, .. } = detected;
            let accepted = Accepted { io, input, peer, settings, shared, wakes, shard };
            switchboard_http::http::serve(accepted, http).await;
        }
        #[cfg(not(feature = "http"))]
        Protocol::Http1 | Protocol::Http2 => {}
        Protocol::Tls => Box::pin(mismatch::tls(detected.io, &detected.peer, &shared)).await,
    }
}

/// Creates a connection of the HTTP/2 machine, which serves gRPC.
#[cfg(feature = "http")]
fn http2_machine(accepted: Accepted, shared: &ServerState) -> DynConnection {
    let (limits, settings) = (accepted.settings.wire(), &accepted.settings);
    let interval = settings.ping_interval_min().as_millis() as u64;
    let stall = settings.idle_timeout().as_millis() as u64;
    let options = http2::ServerOptions::default().with_ping_interval_ms(interval).with_stall_ms(stall);
    let encodings = shared.compression.encodings();
    let machine = http2::Server::new(limits, shared.table.clone(), encodings, options);
    DynConnection::new(accepted, Box::new(machine)).over_http2()
}

/// Hands a connection over to the plugin that serves its wire.
fn hand_over<C: Send + 'static>(
    wire: WireId,
    detected: Detected,
    connected: C,
    shared: &Arc<ServerState>,
    resolved: &Resolved,
    worker: usize,
) {
    let Detected { io, first, mut peer, is_greeted, .. } = detected;
    let (Some(plugin), Some(tally)) = (shared.plugins.of(wire), peer.tally.clone()) else { return };
    peer.wire = Some(wire);
    let guard = PluginConnectionCount::new(shared.clone(), peer.connection, wire, tally, connected);
    let connection = PluginConnection::new(io, first, wire, peer, resolved.limits.clone());
    plugin.server.connect(connection.worker(worker).greeted(is_greeted).guard(guard));
}

/// Creates the connection of a sans-io wire, with its aging.
fn speak<C>(
    id: WireId,
    detected: Detected,
    connect: impl FnOnce(Accepted) -> C,
    shared: &Arc<ServerState>,
    resolved: &Resolved,
    wakes: Arc<Wakes>,
    shard: usize,
) -> (C, Option<Aging>) {
    let Detected { io, first: input, mut peer, .. } = detected;
    peer.wire = Some(id);
    let settings = resolved.limits.clone();
    let aging = settings.connection_age().map(|age| Aging {
        end: clock::after(clock::now(), age),
        grace: settings.drain_timeout(),
        wakes: wakes.clone(),
    });
    let accepted = Accepted { io, input, peer, settings, shared: shared.clone(), wakes, shard };
    (connect(accepted), aging)
}

/// Runs the connection of any wire but the native one.
fn run_erased(
    (connection, aging): (DynConnection, Option<Aging>),
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    match aging {
        None => Box::pin(connection),
        Some(aging) => Box::pin(aging.until_old(connection)),
    }
}

/// Returns whether the server has pages for a connection of this protocol, whatever wires it enables.
#[cfg(feature = "http")]
fn serves_pages(http: &Http, protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Http1 | Protocol::Http2) && http.serves_pages()
}

#[cfg(not(feature = "http"))]
fn serves_pages(_http: &Http, _protocol: Protocol) -> bool {
    false
}

/// Returns the protocol label of counters; `None` for connections that are rejected.
fn connection_protocol(protocol: Protocol) -> Option<ConnectionProtocol> {
    match protocol {
        Protocol::Http1 if cfg!(feature = "http") => Some(ConnectionProtocol::HTTP1),
        Protocol::Http2 if cfg!(feature = "http") => Some(ConnectionProtocol::HTTP2),
        Protocol::Http1 | Protocol::Http2 | Protocol::Tls => None,
        Protocol::Wire(wire) => Some(ConnectionProtocol::of(wire)),
    }
}

/// Detects the protocol, inside TLS if the peer uses it; returns `None` if the connection is over.
async fn begin(
    mut io: Box<dyn Io>,
    peer: Peer,
    shared: &ServerState,
    resolved: &Resolved,
    wakes: &Wakes,
) -> Option<Detected> {
    if let Some(wire) = resolved.speaks_first {
        return speaking_first::begin(wire, io, peer, shared, resolved, wakes).await;
    }
    let mut first = BytesMut::with_capacity(FIRST_BYTES);
    let protocol = first_bytes(&mut io, &mut first, &peer, shared, resolved, wakes).await?;
    #[cfg(feature = "tls")]
    if let Some(acceptor) = &resolved.acceptor {
        if protocol == Protocol::Tls {
            // Boxed, or every connection would reserve space for a handshake.
            return Box::pin(inside(acceptor, io, first, peer, shared, resolved, wakes)).await;
        }
        if acceptor.plaintext() == Plaintext::Refused {
            mismatch::plaintext(io, protocol, &peer, shared, &resolved.limits).await;
            return None;
        }
    }
    Some(Detected { protocol, io, first, peer, is_greeted: false })
}

/// Runs the TLS handshake and detects the protocol inside.
#[cfg(feature = "tls")]
async fn inside(
    acceptor: &Acceptor,
    io: Box<dyn Io>,
    first: BytesMut,
    mut peer: Peer,
    shared: &ServerState,
    resolved: &Resolved,
    wakes: &Wakes,
) -> Option<Detected> {
    let (mut io, agreed) = secure(acceptor, io, first, &mut peer, shared, resolved, wakes).await?;
    let mut first = BytesMut::with_capacity(FIRST_BYTES);
    let protocol = first_bytes(&mut io, &mut first, &peer, shared, resolved, wakes).await;
    let Some(protocol) = protocol.filter(|protocol| is_agreed(*protocol, agreed.as_deref())) else {
        // The protocol differs from the one agreed by ALPN, or no bytes arrived.
        close(&mut io).await;
        return None;
    };
    Some(Detected { protocol, io, first, peer, is_greeted: false })
}

/// Runs the TLS handshake; returns the pipe inside, and the protocol that ALPN has selected.
#[cfg(feature = "tls")]
async fn secure(
    acceptor: &Acceptor,
    io: Box<dyn Io>,
    first: BytesMut,
    peer: &mut Peer,
    shared: &ServerState,
    resolved: &Resolved,
    wakes: &Wakes,
) -> Option<(Box<dyn Io>, Option<Vec<u8>>)> {
    peer.address = peer.address.replacen("tcp://", "tls://", 1);
    let tls::Accepted { io, protocol, identity, suite } =
        handshake(acceptor, io, first, peer, shared, &resolved.limits, wakes).await?;
    peer.identity = identity;
    if let (Some(counts), Some(suite)) = (&peer.counts, suite) {
        // This is the only place that sets it.
        let _ = counts.tls.set(suite);
    }
    Some((io, protocol))
}

/// Closes TLS orderly, as far as the peer takes part.
#[cfg(feature = "tls")]
async fn close(io: &mut Box<dyn Io>) {
    // Failure is irrelevant: the peer may be gone.
    let _ = timeout(CLOSE, io.shutdown()).await;
}

/// Waits for the first bytes and returns their protocol; `None` if the connection must be closed.
async fn first_bytes(
    io: &mut Box<dyn Io>,
    first: &mut BytesMut,
    peer: &Peer,
    shared: &ServerState,
    resolved: &Resolved,
    wakes: &Wakes,
) -> Option<Protocol> {
    let limits = &resolved.limits;
    let peeked = until_drained(peek(io, first, resolved.wires), shared, wakes);
    let unknown = || shared.metrics.unknown_protocol.fetch_add(1, Ordering::Relaxed);
    match timeout(limits.sniff_timeout(), peeked).await {
        Ok(Some(protocol)) => return Some(protocol),
        Ok(None) => {
            if !first.is_empty() {
                unknown();
                let bytes = &first[..first.len().min(4)];
                tracing::debug!(peer = %peer.address, "closed: the first bytes {bytes:02x?} match no enabled protocol");
            }
        }
        Err(_) => {
            unknown();
            tracing::debug!(peer = %peer.address, "closed: no protocol detected within {:?} (sniff_timeout)", limits.sniff_timeout());
        }
    }
    None
}

/// Runs the TLS handshake; returns `None` if the connection is over.
#[cfg(feature = "tls")]
async fn handshake(
    acceptor: &Acceptor,
    io: Box<dyn Io>,
    first: BytesMut,
    peer: &Peer,
    shared: &ServerState,
    limits: &Limits,
    wakes: &Wakes,
) -> Option<tls::Accepted> {
    let accepted = until_drained(async { Some(acceptor.accept(io, first).await) }, shared, wakes);
    match timeout(limits.handshake_timeout(), accepted).await {
        Ok(accepted) => match accepted? {
            Ok(accepted) => return Some(accepted),
            Err(refused) => {
                tracing::debug!(peer = %peer.address, "closed: {}", refused.why);
                mismatch::send_and_linger(refused.io, &[]).await;
            }
        },
        Err(_) => {
            acceptor.gave_up();
            let limit = limits.handshake_timeout();
            tracing::debug!(peer = %peer.address, "closed: TLS handshake not done within {limit:?} (handshake_timeout)");
        }
    }
    None
}

/// Returns whether a protocol is the one selected by ALPN. TLS inside TLS is not supported.
#[cfg(feature = "tls")]
fn is_agreed(protocol: Protocol, chosen: Option<&[u8]>) -> bool {
    match chosen {
        Some(tls::ALPN_HTTP1) => protocol == Protocol::Http1,
        Some(tls::ALPN_HTTP2) => protocol == Protocol::Http2,
        Some(chosen) => matches!(protocol, Protocol::Wire(wire) if wire.spec().alpn == Some(chosen)),
        None => protocol != Protocol::Tls,
    }
}

/// Waits for the first bytes of a peer. When the server drains, waits [`LINGER`] more: the peer may have sent its first
/// call before it could notice, and gets a response or the drain notice of its protocol.
async fn until_drained<T>(
    begin: impl Future<Output = Option<T>>,
    shared: &ServerState,
    wakes: &Wakes,
) -> Option<T> {
    let mut begin = pin!(begin);
    let mut linger = None;
    poll_fn(|cx| {
        wakes.take(cx.waker(), &mut Vec::new());
        match begin.as_mut().poll(cx) {
            Poll::Pending if shared.draining.load(Ordering::Relaxed) => {
                let linger = linger.get_or_insert_with(|| Box::pin(sleep(LINGER)));
                linger.as_mut().poll(cx).map(|()| None)
            }
            polled => polled,
        }
    })
    .await
}

/// Reads until the protocol is detected; returns `None` if it is unknown or the peer is gone.
async fn peek(io: &mut Box<dyn Io>, first: &mut BytesMut, enabled: WireSet) -> Option<Protocol> {
    loop {
        match sniff::sniff(first, enabled) {
            Sniffed::Protocol(protocol) => return Some(protocol),
            Sniffed::Unknown => return None,
            Sniffed::More => {}
        }
        if !matches!(io.read_buf(first).await, Ok(n) if n > 0) {
            return None;
        }
    }
}
