//! Mechanisms of the handshake.

use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::{fmt, sync::Arc};
use switchboard_wire::zmtp::{Credentials, Mechanism};

/// Mechanism of the handshake, which must be equal on both sides. NULL by default.
///
/// PLAIN sends the password in plaintext. CURVE is not supported yet, and GSSAPI is not supported: neither has a
/// constructor, and peers that offer them are refused by name.
#[derive(Clone, Default)]
pub struct Security(Kind);

#[derive(Clone, Default)]
enum Kind {
    #[default]
    Null,
    PlainClient(Credentials),
    PlainServer(Arc<dyn Fn(&Credentials) -> bool + Send + Sync>),
}

impl Security {
    /// Sends a username and a password, at most 255 bytes each (`ZMQ_PLAIN_USERNAME`, `ZMQ_PLAIN_PASSWORD`).
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] if one of the two is too long.
    pub fn plain_client(username: impl Into<Bytes>, password: impl Into<Bytes>) -> Result<Security> {
        let credentials =
            Credentials::new(username, password).map_err(|text| Error::new(ErrorKind::InvalidInput, text))?;
        Ok(Security(Kind::PlainClient(credentials)))
    }

    /// Verifies the credentials of each peer with `verify`, the equivalent of a handler of ZAP
    /// (`ZMQ_PLAIN_SERVER`). Compare the password in constant time. `verify` runs in the task of the connection and
    /// must not block.
    pub fn plain_server(verify: impl Fn(&Credentials) -> bool + Send + Sync + 'static) -> Security {
        Security(Kind::PlainServer(Arc::new(verify)))
    }

    pub(crate) fn mechanism(&self) -> Mechanism {
        match &self.0 {
            Kind::Null => Mechanism::Null,
            Kind::PlainClient(credentials) => Mechanism::PlainClient(credentials.clone()),
            Kind::PlainServer(_) => Mechanism::PlainServer,
        }
    }

    pub(crate) fn verify(&self, credentials: &Credentials) -> bool {
        matches!(&self.0, Kind::PlainServer(verify) if verify(credentials))
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mechanism().name())
    }
}
