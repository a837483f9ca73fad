//! Dispatch of an untyped call to the future of a service, which is kept in a recycled slot.
//!
//! This is the only type-erased boundary: one `Dispatch` per connection and service. A slot is a future that
//! serves one call after the other and is created once: the state of a handler can have kilobytes, and
//! building it in place saves the copy into the slot. Input and output of a slot pass through thread-locals
//! (`CALL`, `REPLY`) within one poll, so no lock is needed.

use crate::guard::{Admission, Chain};
use std::{
    cell::Cell,
    convert::Infallible,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use switchboard_core::{
    Call, Reply, Result, Service,
    erased::{Erased, ErasedService, catch, catching, handle},
    layer::{BoxFuture, End},
};
use switchboard_wire::ServiceInfo;

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

/// A service with its type erased, whose calls pass guards and layers.
pub trait GuardedService: ErasedService {
    /// Creates a dispatcher for a connection that this driver runs.
    fn dispatch(&self) -> Box<dyn Dispatch>;
    /// Wraps the service with these guards and layers.
    fn guarded(&self, chain: Option<Arc<Chain>>) -> Arc<dyn GuardedService>;
}

/// A service with the guards and layers that its calls pass first.
pub struct Guarded<S> {
    erased: Erased<S>,
    chain: Option<Arc<Chain>>,
}

impl<S: Service> Guarded<S> {
    /// Wraps a service without guards and layers.
    pub fn new(service: S) -> Guarded<S> {
        Guarded { erased: Erased::new(service), chain: None }
    }
}

impl<S> Clone for Guarded<S> {
    fn clone(&self) -> Guarded<S> {
        Guarded { erased: self.erased.clone(), chain: self.chain.clone() }
    }
}

impl<S: Service> ErasedService for Guarded<S> {
    fn info(&self) -> &'static ServiceInfo {
        self.erased.info()
    }

    fn call(&self, call: Call) -> BoxFuture<'static, Result<Reply>> {
        let service = self.clone();
        catching(async move { respond(&service, call).await })
    }
}

impl<S: Service> GuardedService for Guarded<S> {
    fn dispatch(&self) -> Box<dyn Dispatch> {
        // A reference count of this connection: cloning it for a slot touches no cache line of another core.
        let service = Arc::new(self.clone());
        Box::new(Slots { make: move || serve(service.clone()), slots: Vec::new(), free: Vec::new() })
    }

    fn guarded(&self, chain: Option<Arc<Chain>>) -> Arc<dyn GuardedService> {
        Arc::new(Guarded { erased: self.erased.clone(), chain })
    }
}

/// Passes a call through its guards and layers to its handler.
#[inline]
async fn respond<S: Service>(guarded: &Guarded<S>, mut call: Call) -> Result<Reply> {
    #[cfg(feature = "http")]
    if guarded.erased.is_transcoded(&call) {
        return guarded.erased.transcoded(guarded, call).await;
    }
    let Some(chain) = &guarded.chain else {
        if call.cx().method().spawn {
            return handle(guarded.erased.service(), call).await;
        }
        // The common case of `handle`, repeated here because each nested future moves the reply once more.
        return guarded.erased.service().call(call).await;
    };
    if chain.wants_report(call.cx()) {
        return Box::pin(respond_with_report(guarded, chain, call)).await;
    }
    let permit = match chain.begin(&mut call) {
        Admission::Admitted(permit) => permit,
        Admission::Rejected(status) => return Err(status),
        Admission::Queued(waiting) => waiting.await?,
    };
    if chain.has_layers() {
        return chain.layered(call, guarded, permit).await;
    }
    permit.end(handle(guarded.erased.service(), call).await)
}

/// Like [`respond`], for a caller that requests a report on the limits.
#[cold]
async fn respond_with_report<S: Service>(
    guarded: &Guarded<S>,
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
        Ok(permit) => chain.layered(call, guarded, permit).await,
        Err(status) => Err(status),
    };
    report.add_to(result)
}

impl<S: Service> End for Guarded<S> {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Reply>> {
        Box::pin(handle(self.erased.service(), call))
    }

    fn shared(&self) -> Arc<dyn End> {
        Arc::new(self.clone())
    }
}

// Hidden parameters of one poll: a future takes only its `Context`. A cell that the slot and its owner share would be a
// reference count and a lock for each poll, or `unsafe`.
thread_local! {
    /// Passes a call into the slot that is being polled.
    static CALL: Cell<Option<Call>> = const { Cell::new(None) };
    /// Passes the response out of the slot.
    static REPLY: Cell<Option<Result<Reply>>> = const { Cell::new(None) };
}

/// Runs one slot, which serves calls one after the other. The reference count belongs to one connection.
async fn serve<S: Service>(service: Arc<Guarded<S>>) -> Infallible {
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
