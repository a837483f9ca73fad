//! A PAIR of the application: messages to and from its only peer.

use super::{
    Zmtp,
    dealer::{ZmtpDealer, ZmtpDealerSender},
    mapping::Local,
    router::{ZmtpRouter, ZmtpRouterOptions},
};
use bytes::Bytes;
use std::fmt;
use switchboard_core::Result;
use switchboard_wire::zmtp::SocketType;

/// A PAIR: sends messages to its only peer, and receives those of the peer. A second peer is closed while the first one
/// is connected; afterwards another one may take its place.
///
/// ```no_run
/// use bytes::Bytes;
/// use switchboard_adapter::{Zmtp, ZmtpRouterOptions};
/// use switchboard_message::Bus;
///
/// # async fn control() -> switchboard_core::Result<()> {
/// let (zmtp, mut pair) = Zmtp::new(Bus::new()).pair(ZmtpRouterOptions::default());
/// // … Server::new().plugin(zmtp)
/// # drop(zmtp);
/// while let Some(command) = pair.recv().await {
///     pair.send(vec![Bytes::from_static(b"done"), command[0].clone()]).await?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct ZmtpPair(ZmtpDealer);

impl Zmtp {
    /// Connects a PAIR peer to a PAIR of the application, which has one peer at a time over all listeners.
    ///
    /// A type of peers has one local socket: the server does not start if PAIR is mapped twice.
    #[must_use]
    pub fn pair(self, options: ZmtpRouterOptions) -> (Zmtp, ZmtpPair) {
        let (router, inlet) = ZmtpRouter::with_peers_max(options, 1);
        let zmtp = self.with(|shared| {
            shared.mapping.add([SocketType::Pair], Local::Pair(shared.routers.len()));
            shared.routers.push(inlet);
        });
        (zmtp, ZmtpPair(ZmtpDealer::new(router)))
    }
}

impl ZmtpPair {
    /// Returns the next message of the peer; `None` when the plugin and its servers are gone. The peer is not read
    /// while the application does not receive.
    ///
    /// Cancel safe: a dropped `recv` loses no message.
    pub async fn recv(&mut self) -> Option<Vec<Bytes>> {
        self.0.recv().await
    }

    /// Returns a handle that sends to the peer.
    pub fn sender(&self) -> ZmtpDealerSender {
        self.0.sender()
    }

    /// Sends a message to the peer; waits until a peer is connected and has room. The message is lost if the peer
    /// disconnects before it has read it.
    ///
    /// Cancel safe: a dropped `send` has sent nothing, or the whole message.
    ///
    /// # Errors
    /// `InvalidArgument` for a message without frames.
    pub async fn send(&self, frames: Vec<Bytes>) -> Result<()> {
        self.0.send(frames).await
    }

    /// Returns true if the peer is connected.
    pub fn is_connected(&self) -> bool {
        self.0.sender().peers() > 0
    }
}

impl fmt::Debug for ZmtpPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZmtpPair").field("is_connected", &self.is_connected()).finish_non_exhaustive()
    }
}
