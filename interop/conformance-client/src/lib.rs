//! Switchboard's client in the role of a client under test. [`caller`] makes the calls that the conformance
//! suite of Connect requests, [`seen`] reports their outcomes to it; [`cases`] are the interop cases that
//! every gRPC implementation has.

pub mod caller;
pub mod cases;
pub mod seen;

/// Generated from `proto/`.
#[allow(missing_docs, reason = "generated")]
pub mod proto {
    switchboard::include_proto!("switchboard.conformance");
}
