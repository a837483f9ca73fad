//! From an untyped call to the future of a service, kept in a recycled slot.
//!
//! The only erased seam: one `Dispatch` per connection and service. A slot is a future that answers one call after
//! the other and is never made anew: the state of a handler can have kilobytes, and building it where it stays saves
//! the copy that putting it into a slot would cost. What goes in and out of a slot passes through this thread's
//! hands ([`CALL`], [`ANSWER`]) within one poll, so it needs no lock.

#[cfg(feature = "http")]
mod thrift;

use crate::{
    Call, Reply, Result, Service, Status,
    call::with_left,
    guard::{Begun, Chain},
    layer::{self, End},
    runtime,
};
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
    /// The same service behind these guards and layers.
    fn guarded(&self, chain: Option<Arc<Chain>>) -> Arc<dyn ErasedService>;
}

/// A service, and what its calls pass before they reach it.
pub(crate) struct Erased<S> {
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
    pub(crate) fn new(service: S) -> Erased<S> {
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

/// The futures crate's name for it, without the crate.
pub(crate) mod futures {
    pub(crate) type BoxFuture<T> = std::pin::Pin<Box<dyn std::future::Future<Output = T> + Send>>;
}

impl<S: Service> ErasedService for Erased<S> {
    fn info(&self) -> &'static ServiceInfo {
        self.service.info()
    }

    fn dispatch(&self) -> Box<dyn Dispatch> {
        // A counter of this connection: clones per slot touch nothing that another core touches.
        let service = Arc::new(self.clone());
        Box::new(Slots { make: move || serve(service.clone()), slots: Vec::new(), free: Vec::new() })
    }

    fn call(&self, call: Call) -> BoxFuture<Result<Reply>> {
        let service = self.clone();
        let mut future = Box::pin(async move { answer(&service, call).await });
        Box::pin(poll_fn(move |cx| match catch(|| future.as_mut().poll(cx)) {
            Ok(poll) => poll,
            Err(status) => Poll::Ready(Err(status)),
        }))
    }

    fn guarded(&self, chain: Option<Arc<Chain>>) -> Arc<dyn ErasedService> {
        Arc::new(Erased { chain, ..self.unguarded() })
    }
}

/// Takes a call through its guards and layers to its handler.
#[inline]
async fn answer<S: Service>(erased: &Erased<S>, mut call: Call) -> Result<Reply> {
    #[cfg(feature = "http")]
    if thrift::is_of_messages(&call) && !erased.service.takes_thrift() {
        return thrift::answer(erased, &erased.thrift, call).await;
    }
    let Some(chain) = &erased.chain else {
        if call.cx().method().spawn {
            return handle(&erased.service, call).await;
        }
        // The usual case as in `handle`, and not by it: each future in between moves the reply once more.
        let number = call.cx_mut().keep_reply();
        return erased.service.call(call).await.map_err(|status| with_left(status, number));
    };
    if chain.is_asked(call.cx()) {
        return Box::pin(answer_and_tell(erased, chain, call)).await;
    }
    let permit = match chain.begin(&mut call) {
        Begun::Go(permit) => permit,
        Begun::Refused(status) => return Err(status),
        Begun::Wait(waiting) => waiting.await?,
    };
    if chain.has_layers() {
        return permit.end(chain.layered(call, erased).await);
    }
    permit.end(handle(&erased.service, call).await)
}

/// The same for a caller that wants to know what the limits did.
#[cold]
async fn answer_and_tell<S: Service>(
    erased: &Erased<S>,
    chain: &Arc<Chain>,
    mut call: Call,
) -> Result<Reply> {
    let mut told = chain.tell(&call);
    let admitted = match chain.begin(&mut call) {
        Begun::Go(permit) => Ok(permit),
        Begun::Refused(status) => Err(status),
        Begun::Wait(waiting) => waiting.await,
    };
    told.decided(&admitted);
    let result = match admitted {
        // The future of layers is as good as one around the handler alone.
        Ok(permit) => permit.end(chain.layered(call, erased).await),
        Err(status) => Err(status),
    };
    told.add_to(result)
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

/// A panic ends the call, not the connection; its text stays in this process.
#[inline]
fn catch<T>(poll: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(poll)).map_err(|_| Status::internal("handler panicked"))
}

thread_local! {
    /// A call on its way into the slot that is being polled.
    static CALL: Cell<Option<Call>> = const { Cell::new(None) };
    /// The answer on its way out of it.
    static ANSWER: Cell<Option<Result<Reply>>> = const { Cell::new(None) };
}

/// One slot: answers calls, one after the other. The counter belongs to one connection.
async fn serve<S: Service>(service: Arc<Erased<S>>) -> Infallible {
    loop {
        let call = poll_fn(|_| CALL.take().map_or(Poll::Pending, Poll::Ready)).await;
        let answer = answer(&service, call).await;
        ANSWER.with(|hand| hand.set(Some(answer)));
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
        CALL.with(|hand| hand.set(Some(call)));
        match self.poll(slot, cx) {
            Poll::Ready(result) => Ok(result),
            Poll::Pending => Err(slot),
        }
    }

    fn poll(&mut self, slot: u32, cx: &mut Context<'_>) -> Poll<Result<Reply>> {
        let future = self.slots[slot as usize].as_mut();
        let answer = match catch(|| future.poll(cx)) {
            Ok(Poll::Ready(never)) => match never {},
            Ok(Poll::Pending) => ANSWER.take(),
            Err(status) => {
                // What panicked cannot be polled again.
                self.slots[slot as usize] = Box::pin((self.make)());
                Some(Err(status))
            }
        };
        match answer {
            Some(answer) => {
                self.free.push(slot);
                Poll::Ready(answer)
            }
            None => Poll::Pending,
        }
    }

    fn cancel(&mut self, slot: u32) {
        // The only way to drop a handler is to drop the slot that is busy with it.
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
