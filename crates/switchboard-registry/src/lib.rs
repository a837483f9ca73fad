//! Registries: where [`switchboard::discover`] finds instances, one feature for each kind.
//!
//! | feature | address | kind |
//! | --- | --- | --- |
//! | `embedded` (default) | `switchboard://HOST:PORT` | [`Embedded`]: any Switchboard server that serves [`EmbeddedServer`] |
//!
//! [`connect`] makes a registry of an address; each type has a `connect` of its own too.

#[cfg(feature = "embedded")]
pub mod embedded;

#[cfg(feature = "embedded")]
pub use embedded::{Embedded, EmbeddedServer};
