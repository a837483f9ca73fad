//! The settings of TLS on a listener.

use super::files::PairFiles;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// TLS for a listener: certificates in PEM files, read again when they change.
///
/// TLS 1.2 and 1.3. What is spoken inside is chosen by ALPN (`h2`, `http/1.1`, `swb/1`, `baidu_std`) or told apart by
/// its first bytes, as without TLS.
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

/// What becomes of connections without TLS.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Plaintext {
    Refused,
    Served,
}

impl Tls {
    /// The certificate chain and the private key that callers get who ask for no name, or for one that no other
    /// certificate has.
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

    /// The same settings with another certificate in place of all.
    pub(crate) fn with_files(self, certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Tls {
        Tls { pairs: Tls::files(certificate, key).pairs, ..self }
    }

    /// A further certificate, for callers that ask for one of its DNS names (SNI). Names may have a wildcard as
    /// their first part, `*.example.com`; an exact name goes before it, and the first of two alike wins.
    pub fn certificate(mut self, certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Tls {
        let pair = PairFiles { certificate: certificate.as_ref().into(), key: key.as_ref().into() };
        self.pairs.push(pair);
        self
    }

    /// Requires of every client a certificate that one of these issued; handlers see it as
    /// [`Peer::identity`](crate::Peer::identity).
    pub fn client_roots(mut self, roots: impl AsRef<Path>) -> Tls {
        self.client_roots = Some(roots.as_ref().into());
        self
    }

    /// Admits clients without a certificate as well; one that is shown must still be good. Handlers then have to
    /// look for themselves.
    pub fn client_optional(mut self) -> Tls {
        self.client_optional = true;
        self
    }

    /// Serves connections without TLS on the same port too. By default they are told to use TLS, and closed. Client
    /// certificates can then be no more than [optional](Self::client_optional).
    pub fn plaintext_too(mut self) -> Tls {
        self.plaintext = Plaintext::Served;
        self
    }

    /// How often the files are looked at for changes; by default every 30 s, and never with zero.
    /// [`Running::reload_tls`](crate::Running::reload_tls) does it at once.
    pub fn check_every(mut self, pause: Duration) -> Tls {
        self.check_every = pause;
        self
    }
}
