//! The services and messages of `switchboard bench`, from the same sources.
#![allow(
    unreachable_pub,
    reason = "the library of the binary shows these files to the comparison of frameworks"
)]

#[path = "../../../crates/switchboard-cli/src/services/bench.rs"]
mod bench;
#[path = "../../../crates/switchboard-cli/src/services/guarded.rs"]
mod guarded;
#[path = "../../../crates/switchboard-cli/src/services/thrift_bench.rs"]
mod thrift_bench;

pub(crate) use bench::{BenchService, benchmark_message};
pub(crate) use guarded::{TOKEN, guarded};
pub(crate) use thrift_bench::{ThriftBench, thrift_benchmark_message};

/// Generated from the schema of `switchboard bench`.
#[allow(missing_docs, unreachable_pub, reason = "a binary shows none of its items to anybody")]
pub(crate) mod proto {
    /// Package `bench.v1`.
    pub(crate) mod bench {
        switchboard::include_proto!("bench.v1");
    }
    /// Package `thrift.bench`.
    pub(crate) mod thrift_bench {
        switchboard::include_proto!("thrift.bench");
    }
}
