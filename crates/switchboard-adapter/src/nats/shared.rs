//! Settings of the plugin, and the state that the engines of a server share.

use super::{micro::Micro, stats::Counters};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use switchboard_core::clock;
use switchboard_fanout::Options;
use switchboard_message::{Bus, TopicRules};
use switchboard_net::plugin::{PluginContext, Services};
use switchboard_wire::{
    MethodTable, Outbox,
    nats::{Info, Limits, Server},
};

/// Version of NATS that clients compare before they use a feature.
const VERSION: &str = "2.10.0";
/// Bytes that wait for a client, as in the servers of NATS.
const PENDING_BYTES: usize = 64 << 20;
/// Largest block of headers: the value of one entry of metadata.
const HEADERS_BYTES: u32 = 65_535;

/// Policy for a client for which more than `outbox_bytes_max` bytes wait.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum SlowConsumer {
    /// It gets `-ERR 'Slow Consumer'`, and its connection is closed.
    #[default]
    Close,
    /// It misses the messages that arrive before it has read those that wait. They are counted.
    Drop,
}

/// Settings of the plugin.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) bus: Bus,
    pub(super) rules: TopicRules,
    pub(super) server_name: String,
    pub(super) limits: Limits,
    pub(super) options: Options,
    pub(super) slow_consumers: SlowConsumer,
    pub(super) subscriptions_max: u32,
    pub(super) calls_max: usize,
    pub(super) ping_interval: Duration,
    pub(super) is_anonymous: bool,
    /// Each worker drives the clients that it has accepted.
    pub(super) uses_all_workers: bool,
    pub(super) counters: Arc<Counters>,
}

impl Settings {
    pub(super) fn new(bus: Bus) -> Settings {
        let mut options = Options::default();
        options.outbox_bytes_max = PENDING_BYTES;
        Settings {
            bus,
            rules: TopicRules::default(),
            server_name: "switchboard".to_owned(),
            limits: Limits::server(),
            options,
            slow_consumers: SlowConsumer::default(),
            subscriptions_max: 10_000,
            calls_max: 1_024,
            ping_interval: Duration::from_secs(120),
            is_anonymous: false,
            uses_all_workers: false,
            counters: Arc::default(),
        }
    }
}

/// State that the engines of a server share.
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) services: Arc<dyn Services>,
    /// The methods of the server; `None` without one.
    pub(super) methods: Option<Arc<MethodTable>>,
    /// Clients need credentials.
    pub(super) requires_auth: bool,
    pub(super) micro: Micro,
    server_id: String,
    /// Number of the newest connection.
    clients: AtomicU64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(mut settings: Settings, context: &PluginContext) -> Shared {
        let requires_auth = context.has_auth && !settings.is_anonymous;
        let entry_bytes = u32::try_from(settings.bus.limits().entry_bytes_max).unwrap_or(u32::MAX);
        let limits = &mut settings.limits;
        limits.payload_bytes_max = limits.payload_bytes_max.min(entry_bytes);
        limits.headers_bytes_max = limits.headers_bytes_max.min(HEADERS_BYTES);
        let server_id = format!("N{:016X}{:016X}", clock::random(), clock::random());
        let methods = context.services.methods();
        Shared {
            micro: Micro::new(&server_id, methods.as_deref()),
            settings,
            services: context.services.clone(),
            methods,
            requires_auth,
            server_id,
            clients: AtomicU64::new(0),
        }
    }

    /// Returns the options of the engines. Theirs is the last limit on bytes that wait: the adapter closes slow clients
    /// before, with the error of the protocol.
    pub(super) fn engine_options(&self) -> Options {
        let mut options = self.settings.options;
        options.outbox_bytes_max = options.outbox_bytes_max.saturating_mul(2);
        options
    }

    pub(super) fn next_client(&self) -> u64 {
        self.clients.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// Returns the description of the server for a client.
    pub(super) fn info(&self, client_id: u64) -> Info {
        Info {
            server_id: self.server_id.clone(),
            server_name: self.settings.server_name.clone(),
            version: VERSION.to_owned(),
            host: "0.0.0.0".to_owned(),
            proto: 1,
            headers: true,
            max_payload: self.settings.limits.payload_bytes_max.into(),
            client_id,
            auth_required: self.requires_auth,
            ..Info::default()
        }
    }

    /// Returns the INFO that a client gets before TLS.
    pub(super) fn greeting(&self, requires_tls: bool) -> Vec<u8> {
        let info = Info { tls_required: requires_tls, tls_available: true, ..self.info(self.next_client()) };
        let mut out = Outbox::new();
        let _ = Server::new(&info, self.settings.limits, &mut out);
        out.take_all()
    }
}
