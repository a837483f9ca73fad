//! The connection of a command to its server.

use super::args::ServerArgs;
use crate::{
    bus::parts::{connect_to, limited},
    call::Failure,
};
use std::{future::Future, time::Duration};
use switchboard::Channel;
use switchboard_push::v1;

/// Time limit of a command that sets none.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Variable with the token of a command that has none.
const TOKEN: &str = "SWITCHBOARD_TOKEN";

/// Connects to the server.
pub(super) async fn connect(server: &ServerArgs) -> Result<Channel, Failure> {
    connect_to(&server.address).await
}

/// Returns the metadata `authorization` of the calls; empty without a token.
pub(super) fn authorization(server: &ServerArgs) -> Option<String> {
    let token = server.token.clone().or_else(|| std::env::var(TOKEN).ok());
    token.filter(|token| !token.is_empty()).map(|token| format!("Bearer {token}"))
}

/// Runs an operation within the time limit of the command.
pub(super) async fn timed<T>(
    server: &ServerArgs,
    running: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    limited(Some(server.timeout.unwrap_or(TIMEOUT)), running).await
}

/// Formats a position as all commands do; a dash for a publication without one.
pub(super) fn position(position: Option<&v1::Position>) -> String {
    position.map_or_else(|| "-".to_owned(), |position| format!("{:x}:{}", position.epoch, position.offset))
}
