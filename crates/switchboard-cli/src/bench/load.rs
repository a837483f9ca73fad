//! The interface of the engine: a [`Load`] opens connections, and creates callers on them.
//!
//! Everything is dispatched statically: a boxed future would cost a tenth of the floor's whole call.

use super::callers;
use tokio::task::JoinHandle;

/// A kind of call and its server; each worker gets a clone.
#[allow(
    async_fn_in_trait,
    reason = "a future with a tally is not Send, and the traits are for this workspace alone"
)]
pub trait Load: Clone + Send + 'static {
    /// A connection that callers of one worker share.
    type Connection: 'static;
    type Caller: Caller;

    /// Opens a connection to the server from the current worker.
    ///
    /// # Errors
    /// The operation that failed, and the address.
    async fn connect(&self) -> Result<Self::Connection, String>;

    /// Creates a caller with at most one outstanding request on `connection`.
    fn caller(&self, connection: &Self::Connection) -> Self::Caller;

    /// Starts the closed loop of `caller` on this worker, in the way that suits its futures best.
    fn spawn(caller: Self::Caller) -> JoinHandle<()> {
        tokio::task::spawn_local(callers::closed_loop(caller))
    }
}

/// Makes one call after the other.
#[allow(
    async_fn_in_trait,
    reason = "a future with a tally is not Send, and the traits are for this workspace alone"
)]
pub trait Caller: 'static {
    /// Makes one call and checks the content of its reply.
    ///
    /// # Errors
    /// When the call failed or its reply was wrong; the engine counts it and continues.
    async fn call(&mut self) -> Result<(), String>;
}
