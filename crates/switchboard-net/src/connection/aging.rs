//! The maximum age of a connection, after which it is drained.

use super::Wakes;
use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::{timeout, timeout_at};

/// Maximum lifetime of a connection.
pub struct Aging {
    /// Time at which the connection is drained.
    pub end: Instant,
    /// Time for the calls that are in flight then.
    pub grace: Duration,
    pub wakes: Arc<Wakes>,
}

impl Aging {
    /// Runs a connection to its end, and drains it when it reaches its age.
    pub async fn until_old(self, connection: impl Future<Output = ()>) {
        let mut connection = pin!(connection);
        if timeout_at(self.end.into(), &mut connection).await.is_err() {
            self.wakes.retire();
            // Dropping the future closes a connection that has not ended by then.
            let _ = timeout(self.grace, connection).await;
        }
    }
}
