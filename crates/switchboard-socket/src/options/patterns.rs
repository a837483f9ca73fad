//! Options of queues and of socket types.

use bytes::Bytes;

/// Action of a PUB, XPUB or RADIO when the queue of a subscriber is full. Each dropped message is counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum QueueFullPolicy {
    /// Drops the new message, as libzmq does: the subscriber continues with old messages.
    #[default]
    DropNewest,
    /// Drops the oldest messages that are not being written until the new one has room: the subscriber continues with
    /// fresh messages. Drops the new one if there is no room even then.
    DropOldest,
    /// Waits until the subscriber has room (`ZMQ_XPUB_NODROP`, which returns `EAGAIN` or waits). One slow subscriber
    /// then stops all.
    Wait,
}

/// Queues of each peer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueueOptions {
    /// Keeps the newest message of each peer only; messages have one frame (`ZMQ_CONFLATE`). Default false.
    pub conflate: bool,
    /// Maximum number of bytes of received messages that wait to be taken, per peer; a single larger message is
    /// received too. 0 means no limit. libzmq has no such option. Default 16 MiB.
    pub receive_bytes_max: usize,
    /// Maximum number of received messages that wait to be taken, per peer (`ZMQ_RCVHWM`). 0 means no limit. At the
    /// limit the connection is not read. Default 1000.
    pub receive_messages_max: usize,
    /// Maximum number of bytes of messages that wait to be written, per peer; a single larger message is sent too.
    /// 0 means no limit. libzmq has no such option. Default 16 MiB.
    pub send_bytes_max: usize,
    /// Maximum number of messages that wait to be written, per peer (`ZMQ_SNDHWM`). 0 means no limit. Default 1000.
    pub send_messages_max: usize,
    /// Action of publishers when the queue of a subscriber is full. The other socket types have one action each.
    pub when_full: QueueFullPolicy,
}

impl Default for QueueOptions {
    fn default() -> QueueOptions {
        QueueOptions {
            conflate: false,
            receive_bytes_max: 16 << 20,
            receive_messages_max: 1000,
            send_bytes_max: 16 << 20,
            send_messages_max: 1000,
            when_full: QueueFullPolicy::DropNewest,
        }
    }
}

/// Messages about connections, of one frame each.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct NoticeOptions {
    /// Message that this socket receives when a peer that connected to it is gone (`ZMQ_DISCONNECT_MSG`).
    pub disconnect: Option<Bytes>,
    /// Message that is sent on each new connection, before all others (`ZMQ_HELLO_MSG`).
    pub hello: Option<Bytes>,
    /// Message that this socket receives when a connection that it made is lost and made again (`ZMQ_HICCUP_MSG`).
    pub hiccup: Option<Bytes>,
}

/// Options of REQ.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RequestOptions {
    /// Sends a number with each request and drops replies with another one (`ZMQ_REQ_CORRELATE`). Default false.
    pub correlate: bool,
    /// Lets a request replace the pending one, whose reply is dropped (`ZMQ_REQ_RELAXED`). Use it with `correlate`.
    /// Default false.
    pub relaxed: bool,
}

/// Routing ids, and options of ROUTER and STREAM.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RoutingOptions {
    /// Lets a new peer take the routing id of a live one, whose connection is closed (`ZMQ_ROUTER_HANDOVER`). Ids are
    /// not authenticated, so any peer can replace any other one. Default false: the new peer is refused.
    pub handover: bool,
    /// Sends to connected peers only: `connect` adds a peer once its handshake is complete, and the queue of a lost
    /// connection is dropped (`ZMQ_IMMEDIATE`). Default false.
    pub immediate: bool,
    /// A ROUTER returns an error for an unknown routing id, and waits for a full peer (`ZMQ_ROUTER_MANDATORY`). Default
    /// false: the message is dropped and counted.
    pub mandatory: bool,
    /// A ROUTER receives an empty message with the routing id of each new peer (`ZMQ_NOTIFY_CONNECT` of
    /// `ZMQ_ROUTER_NOTIFY`). Default false.
    pub notify_connect: bool,
    /// A ROUTER receives an empty message with the routing id of each peer that is gone, after its last message
    /// (`ZMQ_NOTIFY_DISCONNECT` of `ZMQ_ROUTER_NOTIFY`). Default false.
    pub notify_disconnect: bool,
    /// Sends an empty message to each new peer of a DEALER, REQ or ROUTER (`ZMQ_PROBE_ROUTER`). Default false.
    pub probe: bool,
    /// Id by which ROUTER peers address this socket, at most 255 bytes, no zero byte at the start
    /// (`ZMQ_ROUTING_ID`). Empty by default: the peer generates one per connection.
    pub routing_id: Bytes,
    /// A STREAM receives a message without bytes for each connection that begins or ends (`ZMQ_STREAM_NOTIFY`).
    /// Default true.
    pub stream_notify: bool,
}

impl Default for RoutingOptions {
    fn default() -> RoutingOptions {
        RoutingOptions {
            handover: false,
            immediate: false,
            mandatory: false,
            notify_connect: false,
            notify_disconnect: false,
            probe: false,
            routing_id: Bytes::new(),
            stream_notify: true,
        }
    }
}

/// Options of PUB, XPUB, SUB and XSUB.
///
/// Only a message of one frame is a subscription of a peer, as with `ZMQ_ONLY_FIRST_SUBSCRIBE`: messages of several
/// frames are those of the application, whatever their bytes.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SubscriptionOptions {
    /// Publishers deliver to the subscribers that do not match, and subscribers filter in the opposite way; set it on
    /// both sides (`ZMQ_INVERT_MATCHING`). Default false.
    pub invert_matching: bool,
    /// An XPUB only receives the changes of its peers, and its application adds and ends subscriptions of the peer of
    /// the last received change, with other topics if it wants (`ZMQ_XPUB_MANUAL`). Default false.
    pub manual: bool,
    /// As `manual`, and the first message that the XPUB sends after a call of
    /// [`Xpub::subscribe_peer`](crate::Xpub::subscribe_peer) goes to that peer only: the last value for a new
    /// subscriber, without duplicates for the others (`ZMQ_XPUB_MANUAL_LAST_VALUE`). Default false.
    pub manual_last_value: bool,
    /// An XPUB reports each subscription of each peer, not just the first one to a topic (`ZMQ_XPUB_VERBOSE`). Default
    /// false.
    pub verbose: bool,
    /// As `verbose`, and reports each cancellation too (`ZMQ_XPUB_VERBOSER`). Default false.
    pub verboser: bool,
    /// Message that a PUB or XPUB sends for each subscription that matches it (`ZMQ_XPUB_WELCOME_MSG`). It is dropped
    /// and counted if the queue of the subscriber is full.
    pub welcome: Option<Bytes>,
}

impl SubscriptionOptions {
    pub(crate) fn is_manual(&self) -> bool {
        self.manual || self.manual_last_value
    }
}
