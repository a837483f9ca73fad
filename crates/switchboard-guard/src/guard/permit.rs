//! Permits that a call holds while it runs, released on any outcome.

use super::{Chain, batch, concurrency::Timed, fair::FairPermit};
use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Instant,
};
use switchboard_core::{
    Reply, Result,
    compression::Message,
    layer::{DetachPermits, DetachedPermits},
    queue::{Items, Passing},
};

/// Permits of a call in all limits that apply to it.
pub(crate) struct Permit<'a> {
    held: Option<Held<&'a Arc<Chain>>>,
}

/// The held permits. Dropping them releases them as those of a canceled call.
struct Held<C: std::borrow::Borrow<Arc<Chain>>> {
    chain: C,
    method: u16,
    /// Number of limiters that were entered, from the widest on.
    entered: u16,
    /// Start of the call, if its duration must be measured.
    began: Option<Instant>,
    /// Tenant of the permit in the first limit, if it is tracked.
    tenant: Option<u64>,
}

impl<'a> Permit<'a> {
    pub(super) fn new(chain: &'a Arc<Chain>, method: u16) -> Permit<'a> {
        Permit { held: Some(Held { chain, method, entered: 0, began: None, tenant: None }) }
    }

    /// Takes over the permits of the previous call.
    #[inline]
    pub(super) fn entered_all(&mut self, timed: bool) {
        if let Some(held) = &mut self.held {
            held.entered = held.chain.method(held.method).limiters.len() as u16;
            held.began = timed.then(switchboard_core::clock::now);
        }
    }

    /// Takes a permit of every limit that has not been entered, or none.
    #[inline]
    pub(super) fn enter(&mut self) -> Result<()> {
        let Some(held) = &mut self.held else { return Ok(()) };
        let mut timed = false;
        for limiter in &held.chain.method(held.method).limiters[usize::from(held.entered)..] {
            timed |= limiter.enter()?;
            held.entered += 1;
        }
        if timed && held.began.is_none() {
            held.began = Some(switchboard_core::clock::now());
        }
        Ok(())
    }

    /// Records the permit of the first limit, which the call may have waited for.
    pub(super) fn entered(&mut self, permit: FairPermit) {
        if let Some(held) = &mut self.held {
            held.entered = 1;
            held.began = permit.timed.then(switchboard_core::clock::now);
            held.tenant = permit.tenant;
        }
    }

    /// Releases the permits, or attaches them to a stream until it ends.
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

/// Permits of a call within its layers. The lock is never contended: it lets a layer take the permits through a shared
/// reference.
pub(super) struct LayeredPermit<'a>(Mutex<Permit<'a>>);

impl<'a> LayeredPermit<'a> {
    pub(super) fn new(permit: Permit<'a>) -> LayeredPermit<'a> {
        LayeredPermit(Mutex::new(permit))
    }

    pub(super) fn into_inner(self) -> Permit<'a> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DetachPermits for LayeredPermit<'_> {
    fn take(&self) -> Option<Box<dyn DetachedPermits>> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner).held.take();
        let held = held.filter(|held| held.entered > 0)?;
        Some(Box::new(Detached(held.owned())))
    }
}

struct Detached(Held<Arc<Chain>>);

impl DetachedPermits for Detached {
    fn end(self: Box<Self>, is_ok: bool) {
        self.0.end(is_ok);
    }
}

impl<C: std::borrow::Borrow<Arc<Chain>>> Held<C> {
    /// Returns whether permits must be released or kept for the next call.
    #[inline]
    fn holds(&self) -> bool {
        self.entered > 0 || !self.chain.borrow().method(self.method).rates.is_empty()
    }

    fn owned(mut self) -> Held<Arc<Chain>> {
        // The drop of `self` must not release them.
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

    /// Releases the permits, then passes the duration to the limits: a panic in a limit loses no permit.
    /// `outcome` states whether the call succeeded; `None` if it was canceled.
    fn leave(&mut self, outcome: Option<bool>) {
        let sample =
            self.began.take().map(|began| Timed { began, ended: switchboard_core::clock::now(), outcome });
        // The drop must not release it again.
        let entered = usize::from(std::mem::take(&mut self.entered));
        let chain = self.chain.borrow();
        let limiters = &chain.method(self.method).limiters[..entered];
        let is_kept = outcome.is_some() && self.tenant.is_none() && batch::keep_permits(chain, self.method);
        if !is_kept {
            limiters.iter().for_each(|limiter| limiter.leave());
            if let Some(queue) = &chain.queue {
                queue.released(self.tenant);
            }
        }
        if let Some(sample) = sample {
            limiters.iter().for_each(|limiter| limiter.learn(sample, u32::from(!is_kept)));
        }
    }
}

impl<C: std::borrow::Borrow<Arc<Chain>>> Drop for Held<C> {
    #[inline]
    fn drop(&mut self) {
        if self.entered > 0 {
            // During a panic, code that could panic again must not run: that would abort the process.
            if std::thread::panicking() {
                self.began = None;
            }
            self.leave(None);
        }
    }
}

/// A stream of replies that holds the permits of its call.
struct Guarded {
    items: Pin<Box<dyn Items>>,
    held: Option<Held<Arc<Chain>>>,
}

impl Passing for Guarded {
    fn items(&self) -> &dyn Items {
        &*self.items
    }

    fn items_mut(self: Pin<&mut Self>) -> Pin<&mut (dyn Items + 'static)> {
        self.get_mut().items.as_mut()
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
