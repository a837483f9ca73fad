//! Sockets by type.

use crate::{Endpoint, Message, Monitor, Result, Socket, SocketOptions, SocketStats};
use bytes::Bytes;
use switchboard_wire::zmtp::{SocketType, patterns::Change};

/// Defines a socket type with the operations of all types, then those that it names.
macro_rules! socket_type {
    ($(#[$doc:meta])* $name:ident: $($operation:ident),*) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name(Socket);

        impl $name {
            /// Creates a socket with default options and binds it, see [`Socket::bind_to`].
            ///
            /// # Errors
            /// Returns the errors of [`Socket::new`] and [`Socket::bind_to`].
            pub async fn bind(endpoint: &str) -> Result<$name> {
                let socket = $name::new()?;
                socket.bind_to(endpoint).await?;
                Ok(socket)
            }

            /// Creates a socket with default options and connects it, see [`Socket::connect_to`].
            ///
            /// # Errors
            /// Returns the errors of [`Socket::new`] and [`Socket::connect_to`].
            pub async fn connect(endpoint: &str) -> Result<$name> {
                let socket = $name::new()?;
                socket.connect_to(endpoint).await?;
                Ok(socket)
            }

            /// Creates a socket with default options and without endpoints.
            ///
            /// # Errors
            /// Returns the errors of [`Socket::new`].
            pub fn new() -> Result<$name> {
                $name::with_options(SocketOptions::default())
            }

            /// Creates a socket without endpoints.
            ///
            /// # Errors
            /// Returns the errors of [`Socket::new`].
            pub fn with_options(options: SocketOptions) -> Result<$name> {
                Socket::new(SocketType::$name, options).map($name)
            }

            /// Binds another endpoint, see [`Socket::bind_to`].
            ///
            /// # Errors
            /// Returns the errors of [`Socket::bind_to`].
            pub async fn bind_to(&self, endpoint: &str) -> Result<Endpoint> {
                self.0.bind_to(endpoint).await
            }

            /// Connects to another endpoint, see [`Socket::connect_to`].
            ///
            /// # Errors
            /// Returns the errors of [`Socket::connect_to`].
            pub async fn connect_to(&self, endpoint: &str) -> Result<()> {
                self.0.connect_to(endpoint).await
            }

            /// Stops to accept connections at an endpoint, see [`Socket::unbind`].
            ///
            /// # Errors
            /// Returns the errors of [`Socket::unbind`].
            pub fn unbind(&self, endpoint: &str) -> Result<()> {
                self.0.unbind(endpoint)
            }

            /// Ends the connection to an endpoint, see [`Socket::disconnect`].
            ///
            /// # Errors
            /// Returns the errors of [`Socket::disconnect`].
            pub fn disconnect(&self, endpoint: &str) -> Result<()> {
                self.0.disconnect(endpoint)
            }

            /// Returns the endpoints that the socket is bound to, with the ports that the system chose.
            pub fn endpoints(&self) -> Vec<Endpoint> {
                self.0.endpoints()
            }

            /// Returns the counters of the socket and of each peer.
            pub fn stats(&self) -> SocketStats {
                self.0.stats()
            }

            /// Returns a receiver of the events from now on.
            pub fn monitor(&self) -> Monitor {
                self.0.monitor()
            }

            /// Closes the socket for all of its handles, and waits until unsent messages are written, see
            /// [`Socket::close`].
            pub async fn close(&self) {
                self.0.close().await;
            }
        }

        impl AsRef<Socket> for $name {
            fn as_ref(&self) -> &Socket {
                &self.0
            }
        }

        $(socket_type!(@$operation $name);)*
    };
    (@send $name:ident) => {
        impl $name {
            /// Sends a message, see [`Socket::send`]. Cancel safe.
            ///
            /// # Errors
            /// Returns the errors of [`Socket::send`].
            #[inline]
            pub async fn send(&self, message: impl Into<Message>) -> Result<()> {
                let mut message = Some(message.into());
                self.0.core().send_now(&mut message)?;
                match message {
                    None => {
                        self.0.core().make_room().await;
                        Ok(())
                    }
                    Some(message) => self.0.core().send_later(message).await,
                }
            }

            /// Sends a message, or fails if it would have to wait, see [`Socket::try_send`].
            ///
            /// # Errors
            /// Returns the errors of [`Socket::try_send`].
            #[inline]
            pub fn try_send(&self, message: impl Into<Message>) -> Result<()> {
                self.0.try_send(message)
            }
        }
    };
    (@recv $name:ident) => {
        impl $name {
            /// Receives a message, see [`Socket::recv`]. Cancel safe.
            ///
            /// # Errors
            /// Returns the errors of [`Socket::recv`].
            #[inline]
            pub async fn recv(&self) -> Result<Message> {
                match self.0.core().try_recv()? {
                    Some(message) => Ok(message),
                    None => self.0.core().recv_later().await,
                }
            }

            /// Returns the next message, `None` if there is none now.
            ///
            /// # Errors
            /// Returns the errors of [`Socket::recv`].
            #[inline]
            pub fn try_recv(&self) -> Result<Option<Message>> {
                self.0.try_recv()
            }
        }
    };
    (@subscribe $name:ident) => {
        impl $name {
            /// Subscribes to messages whose first frame begins with `topic`, see [`Socket::subscribe`].
            ///
            /// # Errors
            /// Returns the errors of [`Socket::subscribe`].
            pub fn subscribe(&self, topic: impl AsRef<[u8]>) -> Result<()> {
                self.0.subscribe(topic)
            }

            /// Ends one subscription, see [`Socket::unsubscribe`].
            ///
            /// # Errors
            /// Returns the errors of [`Socket::unsubscribe`].
            pub fn unsubscribe(&self, topic: impl AsRef<[u8]>) -> Result<()> {
                self.0.unsubscribe(topic)
            }
        }
    };
}

socket_type! {
    /// PAIR with messages of one frame (`ZMQ_CHANNEL`, a draft of libzmq).
    Channel: send, recv
}
socket_type! {
    /// DEALER with messages of one frame, for SERVER peers (`ZMQ_CLIENT`, a draft of libzmq).
    Client: send, recv
}
socket_type! {
    /// Sends to its peers in turn, and receives from all (`ZMQ_DEALER`). Waits for room.
    Dealer: send, recv
}
socket_type! {
    /// Receives the messages of the groups that it joined (`ZMQ_DISH`, a draft of libzmq), over `tcp` in place of
    /// `udp`. A message has two frames, the group and the body.
    Dish: recv
}
socket_type! {
    /// PULL with messages of one frame, for SCATTER peers (`ZMQ_GATHER`, a draft of libzmq).
    Gather: recv
}
socket_type! {
    /// Talks to exactly one peer (`ZMQ_PAIR`). Waits for room.
    Pair: send, recv
}
socket_type! {
    /// CLIENT and SERVER in one, for PEER peers (`ZMQ_PEER`, a draft of libzmq). A message is addressed as by
    /// [`Server`].
    Peer:
}
socket_type! {
    /// Publishes messages to the subscribers of a prefix of the first frame (`ZMQ_PUB`). Drops messages for a slow
    /// subscriber and counts them, see [`QueueFullPolicy`](crate::options::QueueFullPolicy).
    Pub: send
}
socket_type! {
    /// Receives from all of its peers in turn (`ZMQ_PULL`).
    Pull: recv
}
socket_type! {
    /// Sends to its peers in turn (`ZMQ_PUSH`). Waits for room.
    Push: send
}
socket_type! {
    /// Sends to the peers that joined a group (`ZMQ_RADIO`, a draft of libzmq), over `tcp` in place of `udp`. A message
    /// has two frames, the group and the body. Drops messages for a slow peer and counts them.
    Radio: send
}
socket_type! {
    /// Receives a request, then sends its reply (`ZMQ_REP`). A reply to a peer that is gone is dropped and counted.
    Rep: send, recv
}
socket_type! {
    /// Sends a request, then receives its reply (`ZMQ_REQ`).
    Req: send, recv
}
socket_type! {
    /// Receives messages with the routing id of their peer as the first frame, and sends to the peer that the first
    /// frame names (`ZMQ_ROUTER`). A message to an unknown or full peer is dropped and counted, unless
    /// [`routing.mandatory`](crate::options::RoutingOptions::mandatory) is set.
    Router: send, recv
}
socket_type! {
    /// PUSH with messages of one frame, for GATHER peers (`ZMQ_SCATTER`, a draft of libzmq).
    Scatter: send
}
socket_type! {
    /// ROUTER with messages of one frame, for CLIENT peers, whose routing ids are numbers (`ZMQ_SERVER`, a draft of
    /// libzmq). Waits for a full peer.
    Server:
}
socket_type! {
    /// Sends and receives bytes of TCP peers that do not speak ZMTP (`ZMQ_STREAM`). A message has two frames: the
    /// routing id that this side generated for the connection, and the bytes of a read. A received message without
    /// bytes means that the connection has begun, or that it has ended; sending one ends the connection once all
    /// earlier bytes are written. Waits for a full peer.
    ///
    /// ```
    /// use switchboard_socket::Stream;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let stream = Stream::bind("tcp://127.0.0.1:0").await?;
    /// let address = stream.endpoints()[0].to_string();
    /// let client = tokio::net::TcpStream::connect(address.trim_start_matches("tcp://")).await?;
    /// let connected = stream.recv().await?; // [routing id, ""]
    /// stream.send([connected.frames()[0].clone(), "hello\n".into()]).await?;
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    Stream: send, recv
}
socket_type! {
    /// Receives the messages of the prefixes that it subscribed to (`ZMQ_SUB`).
    Sub: recv, subscribe
}
socket_type! {
    /// PUB that receives the subscriptions of its peers as messages: 1 or 0, then the prefix (`ZMQ_XPUB`).
    Xpub: send, recv
}
socket_type! {
    /// SUB that sends its subscriptions as messages: 1 or 0, then the prefix (`ZMQ_XSUB`). Other messages go to all
    /// publishers.
    Xsub: send, recv, subscribe
}

impl Xpub {
    /// Subscribes the peer of the last received subscription to `topic`, with the option
    /// [`subscriptions.manual`](crate::options::SubscriptionOptions::manual) (`ZMQ_SUBSCRIBE` on an XPUB). Has no
    /// effect if the peer is gone: the next message then goes to all subscribers, with `manual_last_value` too.
    ///
    /// # Errors
    /// Returns [`ErrorKind::State`](crate::ErrorKind::State) before a subscription was received, and
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) above `limits.subscriptions_max`.
    pub fn subscribe_peer(&self, topic: impl AsRef<[u8]>) -> Result<()> {
        self.0.core().change_manually(&Change::Subscribe(Bytes::copy_from_slice(topic.as_ref())))
    }

    /// Ends a subscription of the peer of the last received change (`ZMQ_UNSUBSCRIBE` on an XPUB).
    ///
    /// # Errors
    /// Returns the errors of [`subscribe_peer`](Self::subscribe_peer).
    pub fn unsubscribe_peer(&self, topic: impl AsRef<[u8]>) -> Result<()> {
        self.0.core().change_manually(&Change::Cancel(Bytes::copy_from_slice(topic.as_ref())))
    }

    /// Sends a message to the peer of the last received change only, whichever its subscriptions
    /// (`ZMQ_XPUB_MANUAL_LAST_VALUE`). A message for a peer that is full or gone is dropped and counted. A SUB peer
    /// drops a message that none of its own subscriptions matches.
    ///
    /// # Errors
    /// Returns the errors of [`subscribe_peer`](Self::subscribe_peer), and of [`Socket::send`].
    pub fn send_to_peer(&self, message: impl Into<Message>) -> Result<()> {
        self.0.core().send_to_last_changed(message.into())
    }
}

