//! Settings of the plugin, and the state that the engines of a server share.

use super::{retained::Retained, stats::Counters};
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use switchboard_core::{Result, clock};
use switchboard_fanout::Options;
use switchboard_message::{Bus, TopicOptions, TopicRules};
use switchboard_net::plugin::{PluginContext, Services};
use switchboard_wire::mqtt::Limits;

/// Bytes of a packet beside its payload and its topic name.
const PACKET_BYTES: u32 = 2 << 10;
/// The topic of retained messages.
pub(super) const RETAINED: &str = "retained";

/// Policy for a client before version 5 whose publication is refused: the version has no packet for the reason.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum RefusedPublish {
    /// The message is acknowledged, dropped and counted.
    Acknowledge,
    /// The connection is closed.
    #[default]
    Close,
}

/// Settings of the plugin.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) bus: Bus,
    pub(super) rules: TopicRules,
    pub(super) limits: Limits,
    pub(super) options: Options,
    pub(super) window_max: u16,
    pub(super) subscriptions_max: usize,
    pub(super) session_expiry_max: Duration,
    pub(super) sessions_max: usize,
    pub(super) connect_timeout: Duration,
    pub(super) retained_max: usize,
    pub(super) retained_bytes_max: usize,
    pub(super) retained: Option<Bus>,
    pub(super) refused_publications: RefusedPublish,
    pub(super) is_anonymous: bool,
    pub(super) counters: Arc<Counters>,
}

impl Settings {
    pub(super) fn new(bus: Bus) -> Settings {
        Settings {
            bus,
            rules: TopicRules::default(),
            limits: Limits::server(),
            options: Options::default(),
            window_max: 100,
            subscriptions_max: 1_000,
            session_expiry_max: Duration::from_secs(7 * 86_400),
            sessions_max: 1_000_000,
            connect_timeout: Duration::from_secs(10),
            retained_max: 100_000,
            retained_bytes_max: 256 << 20,
            retained: None,
            refused_publications: RefusedPublish::default(),
            is_anonymous: false,
            counters: Arc::default(),
        }
    }
}

/// State that the engines of a server share.
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) services: Arc<dyn Services>,
    /// Clients need credentials.
    pub(super) requires_auth: bool,
    retained: Mutex<Retained>,
    /// Number of the newest session. It begins at random: entries of earlier servers have numbers, too.
    sessions: AtomicU64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Shared {
    /// Prepares the settings for a server.
    ///
    /// # Errors
    /// Returns the errors of the bus with the retained messages.
    pub(super) fn new(mut settings: Settings, context: &PluginContext) -> Result<Shared> {
        let entry_bytes = u32::try_from(settings.bus.limits().entry_bytes_max).unwrap_or(u32::MAX);
        let limits = &mut settings.limits;
        let largest = entry_bytes.saturating_add(limits.topic_bytes_max).saturating_add(PACKET_BYTES);
        limits.packet_bytes_max = limits.packet_bytes_max.min(largest);
        let retained_bus = match &settings.retained {
            Some(bus) => bus.clone(),
            None => {
                let history = TopicOptions::new().history(settings.retained_max, Duration::MAX).conflate();
                Bus::builder().topics(RETAINED, history)?.build()
            }
        };
        let retained = Retained::new(retained_bus, settings.retained_max, settings.retained_bytes_max)?;
        Ok(Shared {
            requires_auth: context.has_auth && !settings.is_anonymous,
            services: context.services.clone(),
            retained: Mutex::new(retained),
            settings,
            sessions: AtomicU64::new(clock::random()),
        })
    }

    /// Returns the number of a new session.
    pub(super) fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Returns the retained messages.
    pub(super) fn retained(&self) -> MutexGuard<'_, Retained> {
        self.retained.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.settings.counters
    }
}
