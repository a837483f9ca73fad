//! Clients of NATS on the topics of a bus and the services of a server.
//!
//! ```text
//! PUB, HPUB ─► topic of the subject ─► bus
//! SUB ◄─ one feed per pattern ◄─ subscription of the bus      SUB with a queue ◄─ a member of a group of the bus
//! PUB with a reply to pkg.Service.Method ─► call of the service ─► reply subject
//! ```

mod adapter;
mod authentication;
mod calls;
mod delivery;
mod feeds;
mod messages;
mod micro;
mod peer;
mod publishing;
mod reply_subjects;
mod shared;
mod stats;

pub use shared::SlowConsumer;
pub use stats::NatsStats;

use adapter::NatsAdapter;
use shared::{Settings, Shared};
use std::{io, sync::Arc, time::Duration};
use switchboard_core::counters::CounterSource;
use switchboard_fanout::{Engines, Options};
use switchboard_message::{Bus, TopicRules};
use switchboard_net::plugin::{
    ConnectionList, ListPosition, Plugin, PluginConnection, PluginContext, PluginServer,
};
use switchboard_wire::{WireId, nats::Limits, spec::WireSpec};

/// The client protocol of NATS. Its servers speak first, so it has a listener of its own: `nats://HOST:PORT`.
pub static NATS: WireSpec = WireSpec {
    title: "the client protocol of NATS",
    speaks_first: true,
    websocket_path: Some("/nats"),
    rejection: Some(|_, _| b"-ERR 'Secure Connection - TLS Required'\r\n".to_vec()),
    ..WireSpec::named("nats")
};

/// A plugin that serves clients of NATS. Cheap to clone.
///
/// ```no_run
/// use switchboard_adapter::Nats;
/// use switchboard_message::Bus;
///
/// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// let nats = Nats::new(Bus::new());
/// let server = switchboard::Server::new().plugin(nats).listen("tcp://0.0.0.0:8080").listen("nats://0.0.0.0:4222");
/// server.serve().await?;
/// # Ok(())
/// # }
/// ```
///
/// Tokens of a subject are levels of a topic: the subject `quotes.acme` is the topic `quotes/acme`. A request to
/// `package.Service.Method` is a call of the server's service, and a queue group is a group of the bus.
///
/// Clients in WebSockets use the path `/nats` of any listener with HTTP, or `/` of one whose `wires` have `nats` and
/// not `jsonrpc`.
#[derive(Clone, Debug)]
pub struct Nats {
    settings: Arc<Settings>,
}

impl Nats {
    /// Creates a plugin on the topics of a bus.
    pub fn new(bus: Bus) -> Nats {
        Nats { settings: Arc::new(Settings::new(bus)) }
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Nats {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    /// Sets the name of the server in INFO; default `switchboard`.
    #[must_use]
    pub fn server_name(self, name: impl Into<String>) -> Nats {
        self.with(|settings| settings.server_name = name.into())
    }

    /// Sets the rules of topics; by default, all are open to every client that is served. The caller of a client is
    /// that of its credentials, or of its certificate; [anonymous](Self::anonymous) clients have none. A publication
    /// and a subscription that a rule does not allow get the error `Permissions Violation`; a publication over a rate
    /// or a size is dropped and counted. A pattern that includes a topic which the caller may not read is refused. A
    /// request needs the permission to publish to its reply subject, too.
    #[must_use]
    pub fn rules(self, rules: TopicRules) -> Nats {
        self.with(|settings| settings.rules = rules)
    }

    /// Sets the limits on the input of each connection; the defaults are those of
    /// [`Limits::server`](switchboard_wire::nats::Limits::server). Payloads are at most as large as entries of the bus.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Nats {
        self.with(|settings| settings.limits = limits)
    }

    /// Sets the limits of each engine. `outbox_bytes_max` is the number of bytes that wait for a client before it is a
    /// [slow consumer](Self::slow_consumers); default 64 MiB, as in the servers of NATS.
    #[must_use]
    pub fn options(self, options: Options) -> Nats {
        self.with(|settings| settings.options = options)
    }

    /// Sets what happens to a client for which too many bytes wait; the default is
    /// [`SlowConsumer::Close`].
    #[must_use]
    pub fn slow_consumers(self, policy: SlowConsumer) -> Nats {
        self.with(|settings| settings.slow_consumers = policy)
    }

    /// Limits the subscriptions of a client; default 10,000. Further ones get an error.
    #[must_use]
    pub fn subscriptions_max(self, subscriptions: u32) -> Nats {
        self.with(|settings| settings.subscriptions_max = subscriptions)
    }

    /// Limits the calls of services in flight of a client; default 1,024. Further ones get the error
    /// `ResourceExhausted` as their reply.
    #[must_use]
    pub fn calls_max(self, calls: usize) -> Nats {
        self.with(|settings| settings.calls_max = calls)
    }

    /// Sets the silence after which a client gets a PING; default 2 minutes. It is closed after two without a response.
    #[must_use]
    pub fn ping_interval(self, interval: Duration) -> Nats {
        self.with(|settings| settings.ping_interval = interval.max(Duration::from_secs(1)))
    }

    /// Accepts clients without credentials on a server that checks those of its callers: all that reach the listener
    /// can publish and subscribe. Calls of services are checked all the same.
    #[must_use]
    pub fn anonymous(self) -> Nats {
        self.with(|settings| settings.is_anonymous = true)
    }

    /// Has each worker drive the clients that it has accepted, for more throughput than one worker has. By default one
    /// worker drives all of them: then a subscription gets the messages of all clients in the order in which they were
    /// published, as in the servers of NATS. With several, the order is that of each topic, and a subscriber may
    /// [miss](NatsStats::missed) messages of a publisher on another worker that is faster than the backlog of the topic
    /// allows.
    #[must_use]
    pub fn all_workers(self) -> Nats {
        self.with(|settings| settings.uses_all_workers = true)
    }

    /// Returns the counters of all servers with this plugin.
    pub fn stats(&self) -> NatsStats {
        self.settings.counters.stats()
    }
}

impl Plugin for Nats {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn wires(&self) -> Vec<&'static WireSpec> {
        vec![&NATS]
    }

    fn counters(&self) -> Vec<Arc<dyn CounterSource>> {
        vec![self.settings.counters.clone(), Arc::new(self.settings.bus.clone())]
    }

    fn start(&self, context: PluginContext) -> io::Result<Arc<dyn PluginServer>> {
        let shared = Arc::new(Shared::new((*self.settings).clone(), &context));
        let greeting = shared.clone();
        let engine_options = shared.engine_options();
        let make = move |handle| NatsAdapter::new(shared.clone(), handle);
        let engines = Engines::new(engine_options, Some(context.memory), make);
        let engines = engines.with_counters(self.settings.counters.engines.clone());
        let engines = engines.with_greeting(move |_, requires_tls| greeting.greeting(requires_tls));
        match self.settings.uses_all_workers {
            true => Ok(Arc::new(engines)),
            false => Ok(Arc::new(OneEngine(engines))),
        }
    }
}

/// One engine for the connections of all workers; the worker that accepts the first one runs it.
struct OneEngine(Engines<NatsAdapter>);

impl PluginServer for OneEngine {
    fn connect(&self, connection: PluginConnection) {
        self.0.connect(connection.worker(0));
    }

    fn greeting(&self, wire: WireId, requires_tls: bool) -> Vec<u8> {
        self.0.greeting(wire, requires_tls)
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