impl Dish {
    /// Joins a group, at most 255 bytes (`zmq_join`).
    ///
    /// # Errors
    /// Returns the errors of [`Socket::join`].
    pub fn join(&self, group: impl AsRef<[u8]>) -> Result<()> {
        self.0.join(group)
    }

    /// Leaves a group (`zmq_leave`).
    ///
    /// # Errors
    /// Returns the errors of [`Socket::leave`].
    pub fn leave(&self, group: impl AsRef<[u8]>) -> Result<()> {
        self.0.leave(group)
    }
}

/// Defines messages that carry the number of a peer.
macro_rules! numbered {
    ($name:ident) => {
        impl $name {
            /// Sends a body to the peer with this number (`zmq_msg_set_routing_id`). Cancel safe.
            ///
            /// # Errors
            /// Returns [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if no peer has the number, and the
            /// errors of [`Socket::send`].
            pub async fn send_to(&self, peer: u32, body: impl Into<Bytes>) -> Result<()> {
                let [a, b, c, d] = peer.to_be_bytes();
                let route = Bytes::copy_from_slice(&[0, a, b, c, d]);
                self.0.send(Message::from([route, body.into()])).await
            }

            /// Receives a body, and the number of its peer (`zmq_msg_routing_id`). Cancel safe.
            ///
            /// # Errors
            /// Returns the errors of [`Socket::recv`].
            pub async fn recv_from(&self) -> Result<(u32, Bytes)> {
                let message = self.0.recv().await?;
                let [route, body] = message.frames() else { return Ok((0, Bytes::new())) };
                let number = route.last_chunk().map_or(0, |number| u32::from_be_bytes(*number));
                Ok((number, body.clone()))
            }
        }
    };
}

numbered!(Peer);
numbered!(Server);
