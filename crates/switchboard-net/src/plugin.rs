//! Plugins of servers: wires, HTTP paths and services of another crate.
//!
//! A [`Plugin`] names its wires. A server detects them on its listeners as it detects all others, applies its rules for
//! connections (addresses, hooks, TLS, allowed wires, the limit of connections), and hands each connection over.
//! Services and [routes](Route) of a plugin are calls like all others.

mod route;

mod services;

pub use services::{ServiceCall, ServiceResponse, Services};

pub use crate::net::{MessageTranslation, WebSocketMessages};

use crate::net::Io;
use bytes::BytesMut;
pub use route::{Route, RouteBody, RouteHandler, RouteHead, RouteRequest, RouteResponse};
use std::{any::Any, fmt, future::Future, io, pin::Pin, sync::Arc, time::Duration};
use switchboard_core::{Limits, Peer, counters::CounterSource, memory::MemoryBudget, service::DynService};
use switchboard_wire::{Metadata, WireId, spec::WireSpec};

/// Adds wires, services and HTTP paths to servers. One plugin may be added to several servers.
pub trait Plugin: Send + Sync + 'static {
    /// Returns its name on pages and in messages: lower-case letters, `bus`.
    fn name(&self) -> &'static str;

    /// Returns the wires whose connections it takes. Each has a matcher of first bytes, or its server
    /// [speaks first](WireSpec::speaks_first), and no server machine.
    fn wires(&self) -> Vec<&'static WireSpec> {
        Vec::new()
    }

    /// Returns services for the server, as `Server::add` adds them. Called once for each server to which the plugin is
    /// added.
    fn services(&self) -> Vec<DynService> {
        Vec::new()
    }

    /// Returns HTTP paths for the server, which a server without the feature `http` ignores. Called once for each
    /// server that starts.
    fn routes(&self) -> Vec<Route> {
        Vec::new()
    }

    /// Returns counters for the metrics and the admin pages of the server: its own, and those of what it serves, such
    /// as topics. Called once for each server to which the plugin is added.
    fn counters(&self) -> Vec<Arc<dyn CounterSource>> {
        Vec::new()
    }

    /// Begins to serve the connections of a server. Called once for each server that starts, inside its runtime.
    ///
    /// The default is for plugins without wires that need not know when the server ends.
    ///
    /// # Errors
    /// The server does not start.
    fn start(&self, _context: PluginContext) -> io::Result<Arc<dyn PluginServer>> {
        Ok(Arc::new(WithoutWires))
    }
}

/// The server of a plugin without wires.
struct WithoutWires;

impl PluginServer for WithoutWires {}

/// Resources of a server that its plugins share.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PluginContext {
    /// The memory that the server may hold for its peers.
    pub memory: Arc<MemoryBudget>,
    /// The limits of the server.
    pub limits: Limits,
    /// Set if the server checks the credentials of its callers: a plugin must not be a way around them.
    pub has_auth: bool,
    /// The services of the server, for calls of the plugin's peers.
    pub services: Arc<dyn Services>,
}

impl PluginContext {
    /// Creates a context without services; servers do so.
    pub fn new(memory: Arc<MemoryBudget>, limits: Limits) -> PluginContext {
        PluginContext { memory, limits, has_auth: false, services: Arc::new(services::NoServices) }
    }

    /// Sets the services that the plugin may call.
    #[must_use]
    pub fn services(mut self, services: Arc<dyn Services>) -> PluginContext {
        self.services = services;
        self
    }

    /// Sets whether the server checks the credentials of its callers.
    #[must_use]
    pub fn has_auth(mut self, has_auth: bool) -> PluginContext {
        self.has_auth = has_auth;
        self
    }
}

/// The part of a plugin that serves the connections of one server. No method may block. A plugin without wires gets no
/// connections; `drain` and `abort` are called as well.
pub trait PluginServer: Send + Sync + 'static {
    /// Takes a connection. Called on the worker that has accepted it. The default closes it, for plugins without wires.
    fn connect(&self, _connection: PluginConnection) {}

    /// Returns the first bytes of a server that [speaks first](WireSpec::speaks_first), which are sent before the TLS
    /// handshake of a listener with TLS. Other connections are handed over without them. The default is none: peers
    /// begin with the handshake.
    fn greeting(&self, _wire: WireId, _requires_tls: bool) -> Vec<u8> {
        Vec::new()
    }

    /// Checks the [options](Limits::plugin_options) of a listener for this plugin. Called for each listener, before it
    /// accepts connections. The default accepts none.
    ///
    /// # Errors
    /// The server does not start.
    fn check_listener(&self, _limits: &Limits) -> Result<(), String> {
        Err("the plugin has no options of listeners".to_owned())
    }

    /// Accepts a WebSocket of a wire by the sub-protocols that its client offers, whatever its path, if its messages
    /// are no bytes of a connection; `None` if none of them is one of this plugin. The default is none. Called for
    /// WebSockets that offer no sub-protocol of the server itself.
    ///
    /// # Errors
    /// The text for a client that must be refused.
    fn websocket(
        &self,
        _wire: WireId,
        _path: &str,
        _subprotocols: &str,
    ) -> Option<Result<WebSocketMessages, String>> {
        None
    }

    /// Accepts a WebSocket of a wire by its path, if its messages are no bytes of a connection; `None` if the path is
    /// not one of the wire. The default is none. Called for WebSockets that offer no sub-protocol.
    ///
    /// # Errors
    /// The response to a client that must be refused.
    fn websocket_at(
        &self,
        _wire: WireId,
        _head: &RouteHead,
    ) -> Option<Result<WebSocketMessages, WebSocketRefusal>> {
        None
    }

    /// Begins to end: notifies the peers, ends calls that have no end of their own, and closes the connections that are
    /// left after at most `limit`. Called once, after the last connection.
    fn drain(&self, _limit: Duration) {}

    /// Closes all connections at once.
    fn abort(&self) {}

    /// Returns at most `max` connections, from a position on, for a page.
    fn list(&self, _from: ListPosition, _max: usize) -> ConnectionList<'_> {
        Box::pin(std::future::ready(ConnectionPage::default()))
    }
}

