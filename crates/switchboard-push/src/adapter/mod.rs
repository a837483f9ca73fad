//! Protocols of devices, on the [topics](crate::feeds) of an engine.

pub mod centrifuge;
pub mod goim;
