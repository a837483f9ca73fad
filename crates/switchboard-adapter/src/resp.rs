//! Clients of Redis on the topics of a bus and the services of a server.
//!
//! ```text
//! SUBSCRIBE, PSUBSCRIBE ─► sources ─┐
//!                                   ├─ one broadcast buffer per set of subscriptions ◄─ feed ◄─ bus
//! PUBLISH ─► bus ─► window: feeds   │
//! PUBSUB ─► directory               │
//! CALL, AUTH ─► services of the server
//! ```

mod adapter;
mod commands;
mod credentials;
mod directory;
mod feed;
mod peer;
mod rules;
mod sets;
mod sources;
mod stats;
mod window;

pub use stats::RedisStats;

use adapter::RespAdapter;
use directory::Directory;
use stats::Counters;
use std::{
    io,
    sync::{Arc, atomic::AtomicU64},
};
use switchboard_core::{Limit, counters::CounterSource};
use switchboard_fanout::{Engines, Options};
use switchboard_message::{Bus, TopicRules};
use switchboard_net::plugin::{Plugin, PluginContext, PluginServer, Services};
use switchboard_wire::{
    resp::{self, Limits, Settings},
    spec::WireSpec,
};
use window::Window;

/// RESP2 and RESP3, the protocol of Redis.
pub static REDIS: WireSpec = WireSpec {
    title: "RESP 2 and 3, clients of Redis",
    sniff: Some(resp::sniff),
    ..WireSpec::named("redis")
};

/// RESP whose first command is a line of words, as people type it; see [`Redis::inline`].
static REDIS_INLINE: WireSpec = WireSpec {
    title: "RESP, inline commands",
    sniff: Some(resp::sniff_inline),
    ..WireSpec::named("redis-inline")
};

/// Bytes of a broadcast buffer and of an outbox: Redis closes a subscriber that stays above 8 MiB.
const BUFFER_BYTES_MAX: usize = 8 << 20;
/// Bytes of a request beside its largest argument.
const REQUEST_OVERHEAD_BYTES: u32 = 1 << 20;

/// A plugin that serves clients of Redis: pub/sub on the topics of a bus, and calls of the server's services. Cheap to
/// clone.
///
/// | command | effect |
/// | --- | --- |
/// | `SUBSCRIBE`, `SSUBSCRIBE` | receives the entries of the topic with this name |
/// | `PSUBSCRIBE` | receives the entries of all topics whose names match the glob |
/// | `PUBLISH`, `SPUBLISH` | publishes to the topic; the reply is the number of subscriptions of clients of Redis |
/// | `CALL pkg.Service/Method JSON [name value …]` | calls a method of the server; the reply is JSON |
/// | `AUTH`, `HELLO … AUTH` | has the credentials checked by the server, as those of a call |
///
/// A server that checks credentials serves clients that have sent valid ones. There are no keys: `GET` and `SET` are
/// unknown commands.
#[derive(Clone, Debug)]
pub struct Redis {
    shared: Arc<Shared>,
    rules: TopicRules,
    is_inline: bool,
    limits: Option<Limits>,
    options: Options,
}

/// State of the plugin that all engines share.
#[derive(Debug)]
struct Shared {
    bus: Bus,
    counters: Arc<Counters>,
    directory: Directory,
    window: Window,
    /// Number of the newest connection.
    connections: AtomicU64,
}

/// State of the plugin on one server.
struct ServerContext {
    shared: Arc<Shared>,
    rules: TopicRules,
    /// Settings of its connections.
    settings: Arc<Settings>,
    /// Settings of connections whose peer is authenticated by its certificate; the same on a server without checks.
    authenticated: Arc<Settings>,
    services: Arc<dyn Services>,
    has_auth: bool,
}

impl Redis {
    /// Creates a plugin that serves clients of Redis on the topics of a bus.
    pub fn new(bus: Bus) -> Redis {
        let shared = Shared {
            bus,
            counters: Arc::default(),
            directory: Directory::default(),
            window: Window::default(),
            connections: AtomicU64::new(0),
        };
        let mut options = Options::default();
        options.broadcast_buffer_bytes_max = BUFFER_BYTES_MAX;
        options.outbox_bytes_max = BUFFER_BYTES_MAX;
        options.closes_lagged = true;
        let rules = TopicRules::default();
        Redis { shared: Arc::new(shared), rules, is_inline: false, limits: None, options }
    }

    /// Accepts inline commands, such as `PING` typed into a terminal: also as the first bytes of a connection, if their
    /// first word is a command. Off by default: a request of another protocol must not be read as a command.
    #[must_use]
    pub fn inline(mut self) -> Redis {
        self.is_inline = true;
        self
    }

    /// Sets the rules of topics; by default, all are open to every client that is served. The caller of a client is
    /// that of its credentials, or of its certificate. A publication or subscription that a rule does not allow gets
    /// the error `NOPERM`, one over a rate or a size `RESOURCE_EXHAUSTED`. A pattern is refused if a topic that the
    /// caller may not read can have the prefix before its first wildcard. `PUBSUB` shows the channels that a client may
    /// use.
    #[must_use]
    pub fn rules(mut self, rules: TopicRules) -> Redis {
        self.rules = rules;
        self
    }

    /// Sets the limits on the input of each connection. The defaults are those of
    /// [`Limits`](switchboard_wire::resp::Limits), with `message_bytes_max` of the server for arguments.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Redis {
        self.limits = Some(limits);
        self
    }

    /// Sets the limits of each engine. The default is that of [`Options`] with 8 MiB for the bytes that wait for slow
    /// subscribers, which are closed when they lag.
    #[must_use]
    pub fn options(mut self, options: Options) -> Redis {
        self.options = options;
        self.options.closes_lagged = true;
        self
    }

    /// Returns the counters of all servers with this plugin.
    pub fn stats(&self) -> RedisStats {
        self.shared.counters.stats()
    }

    fn settings(&self, server: &switchboard_core::Limits) -> Settings {
        let limits = self.limits.unwrap_or_else(|| {
            let bytes = u32::try_from(server.get(Limit::MessageBytesMax)).unwrap_or(u32::MAX);
            let request_bytes_max = bytes.saturating_add(REQUEST_OVERHEAD_BYTES);
            Limits { bulk_bytes_max: bytes, request_bytes_max, ..Limits::default() }
        });
        Settings::new().with_limits(limits).with_inline(self.is_inline)
    }
}

impl Plugin for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn wires(&self) -> Vec<&'static WireSpec> {
        if self.is_inline { vec![&REDIS, &REDIS_INLINE] } else { vec![&REDIS] }
    }

    fn counters(&self) -> Vec<Arc<dyn CounterSource>> {
        vec![self.shared.counters.clone(), Arc::new(self.shared.bus.clone())]
    }

    fn start(&self, context: PluginContext) -> io::Result<Arc<dyn PluginServer>> {
        let settings = self.settings(&context.limits);
        let server = ServerContext {
            shared: self.shared.clone(),
            rules: self.rules.clone(),
            authenticated: Arc::new(settings.clone()),
            settings: Arc::new(settings.with_auth(context.has_auth)),
            services: context.services,
            has_auth: context.has_auth,
        };
        let server = Arc::new(server);
        let make = move |handle| RespAdapter::new(server.clone(), handle);
        let engines = Engines::new(self.options, Some(context.memory), make);
        Ok(Arc::new(engines.with_counters(self.shared.counters.engines.clone())))
    }
}
