//! Options of connections.

use std::time::Duration;

/// Heartbeats of ZMTP 3.1, with which a side notices a peer that is gone without a sign on the network.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HeartbeatOptions {
    /// Pause between PINGs; `None` sends none (`ZMQ_HEARTBEAT_IVL`). Default `None`.
    pub interval: Option<Duration>,
    /// Time without any bytes of the peer after which the connection is closed; `None` means `interval`
    /// (`ZMQ_HEARTBEAT_TIMEOUT`).
    pub timeout: Option<Duration>,
    /// Time without bytes of this side after which the peer closes the connection, up to 6553.5 s; `None` does not
    /// request it (`ZMQ_HEARTBEAT_TTL`).
    pub ttl: Option<Duration>,
}

/// Limits on the input of a peer, and on the number of peers. Exceeding one closes the connection, but for
/// `handshakes_max`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LimitOptions {
    /// Maximum number of accepted connections of the socket whose handshake is not complete. At the limit the socket
    /// does not accept: further connections wait in the queue of the system until one of them completes its handshake
    /// or fails. Default 1024.
    pub handshakes_max: usize,
    /// Largest message in bytes, all frames together (`ZMQ_MAXMSGSIZE`, which limits frames and has no default).
    /// Default 64 MiB.
    pub message_bytes_max: u64,
    /// Largest number of frames in a message. Default 1024.
    pub message_frames_max: u32,
    /// Maximum number of peers of the socket; further connections are closed. Default 100,000.
    pub peers_max: usize,
    /// Maximum number of subscriptions of a peer. Default 10,000.
    pub subscriptions_max: u32,
}

impl Default for LimitOptions {
    fn default() -> LimitOptions {
        LimitOptions {
            handshakes_max: 1024,
            message_bytes_max: 64 << 20,
            message_frames_max: 1024,
            peers_max: 100_000,
            subscriptions_max: 10_000,
        }
    }
}

/// Pauses between attempts to connect.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReconnectOptions {
    /// Pause after the first failure (`ZMQ_RECONNECT_IVL`). Default 100 ms.
    pub interval: Duration,
    /// Maximum pause: pauses double up to it, and each is random between its half and the whole
    /// (`ZMQ_RECONNECT_IVL_MAX`, whose default is no back-off). Default 5 s.
    pub interval_max: Duration,
    /// Events after which the endpoint is not tried again (`ZMQ_RECONNECT_STOP`). Default none.
    pub stop: ReconnectStop,
}

impl Default for ReconnectOptions {
    fn default() -> ReconnectOptions {
        ReconnectOptions {
            interval: Duration::from_millis(100),
            interval_max: Duration::from_secs(5),
            stop: ReconnectStop::default(),
        }
    }
}

/// Events after which a connecting endpoint ends.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ReconnectStop {
    /// The connection was refused (`ZMQ_RECONNECT_STOP_CONN_REFUSED`).
    pub refused: bool,
    /// The handshake failed (`ZMQ_RECONNECT_STOP_HANDSHAKE_FAILED`).
    pub handshake_failed: bool,
    /// An established connection ended; libzmq has no such option.
    pub disconnected: bool,
}

/// Time limits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TimeoutOptions {
    /// Limit of an attempt to connect (`ZMQ_CONNECT_TIMEOUT`). Default 30 s.
    pub connect: Duration,
    /// Limit of the handshake, and of the greeting before it (`ZMQ_HANDSHAKE_IVL`). Default 10 s.
    pub handshake: Duration,
    /// Time that unsent messages have to be written after the socket is closed or dropped (`ZMQ_LINGER`, whose
    /// default is forever). `None` means forever. Default 30 s.
    pub linger: Option<Duration>,
    /// Limit of a receive; `None` waits forever (`ZMQ_RCVTIMEO`). Default `None`.
    pub receive: Option<Duration>,
    /// Limit of a send that waits for room or for a peer; `None` waits forever (`ZMQ_SNDTIMEO`). Default `None`.
    pub send: Option<Duration>,
}

impl Default for TimeoutOptions {
    fn default() -> TimeoutOptions {
        TimeoutOptions {
            connect: Duration::from_secs(30),
            handshake: Duration::from_secs(10),
            linger: Some(Duration::from_secs(30)),
            receive: None,
            send: None,
        }
    }
}
