//! Aborts connections of channels that are no longer used.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use switchboard_core::Result;
use switchboard_wire::{Retry, Status};
use tokio::task::AbortHandle;

/// Aborts the connections of channels at once, with all calls on them. Clones share their state.
///
/// A channel that is dropped closes its connections when the calls on them have ended, however long these take. To
/// replace a channel within a limited time, abort the connections of the old one with this. There is no cost per call:
/// connections are counted when they open.
///
/// ```
/// use switchboard::{Channel, client::ConnectionAborter};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> switchboard::Result<()> {
/// let aborter = ConnectionAborter::new();
/// let channel = Channel::builder("tcp://127.0.0.1:8080").aborted_by(&aborter).lazy()?;
/// drop(channel);
/// // Calls that are still in flight end here.
/// assert_eq!(aborter.abort(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct ConnectionAborter(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    is_aborted: bool,
    /// Tasks that drive or open connections.
    tasks: Vec<AbortHandle>,
}

impl ConnectionAborter {
    /// Creates an instance for channels made with it.
    pub fn new() -> ConnectionAborter {
        ConnectionAborter::default()
    }

    /// Aborts all connections, and keeps channels from opening others: calls end with `Unavailable`, also those in
    /// flight. Returns the number of connections.
    pub fn abort(&self) -> usize {
        let tasks = {
            let mut state = self.lock();
            state.is_aborted = true;
            std::mem::take(&mut state.tasks)
        };
        let open = tasks.iter().filter(|task| !task.is_finished()).count();
        tasks.iter().for_each(AbortHandle::abort);
        open
    }

    /// Number of connections that are open or being opened.
    pub fn connections(&self) -> usize {
        self.lock().tasks.iter().filter(|task| !task.is_finished()).count()
    }

    /// Adds a task to those that are aborted.
    pub(super) fn track(&self, task: AbortHandle) {
        let mut state = self.lock();
        if state.is_aborted {
            task.abort();
            return;
        }
        // Removes finished tasks before the list grows.
        if state.tasks.len() == state.tasks.capacity() {
            state.tasks.retain(|task| !task.is_finished());
        }
        state.tasks.push(task);
    }

    /// # Errors
    /// `Unavailable` after [`abort`](Self::abort).
    pub(super) fn check(&self) -> Result<()> {
        match self.lock().is_aborted {
            true => {
                Err(Status::unavailable("the connections of the channel were aborted")
                    .with_retry(Retry::Safe))
            }
            false => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ConnectionAborter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("ConnectionAborter")
            .field("is_aborted", &state.is_aborted)
            .field("tasks", &state.tasks.len())
            .finish()
    }
}