/// The response to a client whose WebSocket is refused.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct WebSocketRefusal {
    /// The HTTP status, 400 to 599.
    pub status: u16,
    /// The body, a line of text.
    pub text: String,
}

impl WebSocketRefusal {
    /// Creates a response.
    pub fn new(status: u16, text: impl Into<String>) -> WebSocketRefusal {
        WebSocketRefusal { status, text: text.into() }
    }
}

/// A page of the connections of a plugin.
pub type ConnectionList<'a> = Pin<Box<dyn Future<Output = ConnectionPage> + Send + 'a>>;

/// A position in the list of the connections of a plugin.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ListPosition {
    /// The worker.
    pub worker: usize,
    /// The record in its engine.
    pub record: u32,
}

impl ListPosition {
    /// Creates a position.
    pub fn new(worker: usize, record: u32) -> ListPosition {
        ListPosition { worker, record }
    }
}

/// Some of the connections of a plugin.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ConnectionPage {
    /// The connections.
    pub rows: Vec<ConnectionRow>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<ListPosition>,
}

impl ConnectionPage {
    /// Creates a page.
    pub fn new(rows: Vec<ConnectionRow>, next: Option<ListPosition>) -> ConnectionPage {
        ConnectionPage { rows, next }
    }
}

/// A connection of a plugin, for pages.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ConnectionRow {
    /// Its number in its engine: record and generation.
    pub number: String,
    /// The worker that drives it.
    pub worker: usize,
    /// The address of the peer, if it has one.
    pub address: Option<String>,
    /// Sources of entries that it reads.
    pub sources: usize,
    /// Bytes that are held for it alone.
    pub held_bytes: usize,
    /// Set if its socket is full.
    pub blocked: bool,
}

impl ConnectionRow {
    /// Creates a row without counts.
    pub fn new(number: String, worker: usize) -> ConnectionRow {
        ConnectionRow { number, worker, address: None, sources: 0, held_bytes: 0, blocked: false }
    }
}

/// A connection that a server hands over to a plugin.
#[non_exhaustive]
pub struct PluginConnection {
    /// The bytes of the connection.
    pub io: Box<dyn Io>,
    /// The bytes that were read from it already, to detect its wire.
    pub first: BytesMut,
    /// The detected wire.
    pub wire: WireId,
    /// The other end, with its identity if there is TLS.
    pub peer: Peer,
    /// The limits of the listener.
    pub limits: Arc<Limits>,
    /// The worker on which it was accepted.
    pub worker: usize,
    /// Set if the [greeting](PluginServer::greeting) was sent.
    pub is_greeted: bool,
    /// Set if the bytes are those of messages in a WebSocket.
    pub is_websocket: bool,
    /// The headers of the handshake of a WebSocket, such as cookies; empty on other connections.
    pub metadata: Metadata,
    /// Dropped when the connection has ended: until then the server counts it.
    pub guard: Box<dyn Any + Send>,
}

impl PluginConnection {
    /// Creates a connection that nothing counts.
    pub fn new(
        io: Box<dyn Io>,
        first: BytesMut,
        wire: WireId,
        peer: Peer,
        limits: Arc<Limits>,
    ) -> PluginConnection {
        let (worker, guard) = (0, Box::new(()));
        PluginConnection {
            io,
            first,
            wire,
            peer,
            limits,
            worker,
            is_greeted: false,
            is_websocket: false,
            metadata: Metadata::new(),
            guard,
        }
    }

    /// Sets the worker on which it was accepted.
    #[must_use]
    pub fn worker(mut self, worker: usize) -> PluginConnection {
        self.worker = worker;
        self
    }

    /// Sets whether the [greeting](PluginServer::greeting) was sent.
    #[must_use]
    pub fn greeted(mut self, is_greeted: bool) -> PluginConnection {
        self.is_greeted = is_greeted;
        self
    }

    /// Sets that the bytes are those of messages in a WebSocket, whose handshake had these headers.
    #[must_use]
    pub fn websocket(mut self, metadata: Metadata) -> PluginConnection {
        (self.is_websocket, self.metadata) = (true, metadata);
        self
    }

    /// Sets the value that is dropped when the connection has ended.
    #[must_use]
    pub fn guard(mut self, guard: impl Any + Send) -> PluginConnection {
        self.guard = Box::new(guard);
        self
    }
}

impl fmt::Debug for PluginConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginConnection")
            .field("wire", &self.wire)
            .field("peer", &self.peer.address)
            .finish_non_exhaustive()
    }
}
