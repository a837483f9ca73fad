//! Codes of errors, of closed connections and of ended subscriptions.
//!
//! A client comes back after a code of a closed connection below 3500 and from 4000 to 4499, and subscribes again after
//! a code of an ended subscription from 2500 on.

/// Error: the server has failed; temporary.
pub const INTERNAL: u32 = 100;
/// Error: the client has no valid credentials.
pub const UNAUTHORIZED: u32 = 101;
/// Error: no such channel.
pub const UNKNOWN_CHANNEL: u32 = 102;
/// Error: the client may not do this.
pub const PERMISSION_DENIED: u32 = 103;
/// Error: no such method or command.
pub const METHOD_NOT_FOUND: u32 = 104;
/// Error: the client is subscribed to the channel.
pub const ALREADY_SUBSCRIBED: u32 = 105;
/// Error: a limit was exceeded.
pub const LIMIT_EXCEEDED: u32 = 106;
/// Error: the request has an error.
pub const BAD_REQUEST: u32 = 107;
/// Error: the channel does not have this.
pub const NOT_AVAILABLE: u32 = 108;
/// Error: the token has expired; the client fetches a new one.
pub const TOKEN_EXPIRED: u32 = 109;
/// Error: the new token has expired.
pub const EXPIRED: u32 = 110;
/// Error: too many requests; temporary.
pub const TOO_MANY_REQUESTS: u32 = 111;
/// Error: the position that the client names cannot be read from.
pub const UNRECOVERABLE_POSITION: u32 = 112;

/// Closed: without a special reason.
pub const CLOSED: u16 = 3000;
/// Closed: the server stops.
pub const SHUTDOWN: u16 = 3001;
/// Closed: the server has failed.
pub const SERVER_ERROR: u16 = 3004;
/// Closed: the token has expired.
pub const CONNECTION_EXPIRED: u16 = 3005;
/// Closed: the token of a subscription has expired.
pub const SUBSCRIPTION_EXPIRED: u16 = 3006;
/// Closed: the client reads too slowly.
pub const SLOW: u16 = 3008;
/// Closed: the position of a subscription cannot be held.
pub const INSUFFICIENT_STATE: u16 = 3010;
/// Closed: the client should come back.
pub const FORCE_RECONNECT: u16 = 3011;
/// Closed: no pong in time.
pub const NO_PONG: u16 = 3012;
/// Closed: too many requests.
pub const TOO_MANY: u16 = 3013;
/// Closed: the token is invalid; the client stays away.
pub const INVALID_TOKEN: u16 = 3500;
/// Closed: the client violated the protocol; it stays away.
pub const BAD_COMMAND: u16 = 3501;
/// Closed: no *connect* in time; the client stays away.
pub const STALE: u16 = 3502;
/// Closed: the application wants it; the client stays away.
pub const FORCE_DISCONNECT: u16 = 3503;
/// Closed: too many connections; the client stays away.
pub const CONNECTION_LIMIT: u16 = 3504;
/// Closed: too many channels; the client stays away.
pub const CHANNEL_LIMIT: u16 = 3505;
/// Closed: too many errors; the client stays away.
pub const TOO_MANY_ERRORS: u16 = 3509;

/// Ended subscription: the server wants it.
pub const UNSUBSCRIBED: u32 = 2000;
/// Ended subscription: publications were lost; the client subscribes again and recovers.
pub const INSUFFICIENT: u32 = 2500;

/// Returns whether the client may try a command again.
pub(super) fn is_temporary(code: u32) -> bool {
    matches!(code, INTERNAL | TOO_MANY_REQUESTS)
}
