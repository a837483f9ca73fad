//! Clients of MQTT on the topics of a bus.
//!
//! ```text
//! PUBLISH ─► topic of the bus, then PUBACK or PUBREC           RETAIN ─► log that keeps the newest entry per topic
//! SUBSCRIBE with QoS 0 ◄─ one cursor per filter, its bytes shared by all clients of a version
//! SUBSCRIBE with QoS 1, 2 ◄─ a cursor per client and filter, at most as far ahead as the window of the client
//! $share/GROUP/FILTER ◄─ a member of a group of the bus
//! absent session: a position per filter, the messages under way, and no queue
//! ```

mod adapter;
mod clients;
mod connecting;
mod delivery;
mod ending;
mod feeds;
mod messages;
mod publishing;
mod resuming;
mod retained;
mod session;
mod sessions;
mod shared;
mod stats;
mod subscribing;

pub use shared::RefusedPublish;
pub use stats::MqttStats;

use adapter::MqttAdapter;
use shared::{Settings, Shared};
use std::{io, sync::Arc, time::Duration};
use switchboard_core::counters::CounterSource;
use switchboard_fanout::{Engines, Options};
use switchboard_message::{Bus, TopicRules};
use switchboard_net::plugin::{
    ConnectionList, ListPosition, Plugin, PluginConnection, PluginContext, PluginServer,
};
use switchboard_wire::{
    mqtt::{self, Limits},
    spec::WireSpec,
};

/// MQTT 3.1, 3.1.1 and 5, detected by its first bytes on any listener.
pub static MQTT: WireSpec = WireSpec {
    title: "MQTT 3.1, 3.1.1 and 5",
    sniff: Some(mqtt::sniff),
    websocket_path: Some("/mqtt"),
    websocket_protocols: &["mqtt", "mqttv3.1"],
    ..WireSpec::named("mqtt")
};

/// A plugin that serves clients of MQTT. Cheap to clone.
///
/// ```no_run
/// use std::time::Duration;
/// use switchboard_adapter::Mqtt;
/// use switchboard_message::{Bus, TopicOptions};
///
/// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// // Absent clients receive what the history of a topic still has when they return.
/// let history = TopicOptions::new().history(10_000, Duration::from_secs(86_400));
/// let bus = Bus::builder().topics("devices/>", history)?.build();
/// let server = switchboard::Server::new().plugin(Mqtt::new(bus)).listen("tcp://0.0.0.0:1883");
/// server.serve().await?;
/// # Ok(())
/// # }
/// ```
///
/// Levels of a topic name are levels of the topic of the bus. Clients in WebSockets use the path `/mqtt` of any
/// listener with HTTP, with the sub-protocol `mqtt`.
#[derive(Clone, Debug)]
pub struct Mqtt {
    settings: Arc<Settings>,
}

