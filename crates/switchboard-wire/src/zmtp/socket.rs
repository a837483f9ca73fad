//! Socket types, and which of them may talk.

use std::fmt;

/// Socket type, as the handshake announces it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
// closed: the socket types of ZMTP 3.1 and of its drafts
pub enum SocketType {
    /// PAIR with messages of one frame.
    Channel,
    /// DEALER with messages of one frame.
    Client,
    /// Sends to its peers in turn, receives from all.
    Dealer,
    /// Receives the messages of the groups that it joined.
    Dish,
    /// PULL with messages of one frame.
    Gather,
    /// Talks to exactly one peer.
    Pair,
    /// Both CLIENT and SERVER.
    Peer,
    /// Publishes to the subscribers of a prefix.
    Pub,
    /// Receives from all of its peers.
    Pull,
    /// Sends to its peers in turn.
    Push,
    /// Sends to the peers that joined a group.
    Radio,
    /// Replies to requests.
    Rep,
    /// Sends a request, then receives its reply.
    Req,
    /// Sends to the peer that the first frame names.
    Router,
    /// PUSH with messages of one frame.
    Scatter,
    /// ROUTER with messages of one frame.
    Server,
    /// Sends and receives bytes of peers that do not speak ZMTP. It talks to no other type.
    Stream,
    /// Receives the messages of the prefixes that it subscribed to.
    Sub,
    /// PUB that reads the subscriptions of its peers.
    Xpub,
    /// SUB that sends its subscriptions as messages.
    Xsub,
}

use SocketType::{
    Channel, Client, Dealer, Dish, Gather, Pair, Peer, Pub, Pull, Push, Radio, Rep, Req, Router, Scatter,
    Server, Stream, Sub, Xpub, Xsub,
};

impl SocketType {
    /// All socket types that speak ZMTP: those without STREAM.
    pub const ALL: [SocketType; 19] = [
        Channel, Client, Dealer, Dish, Gather, Pair, Peer, Pub, Pull, Push, Radio, Rep, Req, Router, Scatter,
        Server, Sub, Xpub, Xsub,
    ];

    /// Returns the name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Channel => "CHANNEL",
            Client => "CLIENT",
            Dealer => "DEALER",
            Dish => "DISH",
            Gather => "GATHER",
            Pair => "PAIR",
            Peer => "PEER",
            Pub => "PUB",
            Pull => "PULL",
            Push => "PUSH",
            Radio => "RADIO",
            Rep => "REP",
            Req => "REQ",
            Router => "ROUTER",
            Scatter => "SCATTER",
            Server => "SERVER",
            Stream => "STREAM",
            Sub => "SUB",
            Xpub => "XPUB",
            Xsub => "XSUB",
        }
    }

    /// Returns the type that speaks ZMTP and has this name.
    pub fn from_name(name: &[u8]) -> Option<SocketType> {
        SocketType::ALL.into_iter().find(|socket| socket.name().as_bytes() == name)
    }

    /// Returns the types that a socket of this type may talk to.
    pub fn peers(self) -> &'static [SocketType] {
        match self {
            Channel => &[Channel],
            Client => &[Server],
            Dealer => &[Dealer, Rep, Router],
            Dish => &[Radio],
            Gather => &[Scatter],
            Pair => &[Pair],
            Peer => &[Peer],
            Pub | Xpub => &[Sub, Xsub],
            Pull => &[Push],
            Push => &[Pull],
            Radio => &[Dish],
            Rep => &[Dealer, Req],
            Req => &[Rep, Router],
            Router => &[Dealer, Req, Router],
            Scatter => &[Gather],
            Server => &[Client],
            Stream => &[],
            Sub | Xsub => &[Pub, Xpub],
        }
    }

    /// Returns true if sockets of the two types may talk.
    pub fn talks_to(self, peer: SocketType) -> bool {
        self.peers().contains(&peer)
    }

    /// Returns true if the handshake has an identity, which may be empty.
    pub(super) fn has_identity(self) -> bool {
        matches!(self, Dealer | Req | Router)
    }

    /// Returns true if the messages of a peer are read; otherwise they are skipped without a buffer.
    pub(super) fn receives(self) -> bool {
        !matches!(self, Pub | Push | Radio | Scatter)
    }

    /// Returns true if all frames of a peer's messages are read and none has a meaning of its own.
    pub(super) fn receives_any_frames(self) -> bool {
        matches!(self, Dealer | Pair | Pull | Rep | Req | Router | Sub | Xsub)
    }

    /// Returns true if peers subscribe to prefixes.
    pub(super) fn publishes(self) -> bool {
        matches!(self, Pub | Xpub)
    }

    /// Returns true if a message has exactly one frame.
    pub(super) fn is_single_frame(self) -> bool {
        matches!(self, Channel | Client | Gather | Peer | Scatter | Server)
    }
}

impl fmt::Display for SocketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn talking_is_mutual() {
        for one in SocketType::ALL {
            assert_eq!(SocketType::from_name(one.name().as_bytes()), Some(one));
            for other in SocketType::ALL {
                assert_eq!(one.talks_to(other), other.talks_to(one), "{one} and {other}");
            }
        }
        assert_eq!(SocketType::from_name(b"dealer"), None);
    }
}
