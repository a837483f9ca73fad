//! A TLS client that is not ours: rustls as others use it, on a socket that blocks.

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use std::{io::Read, net::TcpStream, path::Path, sync::Arc, time::Duration};
use switchboard::Running;

use crate::support::certificates::Files;

/// Settings of a foreign client; the defaults trust `ca` and request `127.0.0.1`.
pub(crate) struct Foreign<'a> {
    pub(crate) ca: &'a Path,
    pub(crate) name: &'a str,
    pub(crate) alpn: &'a [&'a [u8]],
    pub(crate) identity: Option<&'a Files>,
}

pub(crate) type Stream = StreamOwned<ClientConnection, TcpStream>;

impl<'a> Foreign<'a> {
    pub(crate) fn new(ca: &'a Path) -> Foreign<'a> {
        Foreign { ca, name: "127.0.0.1", alpn: &[], identity: None }
    }

    pub(crate) fn session(&self) -> ClientConnection {
        let name = ServerName::try_from(self.name.to_owned()).unwrap();
        ClientConnection::new(self.config(), name).unwrap()
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(self.ca).unwrap() {
            roots.add(certificate.unwrap()).unwrap();
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let mut config = match self.identity {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let chain = CertificateDer::pem_file_iter(&files.certificate).unwrap();
                let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
                builder.with_client_auth_cert(chain.map(Result::unwrap).collect(), key).unwrap()
            }
        };
        config.alpn_protocols = self.alpn.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }

    /// Opens a connection; the handshake happens with the first bytes.
    pub(crate) fn connect(&self, running: &Running) -> Stream {
        StreamOwned::new(self.session(), socket(running))
    }
}

/// A plain connection to a server, whatever its scheme; reading gives up in the end.
pub(crate) fn socket(running: &Running) -> TcpStream {
    let url = running.url();
    let socket = TcpStream::connect(url.split_once("://").unwrap().1).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

/// Work that blocks, beside the server.
pub(crate) async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// All that comes until the server closes; a reset is an end as well.
pub(crate) fn read_all(stream: &mut impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    // What came before an error has been read.
    let _ = stream.read_to_end(&mut all);
    all
}

#[cfg(feature = "http")]
/// Requests the health of the server as JSON over HTTP/1.1 and returns the whole response.
pub(crate) fn health(stream: &mut (impl Read + std::io::Write)) -> String {
    let request = b"POST /grpc.health.v1.Health/Check HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
        content-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    stream.write_all(request).unwrap();
    String::from_utf8(read_all(stream)).unwrap()
}
