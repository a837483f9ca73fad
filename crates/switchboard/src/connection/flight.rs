//! A call that waits in its handler, as the admin page and the end of a drain see it.

use std::{sync::Arc, time::Instant};
use switchboard_core::Peer;
use switchboard_wire::{MethodId, WireId};

/// Maximum number of calls shown per connection, or per worker for HTTP.
pub(crate) const SHOWN_MAX: usize = 1000;

/// A waiting call.
#[derive(Clone)]
pub(crate) struct Flight {
    pub(crate) method: MethodId,
    pub(crate) wire: WireId,
    pub(crate) peer: Arc<Peer>,
    pub(crate) began: Instant,
    pub(crate) deadline: Option<Instant>,
    /// `handler`, or `replies` once the handler has returned a stream.
    pub(crate) stage: &'static str,
}
