//! Authentication without a call: for descriptions of the server, and for connections whose protocol has a login.

use super::Guarding;
use bytes::Bytes;
use std::sync::Arc;
use switchboard_auth::auth::{Checked, Credentials, unauthenticated};
use switchboard_core::{Call, Caller, Cx, Peer, Result, call::RequestBody};
use switchboard_wire::{Codec, Kind, Metadata, MethodInfo, ServiceInfo, Status};

/// Pseudo service of the calls that verifiers see.
static DISCOVERY: ServiceInfo = ServiceInfo {
    name: "switchboard.Discovery",
    methods: &[MethodInfo::new("Describe", Kind::Unary)],
    descriptor: &[],
};

/// Method that verifiers see for the login of a connection.
const LOGIN: &str = "switchboard.Connection/Login";

impl Guarding {
    /// Authenticates the peer of a connection; returns `None` for credentials of no kind that the server checks.
    ///
    /// # Errors
    /// `Unauthenticated` for invalid credentials, and the errors of the verifier.
    pub async fn authenticate(&self, peer: &Arc<Peer>, credentials: Metadata) -> Result<Option<Arc<Caller>>> {
        let caller = match self.caller(peer, credentials, LOGIN).await {
            // An empty name would be shared by all callers without a name.
            Ok(Some(caller)) if caller.name.is_empty() => {
                Err(unauthenticated("the credentials contain no caller name"))
            }
            caller => caller,
        };
        caller.inspect_err(|status| audit(peer, LOGIN, status))
    }

    /// Authenticates the caller; returns `None` without credentials.
    pub(super) async fn caller(
        &self,
        peer: &Arc<Peer>,
        metadata: Metadata,
        name: &str,
    ) -> Result<Option<Arc<Caller>>> {
        let later = {
            let cx = Cx::new(peer, &DISCOVERY, &DISCOVERY.methods[0], None, metadata);
            let call = Call::new(0, Codec::Json, RequestBody::One(Bytes::new()), cx);
            let credentials = Credentials::new(&call, name);
            let mut found = None;
            for auth in self.auth.iter() {
                match auth.check(&credentials) {
                    Checked::Absent => {}
                    Checked::Caller(caller) => return Ok(Some(caller)),
                    Checked::CachedCaller(caller) => return Ok(Some(caller.clone())),
                    Checked::Unauthenticated(why) => return Err(unauthenticated(why)),
                    Checked::Later(caller) => {
                        found = Some(caller);
                        break;
                    }
                }
            }
            found
        };
        match later {
            None => Ok(None),
            Some(caller) => caller.await.map(Some),
        }
    }
}

/// Writes an audit line for a denied peer.
pub(super) fn audit(peer: &Peer, method: &str, status: &Status) {
    let Some(left_out) = super::audit::line() else { return };
    tracing::warn!(
        target: "switchboard::audit",
        left_out,
        method,
        peer = peer.address,
        wire = peer.wire(),
        by = "rule",
        code = status.code().name(),
        "denied: {}",
        status.message()
    );
}
