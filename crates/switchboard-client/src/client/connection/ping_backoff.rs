//! The keepalive interval of a channel whose servers receive too many pings.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// Largest factor by which servers lengthen the keepalive interval.
const FACTOR_MAX: u32 = 256;

/// Factor by which a channel lengthens its keepalive interval: a server that receives too many pings closes the
/// connection with ENHANCE_YOUR_CALM, which doubles the factor for the connections after it.
#[derive(Clone, Debug)]
pub(in crate::client) struct PingBackoff(Arc<AtomicU32>);

impl Default for PingBackoff {
    fn default() -> Self {
        PingBackoff(Arc::new(AtomicU32::new(1)))
    }
}

impl PingBackoff {
    /// Returns the interval for a new connection.
    pub(super) fn interval(&self, configured: Duration) -> Duration {
        configured.saturating_mul(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn double(&self) {
        let doubled = |factor: u32| Some((factor * 2).min(FACTOR_MAX));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, doubled);
    }
}
