//! TLS on the server side: reloadable certificates, handshakes, and the identity of the peer.

use super::{
    ALPN_HTTP1, ALPN_HTTP2, ALPN_NATIVE, PROVIDER, Plaintext, Tls, explain,
    files::{self, Pair, Watch},
    server_names::ServerNames,
    stream::{Failed, Stream},
    verify::RecordingVerifier,
    x509::{self, Summary},
};
use crate::net::Io;
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
use switchboard_core::{
    Error, Identity, clock,
    metrics::{CertificateStats, TlsStats},
};
use switchboard_wire::WireId;
use tokio::sync::watch;

/// Certificates that expire within this time cause a warning when they are loaded.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 86_400);

/// The server side of TLS on one listener.
pub struct Acceptor {
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
    /// State of the files when they were loaded.
    read: u64,
    /// State of the files when loading failed; a warning was logged for it.
    failed: Option<u64>,
}

/// Reported properties of a certificate in use.
struct Certificate {
    file: String,
    summary: Summary,
}

/// A connection inside TLS.
pub struct Accepted {
    pub io: Box<dyn Io>,
    /// Protocol selected by ALPN.
    pub protocol: Option<Vec<u8>>,
    pub identity: Option<Arc<Identity>>,
    /// Name of the cipher suite.
    pub suite: Option<String>,
}

/// A failed handshake.
pub struct Refused {
    /// The pipe, on which the alert was sent.
    #[doc(hidden)]
    pub io: Box<dyn Io>,
    #[doc(hidden)]
    pub why: String,
}

impl Acceptor {
    /// Loads the files.
    ///
    /// # Errors
    /// Returns which file cannot be used, and why.
    pub fn new(tls: Tls) -> Result<Acceptor, Error> {
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

    /// Returns whether connections without TLS are served as well.
    pub fn plaintext(&self) -> Plaintext {
        self.tls.plaintext
    }

    /// Counts a handshake that was aborted because it took too long.
    pub fn gave_up(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs the handshake on a pipe from which `first` was read. If it fails, the alert has been sent.
    pub async fn accept(&self, io: Box<dyn Io>, first: BytesMut) -> Result<Accepted, Box<Refused>> {
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
                Failed::NotTls(_) => "TLS handshake: the peer sent bytes that are not TLS".to_owned(),
                Failed::Tls(error) => format!("TLS handshake: {}", explain::text(&error)),
            };
            return Err(Box::new(Refused { io: stream.into_inner(), why }));
        }
        self.handshakes.fetch_add(1, Ordering::Relaxed);
        let protocol = stream.session().alpn_protocol().map(<[u8]>::to_vec);
        let certificate = stream.session().peer_certificates().and_then(<[_]>::first);
        // A certificate that cannot be parsed identifies no peer.
        let identity = certificate.and_then(|der| Summary::of(der)).map(|summary| Arc::new(summary.into()));
        // rustls prefixes TLS 1.3 suites; IANA's names have no prefix.
        let suite = stream.session().negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite()));
        let suite = suite.map(|name| name.replacen("TLS13_", "TLS_", 1));
        Ok(Accepted { io: Box::new(stream), protocol, identity, suite })
    }

    /// Reloads the files if they have changed; returns whether they were reloaded. Files that cannot be used
    /// are ignored.
    ///
    /// # Errors
    /// Returns which file cannot be used, and why.
    pub fn reload(&self) -> Result<bool, Error> {
        let read = self.watch.look(self.tls.watched());
        if self.current().read == read {
            self.current().failed = None;
            return Ok(false);
        }
        match load(&self.tls) {
            Ok((config, certificates)) => {
                *self.current() = Current { config, certificates, read, failed: None };
                self.reloads.fetch_add(1, Ordering::Relaxed);
                tracing::info!("tls: certificates reloaded; new connections use them");
                Ok(true)
            }
            Err(why) => {
                if self.current().failed.replace(read) != Some(read) {
                    self.reload_failures.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!("tls: {why}; keeping the current certificates");
                }
                Err(Error::config(format!("tls: {why}; keeping the current certificates")))
            }
        }
    }

    /// Reloads changed files until the server stops.
    pub async fn keep_fresh(self: Arc<Self>, mut stopped: watch::Receiver<()>) {
        if self.tls.check_every.is_zero() {
            return;
        }
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.tls.check_every) => {}
                _ = stopped.changed() => return,
            }
            let acceptor = self.clone();
            // `reload` has logged and counted the error.
            let _ = tokio::task::spawn_blocking(move || acceptor.reload().is_ok()).await;
        }
    }

    /// Adds the counters of this listener.
    pub fn count(&self, mut stats: TlsStats) -> TlsStats {
        stats.handshakes += self.handshakes.load(Ordering::Relaxed);
        stats.failures += self.failures.load(Ordering::Relaxed);
        stats.reloads += self.reloads.load(Ordering::Relaxed);
        stats.reload_failures += self.reload_failures.load(Ordering::Relaxed);
        let now = unix_now();
        let certificate = |certificate: &Certificate| {
            let mut stats = CertificateStats::default();
            stats.file.clone_from(&certificate.file);
            stats.subject.clone_from(&certificate.summary.subject);
            stats.names.clone_from(&certificate.summary.names);
            stats.expires_in_seconds = certificate.summary.not_after - now;
            stats
        };
        stats.certificates.extend(self.current().certificates.iter().map(certificate));
        stats
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tls {
    /// Returns the reason why the settings contradict each other.
    fn contradiction(&self) -> Option<&'static str> {
        match (&self.client_roots, self.client_optional, self.plaintext) {
            (None, true, _) => Some("client certificates are optional, but client_ca=FILE is missing"),
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
            builder.with_client_cert_verifier(Arc::new(RecordingVerifier(verifier)))
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(names));
    // The first one that the peer offers is selected.
    config.alpn_protocols = vec![ALPN_NATIVE.to_vec()];
    let names = WireId::all().filter_map(|wire| wire.spec().alpn);
    config.alpn_protocols.extend(names.filter(|name| *name != ALPN_NATIVE).map(<[u8]>::to_vec));
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
    // A clock before 1970 means that no certificate has expired.
    clock::time_of_day().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

impl From<Summary> for Identity {
    fn from(summary: Summary) -> Identity {
        let mut identity = Identity::default();
        identity.subject = summary.subject;
        identity.issuer = summary.issuer;
        identity.names = summary.names;
        identity
    }
}
