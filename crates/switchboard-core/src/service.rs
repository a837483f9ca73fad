//! The trait that handlers, layers and channels share.

use crate::{Call, Reply, Result};
use std::sync::Arc;
use switchboard_wire::ServiceInfo;

/// Handles calls. Generated code implements it for `…Server` types.
///
/// Takes `&self` and has no readiness check: back-pressure is an `.await` or `ResourceExhausted`. The future
/// is dropped at its next await when the caller cancels, its deadline passes or its connection ends.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a service",
    label = "this is not a service",
    note = "add an implementation of a service trait as the trait's server: `.add(CalcServer::new(implementation))` for \
            `trait Calc`"
)]
pub trait Service: Send + Sync + 'static {
    /// Returns name, methods and descriptor.
    fn info(&self) -> &'static ServiceInfo;

    /// Handles one call.
    fn call(&self, call: Call) -> impl Future<Output = Result<Reply>> + Send;

    /// Returns whether Thrift messages are passed through, although the descriptor describes protobuf
    /// messages.
    #[doc(hidden)]
    fn takes_thrift(&self) -> bool {
        false
    }
}

impl<S: Service> Service for Arc<S> {
    fn info(&self) -> &'static ServiceInfo {
        (**self).info()
    }

    fn call(&self, call: Call) -> impl Future<Output = Result<Reply>> + Send {
        (**self).call(call)
    }

    fn takes_thrift(&self) -> bool {
        (**self).takes_thrift()
    }
}
