//! Extensions of rpcx beyond calls: file transfers, and byte streams, on a second TCP connection.
//!
//! A client requests a token and an address from a well-known service, connects to the address and sends the
//! token. From then on, bytes flow in both directions as the application requires: a file, or a protocol of
//! its own. [`FileTransfer`] and [`StreamService`] serve this to clients of rpcx; [`upload`], [`download`]
//! and [`stream`] request it from servers.
//!
//! The call passes the guards of every call of the server: credentials, limits, layers. The second connection
//! is protected only by the token: it has no TLS, no checksum and no acknowledgement. It is part of rpcx and
//! supported for existing applications; prefer a streaming method for new ones.
//!
//! The guide `docs/wires/rpcx.md` has an example.

mod files;
mod permits;
mod pipe;
mod side;
mod streams;
mod ticket;

pub use files::{File, FileTransfer, Files, download, upload};
pub use pipe::Pipe;
pub use streams::{StreamService, Streams, stream};

use std::collections::BTreeMap;

/// Metadata that a client sends for a file or a stream.
pub type Meta = BTreeMap<String, String>;
