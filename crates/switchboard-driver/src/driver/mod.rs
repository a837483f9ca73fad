//! The server driver: one loop that runs every sans-io wire.
//!
//! ```text
//! read until it would block ─► wire.recv ─► events ─► handler, polled once where its bytes were parsed
//!                                                      ready   ─► reply in the outbox
//!                                                      pending ─► a slot, polled again when its waker says so
//! read side drained and no slot ready ─► one vectored write of the outbox
//! ```

mod calls;
mod kinds;
mod server;

pub use kinds::{DynConnection, DynWire, NativeConnection};
pub use server::{Accepted, LINGER};
