//! JSON-RPC 2.0: reading of requests, lookup of methods, writing of responses, and a state machine for connections.
//!
//! [`Body`] is a received text, [`Request`] one entry of it, [`ErrorObject`] the error of an entry, and
//! [`BatchResponse`] collects the responses of several entries; HTTP needs only these four. [`Server`] adds the order
//! of a connection: over bare bytes, where JSON texts follow one another, and over WebSocket, where each text message
//! is a JSON text. Callers write a [`request`] and read a [`Response`]; [`Texts`] splits the bytes of a connection
//! into responses.
//!
//! ```text
//! {"jsonrpc":"2.0","method":"demo.v1.Greeter.Greet","params":{"name":"you"},"id":1}
//! ```
//!
//! Methods are `package.Service.Method`, `package.Service/Method` or, if unambiguous, `Service.Method`. A response
//! repeats the id of its request byte for byte. A request of a method that streams its replies gets them as
//! notifications `{"method":"rpc.stream","params":{"id":…,"result":…}}`, followed by a response with the result null.
//! The notification `{"method":"rpc.cancel","params":{"id":…}}` ends it early. Methods that take a stream cannot be
//! called.

mod batch;
mod client;
mod error;
mod method;
mod request;
mod response;
mod scan;
mod server;
mod spec;
#[cfg(test)]
mod tests;
mod transport;

use scan::{Scanned, Scanner};

pub use batch::BatchResponse;
pub use client::{Response, Texts, cancel, request};
pub use error::{ErrorObject, code_of, error_code};
pub use method::{find, message};
pub use request::{Body, Invalid, Request};
pub use response::{failure, success};
pub use server::Server;
pub use spec::JSON_RPC;

/// Largest number of entries in a batch.
pub const BATCH_MAX: usize = 100;
/// Largest nesting of arrays and objects.
pub const DEPTH_MAX: usize = 64;
/// Longest id, in bytes.
pub const ID_BYTES_MAX: usize = 1024;