impl Mqtt {
    /// Creates a plugin on the topics of a bus of this process.
    pub fn new(bus: Bus) -> Mqtt {
        Mqtt { settings: Arc::new(Settings::new(bus)) }
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Mqtt {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    /// Sets the rules of topics; by default, all are open to every client that is served. The caller of a client is
    /// that of its credentials or of its certificate. A subscription that a rule does not allow gets the code 0x87
    /// (0x80 before version 5), and a publication is [refused](Self::refused_publications).
    #[must_use]
    pub fn rules(self, rules: TopicRules) -> Mqtt {
        self.with(|settings| settings.rules = rules)
    }

    /// Sets the limits on the input of each connection; the defaults are those of
    /// [`Limits::server`](switchboard_wire::mqtt::Limits::server). Payloads are at most as large as entries of the bus.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Mqtt {
        self.with(|settings| settings.limits = limits)
    }

    /// Sets the limits of the engine.
    #[must_use]
    pub fn options(self, options: Options) -> Mqtt {
        self.with(|settings| settings.options = options)
    }

    /// Limits the messages of QoS 1 and 2 on the way to a client, beside its own receive maximum; default 100, at least
    /// 1. Further ones wait in the topics.
    #[must_use]
    pub fn window_max(self, messages: u16) -> Mqtt {
        self.with(|settings| settings.window_max = messages.max(1))
    }

    /// Limits the subscriptions of a client; default 1,000. Further ones get the code 0x97 (0x80 before version 5).
    #[must_use]
    pub fn subscriptions_max(self, subscriptions: usize) -> Mqtt {
        self.with(|settings| settings.subscriptions_max = subscriptions)
    }

    /// Limits the time that the session of an absent client is kept; default 7 days.
    #[must_use]
    pub fn session_expiry_max(self, period: Duration) -> Mqtt {
        self.with(|settings| settings.session_expiry_max = period)
    }

    /// Limits the sessions of absent clients; default 1,000,000. The one that is absent for the longest time is removed
    /// first, and counted.
    #[must_use]
    pub fn sessions_max(self, sessions: usize) -> Mqtt {
        self.with(|settings| settings.sessions_max = sessions)
    }

    /// Limits the time until CONNECT arrives; default 10 seconds, at most the handshake time limit of the listener.
    #[must_use]
    pub fn connect_timeout(self, period: Duration) -> Mqtt {
        self.with(|settings| settings.connect_timeout = period)
    }

    /// Limits the topics with a retained message; default 100,000. Further ones are refused with the code 0x97.
    #[must_use]
    pub fn retained_max(self, topics: usize) -> Mqtt {
        self.with(|settings| settings.retained_max = topics)
    }

    /// Limits the bytes of retained messages: payloads, topic names, and 512 bytes for each; default 256 MiB. Further
    /// ones are refused with the code 0x97.
    #[must_use]
    pub fn retained_bytes_max(self, bytes: usize) -> Mqtt {
        self.with(|settings| settings.retained_bytes_max = bytes)
    }

    /// Keeps retained messages in the topic `retained` of a bus, which is to keep the newest entry of each key: with
    /// [`conflate`](switchboard_message::TopicOptions::conflate) and a history of more entries than topics
    /// with a retained message, and of all their bytes
    /// ([`history_bytes`](switchboard_message::TopicOptions::history_bytes), default 8 MiB). Give it a file, and
    /// retained messages survive a restart. The default is a bus in memory.
    #[must_use]
    pub fn retained(self, bus: Bus) -> Mqtt {
        self.with(|settings| settings.retained = Some(bus))
    }

    /// Sets what happens to a client before version 5 whose publication is refused; the default is
    /// [`RefusedPublish::Close`]. Clients of version 5 get the reason.
    #[must_use]
    pub fn refused_publications(self, policy: RefusedPublish) -> Mqtt {
        self.with(|settings| settings.refused_publications = policy)
    }

    /// Accepts clients without credentials on a server that checks those of its callers: all that reach the listener
    /// can publish and subscribe, as far as the [rules](Self::rules) allow it to callers without a name.
    #[must_use]
    pub fn anonymous(self) -> Mqtt {
        self.with(|settings| settings.is_anonymous = true)
    }

    /// Returns the counters of all servers with this plugin.
    pub fn stats(&self) -> MqttStats {
        self.settings.counters.stats()
    }
}

impl Plugin for Mqtt {
    fn name(&self) -> &'static str {
        "mqtt"
    }

    fn wires(&self) -> Vec<&'static WireSpec> {
        vec![&MQTT]
    }

    fn counters(&self) -> Vec<Arc<dyn CounterSource>> {
        vec![self.settings.counters.clone(), Arc::new(self.settings.bus.clone())]
    }

    fn start(&self, context: PluginContext) -> io::Result<Arc<dyn PluginServer>> {
        let shared = Shared::new((*self.settings).clone(), &context).map_err(io::Error::other)?;
        let shared = Arc::new(shared);
        let options = shared.settings.options;
        let make = move |handle| MqttAdapter::new(shared.clone(), handle);
        Ok(Arc::new(OneEngine(Engines::new(options, Some(context.memory), make))))
    }
}

/// One engine for the connections of all workers, which has all sessions; the worker that accepts the first connection
/// runs it.
struct OneEngine(Engines<MqttAdapter>);

impl PluginServer for OneEngine {
    fn connect(&self, connection: PluginConnection) {
        self.0.connect(connection.worker(0));
    }

    fn drain(&self, limit: Duration) {
        self.0.drain(limit);
    }

    fn abort(&self) {
        self.0.abort();
    }

    fn list(&self, from: ListPosition, max: usize) -> ConnectionList<'_> {
        self.0.list(from, max)
    }
}
