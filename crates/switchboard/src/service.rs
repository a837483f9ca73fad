//! The one shape that handlers, layers and channels share.

use crate::{Call, Reply, Result};
use std::sync::Arc;
use switchboard_wire::ServiceInfo;

/// Something that answers calls. Generated code implements it for `…Server` types.
///
/// `&self` and no readiness: back-pressure is an `.await` or `ResourceExhausted`, never hidden state. The future
/// is dropped at its next await when the caller cancels, its deadline passes or its connection ends.
pub trait Service: Send + Sync + 'static {
    /// Name, methods and descriptor.
    fn info(&self) -> &'static ServiceInfo;

    /// Answers one call.
    fn call(&self, call: Call) -> impl Future<Output = Result<Reply>> + Send;

    /// Whether messages that callers write as Thrift stay so, though the descriptor says what they are in protobuf.
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
