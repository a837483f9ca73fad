//! kiss-rpc, a framework of the D language: one frame per request and one per response, in any order.
//!
//! ```text
//! FF FF | 14 | 01 | st u16 BE | status | 00 00 | function u64 BE | sequence u32 BE | body size u16 BE | body
//! ```
//!
//! [`Server`] and [`Client`] are the state machines. The side that opened the connection sends requests. Only the role
//! of the reader distinguishes a request from a response.
//!
//! **Functions** have numbers and no names: hashes that the compiler of its interface files computed. A server finds
//! function N under the alias `kiss/N` ([`alias`]); a client is configured with the [numbers](Client::functions).
//!
//! **Bodies** are FlatBuffers messages, whatever the lowest bits of `st` are: real peers write 4 there, Cap'n Proto.
//! Between two Switchboard peers 0 means JSON and 2 protobuf, which real peers never write.
//!
//! **Snappy**: the second nibble of `st` requests a [`Compression`], the first is set if this body is compressed. A
//! server compresses its response as the request requires.
//!
//! **Errors** are one bit. A [`Status`](crate::Status) other than success is a response with an empty body and the
//! lowest bit of `status`. The client reports `unknown`, and the response does not say whether a retry is safe. An
//! unknown function is reported in the same way; real servers do not respond to one at all.
//!
//! **A heartbeat** is a frame of function 0, which the server sends back. The protocol has no metadata, deadlines,
//! streams or cancellation. A one-way call has the highest bit of `status`, which real peers never set.
//!
//! [`alias`]: crate::MethodTable::alias

mod body;
mod client;
mod frame;
mod options;
mod server;
mod spec;
#[cfg(test)]
mod tests;

pub use body::Compression;
pub use client::Client;
pub use server::Server;
pub use spec::KISS;

/// The first bytes of every frame: the magic, the size of the header on 64-bit peers, the version.
pub const MAGIC: [u8; 4] = [0xFF, 0xFF, 20, 1];
/// First bytes of a frame before the first release of kiss-rpc, which had another format.
pub const UNRELEASED_MAGIC: [u8; 8] = [0xAA, 0xBB, 0xCC, 0xDD, 0xAA, 0xAA, 0xAA, 0xFF];
/// Largest body on the wire, in bytes.
pub const BODY_BYTES_MAX: usize = (64 << 10) - frame::HEADER_LEN;
/// Largest message that a body may decompress to, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Function number of heartbeats.
const HEARTBEAT: u64 = 0;
