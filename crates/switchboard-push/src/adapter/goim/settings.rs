//! Settings of the plugin, and what its engines share.

use super::stats::Counters;
use crate::{Hub, addresses::Addresses};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use switchboard_wire::goim::{Limits, Variants};

/// A message that a device sent to the application.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceMessage<'a> {
    /// Id of the user, empty if the device has none.
    pub user: &'a str,
    /// Key of the device.
    pub key: &'a str,
    /// Number of the operation.
    pub operation: i32,
    /// Any bytes, at most `body_bytes_max`.
    pub body: Bytes,
}

/// Receives the messages of devices.
type Receive = Arc<dyn Fn(DeviceMessage<'_>) + Send + Sync>;

/// Settings of a plugin.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) variants: Variants,
    pub(super) limits: Limits,
    pub(super) is_strict_legacy: bool,
    pub(super) closes_lagged: bool,
    pub(super) default_operation: i32,
    pub(super) heartbeat_timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) allows_device_pushes: bool,
    pub(super) receive: Option<Receive>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            variants: Variants::ByAuth,
            limits: Limits::default(),
            is_strict_legacy: false,
            closes_lagged: false,
            default_operation: 1000,
            heartbeat_timeout: Duration::from_secs(480),
            idle_timeout: Duration::from_secs(20),
            allows_device_pushes: false,
            receive: None,
        }
    }
}

/// State that all engines of a server share.
pub(super) struct Context {
    pub(super) hub: Hub,
    pub(super) settings: Settings,
    pub(super) counters: Arc<Counters>,
    pub(super) addresses: Addresses,
}
