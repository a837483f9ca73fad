//! The trait that handlers, layers and channels share.

use crate::{Call, Reply, Result, layer::BoxFuture};
use std::{fmt, sync::Arc};
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

/// A service with its type erased, for plugins that add services. Cheap to clone.
///
/// A call of it costs one allocation more than one of the service itself.
#[derive(Clone)]
pub struct DynService(Arc<dyn AnyService>);

/// The object-safe form of [`Service`].
trait AnyService: Send + Sync + 'static {
    fn info(&self) -> &'static ServiceInfo;
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Reply>>;
    fn takes_thrift(&self) -> bool;
}

impl<S: Service> AnyService for S {
    fn info(&self) -> &'static ServiceInfo {
        Service::info(self)
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Reply>> {
        Box::pin(Service::call(self, call))
    }

    fn takes_thrift(&self) -> bool {
        Service::takes_thrift(self)
    }
}

impl DynService {
    /// Erases the type of a service.
    pub fn new(service: impl Service) -> DynService {
        DynService(Arc::new(service))
    }
}

impl Service for DynService {
    fn info(&self) -> &'static ServiceInfo {
        self.0.info()
    }

    fn call(&self, call: Call) -> impl Future<Output = Result<Reply>> + Send {
        self.0.call(call)
    }

    fn takes_thrift(&self) -> bool {
        self.0.takes_thrift()
    }
}

impl fmt::Debug for DynService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DynService").field(&self.0.info().name).finish()
    }
}
