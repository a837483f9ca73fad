//! A socket of any type. The typed sockets are views of it that have the operations of their type only.

use crate::{
    Endpoint, Error, ErrorKind, Message, Monitor, Result, SocketOptions, SocketStats, core::Core, endpoints,
};
use bytes::Bytes;
use std::{fmt, sync::Arc};
use switchboard_wire::zmtp::{IDENTITY_BYTES_MAX, SocketType};

/// A handle of a socket of any type, for programs that choose the type when they run, such as proxies.
///
/// Handles are cheap to clone and are used at the same time from any task: one may send while another receives. The
/// socket closes when its last handle is dropped, and its unsent messages are written in the background for up to
/// `timeouts.linger`. In a fork that inherited it, a handle that is dropped does nothing.
#[derive(Clone)]
pub struct Socket {
    core: Arc<Core>,
    /// Closes the socket when the last handle is dropped.
    _open: Arc<Open>,
}

struct Open(Arc<Core>);

impl Drop for Open {
    fn drop(&mut self) {
        // The endpoints and connections of an inherited handle belong to the parent.
        if self.0.check_process().is_ok() {
            self.0.close();
        }
    }
}

impl Socket {
    /// Creates a socket without endpoints, on the runtime of this thread.
    ///
    /// # Errors
    /// Returns [`ErrorKind::State`] outside of a tokio runtime, and [`ErrorKind::InvalidInput`] for options that
    /// exclude each other.
    pub fn new(kind: SocketType, options: SocketOptions) -> Result<Socket> {
        let core = Core::new(kind, options)?;
        Ok(Socket { _open: Arc::new(Open(core.clone())), core })
    }

