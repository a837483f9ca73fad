//! Names and passwords, RFC 7617.

use super::{Auth, Caller, Checked, Credential, Credentials, secrets::Secrets};
use base64::{Engine, engine::general_purpose::STANDARD};

/// Names and passwords, sent as `authorization: Basic …` (RFC 7617).
///
/// Use it only inside TLS or on connections that cannot be intercepted: every call contains the password.
#[derive(Debug, Default)]
pub struct Basic {
    secrets: Secrets,
}

impl Basic {
    /// Maps this name and password to a caller. The name must not contain a colon.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str, caller: Caller) -> Basic {
        self.secrets.insert(format!("{name}:{password}"), caller);
        self
    }
}

impl Auth for Basic {
    fn name(&self) -> &str {
        "basic"
    }

    fn credential(&self) -> Option<Credential> {
        Some(Credential::Authorization("Basic".into()))
    }

    fn check(&self, credentials: &Credentials<'_>) -> Checked<'_> {
        let Some(encoded) = credentials.authorization("Basic") else { return Checked::Absent };
        let decoded = STANDARD.decode(encoded.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let caller = decoded.and_then(|pair| self.secrets.find(pair.as_bytes()));
        caller.map_or(Checked::Unauthenticated("the name or the password is wrong"), Checked::CachedCaller)
    }
}
