//! TLS on the client side: trusted roots, the client certificate, and errors.

use super::{
    PROVIDER, explain,
    files::{self, PairFiles, Watch},
    stream::{Failed, Stream},
    verify::RecordingVerifier,
};
use crate::net::Io;
use bytes::BytesMut;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    pki_types::ServerName,
    sign::SingleCertAndKey,
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use switchboard_core::Result;
use switchboard_wire::Status;

/// TLS options of a channel.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TlsOptions {
    /// File of trusted roots; the default is the roots of the machine.
    pub ca: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Name that the server's certificate must contain; the default is the host of the address.
    pub server_name: Option<String>,
}

/// The client side of TLS of one channel.
#[derive(Debug)]
pub struct Connector {
    options: TlsOptions,
    pair: Option<PairFiles>,
    server_name: Option<ServerName<'static>>,
    /// Protocols offered by ALPN, in order of preference.
    alpn: Vec<Vec<u8>>,
    watch: Watch,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    config: Arc<ClientConfig>,
    /// State of the files when they were checked last.
    looked: u64,
}

impl Connector {
    /// Loads the files; `alpn` contains the protocols for the connection, in order of preference.
    ///
    /// # Errors
    /// Returns `InvalidArgument` with the file or option that cannot be used, and the reason.
    pub fn new(options: TlsOptions, alpn: &[&[u8]]) -> Result<Connector> {
        let pair = match (&options.certificate, &options.key) {
            (Some(certificate), Some(key)) => {
                Some(PairFiles { certificate: certificate.clone(), key: key.clone() })
            }
            (None, None) => None,
            _ => return Err(Status::invalid_argument("tls: cert=FILE and key=FILE go together")),
        };
        let server_name = options.server_name.as_deref().map(server_name).transpose();
        let server_name = server_name.map_err(|why| Status::invalid_argument(format!("tls: {why}")))?;
        let watch = Watch::default();
        let looked = watch.look(watched(&options));
        let alpn: Vec<_> = alpn.iter().map(|name| name.to_vec()).collect();
        let config = load(options.ca.as_deref(), pair.as_ref(), &alpn)
            .map_err(|why| Status::invalid_argument(format!("tls: {why}")))?;
        let current = Mutex::new(Current { config, looked });
        Ok(Connector { options, pair, server_name, alpn, watch, current })
    }

    /// Runs the TLS handshake on an opened pipe to `host`.
    ///
    /// # Errors
    /// Returns a description of a failed handshake.
    pub(crate) async fn connect(self: &Arc<Self>, io: Box<dyn Io>, host: &str) -> io::Result<Box<dyn Io>> {
        let failed = |why: String| io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {why}"));
        let name = self.server_name.clone().map_or_else(|| server_name(host), Ok).map_err(failed)?;
        let config = self.config().await;
        let session = ClientConnection::new(config, name).map_err(|error| failed(error.to_string()))?;
        let mut stream = Stream::new(io, BytesMut::new(), session);
        stream.handshake().await.map_err(|error| match error {
            Failed::Closed => failed(
                "the server closed the connection in the middle of the handshake; if it takes plaintext only, use tcp://"
                    .to_owned(),
            ),
            Failed::Io(error) => io::Error::new(error.kind(), format!("TLS handshake: {error}")),
            Failed::NotTls(first) => failed(format!(
                "the server does not speak TLS on this port (it answered \"{}\"); for plaintext use tcp://",
                first.escape_ascii()
            )),
            Failed::Tls(error) => failed(explain::text(&error)),
        })?;
        Ok(Box::new(stream))
    }

    /// Returns the settings, reloaded if the files have changed. Files that cannot be used are ignored.
    async fn config(self: &Arc<Self>) -> Arc<ClientConfig> {
        if watched(&self.options).next().is_some() {
            let connector = self.clone();
            // If the runtime ends meanwhile, the result is not used.
            let _ = tokio::task::spawn_blocking(move || connector.refresh()).await;
        }
        self.current().config.clone()
    }

    fn refresh(&self) {
        let looked = self.watch.look(watched(&self.options));
        if self.current().looked == looked {
            return;
        }
        match load(self.options.ca.as_deref(), self.pair.as_ref(), &self.alpn) {
            Ok(config) => *self.current() = Current { config, looked },
            Err(why) => {
                tracing::warn!("tls: {why}; keeping the current settings");
                self.current().looked = looked;
            }
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn watched(options: &TlsOptions) -> impl Iterator<Item = &Path> {
    [&options.ca, &options.certificate, &options.key].into_iter().flatten().map(PathBuf::as_path)
}

fn server_name(name: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(name.to_owned())
        .map_err(|_| format!("{name:?} is not a valid name for a certificate"))
}

fn load(ca: Option<&Path>, pair: Option<&PairFiles>, alpn: &[Vec<u8>]) -> Result<Arc<ClientConfig>, String> {
    let roots = Arc::new(ca.map_or_else(machine_roots, files::roots)?);
    let verifier: Arc<dyn ServerCertVerifier> =
        WebPkiServerVerifier::builder_with_provider(roots, PROVIDER.clone())
            .build()
            .map_err(|error| error.to_string())?;
    let builder = ClientConfig::builder_with_provider(PROVIDER.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        // Required by rustls for any custom verifier. This one verifies as rustls does, and records rejected
        // certificates.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(RecordingVerifier(verifier)));
    let mut config = match pair {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let key = pair.load(&PROVIDER)?.key;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
        }
    };
    config.alpn_protocols = alpn.to_vec();
    Ok(Arc::new(config))
}

/// Returns the trusted roots of this machine.
fn machine_roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable == 0 {
        return Err("this machine has no root certificates; name those to trust with ca=FILE".to_owned());
    }
    Ok(roots)
}
