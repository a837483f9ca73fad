//! What the engine drives: a [`Load`] makes connections, and callers on them.
//!
//! Everything is dispatched statically: a boxed future would cost a tenth of the floor's whole call.

use super::callers;
use tokio::task::JoinHandle;

/// A kind of call and the server to send it to; each worker gets a clone.
pub(super) trait Load: Clone + Send + 'static {
    /// A connection that callers of one worker share.
    type Connection: 'static;
    type Caller: Caller;

    /// Opens a connection to the server from the current worker.
    ///
    /// # Errors
    /// Says what failed and to which address.
    async fn connect(&self) -> Result<Self::Connection, String>;

    /// A caller with one request outstanding at most on `connection`.
    fn caller(&self, connection: &Self::Connection) -> Self::Caller;

    /// Starts the closed loop of `caller` on this worker, in the way that suits its futures best.
    fn spawn(caller: Self::Caller) -> JoinHandle<()> {
        tokio::task::spawn_local(callers::closed_loop(caller))
    }
}

/// Makes one call after the other.
pub(super) trait Caller: 'static {
    /// Makes one call and checks the content of its reply.
    ///
    /// # Errors
    /// When the call failed or was answered wrongly; the engine counts it and goes on.
    async fn call(&mut self) -> Result<(), String>;
}
