//! Options of sockets, one struct per topic. Each field names the option of libzmq that it corresponds to.
//!
//! ```
//! use std::time::Duration;
//! use switchboard_socket::{Push, SocketOptions};
//!
//! # fn main() -> Result<(), switchboard_socket::Error> {
//! let mut options = SocketOptions::default();
//! options.queues.send_messages_max = 10_000;
//! options.timeouts.send = Some(Duration::from_secs(1));
//! options.reconnect.interval_max = Duration::from_secs(30);
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # let _entered = runtime.enter();
//! let push = Push::with_options(options)?;
//! # Ok(())
//! # }
//! ```

mod network;
mod patterns;
mod security;
mod transport;
mod verify;

pub use network::{AddressRange, IpcFilter, TcpKeepaliveOptions, TransportOptions};
pub use patterns::{
    NoticeOptions, QueueFullPolicy, QueueOptions, RequestOptions, RoutingOptions, SubscriptionOptions,
};
pub use security::Security;
#[cfg(feature = "curve")]
pub use security::curve_keypair;
#[cfg(feature = "curve")]
pub use switchboard_wire::zmtp::SecretKey as CurveSecretKey;
pub use switchboard_wire::zmtp::{Credentials, PublicKey as CurvePublicKey};
pub use transport::{HeartbeatOptions, LimitOptions, ReconnectOptions, ReconnectStop, TimeoutOptions};
pub use verify::{PeerCredentials, Verdict, VerifyRequest};

use crate::{Error, ErrorKind, Result};
use switchboard_wire::zmtp::SocketType;

/// Options of a socket. They apply to all endpoints of the socket and do not change after it is created.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SocketOptions {
    /// Heartbeats of ZMTP.
    pub heartbeats: HeartbeatOptions,
    /// Limits on the input of a peer.
    pub limits: LimitOptions,
    /// Properties that the handshake sends to the peer (`ZMQ_METADATA`). Names of applications begin with `X-`.
    pub metadata: Vec<(String, String)>,
    /// Messages about connections.
    pub notices: NoticeOptions,
    /// Queues of a peer, and the action when one is full.
    pub queues: QueueOptions,
    /// Pauses between attempts to connect.
    pub reconnect: ReconnectOptions,
    /// Options of REQ.
    pub requests: RequestOptions,
    /// Routing ids, and options of ROUTER.
    pub routing: RoutingOptions,
    /// Mechanism of the handshake.
    pub security: Security,
    /// Options of PUB, XPUB, SUB and XSUB.
    pub subscriptions: SubscriptionOptions,
    /// Time limits.
    pub timeouts: TimeoutOptions,
    /// Options of the sockets of the operating system, and filters of peers.
    pub transport: TransportOptions,
}

impl SocketOptions {
    /// Checks options that exclude each other or do not exist for the socket type.
    pub(crate) fn check(&self, kind: SocketType) -> Result<()> {
        let invalid = |text: String| Err(Error::new(ErrorKind::InvalidInput, text));
        let can_conflate = matches!(
            kind,
            SocketType::Dealer | SocketType::Pub | SocketType::Pull | SocketType::Push | SocketType::Sub
        );
        if self.queues.conflate && !can_conflate {
            return invalid(format!(
                "option queues.conflate is not available on {kind}; DEALER, PUB, PULL, PUSH and SUB have it"
            ));
        }
        if self.heartbeats.interval.is_some_and(|interval| interval.is_zero()) {
            return invalid("option heartbeats.interval is 0; use None for no heartbeats".to_owned());
        }
        let of_zmtp = [
            ("heartbeats.interval", self.heartbeats.interval.is_some()),
            ("notices.hello", self.notices.hello.is_some()),
            ("security", !self.security.is_none()),
        ];
        if let Some((name, _)) = of_zmtp.iter().find(|(_, is_set)| kind == SocketType::Stream && *is_set) {
            return invalid(format!(
                "option {name} is not available on STREAM, which sends bytes without ZMTP: remove the option"
            ));
        }
        let (limits, timeouts) = (&self.limits, &self.timeouts);
        let zeros = [
            ("heartbeats.timeout", self.heartbeats.timeout.is_some_and(|timeout| timeout.is_zero())),
            ("limits.handshakes_max", limits.handshakes_max == 0),
            ("limits.message_bytes_max", limits.message_bytes_max == 0),
            ("limits.message_frames_max", limits.message_frames_max == 0),
            ("limits.peers_max", limits.peers_max == 0),
            ("limits.subscriptions_max", limits.subscriptions_max == 0),
            ("reconnect.interval", self.reconnect.interval.is_zero()),
            ("timeouts.connect", timeouts.connect.is_zero()),
            ("timeouts.handshake", timeouts.handshake.is_zero()),
            ("transport.backlog", self.transport.backlog == 0),
        ];
        match zeros.iter().find(|(_, is_zero)| *is_zero) {
            Some((name, _)) => invalid(format!("option {name} is 0; the minimum is above 0")),
            None => Ok(()),
        }
    }
}
