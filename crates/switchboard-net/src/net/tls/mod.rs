//! TLS for listeners and channels, by rustls with the algorithms of ring.
//!
//! `Stream` wraps a pipe and is itself a pipe: protocols inside do not depend on TLS. [`Acceptor`] is the
//! server side of a listener with its certificates, [`Connector`] the client side of a channel.

mod acceptor;
mod connector;
mod explain;
mod files;
mod server_names;
mod settings;
mod stream;
mod verify;
mod x509;

pub use acceptor::{Accepted, Acceptor};
pub use connector::{Connector, TlsOptions};
pub use settings::Plaintext;
pub use settings::Tls;
#[cfg(feature = "auth")]
pub use {files::public_key_file, x509::public_key};

use rustls::crypto::CryptoProvider;
use std::sync::{Arc, LazyLock};

/// Protocols for ALPN, beside those of [`WireSpec::alpn`](switchboard_wire::WireSpec::alpn); the connection must then
/// use the selected one.
pub const ALPN_HTTP1: &[u8] = b"http/1.1";
pub const ALPN_HTTP2: &[u8] = b"h2";
pub const ALPN_NATIVE: &[u8] = b"swb/1";

/// Shared crypto provider, passed explicitly: the program may install another one as its default.
static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
