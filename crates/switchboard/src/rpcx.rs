//! What rpcx has beside calls: files, and streams of bytes, on a second TCP connection.
//!
//! A client asks a well-known service for a token and an address, connects to the address, sends the token, and from
//! then on bytes go both ways as the application likes: a file, or whatever both sides agree on. [`FileTransfer`] and
//! [`StreamService`] serve that to clients of rpcx; [`upload`], [`download`] and [`stream`] ask servers of it.
//!
//! The call passes what every call of the server passes: credentials, limits, layers. The second connection has nothing
//! but the token: no TLS, no checksum, no acknowledgement. It is rpcx's, kept for what is there already; a method with
//! a stream is better.
//!
//! The guide `docs/wires/rpcx.md` has an example.

mod files;
mod pipe;
mod side;
mod streams;
mod ticket;

pub use files::{File, FileTransfer, Files, download, upload};
pub use pipe::Pipe;
pub use streams::{StreamService, Streams, stream};

use std::collections::BTreeMap;

/// What a client tells of a file or a stream.
pub type Meta = BTreeMap<String, String>;
