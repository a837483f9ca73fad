//! Options of the sockets of components; sending by routing id, and the end of peers, on ROUTER sockets.

use std::time::Duration;
use switchboard_socket::{ErrorKind, Message, Router, SocketOptions};

/// Notice of a socket that a connection ended. A peer that sends it reports its own end.
pub(crate) const GONE: &[u8] = b"\0gone";

/// Pause between PINGs of ZMTP to each peer, and the time to answer one.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// Returns the options of a socket that many peers connect to. It notices peers that are gone without a sign on the
/// network, so that their requests and routing ids are released.
pub(crate) fn listener_options() -> SocketOptions {
    let mut options = SocketOptions::default();
    options.heartbeats.interval = Some(PING_INTERVAL);
    options
}

/// Removes the time limits of sends and receives: they would end the task of a component, which has limits of its own.
pub(crate) fn remove_time_limits(options: &mut SocketOptions) {
    (options.timeouts.receive, options.timeouts.send) = (None, None);
}

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
