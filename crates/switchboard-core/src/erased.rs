//! Services with their types erased, and the call of a handler.
//!
//! A channel inside the process calls an [`Erased`] service directly. Servers wrap it with guards and layers first, see
//! `switchboard-guard`.

#[cfg(feature = "http")]
mod thrift;

use crate::{Call, Reply, Result, Service, layer::BoxFuture, runtime};
use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::Poll,
};
use switchboard_wire::{ServiceInfo, Status};

/// A service with its type erased.
pub trait ErasedService: Send + Sync {
    fn info(&self) -> &'static ServiceInfo;
    /// Starts a call as a boxed future, for wires that bring their own tasks and for calls inside the process.
    fn call(&self, call: Call) -> BoxFuture<'static, Result<Reply>>;
}

/// A service whose calls pass no guards and no layers.
pub struct Erased<S> {
    service: Arc<S>,
    #[cfg(feature = "http")]
    thrift: thrift::Schema,
}

impl<S: Service> Erased<S> {
    pub fn new(service: S) -> Erased<S> {
        Erased {
            service: Arc::new(service),
            #[cfg(feature = "http")]
            thrift: thrift::Schema::default(),
        }
    }

    #[inline]
    pub fn service(&self) -> &Arc<S> {
        &self.service
    }

    /// Returns whether a call has Thrift messages and its method protobuf messages.
    #[cfg(feature = "http")]
    #[inline]
    pub fn is_transcoded(&self, call: &Call) -> bool {
        thrift::is_of_messages(call) && !self.service.takes_thrift()
    }

    /// Serves such a call by a call of `service`, which is this one or wraps it, with protobuf messages.
    #[cfg(feature = "http")]
    #[cold]
    pub fn transcoded<'a>(
        &'a self,
        service: &'a dyn ErasedService,
        call: Call,
    ) -> BoxFuture<'a, Result<Reply>> {
        thrift::respond(service, &self.thrift, call)
    }
}

impl<S> Clone for Erased<S> {
    fn clone(&self) -> Erased<S> {
        Erased {
            service: self.service.clone(),
            #[cfg(feature = "http")]
            thrift: self.thrift.clone(),
        }
    }
}

impl<S: Service> ErasedService for Erased<S> {
    fn info(&self) -> &'static ServiceInfo {
        self.service.info()
    }

    fn call(&self, call: Call) -> BoxFuture<'static, Result<Reply>> {
        let erased = self.clone();
        catching(async move {
            #[cfg(feature = "http")]
            if erased.is_transcoded(&call) {
                return erased.transcoded(&erased, call).await;
            }
            handle(&erased.service, call).await
        })
    }
}

/// Passes a call to its handler: in place, or on the pool for computations if the method is marked `spawn`.
#[inline]
pub async fn handle<S: Service>(service: &Arc<S>, call: Call) -> Result<Reply> {
    if call.cx().method().spawn {
        let service = service.clone();
        return runtime::spawn_cpu(async move { service.call(call).await }).await;
    }
    service.call(call).await
}

/// Boxes the future of a call; a panic in it becomes its error.
pub fn catching(
    future: impl Future<Output = Result<Reply>> + Send + 'static,
) -> BoxFuture<'static, Result<Reply>> {
    let mut future = Box::pin(future);
    Box::pin(poll_fn(move |cx| match catch(|| future.as_mut().poll(cx)) {
        Ok(poll) => poll,
        Err(status) => Poll::Ready(Err(status)),
    }))
}

/// Turns a panic into an error: it ends the call, not the connection, and its text is not sent to the peer.
#[inline]
pub fn catch<T>(poll: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(poll)).map_err(|_| Status::internal("handler panicked"))
}
