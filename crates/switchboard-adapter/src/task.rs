//! Tasks that end with the state that needs them.

use std::future::Future;
use switchboard_core::runtime;
use tokio::task::AbortHandle;

/// A task of the engine's worker that is ended when this is dropped.
#[derive(Debug)]
pub struct Task(AbortHandle);

impl Task {
    /// Spawns a task.
    pub fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Task {
        Task(runtime::spawn(work).abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
