//! Plugins: wires, services and HTTP paths of other crates.

use super::{Server, listening::Resolved};
use std::sync::{Arc, atomic::AtomicUsize};
use switchboard_core::Error;
use switchboard_driver::serving::{PluginServices, RunningPlugin, ServerState};
use switchboard_guard::dispatch::Guarded;
#[cfg(feature = "http")]
use switchboard_http::http::PluginRoute;
use switchboard_net::plugin::{Plugin, PluginContext};
use switchboard_wire::WireId;

/// A plugin of a server, with the numbers of its wires.
pub(super) struct AddedPlugin {
    plugin: Box<dyn Plugin>,
    wires: Vec<WireId>,
}

impl Server {
    /// Adds a plugin to those that serve connections; see [`plugin`](Server::plugin).
    pub(super) fn add_plugin(&mut self, plugin: Box<dyn Plugin>) {
        let mut wires = Vec::new();
        for spec in plugin.wires() {
            let refused = |why: &str| {
                Error::config(format!("plugin: {} cannot serve the wire {}: {why}", plugin.name(), spec.name))
            };
            match WireId::register(spec) {
                Err(why) => self.config_errors.push(Error::config(why)),
                Ok(_) if spec.sniff.is_none() && !spec.speaks_first => {
                    self.config_errors.push(refused("it has no matcher of first bytes"));
                }
                Ok(_) if spec.server.is_some() => {
                    self.config_errors.push(refused("the server handles its calls"));
                }
                Ok(wire) if self.plugins.iter().any(|other| other.wires.contains(&wire)) => {
                    self.config_errors.push(refused("another plugin does"));
                }
                Ok(wire) => {
                    self.guards.added_wires.insert(wire);
                    wires.push(wire);
                }
            }
        }
        for source in plugin.counters() {
            if let Err(why) = self.sources.add_unnamed(source) {
                self.config_errors
                    .push(Error::config(format!("plugin: counters of {}: {why}", plugin.name())));
            }
        }
        let services = plugin.services().into_iter();
        self.services.extend(services.map(|service| Arc::new(Guarded::new(service)) as Arc<_>));
        self.plugins.push(AddedPlugin { plugin, wires });
    }
}

/// Returns the HTTP paths of the plugins, for their methods in the state of a server.
///
/// # Errors
/// A malformed path, and a method that the server does not have.
#[cfg(feature = "http")]
pub(super) fn routes(plugins: &[AddedPlugin], shared: &ServerState) -> Result<Vec<PluginRoute>, Error> {
    let all = plugins.iter().flat_map(|AddedPlugin { plugin, .. }| {
        plugin.routes().into_iter().map(|route| PluginRoute::new(plugin.name(), route, shared))
    });
    all.filter_map(Result::transpose).collect::<Result<_, _>>().map_err(Error::config)
}

/// Starts the plugins of a server.
///
/// # Errors
/// The error of the first that does not start.
pub(super) fn start(plugins: Vec<AddedPlugin>, shared: &Arc<ServerState>) -> Result<(), Error> {
    // Unknown methods are guarded if, and only if, the server checks credentials.
    let has_auth = shared.table.guards_unknown();
    let mut running = Vec::with_capacity(plugins.len());
    for AddedPlugin { plugin, wires } in plugins {
        let name = plugin.name();
        let context = PluginContext::new(shared.memory.clone(), shared.limits.clone()).has_auth(has_auth);
        let context = context.services(Arc::new(PluginServices::new(shared)));
        let server = plugin
            .start(context)
            .map_err(|error| Error::config(format!("plugin: {name} does not start: {error}")))?;
        let wires = wires.into_iter().map(|wire| (wire, AtomicUsize::new(0))).collect();
        running.push(RunningPlugin { name, wires, server });
    }
    shared.plugins.set(running);
    Ok(())
}

/// Lets the plugins check their options of listeners.
///
/// # Errors
/// An option that its plugin refuses, and one of a plugin that the server does not have.
pub(super) fn check_listeners(listeners: &[Resolved], shared: &ServerState) -> Result<(), Error> {
    for listener in listeners {
        let (address, limits) = (&listener.address, &listener.limits);
        let refused = |why: &str| Error::config(format!("listen on {address}: {why}"));
        let mut names: Vec<_> = limits.plugins_with_options().collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let Some(plugin) = shared.plugins.all().iter().find(|plugin| plugin.name == name) else {
                return Err(refused(&format!("the server has no plugin {name:?}, which an option names")));
            };
            plugin.server.check_listener(limits).map_err(|why| refused(&why))?;
        }
    }
    Ok(())
}
