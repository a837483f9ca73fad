//! Settings of the plugin.

use super::stats::Counters;
use crate::Hub;
use std::{sync::Arc, time::Duration};
use switchboard::plugin::Services;
use switchboard_wire::centrifuge::Limits;

/// Settings of a plugin.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub(super) limits: Limits,
    pub(super) commands_per_message_max: usize,
    pub(super) errors_max: u32,
    pub(super) pong_timeout: Duration,
    pub(super) has_calls: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            limits: Limits::default(),
            commands_per_message_max: 64,
            errors_max: 100,
            pong_timeout: Duration::from_secs(8),
            has_calls: true,
        }
    }
}

/// State that all engines of a server share.
pub(super) struct Context {
    pub(super) hub: Hub,
    pub(super) settings: Settings,
    pub(super) counters: Arc<Counters>,
    pub(super) services: Arc<dyn Services>,
}
