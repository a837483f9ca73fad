//! Commands of clients.

use super::{data::Data, field::Empty, message::messages};
use std::collections::BTreeMap;

messages! {
    /// A command: an id, and one of the requests. Without any it is the pong.
    Command {
        /// Number of the command, which its reply repeats; 0 for *send* and for the pong.
        1 id: u32,
        /// Begins the connection.
        4 connect: Option<Box<Connect>>,
        /// Subscribes to a channel.
        5 subscribe: Option<Box<Subscribe>>,
        /// Ends a subscription.
        6 unsubscribe: Option<Box<Channel>>,
        /// Publishes to a channel.
        7 publish: Option<Box<Publish>>,
        /// Lists the clients in a channel.
        8 presence: Option<Box<Channel>>,
        /// Counts the clients in a channel.
        9 presence_stats: Option<Box<Channel>>,
        /// Reads kept publications.
        10 history: Option<Box<History>>,
        /// Checks that the connection works.
        11 ping: Option<Box<Empty>>,
        /// A message to the application, without a reply.
        12 send: Option<Box<SendRequest>>,
        /// A call.
        13 rpc: Option<Box<Rpc>>,
        /// Replaces the token of the connection.
        14 refresh: Option<Box<Refresh>>,
        /// Replaces the token of a subscription.
        15 sub_refresh: Option<Box<SubRefresh>>,
    }

    /// Request that begins a connection.
    Connect {
        /// The token.
        1 token: String,
        /// Data for the application.
        2 data: Data,
        /// Subscriptions of the server that the client had, by channel.
        3 subs: BTreeMap<String, Subscribe>,
        /// Name of the client program.
        4 name: String,
        /// Version of the client program.
        5 version: String,
        /// Headers that a browser cannot send itself.
        6 headers: BTreeMap<String, String>,
    }

    /// Request to subscribe to a channel.
    Subscribe {
        /// Name of the channel.
        1 channel: String,
        /// The token of the subscription.
        2 token: String,
        /// The client had the channel up to `epoch` and `offset`, and wants the missing publications.
        3 recover: bool,
        /// Identifier of the log that the offset belongs to.
        6 epoch: String,
        /// Offset of the last publication that the client has.
        7 offset: u64,
        /// Data for the application.
        8 data: Data,
        /// Wants to be informed when publications are lost.
        9 positioned: bool,
        /// Wants to be able to recover.
        10 recoverable: bool,
        /// Wants the pushes *join* and *leave*.
        11 join_leave: bool,
    }

    /// A request that names a channel alone.
    Channel {
        /// Name of the channel.
        1 channel: String,
    }

    /// Request to publish.
    Publish {
        /// Name of the channel.
        1 channel: String,
        /// Data of the publication.
        2 data: Data,
    }

    /// Request to read kept publications.
    History {
        /// Name of the channel.
        1 channel: String,
        /// Most publications; 0 for the position alone, -1 for all.
        7 limit: i32,
        /// The position after which they begin.
        8 since: Option<Box<Position>>,
        /// Newest first.
        9 reverse: bool,
    }

    /// A position in a channel.
    Position {
        /// Number of the publication.
        1 offset: u64,
        /// Identifier of the log that the number belongs to.
        2 epoch: String,
    }

    /// A message to the application.
    SendRequest {
        /// The message.
        1 data: Data,
    }

    /// A call.
    Rpc {
        /// The request.
        1 data: Data,
        /// Name of the method.
        2 method: String,
    }

    /// A newer token of the connection.
    Refresh {
        /// The token.
        1 token: String,
    }

    /// A newer token of a subscription.
    SubRefresh {
        /// Name of the channel.
        1 channel: String,
        /// The token.
        2 token: String,
    }
}

impl Command {
    /// Returns the number of requests in it: 1, or 0 for a pong.
    pub(super) fn requests(&self) -> usize {
        [
            self.connect.is_some(),
            self.subscribe.is_some(),
            self.unsubscribe.is_some(),
            self.publish.is_some(),
            self.presence.is_some(),
            self.presence_stats.is_some(),
            self.history.is_some(),
            self.ping.is_some(),
            self.send.is_some(),
            self.rpc.is_some(),
            self.refresh.is_some(),
            self.sub_refresh.is_some(),
        ]
        .into_iter()
        .filter(|is_set| *is_set)
        .count()
    }

    /// Returns whether it is the reply to a ping of the server.
    pub fn is_pong(&self) -> bool {
        self.id == 0 && self.requests() == 0
    }

    /// Returns the channel that it names.
    pub fn channel(&self) -> Option<&str> {
        let named = [&self.unsubscribe, &self.presence, &self.presence_stats];
        let named = named.into_iter().flatten().map(|request| &*request.channel).next();
        named
            .or(self.subscribe.as_ref().map(|request| &*request.channel))
            .or(self.publish.as_ref().map(|request| &*request.channel))
            .or(self.history.as_ref().map(|request| &*request.channel))
            .or(self.sub_refresh.as_ref().map(|request| &*request.channel))
    }
}
