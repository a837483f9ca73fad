//! Mechanisms of the handshake.

use super::verify::{PeerCredentials, Verdict, Verifier, VerifyRequest};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::fmt;
use switchboard_wire::zmtp::{Credentials, Mechanism};

/// Mechanism of the handshake, which must be equal on both sides. NULL by default.
///
/// The side that binds may be the server or the client of the mechanism. PLAIN sends the password in plaintext. CURVE
/// (feature `curve`) encrypts. Peers that offer another mechanism, such as GSSAPI, are refused by its name.
#[derive(Clone)]
pub struct Security {
    mechanism: Mechanism,
    verifier: Option<Verifier>,
}

impl Default for Security {
    fn default() -> Security {
        Security { mechanism: Mechanism::Null, verifier: None }
    }
}

impl Security {
    /// Sends a username and a password, at most 255 bytes each (`ZMQ_PLAIN_USERNAME`, `ZMQ_PLAIN_PASSWORD`).
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] if one of the two is too long.
    pub fn plain_client(username: impl Into<Bytes>, password: impl Into<Bytes>) -> Result<Security> {
        let credentials =
            Credentials::new(username, password).map_err(|text| Error::new(ErrorKind::InvalidInput, text))?;
        Ok(Security { mechanism: Mechanism::PlainClient(credentials), verifier: None })
    }

    /// Verifies the credentials of each peer with `verify` (`ZMQ_PLAIN_SERVER`). Compare the password in constant time.
    /// `verify` runs in the task of the connection and must not block; see [`with_verifier`](Self::with_verifier) for
    /// one that waits, or that returns other statuses.
    pub fn plain_server(verify: impl Fn(&Credentials) -> bool + Send + Sync + 'static) -> Security {
        let verify = move |request: VerifyRequest| {
            let is_accepted =
                matches!(&request.credentials, PeerCredentials::Plain(credentials) if verify(credentials));
            std::future::ready(Verdict::of(is_accepted))
        };
        Security { mechanism: Mechanism::PlainServer, verifier: Some(Verifier::new(verify)) }
    }

    /// Verifies each peer of a server of PLAIN or CURVE, or of NULL, with `verify`, the equivalent of a handler of ZAP
    /// (`ZMQ_ZAP_DOMAIN`). It replaces an earlier function. A client of a mechanism does not use it: it has verified
    /// its server by the mechanism, or not at all.
    ///
    /// The future runs in the task of the connection, delays no other peer, and ends with `timeouts.handshake`. A peer
    /// that is not accepted gets an ERROR with the status of ZAP and is closed. With NULL, a peer that connected to
    /// this side gets READY after the verdict; one that this side connected to has it before, and may have sent
    /// messages, which are lost.
    ///
    /// ```
    /// use switchboard_socket::options::{PeerCredentials, Security, Verdict};
    ///
    /// let security = Security::default().with_verifier(async |request| {
    ///     Verdict::of(request.address.starts_with("tcp://127.0.0.1:"))
    /// });
    /// ```
    #[must_use]
    pub fn with_verifier<F, Verification>(mut self, verify: F) -> Security
    where
        F: Fn(VerifyRequest) -> Verification + Send + Sync + 'static,
        Verification: Future<Output = Verdict> + Send + 'static,
    {
        self.verifier = Some(Verifier::new(verify));
        self
    }

    pub(crate) fn mechanism(&self) -> Mechanism {
        self.mechanism.clone()
    }

    /// Verifies a peer. Without a function, peers of NULL are accepted and all others are refused.
    pub(crate) async fn verify(&self, request: VerifyRequest) -> Verdict {
        match &self.verifier {
            Some(verifier) => verifier.verify(request).await,
            None => Verdict::of(matches!(request.credentials, PeerCredentials::Null { .. })),
        }
    }

    /// Returns true if the handshake neither authenticates nor verifies, as by default.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self.mechanism, Mechanism::Null) && self.verifier.is_none()
    }

    /// Returns true if peers of NULL are verified.
    pub(crate) fn verifies_null(&self) -> bool {
        matches!(self.mechanism, Mechanism::Null) && self.verifier.is_some()
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mechanism.name())
    }
}

#[cfg(feature = "curve")]
mod curve {
    use super::{Mechanism, PeerCredentials, Security, Verdict, Verifier, VerifyRequest};
    use crate::{Error, ErrorKind, Result};
    use ring::rand::{SecureRandom, SystemRandom};
    use switchboard_wire::zmtp::{CurveClient, CurveServer, KEY_BYTES, PublicKey, Randomness, SecretKey};

    impl Security {
        /// Encrypts with CURVE as a client: `secret` is the key of this side (`ZMQ_CURVE_SECRETKEY`, from which
        /// `ZMQ_CURVE_PUBLICKEY` is computed), and `server` the public key of all servers that the socket talks to
        /// (`ZMQ_CURVE_SERVERKEY`). A server with another key cannot complete the handshake.
        pub fn curve_client(secret: SecretKey, server: PublicKey) -> Security {
            let keys = CurveClient::new(secret, server, randomness());
            Security { mechanism: Mechanism::CurveClient(keys), verifier: None }
        }

        /// Encrypts with CURVE as a server with this secret key (`ZMQ_CURVE_SERVER`, `ZMQ_CURVE_SECRETKEY`), and
        /// verifies the public key of each peer with `verify`. The peer has proved that it has the secret key.
        /// `verify` runs in the task of the connection and must not block; see
        /// [`with_verifier`](Self::with_verifier) for one that waits, or that returns other statuses.
        pub fn curve_server(
            secret: SecretKey,
            verify: impl Fn(&PublicKey) -> bool + Send + Sync + 'static,
        ) -> Security {
            let verify = move |request: VerifyRequest| {
                let is_accepted = matches!(&request.credentials, PeerCredentials::Curve(key) if verify(key));
                std::future::ready(Verdict::of(is_accepted))
            };
            let keys = CurveServer::new(secret, randomness());
            Security { mechanism: Mechanism::CurveServer(keys), verifier: Some(Verifier::new(verify)) }
        }
    }

    /// Creates a random pair of keys (`zmq_curve_keypair`). Their texts are Z85.
    ///
    /// # Errors
    /// Returns [`ErrorKind::State`] if the system has no random bytes.
    pub fn curve_keypair() -> Result<(PublicKey, SecretKey)> {
        let mut bytes = [0; KEY_BYTES];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| Error::new(ErrorKind::State, "the system has no random bytes for a key"))?;
        let secret = SecretKey::new(bytes);
        Ok((secret.public_key(), secret))
    }

    fn randomness() -> Randomness {
        let random = SystemRandom::new();
        Randomness::new(move |bytes| random.fill(bytes).map_err(|_| "the system has none".to_owned()))
    }
}

#[cfg(feature = "curve")]
pub use curve::curve_keypair;
