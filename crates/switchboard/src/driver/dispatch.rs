//! From an untyped call to the future of a service, kept in a recycled slot.
//!
//! The only erased seam: one `Dispatch` per connection and service. The futures of a service all have one type,
//! so a slot is memory for one such future and starting a call allocates nothing once there are slots.

use crate::{Call, Reply, Result, Service, Status, runtime};
use futures::BoxFuture;
use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use switchboard_wire::ServiceInfo;

/// Starts and polls the calls of one service on one connection.
pub(crate) trait Dispatch: Send {
    /// Begins a call in a free slot and polls it once; says which slot when it is pending.
    fn start(&mut self, call: Call, cx: &mut Context<'_>) -> Result<Result<Reply>, u32>;
    /// Polls the call in `slot`; the slot is free once it is ready.
    fn poll(&mut self, slot: u32, cx: &mut Context<'_>) -> Poll<Result<Reply>>;
    /// Drops the call in `slot`.
    fn cancel(&mut self, slot: u32);
    /// Gives the memory of free slots back.
    fn shrink(&mut self);
}

/// A service without its type.
pub(crate) trait ErasedService: Send + Sync {
    fn info(&self) -> &'static ServiceInfo;
    /// For connections that this driver runs.
    fn dispatch(&self) -> Box<dyn Dispatch>;
    /// For wires that bring their own tasks, and for calls inside the process.
    fn call(&self, call: Call) -> BoxFuture<Result<Reply>>;
}

pub(crate) struct Erased<S>(pub(crate) Arc<S>);

/// The futures crate's name for it, without the crate.
pub(crate) mod futures {
    pub(crate) type BoxFuture<T> = std::pin::Pin<Box<dyn std::future::Future<Output = T> + Send>>;
}

impl<S: Service> ErasedService for Erased<S> {
    fn info(&self) -> &'static ServiceInfo {
        self.0.info()
    }

    fn dispatch(&self) -> Box<dyn Dispatch> {
        // A counter of this connection: clones per call touch nothing that another core touches.
        let service = Arc::new(self.0.clone());
        Box::new(Slots::new(move |call| answer(service.clone(), call)))
    }

    fn call(&self, call: Call) -> BoxFuture<Result<Reply>> {
        let mut future = Box::pin(answer(Arc::new(self.0.clone()), call));
        Box::pin(std::future::poll_fn(move |cx| guarded(future.as_mut(), cx)))
    }
}

async fn answer<S: Service>(service: Arc<Arc<S>>, call: Call) -> Result<Reply> {
    if call.cx().method().spawn {
        let service = Arc::clone(&*service);
        return runtime::spawn_cpu(async move { service.call(call).await }).await;
    }
    service.call(call).await
}

/// A panic ends the call, not the connection; its text stays in this process.
fn guarded<F: Future<Output = Result<Reply>>>(
    future: Pin<&mut F>,
    cx: &mut Context<'_>,
) -> Poll<Result<Reply>> {
    match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
        Ok(poll) => poll,
        Err(_) => Poll::Ready(Err(Status::internal("handler panicked"))),
    }
}

struct Slots<F, M> {
    make: M,
    slots: Vec<Pin<Box<Option<F>>>>,
    free: Vec<u32>,
}

impl<F, M> Slots<F, M> {
    fn new(make: M) -> Slots<F, M> {
        Slots { make, slots: Vec::new(), free: Vec::new() }
    }

    fn release(&mut self, slot: u32) {
        self.slots[slot as usize].set(None);
        self.free.push(slot);
    }
}

impl<F, M> Dispatch for Slots<F, M>
where
    F: Future<Output = Result<Reply>> + Send,
    M: Fn(Call) -> F + Send,
{
    #[inline]
    fn start(&mut self, call: Call, cx: &mut Context<'_>) -> Result<Result<Reply>, u32> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Box::pin(None));
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize].set(Some((self.make)(call)));
        match self.poll(slot, cx) {
            Poll::Ready(result) => Ok(result),
            Poll::Pending => Err(slot),
        }
    }

    fn poll(&mut self, slot: u32, cx: &mut Context<'_>) -> Poll<Result<Reply>> {
        let future = self.slots[slot as usize].as_mut().as_pin_mut().expect("a polled slot holds a call");
        let poll = guarded(future, cx);
        if poll.is_ready() {
            self.release(slot);
        }
        poll
    }

    fn cancel(&mut self, slot: u32) {
        self.release(slot);
    }

    fn shrink(&mut self) {
        if self.free.len() == self.slots.len() {
            self.slots = Vec::new();
            self.free = Vec::new();
        }
    }
}
