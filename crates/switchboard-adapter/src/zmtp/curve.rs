//! Peers with CURVE: encrypted connections, and public keys as credentials.

use super::{Zmtp, adapter::ZmtpAdapter, login::Login, peer::Peer};
use ring::rand::{SecureRandom, SystemRandom};
use std::sync::Arc;
use switchboard_fanout::{CloseReason, SubscriberId, Subscribers};
use switchboard_wire::{
    Metadata,
    zmtp::{CurveServer, Mechanism, PublicKey, Randomness, SecretKey},
};

impl Zmtp {
    /// Encrypts the connection of each peer, by the mechanism CURVE with this secret key. Peers must know its
    /// [public key](SecretKey::public_key).
    ///
    /// The `auth` of the server decides on the public keys of peers, which have proved that they have the secret key:
    /// add `auth::CurveKeys`, or read `curve_key` of the peer in a function. A peer that is refused gets an ERROR with
    /// a status of ZAP, and is closed. [`anonymous`](Self::anonymous) accepts every key; a server without `auth` does
    /// not start without it.
    ///
    /// Each subscriber has its own encryption: an entry costs as much time for each of them as for the first. A
    /// subscriber that is too slow loses the newest entries rather than the oldest.
    ///
    /// ```
    /// use switchboard::{Caller, Server, auth::CurveKeys};
    /// use switchboard_adapter::{CurvePublicKey, CurveSecretKey, Zmtp};
    /// use switchboard_message::Bus;
    ///
    /// let secret: CurveSecretKey = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6".parse()?;
    /// let desk: CurvePublicKey = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID".parse()?;
    /// let server = Server::new()
    ///     .plugin(Zmtp::new(Bus::new()).curve(secret))
    ///     .auth(CurveKeys::default().key(desk, Caller::new("desk")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn curve(self, secret: SecretKey) -> Zmtp {
        let random = SystemRandom::new();
        let fill = move |bytes: &mut [u8]| random.fill(bytes).map_err(|_| "the system has none".to_owned());
        let keys = CurveServer::new(secret, Randomness::new(fill));
        self.with(|shared| shared.curve = Some(Mechanism::CurveServer(keys)))
    }
}

impl ZmtpAdapter {
    /// Begins to check the public key of a peer, whose next bytes wait for the verdict.
    pub(super) fn log_in_with_key(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        key: PublicKey,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        if let Some(remote) = &mut peer.remote {
            let mut with_key = switchboard_core::Peer::clone(remote);
            with_key.curve_key = Some(Arc::new(key.to_bytes()));
            *remote = Arc::new(with_key);
        }
        if self.shared.is_anonymous {
            peer.connection.accept(&mut self.out);
            return Ok(());
        }
        let unknown = "the server accepts no keys of CURVE; it needs auth::CurveKeys";
        Login::begin(self, id, peer, Metadata::new(), unknown, subscribers)
    }
}
