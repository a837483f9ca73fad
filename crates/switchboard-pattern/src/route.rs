//! Sending by routing id, and the end of peers, on ROUTER sockets.

use switchboard_socket::{ErrorKind, Message, Router};

/// Notice of a socket that a connection ended. A peer that sends it reports its own end.
pub(crate) const GONE: &[u8] = b"\0gone";

/// Result of [`pass`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sent {
    /// The queue of the peer is full; the message was dropped.
    Full,
    /// No such peer is connected; the message was dropped.
    Gone,
    Passed,
}

/// Passes a message, without waiting, to the peer that its first frame names. The socket has the option
/// `routing.mandatory`.
pub(crate) fn pass(router: &Router, message: Message) -> Sent {
    match router.try_send(message) {
        Ok(()) => Sent::Passed,
        Err(error) if error.kind() == ErrorKind::TimedOut => Sent::Full,
        Err(_) => Sent::Gone,
    }
}
