//! kiss-rpc, of the D language: one frame a request and one a response, in any order.
//!
//! ```text
//! FF FF | 14 | 01 | st u16 BE | status | 00 00 | function u64 BE | sequence u32 BE | body size u16 BE | body
//! ```
//!
//! [`Server`] and [`Client`] are the machines; whoever opened the connection sends requests, and nothing but its role
//! tells a request from a response.
//!
//! **Functions** have numbers and no names: hashes that the compiler of its interface files computed. A server finds
//! function N under the alias `kiss/N` ([`alias`]); a client is told the [numbers](Client::functions).
//!
//! **Bodies** are messages of FlatBuffers, whatever the lowest bits of `st` say: real peers write 4 there, Cap'n Proto.
//! Between two Switchboards 0 means JSON and 2 protobuf, which real peers never write.
//!
//! **Snappy**: the second nibble of `st` asks for a [`Compression`], the first says whether this body has it. A server
//! answers with what the request asked for.
//!
//! **Errors** are one bit. A [`Status`](crate::Status) other than success is a response with an empty body and the
//! lowest bit of `status`; the client makes of it `unknown`, and nothing says whether the call may be tried again. So
//! it is with a function that nobody has, where real servers answer nothing at all.
//!
//! **A heartbeat** is a frame of function 0, which the server sends back. There are no metadata, deadlines, streams or
//! words for giving up on a call; a one-way call has the highest bit of `status`, which real peers never set.
//!
//! [`alias`]: crate::MethodTable::alias

mod body;
mod client;
mod frame;
mod server;
#[cfg(test)]
mod tests;

pub use body::Compression;
pub use client::Client;
pub use server::Server;

/// The first bytes of every frame: the magic, the size of the header on 64-bit peers, the version.
pub const MAGIC: [u8; 4] = [0xFF, 0xFF, 20, 1];
/// How a frame began before the first release of kiss-rpc, which had another form.
pub const UNRELEASED_MAGIC: [u8; 8] = [0xAA, 0xBB, 0xCC, 0xDD, 0xAA, 0xAA, 0xAA, 0xFF];
/// Largest body, in bytes as they are on the wire.
pub const BODY_BYTES_MAX: usize = (64 << 10) - frame::HEADER_LEN;
/// Largest message that a body may become, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// The function of heartbeats.
const HEARTBEAT: u64 = 0;
