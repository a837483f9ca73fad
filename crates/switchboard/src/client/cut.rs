//! Ending connections of channels that are not to be used any more.

use crate::{Result, Retry, Status};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::task::AbortHandle;

/// Ends the connections of channels at once, whatever goes over them. Clones are the same.
///
/// A channel that is dropped closes its connections when the calls on them have ended, however long these take. Whoever
/// replaces a channel by another gives the old one a time with this. Costs calls nothing: connections are counted when
/// they open.
///
/// ```
/// use switchboard::{Channel, client::Cut};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> switchboard::Result<()> {
/// let cut = Cut::new();
/// let channel = Channel::builder("tcp://127.0.0.1:8080").cut_by(&cut).lazy()?;
/// drop(channel);
/// // Calls that are still under way end here.
/// assert_eq!(cut.now(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Cut(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    is_cut: bool,
    /// The tasks that drive connections, or open them.
    tasks: Vec<AbortHandle>,
}

impl Cut {
    /// For channels that are made with it; it ends nothing yet.
    pub fn new() -> Cut {
        Cut::default()
    }

    /// Ends all connections, and lets channels open no others: calls end with `Unavailable`, those under way too. Says
    /// how many connections there were.
    pub fn now(&self) -> usize {
        let tasks = {
            let mut state = self.lock();
            state.is_cut = true;
            std::mem::take(&mut state.tasks)
        };
        let open = tasks.iter().filter(|task| !task.is_finished()).count();
        tasks.iter().for_each(AbortHandle::abort);
        open
    }

    /// Connections that are open, or being opened.
    pub fn connections(&self) -> usize {
        self.lock().tasks.iter().filter(|task| !task.is_finished()).count()
    }

    /// Ends this task with the others.
    pub(super) fn hold(&self, task: AbortHandle) {
        let mut state = self.lock();
        if state.is_cut {
            task.abort();
            return;
        }
        // Those that have ended give their places away before the list grows.
        if state.tasks.len() == state.tasks.capacity() {
            state.tasks.retain(|task| !task.is_finished());
        }
        state.tasks.push(task);
    }

    /// # Errors
    /// `Unavailable` once it has cut.
    pub(super) fn check(&self) -> Result<()> {
        match self.lock().is_cut {
            true => Err(Status::unavailable("the channel was cut").with_retry(Retry::Safe)),
            false => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Cut").field("is_cut", &state.is_cut).field("tasks", &state.tasks.len()).finish()
    }
}
