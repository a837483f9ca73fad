//! Bus: a node sends to all nodes that it is connected to, and receives from all of them.
//!
//! The pattern of nanomsg, with one ROUTER per node, which binds and connects. A connection serves both directions, so
//! each pair of nodes is connected once: the later one connects. A message is not forwarded: it reaches the direct
//! peers only. A message has one frame. Slow peers lose messages, which are counted.
//!
//! A [`Bus`](switchboard_message::Bus) has topics, history and gaps; this is for nodes without a server.

use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use switchboard_socket::{Endpoint, Router, SocketOptions, SocketStats};

/// A node of a bus. Handles are cheap to clone; the last one that is dropped ends the node.
///
/// ```
/// use switchboard_pattern::bus::BusNode;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (first, second) = (BusNode::bind("tcp://127.0.0.1:0").await?, BusNode::bind("tcp://127.0.0.1:0").await?);
/// second.connect_to(&first.endpoints()[0].to_string()).await?;
/// # while first.peers() == 0 || second.peers() == 0 { tokio::task::yield_now().await; }
/// first.send("to all").await?;
/// assert_eq!(second.recv().await?, &b"to all"[..]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BusNode {
    socket: Router,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    received: AtomicU64,
    invalid: AtomicU64,
}

/// Counters of a [`BusNode`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages that were sent, each counted once for all peers.
    pub sent: u64,
    /// Messages that were received.
    pub received: u64,
    /// Received messages that did not have one frame, which were skipped.
    pub invalid: u64,
    /// Counters of the socket and of each peer, with the dropped messages.
    pub socket: SocketStats,
}

impl BusNode {
    /// Creates a node with default options and binds it.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::bind_to`].
    pub async fn bind(endpoint: &str) -> Result<BusNode> {
        let node = BusNode::with_options(SocketOptions::default())?;
        node.bind_to(endpoint).await?;
        Ok(node)
    }

    /// Creates a node without endpoints.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::new`], and [`ErrorKind::InvalidInput`] for a routing id or
    /// `routing.mandatory`: each connection has an id of its own, and a slow peer must not stop the others.
    pub fn with_options(options: SocketOptions) -> Result<BusNode> {
        if options.routing.mandatory || !options.routing.routing_id.is_empty() {
            let text = "a node of a bus has neither routing.routing_id nor routing.mandatory";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        Ok(BusNode { socket: Router::with_options(options)?, counts: Arc::default() })
    }

    /// Binds another endpoint, to which nodes connect.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::bind_to`].
    pub async fn bind_to(&self, endpoint: &str) -> Result<Endpoint> {
        Ok(self.socket.bind_to(endpoint).await?)
    }

    /// Connects to another node. If that node connects to this one as well, each message arrives twice.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::connect_to`].
    pub async fn connect_to(&self, endpoint: &str) -> Result<()> {
        Ok(self.socket.connect_to(endpoint).await?)
    }

    /// Returns the endpoints that the node is bound to.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.socket.endpoints()
    }

    /// Returns the number of connected peers.
    pub fn peers(&self) -> usize {
        self.socket.stats().peers.iter().filter(|peer| peer.is_connected).count()
    }

    /// Sends a message to all connected peers, at a cost that grows with their number. A message for a peer whose queue
    /// is full is dropped and counted. Cancel safe: the message was sent before the first wait.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Closed`] if the socket is closed.
    pub async fn send(&self, body: impl Into<Bytes>) -> Result<()> {
        let body = body.into();
        for peer in self.socket.stats().peers.into_iter().filter(|peer| peer.is_connected) {
            self.socket.try_send([peer.routing_id, body.clone()])?;
        }
        self.counts.sent.fetch_add(1, Ordering::Relaxed);
        // A node that sends in a loop leaves the connections of its thread no time otherwise.
        tokio::task::consume_budget().await;
        Ok(())
    }

    /// Receives a message of any peer. Several receivers get different messages. Cancel safe.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::recv`].
    pub async fn recv(&self) -> Result<Bytes> {
        loop {
            let message = self.socket.recv().await?;
            if let [_, body] = message.frames() {
                self.counts.received.fetch_add(1, Ordering::Relaxed);
                return Ok(body.clone());
            }
            self.counts.invalid.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> Stats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            sent: count(&self.counts.sent),
            received: count(&self.counts.received),
            invalid: count(&self.counts.invalid),
            socket: self.socket.stats(),
        }
    }

    /// Closes the node for all of its handles, and waits until unsent messages are written, at most for
    /// `timeouts.linger`. The node closes also if the future is dropped.
    pub async fn close(&self) {
        self.socket.close().await;
    }
}
