//! The client protocol of NATS as two pure state machines: [`Server`] and [`Client`].
//!
//! NATS is not in the list of wires: it carries messages and no calls, and its servers send first, so that no port can
//! detect it. A plugin of `switchboard-adapter` serves it on a listener of its own.
//!
//! ```text
//! server: INFO ─► recv ─► Connect, then accept or reject ─► Publish, Subscribe, Unsubscribe, Ping ─► send: MSG, HMSG
//! client: recv ─► Info ─► connect: CONNECT ─► publish, subscribe ─► Message, Ok, Error, Ping
//! ```
//!
//! A control line ends in CRLF; LF alone is accepted, also after a payload. Verbs are in any case. A command becomes an
//! event when it is complete, and its bytes stay in the input until then. Each call of `recv` returns at most one
//! event, and blank lines are skipped.
//!
//! An error of a client is written as `-ERR` with the text of NATS, see [`ErrorKind`]. Most of them close the
//! connection. An invalid subject does not: the command is dropped.
//!
//! Headers are checked once and forwarded as they were received. [`subject`] has the rules of subjects and their
//! conversion to topics.
//!
//! Subscriptions are the driver's: their table, their number, the choice of a member of a queue group, `echo`, and the
//! search for a subscription that gets the status 503. [`Deliveries`] counts for UNSUB. Time is the driver's too: the
//! limit on the time until CONNECT, and PINGs; it ends a connection with [`Server::close`].

mod client;
mod deliveries;
mod error;
mod headers;
mod limits;
mod message;
mod options;
mod receiving;
mod server;
pub mod subject;
#[cfg(test)]
mod tests;
mod verb;

pub use client::{Client, ClientEvent};
pub use deliveries::Deliveries;
pub use error::{ErrorKind, ProtocolError, SendError, ServerError};
pub use headers::{Headers, InvalidHeader};
pub use limits::Limits;
pub use message::{EncodedMessage, Message, OutgoingMessage, write_message};
pub use options::{Connect, Credentials, Info};
pub use server::{Server, ServerEvent};
