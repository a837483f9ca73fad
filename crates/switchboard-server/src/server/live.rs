//! State that can be changed or queried while a server runs.

use super::{Running, StopOptions};
use switchboard_core::{Error, MemoryStats};
use switchboard_guard::guard::concurrency::ConcurrencyStats;
#[cfg(feature = "http")]
use switchboard_net::Address;

impl Running {
    /// Resolves when a successor has taken over the listeners and serves; then call [`stop`](Self::stop).
    /// Never resolves unless the server was started with [`Server::handover`](super::Server::handover).
    /// Cancel safe.
    #[cfg(feature = "handover")]
    pub async fn handed_over(&self) {
        match &self.waiting {
            Some(waiting) => waiting.taken().await,
            None => std::future::pending().await,
        }
    }

    #[cfg(not(feature = "handover"))]
    pub(super) async fn handed_over(&self) {
        std::future::pending::<()>().await;
    }

    /// Returns the statistics of the concurrency limits of the server, its services and its methods.
    pub fn concurrency(&self) -> Vec<ConcurrencyStats> {
        self.shared.guarding.concurrency()
    }

    /// Returns the memory counters: the part of [`stats`](Self::stats) that is cheap to query often.
    pub fn memory(&self) -> MemoryStats {
        self.shared.memory.stats()
    }

    /// Changes a [flag](switchboard_core::Flag), as the admin page does; `by` is recorded in the audit line.
    ///
    /// # Errors
    /// Fails if the flag does not exist or the value is out of range.
    pub fn set_flag(&self, name: &str, value: &str, by: &str) -> Result<(), Error> {
        self.shared.flags.set(name, value, None, by).map(drop)
    }

    /// Checks whether [`set_flag`](Self::set_flag) would succeed, without changing the flag.
    ///
    /// # Errors
    /// Fails if the flag does not exist or the value is out of range.
    pub fn check_flag(&self, name: &str, value: &str) -> Result<(), Error> {
        self.shared.flags.check(name, value).map(drop)
    }

    /// Returns the address of the admin pages, if they are served.
    #[cfg(feature = "http")]
    pub fn admin(&self) -> Option<&Address> {
        self.admin.as_ref().map(|(address, _)| address)
    }

    /// Stops and logs the result; calls have `drain_timeout` to end.
    pub(super) async fn stop_logged(self) {
        let stopped = self.stop(StopOptions::new()).await;
        if stopped.is_clean() {
            tracing::info!("{stopped}");
        } else {
            tracing::warn!("{stopped}");
        }
    }
}