    /// Returns the socket type.
    pub fn kind(&self) -> SocketType {
        self.core.kind
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Binds another endpoint (`zmq_bind`). Returns the endpoint with the port that the system chose.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Address`] if the endpoint cannot be bound, [`ErrorKind::Unsupported`] for a transport that
    /// is not supported, and [`ErrorKind::InvalidInput`] for text that is no endpoint.
    pub async fn bind_to(&self, endpoint: &str) -> Result<Endpoint> {
        endpoints::bind(&self.core, endpoint.parse()?).await
    }

    /// Connects to another endpoint (`zmq_connect`). Returns at once: the connection is established, and established
    /// again whenever it is lost, in the background.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Unsupported`] for a transport that is not supported, [`ErrorKind::InvalidInput`] for text
    /// that is no endpoint, and [`ErrorKind::State`] if the type has all the peers that it may have.
    #[expect(
        clippy::unused_async,
        reason = "resolving names before the first attempt may wait in a later version"
    )]
    pub async fn connect_to(&self, endpoint: &str) -> Result<()> {
        endpoints::connect(&self.core, &endpoint.parse()?, None)
    }

    /// As [`connect_to`](Self::connect_to), and a ROUTER or STREAM addresses the peer by `routing_id`, at most 255
    /// bytes, whatever id it has itself (`ZMQ_CONNECT_ROUTING_ID`).
    ///
    /// # Errors
    /// Returns [`ErrorKind::State`] for another type, [`ErrorKind::InvalidInput`] for an id that is empty, too long, or
    /// begins with a zero byte, as generated ones do, and the errors of [`connect_to`](Self::connect_to).
    #[expect(clippy::unused_async, reason = "as `connect_to`")]
    pub async fn connect_as(&self, endpoint: &str, routing_id: impl Into<Bytes>) -> Result<()> {
        self.check_kind(&[SocketType::Router, SocketType::Stream])?;
        let routing_id = routing_id.into();
        if routing_id.is_empty() || routing_id.len() > IDENTITY_BYTES_MAX || routing_id[0] == 0 {
            let text = format!(
                "routing id \"{}\" is not 1 to {IDENTITY_BYTES_MAX} bytes without a zero byte at the start",
                routing_id.escape_ascii()
            );
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        endpoints::connect(&self.core, &endpoint.parse()?, Some(routing_id))
    }

    /// Stops to accept connections at an endpoint (`zmq_unbind`). Accepted ones continue.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] if the socket is not bound to it.
    pub fn unbind(&self, endpoint: &str) -> Result<()> {
        self.end_endpoint(endpoint, true)
    }

    /// Ends the connection to an endpoint, once its unsent messages are written or `timeouts.linger` has passed
    /// (`zmq_disconnect`).
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] if the socket is not connected to it.
    pub fn disconnect(&self, endpoint: &str) -> Result<()> {
        self.end_endpoint(endpoint, false)
    }

    fn end_endpoint(&self, endpoint: &str, is_bound: bool) -> Result<()> {
        if self.core.end_endpoint(&endpoint.parse()?, is_bound) {
            return Ok(());
        }
        let verb = if is_bound { "bound" } else { "connected" };
        Err(Error::new(ErrorKind::InvalidInput, format!("{} is not {verb} to {endpoint}", self.kind())))
    }

    /// Returns the endpoints that the socket is bound to, with the ports that the system chose (`ZMQ_LAST_ENDPOINT`).
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let endpoints = self.core.endpoints();
        endpoints.iter().filter(|known| known.is_bound).map(|known| known.endpoint.clone()).collect()
    }

    /// Sends a message. Without room, PUSH, DEALER, REQ and PAIR wait, PUB and XPUB act as `queues.when_full` says,
    /// and ROUTER and REP drop the message and count it.
    ///
    /// Cancel safe while it waits for room: a future that is dropped then has sent nothing.
    ///
    /// # Errors
    /// Returns [`ErrorKind::TimedOut`] after `timeouts.send`, [`ErrorKind::State`] if it is not the turn of this side,
    /// [`ErrorKind::Unreachable`] for an unknown routing id with `routing.mandatory`, [`ErrorKind::InvalidInput`] for a
    /// message that the type cannot send, and [`ErrorKind::Closed`].
    #[inline]
    pub async fn send(&self, message: impl Into<Message>) -> Result<()> {
        let mut message = Some(message.into());
        self.core.send_now(&mut message)?;
        match message {
            None => {
                self.core.make_room().await;
                Ok(())
            }
            Some(message) => self.core.send_later(message).await,
        }
    }

    /// Sends a message, or fails with [`ErrorKind::TimedOut`] if it would have to wait (`ZMQ_DONTWAIT`).
    ///
    /// # Errors
    /// Returns the errors of [`send`](Self::send).
    #[inline]
    pub fn try_send(&self, message: impl Into<Message>) -> Result<()> {
        match self.core.try_send(message.into())? {
            None => Ok(()),
            Some(_) => Err(self.core.no_room()),
        }
    }

    /// Receives a message. Several receivers get different messages. Cancel safe: no message is lost.
    ///
    /// # Errors
    /// Returns [`ErrorKind::TimedOut`] after `timeouts.receive`, [`ErrorKind::State`] if it is not the turn of this
    /// side, [`ErrorKind::ReplyLost`] if the connection of a pending request ended, and [`ErrorKind::Closed`].
    #[inline]
    pub async fn recv(&self) -> Result<Message> {
        match self.core.try_recv()? {
            Some(message) => Ok(message),
            None => self.core.recv_later().await,
        }
    }

    /// Returns the next message, `None` if there is none now (`ZMQ_DONTWAIT`).
    ///
    /// # Errors
    /// Returns the errors of [`recv`](Self::recv).
    #[inline]
    pub fn try_recv(&self) -> Result<Option<Message>> {
        self.core.try_recv()
    }

    /// Subscribes a SUB or XSUB to messages whose first frame begins with `topic`, at all publishers, now and later
    /// (`ZMQ_SUBSCRIBE`). Subscriptions are counted: two need two cancellations.
    ///
    /// # Errors
    /// Returns [`ErrorKind::State`] for another type, and [`ErrorKind::InvalidInput`] above
    /// `limits.subscriptions_max`.
    pub fn subscribe(&self, topic: impl AsRef<[u8]>) -> Result<()> {
        self.check_kind(&[SocketType::Sub, SocketType::Xsub])?;
        self.core.subscribe(&Bytes::copy_from_slice(topic.as_ref()))
    }

    /// Ends one subscription (`ZMQ_UNSUBSCRIBE`).
    ///
    /// # Errors
    /// Returns [`ErrorKind::State`] for another type, and [`ErrorKind::InvalidInput`] without such a subscription.
    pub fn unsubscribe(&self, topic: impl AsRef<[u8]>) -> Result<()> {
        self.check_kind(&[SocketType::Sub, SocketType::Xsub])?;
        self.core.cancel(&Bytes::copy_from_slice(topic.as_ref()))
    }

    /// Joins a group as a DISH (`zmq_join`), at most 255 bytes.
    ///
    /// # Errors
    /// Returns [`ErrorKind::State`] for another type, and [`ErrorKind::InvalidInput`] for a longer name.
    pub fn join(&self, group: impl AsRef<[u8]>) -> Result<()> {
        self.check_kind(&[SocketType::Dish])?;
        let group = group.as_ref();
        if group.len() > usize::from(u8::MAX) {
            let text = format!("group has {} bytes; the limit is 255", group.len());
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        self.core.subscribe(&Bytes::copy_from_slice(group))
    }

    /// Leaves a group as a DISH (`zmq_leave`).
    ///
    /// # Errors
    /// Returns [`ErrorKind::State`] for another type, and [`ErrorKind::InvalidInput`] for a group that was not joined.
    pub fn leave(&self, group: impl AsRef<[u8]>) -> Result<()> {
        self.check_kind(&[SocketType::Dish])?;
        self.core.cancel(&Bytes::copy_from_slice(group.as_ref()))
    }

    fn check_kind(&self, kinds: &[SocketType]) -> Result<()> {
        if kinds.contains(&self.kind()) {
            return Ok(());
        }
        let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
        let text = format!("{} does not have this operation; {} do", self.kind(), names.join(" and "));
        Err(Error::new(ErrorKind::State, text))
    }

    /// Returns the counters of the socket and of each peer.
    pub fn stats(&self) -> SocketStats {
        self.core.stats()
    }

    /// Returns a receiver of the events from now on (`zmq_socket_monitor`).
    pub fn monitor(&self) -> Monitor {
        self.core.monitors.subscribe()
    }

    /// Closes the socket for all of its handles (`zmq_close`), and waits until unsent messages are written, at most
    /// for `timeouts.linger` (`zmq_ctx_term`). The socket closes also if the future is dropped. In a fork it does
    /// nothing: the connections belong to the process that created the socket.
    pub async fn close(&self) {
        if self.core.check_process().is_ok() {
            self.core.close();
            self.core.ended().await;
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {{ endpoints: {:?} }}", self.kind(), self.endpoints())
    }
}

impl AsRef<Socket> for Socket {
    fn as_ref(&self) -> &Socket {
        self
    }
}
