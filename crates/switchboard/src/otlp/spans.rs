//! Span of a call: from its arrival to the end of its reply, including the end of a stream.

use super::Otlp;
use std::{
    borrow::Cow,
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Instant, SystemTime},
};
use switchboard_core::{
    Call, Reply, Result, clock,
    compression::Message,
    context,
    layer::{BoxFuture, Layer, Next},
    queue::{Items, Passing},
    trace::Trace,
};
use switchboard_wire::{Code, Status};

/// A layer that records calls, created by [`Otlp::incoming`] and [`Otlp::outgoing`].
#[derive(Clone)]
pub struct Calls {
    otlp: Otlp,
    /// Set if this process serves the calls, unset for outgoing calls.
    incoming: bool,
}

impl Calls {
    pub(super) fn new(otlp: Otlp, incoming: bool) -> Calls {
        Calls { otlp, incoming }
    }
}

/// Recorded data of a call.
pub(super) struct Span {
    pub(super) trace: Arc<Trace>,
    pub(super) incoming: bool,
    pub(super) service: Cow<'static, str>,
    pub(super) method: Cow<'static, str>,
    pub(super) wire: &'static str,
    pub(super) peer: String,
    pub(super) began: SystemTime,
    pub(super) nanos: u64,
    pub(super) code: Code,
    /// Error text of a failed call.
    pub(super) message: String,
}

/// A call in progress. Dropping it before its end records it as canceled.
struct Open {
    otlp: Otlp,
    span: Option<Span>,
    clock: Instant,
}

/// Returns the name as declared, or else as the caller sent it.
fn named(declared: &'static str, called: &str) -> Cow<'static, str> {
    if declared == called { declared.into() } else { called.to_owned().into() }
}

impl Open {
    fn new(otlp: &Otlp, incoming: bool, call: &Call, trace: Arc<Trace>) -> Open {
        let cx = call.cx();
        let span = Span {
            trace,
            incoming,
            service: named(cx.service().name, cx.service_name()),
            method: named(cx.method().name, cx.method_name()),
            wire: cx.peer().wire(),
            peer: cx.peer().address.clone(),
            began: clock::time_of_day(),
            nanos: 0,
            code: Code::Ok,
            message: String::new(),
        };
        Open { otlp: otlp.clone(), span: Some(span), clock: clock::now() }
    }

    fn end(&mut self, failure: Option<&Status>) {
        let Some(mut span) = self.span.take() else { return };
        span.nanos = u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if let Some(status) = failure {
            span.code = status.code();
            span.message = status.message().to_owned();
        }
        self.otlp.take(span);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.span.is_some() {
            self.end(Some(&Status::canceled("the call was dropped before its end")));
        }
    }
}

impl Layer for Calls {
    fn name(&self) -> &str {
        if self.incoming { "otlp of incoming calls" } else { "otlp of outgoing calls" }
    }

    fn call<'a>(&'a self, mut call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply>> {
        let Some(trace) = Trace::recorded_here(call.cx().trace(), self.otlp.shared.share) else {
            return next.call(call);
        };
        let trace = Arc::new(trace);
        let mut open = Open::new(&self.otlp, self.incoming, &call, trace.clone());
        call.cx_mut().set_trace(trace.clone());
        let mut called = next.call(call);
        Box::pin(async move {
            // Nested calls become children of this span.
            let within = |cx: &mut Context<'_>| {
                context::scope(context::deadline(), Some(&trace), || called.as_mut().poll(cx))
            };
            match poll_fn(within).await {
                Ok(reply) if reply.is_many() => {
                    Ok(reply.map_items(|items| Box::pin(Followed { items, open, trace })))
                }
                Ok(reply) => {
                    open.end(None);
                    Ok(reply)
                }
                Err(status) => {
                    open.end(Some(&status));
                    Err(status)
                }
            }
        })
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("otlp", &self.otlp).field("incoming", &self.incoming).finish()
    }
}

/// A stream of replies; the end of the stream ends the span.
struct Followed {
    items: Pin<Box<dyn Items>>,
    open: Open,
    trace: Arc<Trace>,
}

impl Passing for Followed {
    fn items(&self) -> &dyn Items {
        &*self.items
    }

    fn items_mut(self: Pin<&mut Self>) -> Pin<&mut (dyn Items + 'static)> {
        self.get_mut().items.as_mut()
    }

    fn poll_passed(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>> {
        let this = self.get_mut();
        let poll = || this.items.as_mut().poll_next(cx);
        let item = context::scope(context::deadline(), Some(&this.trace), poll);
        match &item {
            Poll::Ready(None) => this.open.end(None),
            Poll::Ready(Some(Err(status))) => this.open.end(Some(status)),
            _ => {}
        }
        item
    }
}
