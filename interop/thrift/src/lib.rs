//! The service of Thrift's cross tests: what it answers, for the server of the tests and for tests in this process.

pub mod cases;
mod handler;

pub use handler::{Answers, Second};

/// Generated from `thrift/`.
#[allow(missing_docs, unreachable_pub, reason = "tests need no documentation of what they call")]
pub mod generated {
    switchboard::include_proto!();
}

pub use generated::thrift::test;
