//! Verification of peers, as a handler of ZAP does it.

use bytes::Bytes;
use std::{fmt, sync::Arc};
use switchboard_net::transport::BoxFuture;
use switchboard_wire::zmtp::{Credentials, PublicKey};

/// A peer to be verified: the content of a request of ZAP.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VerifyRequest {
    /// Endpoint that the peer connected to, or that this side connected to. Takes the place of the domain of ZAP.
    pub endpoint: Arc<str>,
    /// Address of the peer, as the monitor reports it.
    pub address: Arc<str>,
    /// Credentials of the mechanism.
    pub credentials: PeerCredentials,
}

/// Credentials of a peer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PeerCredentials {
    /// The peer has proved that it has the secret key of this public key.
    Curve(PublicKey),
    /// The mechanism has no credentials. The identity is not authenticated.
    Null {
        /// Identity of the peer, empty if it has none.
        identity: Bytes,
    },
    /// Username and password. Compare the password in constant time.
    Plain(Credentials),
}

/// Decision on a peer, with the status of ZAP that a refused peer receives.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// The peer is accepted (200).
    Accepted {
        /// User id, reported in [`PeerStats::user_id`](crate::PeerStats::user_id); empty if there is none.
        user_id: String,
    },
    /// The verification failed (500).
    Failed,
    /// The credentials are not accepted (400).
    Refused,
    /// The peer may try again later (300).
    Unavailable,
}

impl Verdict {
    /// Returns the verdict for a check without a user id.
    pub fn of(is_accepted: bool) -> Verdict {
        if is_accepted { Verdict::Accepted { user_id: String::new() } } else { Verdict::Refused }
    }

    /// Returns the status of ZAP for a peer that is not accepted.
    pub(crate) fn status(&self) -> &'static str {
        match self {
            Verdict::Accepted { .. } => "200",
            Verdict::Failed => "500",
            Verdict::Refused => "400",
            Verdict::Unavailable => "300",
        }
    }
}

type Verify = dyn Fn(VerifyRequest) -> BoxFuture<'static, Verdict> + Send + Sync;

/// A function that verifies peers.
#[derive(Clone)]
pub(crate) struct Verifier(Arc<Verify>);

impl Verifier {
    pub(crate) fn new<F, Verification>(verify: F) -> Verifier
    where
        F: Fn(VerifyRequest) -> Verification + Send + Sync + 'static,
        Verification: Future<Output = Verdict> + Send + 'static,
    {
        Verifier(Arc::new(move |request| Box::pin(verify(request))))
    }

    pub(crate) async fn verify(&self, request: VerifyRequest) -> Verdict {
        (self.0)(request).await
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}
