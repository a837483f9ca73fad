//! JSON-RPC 2.0: requests read, methods found, answers written; and a machine for connections of nothing else.
//!
//! [`Body`] is what arrived, [`Request`] one entry of it, [`ErrorObject`] why an entry fails, and [`Batch`] collects
//! the answers of several; these four are all that HTTP needs. [`Server`] adds the order of a connection: over bare
//! bytes, where JSON texts follow one another, and over WebSocket, where a text message is one of them. Callers write a
//! [`request`] and read an [`Answer`]; [`Texts`] tells the answers of a connection apart.
//!
//! ```text
//! {"jsonrpc":"2.0","method":"demo.v1.Greeter.Greet","params":{"name":"you"},"id":1}
//! ```
//!
//! Methods are `package.Service.Method`, `package.Service/Method` or, where that is clear, `Service.Method`. Ids are
//! answered with the very characters that they came with. A request of a method that streams its replies gets them
//! as notifications `{"method":"rpc.stream","params":{"id":…,"result":…}}` and then its answer, with the result null;
//! the notification `{"method":"rpc.cancel","params":{"id":…}}` ends it early. Methods that take a stream cannot be
//! called.

mod answer;
mod batch;
mod client;
mod error;
mod method;
mod request;
mod scan;
mod server;
#[cfg(test)]
mod tests;
mod transport;

use scan::{Scanned, Scanner};

pub use answer::{failure, success};
pub use batch::Batch;
pub use client::{Answer, Texts, cancel, request};
pub use error::{ErrorObject, code_of, error_code};
pub use method::{find, message};
pub use request::{Body, Invalid, Request};
pub use server::Server;

/// Most entries of a batch.
pub const BATCH_MAX: usize = 100;
/// Deepest nesting of arrays and objects.
pub const DEPTH_MAX: usize = 64;
/// Longest id.
pub const ID_BYTES_MAX: usize = 1024;
