//! Names and passwords, RFC 7617.

use super::{Auth, Caller, Checked, Credentials, secrets::Secrets};
use base64::{Engine, engine::general_purpose::STANDARD};

/// Names and passwords, sent as `authorization: Basic …` (RFC 7617).
///
/// Only for connections inside TLS, or that nobody else can read: whoever reads one call has the password.
#[derive(Debug, Default)]
pub struct Basic {
    secrets: Secrets,
}

impl Basic {
    /// Whoever sends this name and this password is this caller. A name has no colon.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str, caller: Caller) -> Basic {
        self.secrets.insert(format!("{name}:{password}"), caller);
        self
    }
}

/// What a client sends as `authorization`.
pub(crate) fn authorization(name: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

impl Auth for Basic {
    fn name(&self) -> &str {
        "basic"
    }

    fn check(&self, credentials: &Credentials<'_>) -> Checked<'_> {
        let Some(encoded) = credentials.authorization("Basic") else { return Checked::Absent };
        let decoded = STANDARD.decode(encoded.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let caller = decoded.and_then(|pair| self.secrets.find(pair.as_bytes()));
        caller.map_or(Checked::Wrong("the name or the password is wrong"), Checked::Known)
    }
}
