//! What a call holds while it runs, given back however it ends.

use super::{Chain, batch, concurrency::Timed, fair::Place};
use crate::{
    Reply, Result,
    compression::Message,
    stream::{Items, Passing},
};
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

/// The places of a call in the limits that hold for it.
pub(crate) struct Permit<'a> {
    held: Option<Held<&'a Arc<Chain>>>,
}

/// The places themselves; dropped, they are given back as those of a call that was canceled.
struct Held<C: std::borrow::Borrow<Arc<Chain>>> {
    chain: C,
    method: u16,
    /// Limiters that were entered, from the widest on.
    entered: u16,
    /// When the call began, if anybody wants to know how long it took.
    began: Option<Instant>,
    /// Whose place in the first limit it is, if that was noted.
    tenant: Option<u64>,
}

impl<'a> Permit<'a> {
    pub(super) fn new(chain: &'a Arc<Chain>, method: u16) -> Permit<'a> {
        Permit { held: Some(Held { chain, method, entered: 0, began: None, tenant: None }) }
    }

    /// The places are those of the call before.
    #[inline]
    pub(super) fn entered_all(&mut self, timed: bool) {
        if let Some(held) = &mut self.held {
            held.entered = held.chain.method(held.method).limiters.len() as u16;
            held.began = timed.then(crate::clock::now);
        }
    }

    /// Takes a place in every limit that has not been entered, or in none.
    #[inline]
    pub(super) fn enter(&mut self) -> Result<()> {
        let Some(held) = &mut self.held else { return Ok(()) };
        let mut timed = false;
        for limiter in &held.chain.method(held.method).limiters[usize::from(held.entered)..] {
            timed |= limiter.enter()?;
            held.entered += 1;
        }
        if timed && held.began.is_none() {
            held.began = Some(crate::clock::now());
        }
        Ok(())
    }

    /// Notes the place that the call got in the first limit, perhaps after a while.
    pub(super) fn entered(&mut self, place: Place) {
        if let Some(held) = &mut self.held {
            held.entered = 1;
            held.began = place.timed.then(crate::clock::now);
            held.tenant = place.tenant;
        }
    }

    /// Gives the places back, or leaves them with a stream until it ends.
    #[inline]
    pub(crate) fn end(mut self, result: Result<Reply>) -> Result<Reply> {
        let Some(held) = self.held.take().filter(Held::holds) else { return result };
        match result {
            Ok(reply) if reply.is_many() && held.entered > 0 => {
                let held = held.owned();
                Ok(reply.map_items(|items| Box::pin(Guarded { items, held: Some(held) })))
            }
            result => {
                held.end(result.is_ok());
                result
            }
        }
    }
}

impl<C: std::borrow::Borrow<Arc<Chain>>> Held<C> {
    /// Whether there is anything to give back, or to keep for the next call.
    #[inline]
    fn holds(&self) -> bool {
        self.entered > 0 || !self.chain.borrow().method(self.method).rates.is_empty()
    }

    fn owned(mut self) -> Held<Arc<Chain>> {
        // What is taken here is not given back by the drop of `self`.
        let entered = std::mem::take(&mut self.entered);
        Held {
            chain: self.chain.borrow().clone(),
            method: self.method,
            entered,
            began: self.began.take(),
            tenant: self.tenant,
        }
    }

    #[inline]
    fn end(mut self, is_ok: bool) {
        self.leave(Some(is_ok));
    }

    /// `outcome` says whether the call went well; none if it was cut.
    fn leave(&mut self, outcome: Option<bool>) {
        let entered = usize::from(std::mem::take(&mut self.entered));
        let sample = self.began.take().map(|began| Timed { began, ended: crate::clock::now(), outcome });
        let chain = self.chain.borrow();
        let limiters = &chain.method(self.method).limiters[..entered];
        if let Some(sample) = sample {
            limiters.iter().for_each(|limiter| limiter.learn(sample));
        }
        if outcome.is_some() && self.tenant.is_none() && batch::keep_places(chain, self.method) {
            return;
        }
        limiters.iter().for_each(|limiter| limiter.leave());
        if let Some(queue) = &chain.queue {
            queue.released(self.tenant);
        }
    }
}

impl<C: std::borrow::Borrow<Arc<Chain>>> Drop for Held<C> {
    #[inline]
    fn drop(&mut self) {
        if self.entered > 0 {
            self.leave(None);
        }
    }
}

/// A stream of replies that holds the places of its call.
struct Guarded {
    items: Pin<Box<dyn Items>>,
    held: Option<Held<Arc<Chain>>>,
}

impl Passing for Guarded {
    fn items(&self) -> &dyn Items {
        &*self.items
    }

    fn poll_passed(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>> {
        let this = self.get_mut();
        let item = this.items.as_mut().poll_next(cx);
        if let Poll::Ready(None | Some(Err(_))) = &item
            && let Some(held) = this.held.take()
        {
            held.end(matches!(item, Poll::Ready(None)));
        }
        item
    }
}
