//! Dispatch of an untyped call to the future of a service, which is kept in a recycled slot.
//!
//! This is the only type-erased boundary: one `Dispatch` per connection and service. A slot is a future that
//! serves one call after the other and is created once: the state of a handler can have kilobytes, and
//! building it in place saves the copy into the slot. Input and output of a slot pass through thread-locals
//! (`CALL`, `REPLY`) within one poll, so no lock is needed.

#[cfg(feature = "http")]
mod thrift;

use crate::guard::{Admission, Chain};
use futures::BoxFuture;
use std::{
    cell::Cell,
    convert::Infallible,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use switchboard_core::{
    Call, Reply, Result, Service,
    call::with_left,
    layer::{self, End},
    runtime,
};
use switchboard_wire::{ServiceInfo, Status};

/// Starts and polls the calls of one service on one connection.
pub trait Dispatch: Send {
    /// Starts a call in a free slot and polls it once; returns the slot if the call is pending.
    fn start(&mut self, call: Call, cx: &mut Context<'_>) -> Result<Result<Reply>, u32>;
    /// Polls the call in `slot`; the slot is free once the result is ready.
    fn poll(&mut self, slot: u32, cx: &mut Context<'_>) -> Poll<Result<Reply>>;
    /// Drops the call in `slot`.
    fn cancel(&mut self, slot: u32);
    /// Releases the memory of free slots.
    fn shrink(&mut self);
}

/// A service with its type erased.
pub trait ErasedService: Send + Sync {
    fn info(&self) -> &'static ServiceInfo;
    /// Creates a dispatcher for a connection that this driver runs.
    fn dispatch(&self) -> Box<dyn Dispatch>;
    /// Starts a call as a boxed future, for wires that bring their own tasks and for calls inside the
    /// process.
    fn call(&self, call: Call) -> BoxFuture<Result<Reply>>;
    /// Wraps the service with these guards and layers.
    fn guarded(&self, chain: Option<Arc<Chain>>) -> Arc<dyn ErasedService>;
}

/// A service with the guards and layers that its calls pass first.
pub struct Erased<S> {
    service: Arc<S>,
    chain: Option<Arc<Chain>>,
    #[cfg(feature = "http")]
    thrift: thrift::Schema,
}

impl<S> Erased<S> {
    fn unguarded(&self) -> Erased<S> {
        Erased {
            service: self.service.clone(),
            chain: None,
            #[cfg(feature = "http")]
            thrift: self.thrift.clone(),
        }
    }
}

impl<S: Service> Erased<S> {
    pub fn new(service: S) -> Erased<S> {
        Erased {
            service: Arc::new(service),
            chain: None,
            #[cfg(feature = "http")]
            thrift: thrift::Schema::default(),
        }
    }
}

impl<S> Clone for Erased<S> {
    fn clone(&self) -> Erased<S> {
        Erased { chain: self.chain.clone(), ..self.unguarded() }
    }
}

/// `BoxFuture` as in the `futures` crate, without the dependency.
pub(crate) mod futures {
    pub(crate) type BoxFuture<T> = std::pin::Pin<Box<dyn std::future::Future<Output = T> + Send>>;
}

impl<S: Service> ErasedService for Erased<S> {
    fn info(&self) -> &'static ServiceInfo {
        self.service.info()
    }

    fn dispatch(&self) -> Box<dyn Dispatch> {
        // A reference count of this connection: cloning it for a slot touches no cache line of another core.
        let service = Arc::new(self.clone());
        Box::new(Slots { make: move || serve(service.clone()), slots: Vec::new(), free: Vec::new() })
    }

    fn call(&self, call: Call) -> BoxFuture<Result<Reply>> {
        let service = self.clone();
        let mut future = Box::pin(async move { respond(&service, call).await });
        Box::pin(poll_fn(move |cx| match catch(|| future.as_mut().poll(cx)) {
            Ok(poll) => poll,
            Err(status) => Poll::Ready(Err(status)),
        }))
    }

    fn guarded(&self, chain: Option<Arc<Chain>>) -> Arc<dyn ErasedService> {
        Arc::new(Erased { chain, ..self.unguarded() })
    }
}

/// Passes a call through its guards and layers to its handler.
#[inline]
async fn respond<S: Service>(erased: &Erased<S>, mut call: Call) -> Result<Reply> {
    #[cfg(feature = "http")]
    if thrift::is_of_messages(&call) && !erased.service.takes_thrift() {
        return thrift::respond(erased, &erased.thrift, call).await;
    }
    let Some(chain) = &erased.chain else {
        if call.cx().method().spawn {
            return handle(&erased.service, call).await;
        }
        // The common case of `handle`, repeated here because each nested future moves the reply once more.
        let number = call.cx_mut().keep_reply();
        return erased.service.call(call).await.map_err(|status| with_left(status, number));
    };
    if chain.wants_report(call.cx()) {
        return Box::pin(respond_with_report(erased, chain, call)).await;
    }
    let permit = match chain.begin(&mut call) {
        Admission::Admitted(permit) => permit,
        Admission::Rejected(status) => return Err(status),
        Admission::Queued(waiting) => waiting.await?,
    };
    if chain.has_layers() {
        return chain.layered(call, erased, permit).await;
    }
    permit.end(handle(&erased.service, call).await)
}

/// Like [`respond`], for a caller that requests a report on the limits.
#[cold]
async fn respond_with_report<S: Service>(
    erased: &Erased<S>,
    chain: &Arc<Chain>,
    mut call: Call,
) -> Result<Reply> {
    let mut report = chain.limits_report(&call);
    let admitted = match chain.begin(&mut call) {
        Admission::Admitted(permit) => Ok(permit),
        Admission::Rejected(status) => Err(status),
        Admission::Queued(waiting) => waiting.await,
    };
    report.decided(chain, call.cx(), &admitted);
    let result = match admitted {
        // This path is rare, so it always uses the future of the layers.
        Ok(permit) => chain.layered(call, erased, permit).await,
        Err(status) => Err(status),
    };
    report.add_to(result)
}

impl<S: Service> End for Erased<S> {
    fn call(&self, call: Call) -> layer::BoxFuture<'_, Result<Reply>> {
        Box::pin(handle(&self.service, call))
    }

    fn shared(&self) -> Arc<dyn End> {
        Arc::new(self.clone())
    }
}

#[inline]
async fn handle<S: Service>(service: &Arc<S>, mut call: Call) -> Result<Reply> {
    if call.cx().method().spawn {
        let service = service.clone();
        return runtime::spawn_cpu(async move {
            let number = call.cx_mut().keep_reply();
            service.call(call).await.map_err(|status| with_left(status, number))
        })
        .await;
    }
    let number = call.cx_mut().keep_reply();
    service.call(call).await.map_err(|status| with_left(status, number))
}

/// Turns a panic into an error: it ends the call, not the connection, and its text is not sent to the peer.
#[inline]
fn catch<T>(poll: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(poll)).map_err(|_| Status::internal("handler panicked"))
}

