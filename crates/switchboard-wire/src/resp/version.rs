//! Versions of the protocol, and kinds of subscriptions.

/// Version of the protocol on a connection: RESP2 until `HELLO 3`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
// closed: RESP2 and RESP3
pub enum Version {
    /// Arrays, strings, integers and errors. Messages to subscribers are arrays.
    #[default]
    Resp2,
    /// Maps, sets, doubles, booleans and pushes too.
    Resp3,
}

impl Version {
    /// Returns the number in `HELLO`.
    pub fn number(self) -> u8 {
        match self {
            Version::Resp2 => 2,
            Version::Resp3 => 3,
        }
    }

    /// Returns the version with this number.
    pub fn from_number(number: i64) -> Option<Version> {
        match number {
            2 => Some(Version::Resp2),
            3 => Some(Version::Resp3),
            _ => None,
        }
    }
}

/// Kind of a subscription.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
// closed: the commands SUBSCRIBE, PSUBSCRIBE and SSUBSCRIBE
pub enum SubscriptionKind {
    /// One channel: `SUBSCRIBE`.
    Channel,
    /// The channels that match a [`Pattern`](super::Pattern): `PSUBSCRIBE`.
    Pattern,
    /// One shard channel: `SSUBSCRIBE`. A shard channel is the channel with its name; its messages have another word,
    /// and its subscriptions a count of their own.
    Shard,
}

impl SubscriptionKind {
    /// All kinds.
    pub const ALL: [SubscriptionKind; 3] =
        [SubscriptionKind::Channel, SubscriptionKind::Pattern, SubscriptionKind::Shard];

    /// Returns the command that subscribes, in lower case as confirmations have it.
    pub fn subscribe(self) -> &'static str {
        match self {
            SubscriptionKind::Channel => "subscribe",
            SubscriptionKind::Pattern => "psubscribe",
            SubscriptionKind::Shard => "ssubscribe",
        }
    }

    /// Returns the command that ends subscriptions, in lower case as confirmations have it.
    pub fn unsubscribe(self) -> &'static str {
        match self {
            SubscriptionKind::Channel => "unsubscribe",
            SubscriptionKind::Pattern => "punsubscribe",
            SubscriptionKind::Shard => "sunsubscribe",
        }
    }
}
