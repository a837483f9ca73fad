//! Dialects of calls in HTTP.

pub mod grpc;
pub mod open;
