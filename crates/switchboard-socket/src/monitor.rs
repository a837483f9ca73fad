//! Events of a socket and of its peers.

use crate::PeerId;
use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;
use tokio::sync::broadcast::{self, error::RecvError};

/// Events that a monitor may lag behind before it loses the oldest ones.
const EVENTS_MAX: usize = 1024;

/// Event of a socket, with the event of libzmq that it corresponds to.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A connection was accepted at this endpoint (`ZMQ_EVENT_ACCEPTED`).
    Accepted {
        /// Endpoint that is bound.
        endpoint: String,
        /// Address of the peer.
        peer: String,
    },
    /// Accepting a connection failed; it is tried again (`ZMQ_EVENT_ACCEPT_FAILED`).
    AcceptFailed {
        /// Endpoint that is bound.
        endpoint: String,
        /// Cause.
        reason: String,
    },
    /// An endpoint was unbound or disconnected, or the socket was closed (`ZMQ_EVENT_CLOSED`).
    Closed {
        /// The endpoint.
        endpoint: String,
    },
    /// A connection was established; the handshake follows (`ZMQ_EVENT_CONNECTED`).
    Connected {
        /// Endpoint of the peer.
        endpoint: String,
    },
    /// Connecting failed or the connection ended, and the next attempt waits (`ZMQ_EVENT_CONNECT_RETRIED`).
    ConnectRetried {
        /// Endpoint of the peer.
        endpoint: String,
        /// Pause before the next attempt.
        pause: Duration,
        /// Cause.
        reason: String,
    },
    /// An established connection ended (`ZMQ_EVENT_DISCONNECTED`).
    Disconnected {
        /// Endpoint of the peer.
        endpoint: String,
        /// Number of the peer.
        peer: PeerId,
        /// Cause.
        reason: String,
    },
    /// Messages to a peer were dropped. Emitted for the first of several in a row; the statistics have the exact count.
    Dropped {
        /// Number of the peer; `None` if no peer has the routing id.
        peer: Option<PeerId>,
        /// Number of dropped messages that this event reports.
        count: u64,
        /// Cause.
        reason: &'static str,
    },
    /// A handshake failed (`ZMQ_EVENT_HANDSHAKE_FAILED_*`).
    HandshakeFailed {
        /// Endpoint of the peer.
        endpoint: String,
        /// Cause.
        reason: String,
    },
    /// A handshake is complete: messages flow (`ZMQ_EVENT_HANDSHAKE_SUCCEEDED`).
    HandshakeSucceeded {
        /// Endpoint of the peer.
        endpoint: String,
        /// Number of the peer.
        peer: PeerId,
        /// Socket type of the peer.
        socket_type: &'static str,
    },
    /// The monitor was too slow and lost this number of events.
    Lagged {
        /// Number of lost events.
        count: u64,
    },
    /// The socket is bound to this endpoint (`ZMQ_EVENT_LISTENING`).
    Listening {
        /// Endpoint, with the port that the system chose.
        endpoint: String,
    },
}

/// Receives the events of a socket since the monitor was created. A slow monitor loses the oldest of 1024 events.
#[derive(Debug)]
pub struct Monitor {
    events: broadcast::Receiver<Event>,
}

impl Monitor {
    /// Returns the next event; `None` once the socket is closed and all its tasks have ended. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        match self.events.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(count)) => Some(Event::Lagged { count }),
            Err(RecvError::Closed) => None,
        }
    }
}

/// Sends events to the monitors of a socket. Without a monitor an event costs one load.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    has_any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Created for the first monitor.
    sender: Option<broadcast::Sender<Event>>,
    has_ended: bool,
}

impl Monitors {
    pub(crate) fn subscribe(&self) -> Monitor {
        let mut state = self.lock();
        if state.has_ended {
            return Monitor { events: broadcast::channel(1).1 };
        }
        let sender = state.sender.get_or_insert_with(|| broadcast::channel(EVENTS_MAX).0);
        self.has_any.store(true, Ordering::Release);
        Monitor { events: sender.subscribe() }
    }

    pub(crate) fn emit(&self, event: impl FnOnce() -> Event) {
        if self.has_any.load(Ordering::Acquire)
            && let Some(sender) = &self.lock().sender
        {
            // Without a receiver the event has no reader.
            let _ = sender.send(event());
        }
    }

    /// Ends the monitors once they have received the events so far.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        state.sender = None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
