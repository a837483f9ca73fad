//! Limits of an engine.

use std::time::Duration;

/// Limits of each engine.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Commands that wait in the mailbox of one engine; default 65,536. Senders wait, or get their command back.
    pub mailbox_commands_max: usize,
    /// Subscribers of one engine; default 1,000,000. Further connections are closed.
    pub subscribers_max: usize,
    /// Bytes that wait for one subscriber alone; default 1 MiB. It is closed as lagged if more is sent to it at the
    /// limit, so at most this and one message wait.
    pub outbox_bytes_max: usize,
    /// Bytes of one broadcast buffer that its subscribers have not read; default 1 MiB. The oldest are dropped, and a
    /// subscriber that has not read them has lagged.
    pub broadcast_buffer_bytes_max: usize,
    /// Set if a subscriber that has lagged is closed at once, with the reason
    /// [`Lagged`](crate::CloseReason::Lagged); default false:
    /// [`Adapter::lagged`](crate::Adapter::lagged) decides when its socket has room again.
    pub closes_lagged: bool,
    /// Time between the notice to the subscribers of a server that stops, and the closing of those that are left;
    /// default 1 s. The drain timeout of the server bounds it.
    pub drain_notice: Duration,
    /// Time after which a turn of the engine ends and other tasks of its worker run; default 1 ms. The rest is done
    /// in the next turn. A longer turn delays the other connections of the worker.
    pub turn_max: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            mailbox_commands_max: 65_536,
            subscribers_max: 1_000_000,
            outbox_bytes_max: 1 << 20,
            broadcast_buffer_bytes_max: 1 << 20,
            closes_lagged: false,
            drain_notice: Duration::from_secs(1),
            turn_max: Duration::from_millis(1),
        }
    }
}
