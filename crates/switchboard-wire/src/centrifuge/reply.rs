//! Replies and pushes of servers.

use super::{data::Data, field::Empty, message::messages};
use std::collections::BTreeMap;

messages! {
    /// A reply: the id of its command, and a result or an error; or a push. Without any it is a ping.
    Reply {
        /// Number of the command; 0 for a push and a ping.
        1 id: u32,
        /// The command has failed.
        2 error: Option<Box<Error>>,
        /// A push.
        4 push: Option<Box<Push>>,
        /// Result of *connect*.
        5 connect: Option<Box<Connected>>,
        /// Result of *subscribe*.
        6 subscribe: Option<Box<Subscribed>>,
        /// Result of *unsubscribe*.
        7 unsubscribe: Option<Box<Empty>>,
        /// Result of *publish*.
        8 publish: Option<Box<Empty>>,
        /// Result of *presence*.
        9 presence: Option<Box<PresenceResult>>,
        /// Result of *presence_stats*.
        10 presence_stats: Option<Box<PresenceStats>>,
        /// Result of *history*.
        11 history: Option<Box<HistoryResult>>,
        /// Result of *ping*.
        12 ping: Option<Box<Empty>>,
        /// Result of *rpc*.
        13 rpc: Option<Box<RpcResult>>,
        /// Result of *refresh*.
        14 refresh: Option<Box<Refreshed>>,
        /// Result of *sub_refresh*.
        15 sub_refresh: Option<Box<SubRefreshed>>,
    }

    /// An error.
    Error {
        /// One of [`code`](super::code).
        1 code: u32,
        /// A text for developers.
        2 message: String,
        /// Set if the client may try again.
        3 temporary: bool,
    }

    /// Result of *connect*.
    Connected {
        /// Unique id of the connection.
        1 client: String,
        /// Version of the server.
        2 version: String,
        /// Set if the token expires.
        3 expires: bool,
        /// Seconds until then.
        4 ttl: u32,
        /// Data of the application.
        5 data: Data,
        /// Subscriptions that the server has made, by channel.
        6 subs: BTreeMap<String, Subscribed>,
        /// Seconds between two pings of the server.
        7 ping: u32,
        /// Set if the client must reply to pings.
        8 pong: bool,
    }

    /// Result of *subscribe*.
    Subscribed {
        /// Set if the token of the subscription expires.
        1 expires: bool,
        /// Seconds until then.
        2 ttl: u32,
        /// The client may recover.
        3 recoverable: bool,
        /// Identifier of the log that the offset belongs to.
        6 epoch: String,
        /// Publications that the client missed.
        7 publications: Vec<Publication>,
        /// Nothing is missing.
        8 recovered: bool,
        /// Offset after which publications follow.
        9 offset: u64,
        /// The server observes the position.
        10 positioned: bool,
        /// Data of the application.
        11 data: Data,
        /// The client wanted to recover.
        12 was_recovering: bool,
    }

    /// A publication.
    Publication {
        /// Data of the application.
        4 data: Data,
        /// The client that published it.
        5 info: Option<Box<Info>>,
        /// Its number in the channel; 0 without history.
        6 offset: u64,
        /// Names and values of the publisher.
        7 tags: BTreeMap<String, String>,
    }

    /// A client in a channel.
    Info {
        /// Id of the user.
        1 user: String,
        /// Id of the connection.
        2 client: String,
        /// Information of its connection.
        3 conn_info: Data,
        /// Information of its subscription.
        4 chan_info: Data,
    }

    /// Result of *presence*.
    PresenceResult {
        /// The clients by the ids of their connections.
        1 presence: BTreeMap<String, Info>,
    }

    /// Result of *presence_stats*.
    PresenceStats {
        /// Number of connections.
        1 num_clients: u32,
        /// Number of users.
        2 num_users: u32,
    }

    /// Result of *history*.
    HistoryResult {
        /// The publications.
        1 publications: Vec<Publication>,
        /// Identifier of the log that the offset belongs to.
        2 epoch: String,
        /// Offset of the last publication of the channel.
        3 offset: u64,
    }

    /// Result of *rpc*.
    RpcResult {
        /// The response.
        1 data: Data,
    }

    /// Result of *refresh*.
    Refreshed {
        /// Unique id of the connection.
        1 client: String,
        /// Version of the server.
        2 version: String,
        /// Set if the token expires.
        3 expires: bool,
        /// Seconds until then.
        4 ttl: u32,
    }

    /// Result of *sub_refresh*.
    SubRefreshed {
        /// Set if the token expires.
        1 expires: bool,
        /// Seconds until then.
        2 ttl: u32,
    }

    /// A message that is no reply to a command.
    Push {
        /// Name of the channel; empty for the connection.
        2 channel: String,
        /// A publication.
        #[serde(rename = "pub")]
        4 publication: Option<Box<Publication>>,
        /// A client has joined.
        5 join: Option<Box<Member>>,
        /// A client has left.
        6 leave: Option<Box<Member>>,
        /// The server has ended a subscription.
        7 unsubscribe: Option<Box<Unsubscribed>>,
        /// A message to the connection.
        8 message: Option<Box<MessagePush>>,
        /// The server has made a subscription.
        9 subscribe: Option<Box<SubscribePush>>,
        /// The server ends the connection.
        11 disconnect: Option<Box<Disconnected>>,
    }

    /// A client that has joined or left.
    Member {
        /// The client.
        1 info: Option<Box<Info>>,
    }

    /// The end of a subscription.
    Unsubscribed {
        /// One of [`code`](super::code); from 2500 on, the client subscribes again.
        1 code: u32,
        /// A text for developers.
        2 reason: String,
    }

    /// A message to the connection.
    MessagePush {
        /// The message.
        1 data: Data,
    }

    /// A subscription that the server has made.
    SubscribePush {
        /// The client may recover.
        1 recoverable: bool,
        /// Identifier of the log that the offset belongs to.
        4 epoch: String,
        /// Offset after which publications follow.
        5 offset: u64,
        /// The server observes the position.
        6 positioned: bool,
        /// Data of the application.
        7 data: Data,
    }

    /// The end of a connection.
    Disconnected {
        /// One of [`code`](super::code).
        1 code: u32,
        /// A text for developers.
        2 reason: String,
        /// Set if the client should come back.
        3 reconnect: bool,
    }
}

impl Reply {
    /// Creates a push.
    pub fn push(push: Push) -> Reply {
        Reply { push: Some(Box::new(push)), ..Reply::default() }
    }

    /// Creates the reply to a command that has failed.
    pub fn error(id: u32, code: u32, message: impl Into<String>) -> Reply {
        let error = Error { code, message: message.into(), temporary: super::code::is_temporary(code) };
        Reply { id, error: Some(Box::new(error)), ..Reply::default() }
    }

    /// Returns whether it is a ping of the server.
    pub fn is_ping(&self) -> bool {
        *self == Reply::default()
    }
}
