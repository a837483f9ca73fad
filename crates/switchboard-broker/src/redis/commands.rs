//! The connection for scripts.

use super::{RESPONSE_TIMEOUT, script::Call};
use crate::attempts::Attempts;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, RedisError, ServerErrorKind, aio::MultiplexedConnection,
};
use std::sync::{Mutex, MutexGuard, PoisonError};
use switchboard_core::Result;
use switchboard_wire::{Retry, Status};

/// One connection for all scripts, opened again after an error.
pub(super) struct Commands {
    name: String,
    client: Client,
    /// With its number: only the connection that failed is replaced.
    connection: Mutex<(u64, Option<MultiplexedConnection>)>,
    opening: Attempts,
}

impl Commands {
    pub(super) fn new(name: String, client: Client) -> Commands {
        Commands { name, client, connection: Mutex::new((0, None)), opening: Attempts::default() }
    }

    /// Runs a script.
    pub(super) async fn run(&self, call: Call) -> Result<Vec<Vec<u8>>> {
        let (number, mut connection) = self.connection().await?;
        let response = call.invoke(&mut connection).await;
        response.map_err(|error| {
            if is_broken(&error) {
                let mut known = self.lock();
                if known.0 == number {
                    known.1 = None;
                }
            }
            status(&self.name, &error)
        })
    }

    fn lock(&self) -> MutexGuard<'_, (u64, Option<MultiplexedConnection>)> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connection(&self) -> Result<(u64, MultiplexedConnection)> {
        let known = || {
            let known = self.lock();
            Some((known.0, known.1.clone()?))
        };
        self.opening.open(known, self.connect()).await
    }

    async fn connect(&self) -> Result<(u64, MultiplexedConnection)> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(RESPONSE_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT));
        let new = self.client.get_multiplexed_async_connection_with_config(&config).await;
        // Nothing was sent on a connection that was not opened.
        let new = new.map_err(|error| status(&self.name, &error).with_retry(Retry::Safe))?;
        let mut known = self.lock();
        *known = (known.0 + 1, Some(new.clone()));
        Ok((known.0, new))
    }
}

fn is_broken(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.is_io_error() || error.is_timeout()
}

/// Converts an error: `Unavailable` for what may pass, others for what an operator has to change.
pub(super) fn status(name: &str, error: &RedisError) -> Status {
    let text = format!("{name}: {error}");
    match (error.code(), error.kind()) {
        (Some("OOM"), _) => Status::resource_exhausted(text).with_retry(Retry::Safe),
        (Some("NOAUTH" | "NOPERM" | "WRONGPASS"), _) => Status::permission_denied(text),
        (_, ErrorKind::AuthenticationFailed) => Status::permission_denied(text),
        (Some("WRONGTYPE"), _) => Status::failed_precondition(text),
        (Some("CROSSSLOT" | "MOVED" | "ASK"), _) => Status::unimplemented(text),
        (_, ErrorKind::Server(ServerErrorKind::ResponseError)) => Status::internal(text),
        _ => Status::unavailable(text),
    }
}
