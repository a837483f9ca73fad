//! TLS as a listener takes it: certificates that change under way, handshakes, and who the peer is.

use super::{
    ALPN_BAIDU_STD, ALPN_HTTP1, ALPN_HTTP2, ALPN_NATIVE, PROVIDER, Plaintext, Tls, explain,
    files::{self, Pair, Watch},
    server_names::ServerNames,
    stream::{Failed, Stream},
    verify::Noting,
    x509::{self, Summary},
};
use crate::{
    Error, Identity,
    metrics::{CertificateStats, TlsStats},
    net::Io,
};
use bytes::BytesMut;
use rustls::{ServerConfig, ServerConnection, server::WebPkiClientVerifier};
use std::{
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::sync::watch;

/// Certificates that expire within this time are warned of when they are read.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 86_400);

/// The server's side of TLS on one listener.
pub(crate) struct Acceptor {
    tls: Tls,
    watch: Watch,
    current: Mutex<Current>,
    handshakes: AtomicU64,
    failures: AtomicU64,
    reloads: AtomicU64,
    reload_failures: AtomicU64,
}

struct Current {
    /// Replaced as a whole, so that sessions of clients that are no longer trusted are not resumed.
    config: Arc<ServerConfig>,
    certificates: Vec<Certificate>,
    /// What the files were when they were read.
    read: u64,
    /// What they were when they could not be used; warned of once.
    failed: Option<u64>,
}

/// What is told of a certificate in use.
struct Certificate {
    file: String,
    summary: Summary,
}

/// A connection inside TLS.
pub(crate) struct Accepted {
    pub(crate) io: Box<dyn Io>,
    /// What ALPN chose.
    pub(crate) protocol: Option<Vec<u8>>,
    pub(crate) identity: Option<Arc<Identity>>,
    /// The name of the cipher suite.
    pub(crate) suite: Option<String>,
}

/// A handshake that failed.
pub(crate) struct Refused {
    /// The pipe, on which the alert was sent.
    pub(crate) io: Box<dyn Io>,
    pub(crate) why: String,
}

impl Acceptor {
    /// Reads the files.
    ///
    /// # Errors
    /// Which of them cannot be used, and why.
    pub(crate) fn new(tls: Tls) -> Result<Acceptor, Error> {
        if let Some(why) = tls.contradiction() {
            return Err(Error::config(format!("tls: {why}")));
        }
        let watch = Watch::default();
        let read = watch.look(tls.watched());
        let (config, certificates) = load(&tls).map_err(|why| Error::config(format!("tls: {why}")))?;
        Ok(Acceptor {
            tls,
            watch,
            current: Mutex::new(Current { config, certificates, read, failed: None }),
            handshakes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            reloads: AtomicU64::new(0),
            reload_failures: AtomicU64::new(0),
        })
    }

    /// Whether connections without TLS are served as well.
    pub(crate) fn plaintext(&self) -> Plaintext {
        self.tls.plaintext
    }

    /// Counts a handshake that was cut for taking too long.
    pub(crate) fn gave_up(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs the handshake on a pipe of which `first` was read. When it fails, the alert has been sent.
    pub(crate) async fn accept(&self, io: Box<dyn Io>, first: BytesMut) -> Result<Accepted, Box<Refused>> {
        let config = self.current().config.clone();
        let session = match ServerConnection::new(config) {
            Ok(session) => session,
            Err(error) => return Err(Box::new(Refused { io, why: error.to_string() })),
        };
        let mut stream = Stream::new(io, first, session);
        if let Err(failed) = stream.handshake().await {
            self.failures.fetch_add(1, Ordering::Relaxed);
            let why = match failed {
                Failed::Closed => "the peer left in the middle of the TLS handshake".to_owned(),
                Failed::Io(error) => format!("TLS handshake: {error}"),
                Failed::NotTls(_) => "TLS handshake: bytes that are no TLS".to_owned(),
                Failed::Tls(error) => format!("TLS handshake: {}", explain::text(&error)),
            };
            return Err(Box::new(Refused { io: stream.into_inner(), why }));
        }
        self.handshakes.fetch_add(1, Ordering::Relaxed);
        let protocol = stream.session().alpn_protocol().map(<[u8]>::to_vec);
        let certificate = stream.session().peer_certificates().and_then(<[_]>::first);
        // A certificate that cannot be read names nobody.
        let identity = certificate.and_then(|der| Summary::of(der)).map(|summary| Arc::new(summary.into()));
        // rustls marks those of TLS 1.3; IANA's names are without the mark.
        let suite = stream.session().negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite()));
        let suite = suite.map(|name| name.replacen("TLS13_", "TLS_", 1));
        Ok(Accepted { io: Box::new(stream), protocol, identity, suite })
    }

    /// Reads the files again if they have changed; says whether they were. What cannot be used changes nothing.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub(crate) fn reload(&self) -> Result<bool, Error> {
        let read = self.watch.look(self.tls.watched());
        if self.current().read == read {
            self.current().failed = None;
            return Ok(false);
        }
        match load(&self.tls) {
            Ok((config, certificates)) => {
                *self.current() = Current { config, certificates, read, failed: None };
                self.reloads.fetch_add(1, Ordering::Relaxed);
                tracing::info!("tls: certificates were read again, new connections get the new ones");
                Ok(true)
            }
            Err(why) => {
                if self.current().failed.replace(read) != Some(read) {
                    self.reload_failures.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!("tls: {why}; the certificates in use stay");
                }
                Err(Error::config(format!("tls: {why}; the certificates in use stay")))
            }
        }
    }

    /// Looks after the files until the server stops.
    pub(crate) async fn keep_fresh(self: Arc<Self>, mut stopped: watch::Receiver<()>) {
        if self.tls.check_every.is_zero() {
            return;
        }
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.tls.check_every) => {}
                _ = stopped.changed() => return,
            }
            let acceptor = self.clone();
            // It has warned and counted what went wrong.
            let _ = tokio::task::spawn_blocking(move || acceptor.reload().is_ok()).await;
        }
    }

    /// Adds what was counted here.
    pub(crate) fn count(&self, mut stats: TlsStats) -> TlsStats {
        stats.handshakes += self.handshakes.load(Ordering::Relaxed);
        stats.failures += self.failures.load(Ordering::Relaxed);
        stats.reloads += self.reloads.load(Ordering::Relaxed);
        stats.reload_failures += self.reload_failures.load(Ordering::Relaxed);
        let now = unix_now();
        let certificate = |certificate: &Certificate| CertificateStats {
            file: certificate.file.clone(),
            subject: certificate.summary.subject.clone(),
            names: certificate.summary.names.clone(),
            expires_in_seconds: certificate.summary.not_after - now,
        };
        stats.certificates.extend(self.current().certificates.iter().map(certificate));
        stats
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tls {
    /// What cannot be meant so.
    fn contradiction(&self) -> Option<&'static str> {
        match (&self.client_roots, self.client_optional, self.plaintext) {
            (None, true, _) => {
                Some("client certificates are optional, but client_ca=FILE does not say whose")
            }
            (Some(_), false, Plaintext::Served) => Some(
                "client certificates are required, but plaintext is served without: choose one, or client=optional",
            ),
            _ => None,
        }
    }

    fn watched(&self) -> impl Iterator<Item = &Path> {
        let pairs = self.pairs.iter().flat_map(|pair| [pair.certificate.as_path(), pair.key.as_path()]);
        pairs.chain(self.client_roots.as_deref())
    }
}

