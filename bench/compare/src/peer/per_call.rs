//! Switchboard with a connection for each call.

use switchboard_cli::bench::{
    callers,
    load::{Caller, Load},
    switchboard::Echo,
};
use tokio::task::JoinHandle;

/// Calls on separate connections, each opened for one call and closed after it.
#[derive(Clone)]
pub(super) struct PerCall(pub(super) Echo);

impl Load for PerCall {
    type Connection = ();
    type Caller = Self;

    async fn connect(&self) -> Result<(), String> {
        Ok(())
    }

    fn caller(&self, (): &()) -> Self {
        self.clone()
    }

    fn spawn(caller: Self) -> JoinHandle<()> {
        tokio::spawn(callers::closed_loop(caller))
    }
}

impl Caller for PerCall {
    async fn call(&mut self) -> Result<(), String> {
        let client = self.0.connect().await?;
        self.0.caller(&client).call().await
    }
}
