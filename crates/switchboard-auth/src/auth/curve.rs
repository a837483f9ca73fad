//! Public keys of CURVE, the mechanism of ZeroMQ.

use super::{Auth, Caller, Checked, Credentials};
use std::{collections::HashMap, sync::Arc};

/// Accepts peers by their public key of CURVE. The handshake of ZeroMQ has proved that the peer has the secret key; a
/// key in metadata proves nothing, and is not read.
///
/// ```
/// use switchboard::auth::{Caller, CurveKeys};
///
/// let keys = CurveKeys::default().key([7; 32], Caller::new("desk").role("trader"));
/// let server = switchboard::Server::new().auth(keys);
/// ```
#[derive(Debug, Default)]
pub struct CurveKeys {
    callers: HashMap<[u8; 32], Arc<Caller>>,
}

impl CurveKeys {
    /// Maps this public key to a caller. The `PublicKey` of the ZeroMQ plugin, which reads the text form, is one as
    /// well.
    #[must_use]
    pub fn key(mut self, public_key: impl Into<[u8; 32]>, caller: Caller) -> CurveKeys {
        self.callers.insert(public_key.into(), Arc::new(caller));
        self
    }
}

impl Auth for CurveKeys {
    fn name(&self) -> &str {
        "curve"
    }

    fn check(&self, credentials: &Credentials<'_>) -> Checked<'_> {
        let Some(key) = &credentials.peer().curve_key else { return Checked::Absent };
        match self.callers.get(&**key) {
            Some(caller) => Checked::CachedCaller(caller),
            None => Checked::Unauthenticated("the key of CURVE is not known"),
        }
    }
}