thread_local! {
    /// Passes a call into the slot that is being polled.
    static CALL: Cell<Option<Call>> = const { Cell::new(None) };
    /// Passes the response out of the slot.
    static REPLY: Cell<Option<Result<Reply>>> = const { Cell::new(None) };
}

/// Runs one slot, which serves calls one after the other. The reference count belongs to one connection.
async fn serve<S: Service>(service: Arc<Erased<S>>) -> Infallible {
    loop {
        let call = poll_fn(|_| CALL.take().map_or(Poll::Pending, Poll::Ready)).await;
        let reply = respond(&service, call).await;
        REPLY.with(|slot| slot.set(Some(reply)));
    }
}

struct Slots<F, M> {
    make: M,
    slots: Vec<Pin<Box<F>>>,
    free: Vec<u32>,
}

impl<F, M> Dispatch for Slots<F, M>
where
    F: Future<Output = Infallible> + Send,
    M: Fn() -> F + Send,
{
    #[inline]
    fn start(&mut self, call: Call, cx: &mut Context<'_>) -> Result<Result<Reply>, u32> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Box::pin((self.make)()));
            self.slots.len() as u32 - 1
        });
        CALL.with(|slot| slot.set(Some(call)));
        match self.poll(slot, cx) {
            Poll::Ready(result) => Ok(result),
            Poll::Pending => Err(slot),
        }
    }

    fn poll(&mut self, slot: u32, cx: &mut Context<'_>) -> Poll<Result<Reply>> {
        let future = self.slots[slot as usize].as_mut();
        let reply = match catch(|| future.poll(cx)) {
            Ok(Poll::Ready(never)) => match never {},
            Ok(Poll::Pending) => REPLY.take(),
            Err(status) => {
                // A future that panicked cannot be polled again.
                self.slots[slot as usize] = Box::pin((self.make)());
                Some(Err(status))
            }
        };
        match reply {
            Some(reply) => {
                self.free.push(slot);
                Poll::Ready(reply)
            }
            None => Poll::Pending,
        }
    }

    fn cancel(&mut self, slot: u32) {
        // Dropping the slot is the only way to drop the handler that runs in it.
        self.slots[slot as usize] = Box::pin((self.make)());
        self.free.push(slot);
    }

    fn shrink(&mut self) {
        if self.free.len() == self.slots.len() {
            self.slots = Vec::new();
            self.free = Vec::new();
        }
    }
}
