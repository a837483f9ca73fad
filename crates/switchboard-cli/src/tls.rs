//! The flags of TLS, shared by all commands that listen.

use clap::Args;
use std::path::PathBuf;
use switchboard::{Address, Server, Tls};

/// The files of the certificates.
#[derive(Debug, Args)]
pub(crate) struct TlsArgs {
    /// Use TLS on every TCP address, with the certificate chain in this PEM file. A file that changes is read again. An
    /// address may have its own instead: tcp://HOST:PORT?cert=FILE&key=FILE.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Require of every client a certificate that one of those in this PEM file issued.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
}

impl TlsArgs {
    /// Returns the given flags, by the names of their settings in files.
    pub(crate) fn given(&self) -> [(&'static str, Option<&PathBuf>); 3] {
        [
            ("tls.cert", self.tls_cert.as_ref()),
            ("tls.client_ca", self.tls_client_ca.as_ref()),
            ("tls.key", self.tls_key.as_ref()),
        ]
    }

    /// Returns `None` without the flags.
    pub(crate) fn settings(&self) -> Option<Tls> {
        let tls = Tls::files(self.tls_cert.as_ref()?, self.tls_key.as_ref()?);
        Some(match &self.tls_client_ca {
            Some(roots) => tls.client_roots(roots),
            None => tls,
        })
    }
}

/// Adds a listener: with TLS on TCP, without on any other transport; without settings, the options of the address
/// decide.
pub(crate) fn listen(server: Server, address: &str, tls: Option<&Tls>) -> Server {
    let without_options = address.split_once('?').map_or(address, |(address, _)| address);
    let is_tcp = matches!(without_options.parse(), Ok(Address::Tcp(..) | Address::Tls(..)));
    match tls.filter(|_| is_tcp) {
        Some(tls) => server.listen_tls(address, tls.clone()),
        None => server.listen(address),
    }
}
