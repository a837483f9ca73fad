//! Ending of the calls and connections of a server that stops.

#[cfg(feature = "http")]
use super::Drain;
use super::ServerState;
use std::sync::atomic::Ordering;

impl ServerState {
    /// Closes every connection at once.
    pub fn abort_all(&self) {
        let all = std::mem::take(&mut *self.open());
        for connection in all.into_values() {
            if let Some(protocol) = connection.protocol {
                self.metrics.end(protocol);
            }
            if let Some(abort_handle) = connection.abort_handle {
                abort_handle.abort();
            }
        }
        self.plugins.abort();
    }

    /// Makes every connection send a drain notice.
    pub fn drain_connections(&self) {
        self.draining.store(true, Ordering::Relaxed);
        #[cfg(feature = "http")]
        self.drain_http.send_replace(Drain::Draining);
        for connection in self.open().values() {
            connection.wakes.wake();
        }
    }

    /// Makes every connection end its remaining calls.
    pub fn end_calls(&self) {
        self.ending.store(true, Ordering::Relaxed);
        for connection in self.open().values() {
            connection.wakes.wake();
        }
        self.flights.wake_all();
        #[cfg(feature = "http")]
        self.drain_http.send_replace(Drain::Ending);
    }
}
