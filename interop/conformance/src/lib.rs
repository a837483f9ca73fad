//! The services that foreign test suites call, written as any service of Switchboard is.
//!
//! [`connect`] is called by the conformance suite of Connect, which speaks Connect, gRPC and gRPC-Web; [`grpc`] by
//! the interop clients that every gRPC implementation brings. [`pem`] keeps the certificates that a suite sends.

pub mod connect;
pub mod grpc;
pub mod pem;

/// Generated from `proto/`.
#[allow(missing_docs, reason = "generated")]
pub mod proto {
    /// Package `connectrpc.conformance.v1`.
    pub mod connect {
        switchboard::include_proto!("connectrpc.conformance.v1");
    }
    /// Package `grpc.testing`.
    pub mod grpc {
        switchboard::include_proto!("grpc.testing");
    }
}
