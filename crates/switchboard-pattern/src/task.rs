//! A task that ends when it is dropped.

use tokio::task::JoinHandle;

/// A task of a component, which ends with it.
#[derive(Debug)]
pub(crate) struct Task(JoinHandle<()>);

impl Task {
    /// Starts a task on the runtime of this thread.
    pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Task {
        Task(tokio::spawn(future))
    }

    /// Waits until the task has ended. A panic in it counts as its end.
    pub(crate) async fn ended(&mut self) {
        let _ = (&mut self.0).await;
    }

    /// Ends the task when it waits the next time, without waiting for that.
    #[cfg(feature = "beacon")]
    pub(crate) fn abort(&self) {
        self.0.abort();
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
