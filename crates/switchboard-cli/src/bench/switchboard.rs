//! Switchboard as a subject: its server and its clients.
//!
//! Stands on the floor until the runtime is there: every run works, with a ratio near 1.

use super::{
    floor::FloorEcho,
    load::Load,
    options::{MESSAGE_BYTES, ServerArgs},
};
use bytes::Bytes;

/// Serves what the loads of this module call; prints its address first.
///
/// # Errors
/// When it cannot listen or accept.
pub(super) fn serve(args: &ServerArgs) -> Result<(), String> {
    super::serve_floor(args)
}

/// Echo calls of `payload`.
pub(super) fn echo(address: &str, payload: Bytes) -> impl Load {
    FloorEcho { address: authority(address), payload }
}

/// Calls with the benchmark message.
pub(super) fn message(address: &str) -> impl Load {
    echo(address, Bytes::from(vec![7; MESSAGE_BYTES]))
}

/// The address in `tcp://address`, or all of it.
fn authority(url: &str) -> String {
    url.strip_prefix("tcp://").unwrap_or(url).to_owned()
}