fn load(tls: &Tls) -> Result<(Arc<ServerConfig>, Vec<Certificate>), String> {
    let pairs = tls.pairs.iter().map(|files| files.load(&PROVIDER)).collect::<Result<Vec<Pair>, _>>()?;
    let names = ServerNames::new(&pairs).ok_or("no certificate")?;
    let builder = ServerConfig::builder_with_provider(PROVIDER.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match &tls.client_roots {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(files::roots(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, PROVIDER.clone());
            let verifier = if tls.client_optional { verifier.allow_unauthenticated() } else { verifier };
            let verifier = verifier.build().map_err(|error| format!("{}: {error}", path.display()))?;
            builder.with_client_cert_verifier(Arc::new(Noting(verifier)))
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(names));
    config.alpn_protocols = vec![ALPN_NATIVE.to_vec(), ALPN_BAIDU_STD.to_vec()];
    if cfg!(feature = "http") {
        config.alpn_protocols.extend([ALPN_HTTP2.to_vec(), ALPN_HTTP1.to_vec()]);
    }
    let certificates = tls.pairs.iter().zip(pairs).map(|(files, pair)| Certificate {
        file: files.certificate.display().to_string(),
        summary: pair.summary,
    });
    let certificates: Vec<_> = certificates.collect();
    for Certificate { file, summary } in &certificates {
        let left = summary.not_after - unix_now();
        if left < EXPIRES_SOON.as_secs() as i64 {
            let tense = if left < 0 { "expired" } else { "expires" };
            tracing::warn!("tls: the certificate in {file} {tense} on {}", x509::date(summary.not_after));
        }
    }
    Ok((Arc::new(config), certificates))
}

fn unix_now() -> i64 {
    // A clock before 1970 says that nothing has expired.
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

impl From<Summary> for Identity {
    fn from(summary: Summary) -> Identity {
        Identity { subject: summary.subject, issuer: summary.issuer, names: summary.names }
    }
}
