//! A call that waits in its handler, as the admin page and the end of a drain see it.

use std::{sync::Arc, time::Instant};
use switchboard_core::Peer;
use switchboard_wire::{MethodId, WireId};

/// Maximum number of calls shown per connection, or per worker for HTTP.
pub const SHOWN_MAX: usize = 1000;

/// A waiting call.
#[derive(Clone)]
pub struct Flight {
    pub method: MethodId,
    pub wire: WireId,
    pub peer: Arc<Peer>,
    pub began: Instant,
    pub deadline: Option<Instant>,
    /// `handler`, or `replies` once the handler has returned a stream.
    pub stage: &'static str,
}
