//! Devices of goim and of im-cloud, on TCP and in WebSockets.
//!
//! ```text
//! op 7 ─► Hub::verify ─► Hub::connect ─► op 8 ─► topics of the key, the user and all, and the room
//! op 12 ─► Device::join, and the end of the room before            op 2 ─► members of the room
//! op 14, 16 ─► Device::set_accepts ─► another encoding key
//! topics ─► one broadcast buffer for each topic, form and filter ─► sockets
//! ```

mod adapter;
mod encoder;
mod events;
mod login;
mod peer;
mod settings;
mod stats;
mod websocket;

pub use settings::DeviceMessage;
pub use stats::GoimStats;

use crate::{Hub, addresses::Addresses, api::GoimApi};
use adapter::GoimAdapter;
use settings::{Context, Settings};
use stats::Counters;
use std::{fmt, io, sync::Arc, time::Duration};
use switchboard::plugin::{Plugin, PluginContext, PluginServer};
use switchboard_core::counters::CounterSource;
use switchboard_fanout::{Engines, Options};
use switchboard_wire::{
    goim::{self, Limits, Variants},
    spec::WireSpec,
};
use websocket::GoimServer;

/// goim on TCP and in WebSockets.
pub static GOIM: WireSpec = WireSpec {
    title: "goim, devices of a push gateway",
    sniff: Some(goim::sniff),
    ..WireSpec::named("goim")
};

/// im-cloud, which has the packets of goim: for listeners without `goim`.
pub static IM_CLOUD: WireSpec = WireSpec {
    title: "im-cloud, devices of a push gateway",
    sniff: Some(goim::sniff),
    ..WireSpec::named("im-cloud")
};

/// A plugin that serves devices of goim and of im-cloud as devices of a hub. Cheap to clone.
///
/// | | goim | im-cloud |
/// | --- | --- | --- |
/// | on TCP | first bytes of a packet, on listeners that serve `goim` | on listeners with `wires=im-cloud` |
/// | in WebSockets | `/sub`, `/goim/sub` | `/im/sub`, and `/sub` with `wires=im-cloud` |
/// | by the first packet | without a member `protocol` | `"protocol": "im-cloud"` |
///
/// The hub's verifiers check the member `token` of the first packet, and have the others as claims of the device: `mid`
/// is the user, `key` the key. Verifiers find the whole body in the metadata `goim-auth-bin`, beside the
/// headers of a WebSocket, such as `cookie`. The room `type://id` is
/// the room `type/id` of the hub.
#[derive(Clone)]
pub struct Goim {
    hub: Hub,
    settings: Settings,
    options: Options,
    counters: Arc<Counters>,
    addresses: Addresses,
}

impl Goim {
    /// Creates a plugin for the devices of a hub.
    pub fn new(hub: Hub) -> Goim {
        let options = Options::default();
        let (counters, addresses) = (Arc::default(), Addresses::default());
        Goim { hub, settings: Settings::default(), options, counters, addresses }
    }

    /// Sets the variants of connections that the listener and the path leave open. The default is that the first packet
    /// selects one.
    #[must_use]
    pub fn variants(mut self, variants: Variants) -> Goim {
        self.settings.variants = variants;
        self
    }

    /// Sets the limits on what devices send.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Goim {
        self.settings.limits = limits;
        self
    }

    /// Sets the limits of each engine, such as the bytes that wait for slow devices.
    #[must_use]
    pub fn options(mut self, options: Options) -> Goim {
        self.options = options;
        self
    }

    /// Delivers every message of a room to every member, whatever operations it accepts, as goim does. By default the
    /// operations filter rooms too.
    #[must_use]
    pub fn strict_legacy(mut self) -> Goim {
        self.settings.is_strict_legacy = true;
        self
    }

    /// Closes a device that was too slow for its pushes. By default it stays connected and misses them, as in goim;
    /// they are counted.
    #[must_use]
    pub fn close_lagged(mut self) -> Goim {
        self.settings.closes_lagged = true;
        self
    }

    /// Sets the operation of messages that have none, such as those of other publishers; default 1000.
    #[must_use]
    pub fn default_operation(mut self, operation: i32) -> Goim {
        self.settings.default_operation = operation;
        self
    }

    /// Sets the time without a heartbeat after which a device is disconnected; default 8 minutes. Only heartbeats
    /// count, as in goim.
    #[must_use]
    pub fn heartbeat_timeout(mut self, timeout: Duration) -> Goim {
        self.settings.heartbeat_timeout = timeout;
        self
    }

    /// Sets the time without a packet after which a device with im-cloud on TCP is disconnected; default 20 s.
    #[must_use]
    pub fn im_cloud_idle_timeout(mut self, timeout: Duration) -> Goim {
        self.settings.idle_timeout = timeout;
        self
    }

    /// Lets devices with im-cloud push to any room, user, key and to all devices, as im-cloud does: at most
    /// `publications_per_s` of the hub. Without it such a push has no effect and is counted.
    #[must_use]
    pub fn allow_device_pushes(mut self) -> Goim {
        self.settings.allows_device_pushes = true;
        self
    }

    /// Sets the function that receives the messages of devices, with operations that goim has no meaning for. It is
    /// called on the thread of the connection and must not block.
    #[must_use]
    pub fn on_message(mut self, receive: impl Fn(DeviceMessage<'_>) + Send + Sync + 'static) -> Goim {
        self.settings.receive = Some(Arc::new(receive));
        self
    }

    /// Returns the HTTP interfaces for these devices, closed to every caller: see [`GoimApi`].
    pub fn api(&self) -> GoimApi {
        GoimApi::new(self.hub.clone()).with_addresses(self.addresses.clone())
    }

    /// Returns the counters of all servers with this plugin.
    pub fn stats(&self) -> GoimStats {
        self.counters.stats()
    }
}

impl Plugin for Goim {
    fn name(&self) -> &'static str {
        "goim"
    }

    fn wires(&self) -> Vec<&'static WireSpec> {
        vec![&GOIM, &IM_CLOUD]
    }

    fn counters(&self) -> Vec<Arc<dyn CounterSource>> {
        vec![self.counters.clone()]
    }

    fn start(&self, context: PluginContext) -> io::Result<Arc<dyn PluginServer>> {
        let shared = Arc::new(Context {
            hub: self.hub.clone(),
            settings: self.settings.clone(),
            counters: self.counters.clone(),
            addresses: self.addresses.clone(),
        });
        let (limits, counters) = (self.settings.limits, self.counters.clone());
        let make = move |engine| GoimAdapter::new(shared.clone(), engine);
        let engines = Engines::new(self.options, Some(context.memory), make);
        Ok(Arc::new(GoimServer::new(engines, limits, counters)))
    }
}

impl fmt::Debug for Goim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Goim").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
