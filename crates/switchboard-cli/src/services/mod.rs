//! The services that the binary offers: the demo's and the benchmark's.

mod bench;
mod greeter;
mod guarded;
pub(crate) mod kiss;
mod page;
mod posts;
mod thrift_bench;
mod topics;

pub use bench::{BenchService, benchmark_message};
pub use greeter::Hello;
pub(crate) use guarded::{TOKEN, guarded};
pub(crate) use posts::{HotPosts, all as all_posts};
pub use thrift_bench::{ThriftBench, thrift_benchmark_message};
pub(crate) use topics::with_topics;

/// Generated from `proto/` and `thrift/`; a test of `switchboard-build` compares the files with them.
#[allow(missing_docs, unreachable_pub, reason = "generated code of a binary")]
pub mod proto {
    /// Package `bench.v1`.
    pub mod bench {
        include!("../../generated/bench.v1.rs");
    }
    /// Package `demo.v1`.
    pub mod demo {
        include!("../../generated/demo.v1.rs");
    }
    /// Package `thrift.demo`.
    pub mod thrift {
        include!("../../generated/thrift.demo.rs");
    }
    /// Package `thrift.bench`.
    pub mod thrift_bench {
        include!("../../generated/thrift.bench.rs");
    }
}

/// Creates a server with all of them, and a page for browsers.
pub fn server() -> switchboard::Server {
    page::add(switchboard::Server::new())
        .add(proto::demo::GreeterServer::new(Hello))
        .add(proto::demo::PostsServer::new(HotPosts))
        .add(proto::bench::BenchServer::new(BenchService))
}
