//! The service of Thrift's cross tests and one of protobuf: what they answer, for the server of the tests and for
//! tests in this process.

pub mod cases;
mod greeter;
mod handler;

pub use greeter::Greetings;
pub use handler::{Answers, Second};

/// Generated from `thrift/` and `proto/`.
#[allow(missing_docs, unreachable_pub, reason = "tests need no documentation of what they call")]
pub mod generated {
    switchboard::include_proto!();
}

pub use generated::thrift::test;
