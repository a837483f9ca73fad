//! The services of the package `switchboard.push.v1`.

mod convert;
mod devices;
mod push;
mod verifier;

pub use devices::DevicesServer;
pub(crate) use devices::identify;
pub use push::PushServer;
pub use verifier::ServiceVerifier;

/// Messages, clients and services of the package `switchboard.push.v1`.
///
/// Generated from `proto/switchboard/push/v1/push.proto`; a test of `switchboard-build` compares the files with it.
#[allow(
    missing_docs,
    unused_imports,
    clippy::all,
    clippy::pedantic,
    reason = "the generator documents what the schema documents"
)]
pub mod v1 {
    include!("../../generated/switchboard.push.v1.rs");
}
