//! TLS settings of a listener.

use super::files::PairFiles;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// TLS settings of a listener: certificates in PEM files, reloaded when the files change.
///
/// Supports TLS 1.2 and 1.3. The protocol inside is selected by ALPN (`h2`, `http/1.1`, `swb/1`, `baidu_std`)
/// or detected by its first bytes, as without TLS.
///
/// ```no_run
/// # async fn run() -> Result<(), switchboard::Error> {
/// use switchboard::{Server, Tls};
///
/// let tls = Tls::files("cert.pem", "key.pem").client_roots("clients.pem");
/// Server::new().listen_tls("tcp://0.0.0.0:8443", tls).serve().await
/// # }
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use = "settings do nothing until a listener gets them"]
pub struct Tls {
    pub(super) pairs: Vec<PairFiles>,
    pub(super) client_roots: Option<PathBuf>,
    pub(super) client_optional: bool,
    pub(super) plaintext: Plaintext,
    pub(super) check_every: Duration,
}

/// Handling of connections without TLS.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: such connections are refused or served
pub enum Plaintext {
    Refused,
    Served,
}

impl Tls {
    /// Sets the default certificate chain and its private key: for clients that request no name (SNI), or a
    /// name that no other certificate contains.
    pub fn files(certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Tls {
        let pair = PairFiles { certificate: certificate.as_ref().into(), key: key.as_ref().into() };
        Tls {
            pairs: vec![pair],
            client_roots: None,
            client_optional: false,
            plaintext: Plaintext::Refused,
            check_every: Duration::from_secs(30),
        }
    }

    /// Replaces all certificates by one.
    #[doc(hidden)]
    pub fn with_files(self, certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Tls {
        Tls { pairs: Tls::files(certificate, key).pairs, ..self }
    }

    /// Adds a certificate for clients that request one of its DNS names (SNI). Names may have a wildcard as
    /// their first label, `*.example.com`; exact names take precedence, and the first of two equal names
    /// wins.
    pub fn certificate(mut self, certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Tls {
        let pair = PairFiles { certificate: certificate.as_ref().into(), key: key.as_ref().into() };
        self.pairs.push(pair);
        self
    }

    /// Requires from every client a certificate that one of these roots issued; handlers see it as
    /// [`Peer::identity`](switchboard_core::Peer::identity).
    pub fn client_roots(mut self, roots: impl AsRef<Path>) -> Tls {
        self.client_roots = Some(roots.as_ref().into());
        self
    }

    /// Admits clients without a certificate as well; a certificate that is sent must still be valid. Handlers
    /// must then check the identity themselves.
    pub fn client_optional(mut self) -> Tls {
        self.client_optional = true;
        self
    }

    /// Serves connections without TLS on the same port as well. By default they get an error that requires
    /// TLS, and are closed. Client certificates must then be [optional](Self::client_optional).
    pub fn plaintext_too(mut self) -> Tls {
        self.plaintext = Plaintext::Served;
        self
    }

    /// Sets the interval of checks for changed files; default 30 s, zero turns the checks off.
    /// `Running::reload_tls` reloads at once.
    pub fn check_every(mut self, pause: Duration) -> Tls {
        self.check_every = pause;
        self
    }
}
