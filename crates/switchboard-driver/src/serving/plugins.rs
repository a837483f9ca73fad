//! The plugins of a running server, and the number of connections that each has.

use super::ServerState;
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use switchboard_core::{
    metrics::{ConnectionProtocol, PeerCount},
    runtime,
};
use switchboard_net::plugin::PluginServer;
use switchboard_wire::WireId;

/// The plugins of a server.
#[derive(Debug, Default)]
pub struct Plugins {
    running: OnceLock<Vec<RunningPlugin>>,
    /// Number of connections that plugins have.
    connections: AtomicUsize,
}

/// A plugin of a running server.
pub struct RunningPlugin {
    /// Its name.
    pub name: &'static str,
    /// Its wires, with the number of connections of each.
    pub wires: Vec<(WireId, AtomicUsize)>,
    /// The part that serves the connections.
    pub server: Arc<dyn PluginServer>,
}

impl fmt::Debug for RunningPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningPlugin").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Plugins {
    /// Sets the plugins, once, before connections are accepted.
    pub fn set(&self, plugins: Vec<RunningPlugin>) {
        // A server starts once.
        let _ = self.running.set(plugins);
    }

    /// Returns all plugins.
    pub fn all(&self) -> &[RunningPlugin] {
        self.running.get().map_or(&[], Vec::as_slice)
    }

    /// Returns the number of connections of all plugins.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of connections of each wire that has any.
    pub fn by_wire(&self) -> impl Iterator<Item = (WireId, usize)> {
        let counts = self.all().iter().flat_map(RunningPlugin::counts);
        counts.map(|(_, wire, count)| (wire, count)).filter(|(_, count)| *count > 0)
    }

    /// Returns the plugin that serves a wire.
    pub fn of(&self, wire: WireId) -> Option<&RunningPlugin> {
        self.all().iter().find(|plugin| plugin.count(wire).is_some())
    }

    /// Makes all plugins end their connections within `limit`.
    pub fn drain(&self, limit: Duration) {
        self.all().iter().for_each(|plugin| plugin.server.drain(limit));
    }

    /// Closes the connections of all plugins at once.
    pub fn abort(&self) {
        self.all().iter().for_each(|plugin| plugin.server.abort());
    }
}

impl RunningPlugin {
    /// Returns the number of connections of each of its wires, with its name.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, WireId, usize)> {
        self.wires.iter().map(|(wire, count)| (self.name, *wire, count.load(Ordering::Relaxed)))
    }

    fn count(&self, wire: WireId) -> Option<&AtomicUsize> {
        self.wires.iter().find(|(own, _)| *own == wire).map(|(_, count)| count)
    }
}

/// Counts a connection that a plugin has, until it is dropped.
pub struct PluginConnectionCount<C> {
    shared: Arc<ServerState>,
    wire: WireId,
    /// The label under which the connection counts as open; `None` if all connections were aborted meanwhile.
    protocol: Option<ConnectionProtocol>,
    tally: Arc<PeerCount>,
    /// Runs the hooks for the end of the connection when it is dropped.
    _connected: C,
    _worker: Option<runtime::ConnectionCount>,
}

impl<C> fmt::Debug for PluginConnectionCount<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginConnectionCount").field("wire", &self.wire).finish_non_exhaustive()
    }
}

impl<C> PluginConnectionCount<C> {
    /// Begins to count the connection with this number. The task that accepted it has counted its protocol, and leaves
    /// the end to this value.
    pub fn new(
        shared: Arc<ServerState>,
        connection: u64,
        wire: WireId,
        tally: Arc<PeerCount>,
        connected: C,
    ) -> Self {
        shared.plugins.connections.fetch_add(1, Ordering::Relaxed);
        if let Some(count) = shared.plugins.of(wire).and_then(|plugin| plugin.count(wire)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let protocol = shared.open().get_mut(&connection).and_then(|open| open.protocol.take());
        tally.stay();
        PluginConnectionCount {
            shared,
            wire,
            protocol,
            tally,
            _connected: connected,
            _worker: runtime::count_connection(),
        }
    }
}

impl<C> Drop for PluginConnectionCount<C> {
    fn drop(&mut self) {
        let plugins = &self.shared.plugins;
        plugins.connections.fetch_sub(1, Ordering::Relaxed);
        if let Some(count) = plugins.of(self.wire).and_then(|plugin| plugin.count(self.wire)) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(protocol) = self.protocol {
            self.shared.metrics.end(protocol);
        }
        self.tally.leave();
    }
}
