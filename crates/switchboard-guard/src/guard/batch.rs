//! Permits and tokens that a worker keeps between the calls of one batch, which are the calls that one read
//! delivered: permits of limits, and tokens of rates taken in advance. Without this, cores that take and
//! return them for each call contend for the cache lines.
//!
//! The permits of a call that was ready at once pass to the next call of the same method. The remaining
//! permits are released when the batch ends, before a reply is written: a caller that has received its reply
//! is no longer counted as running.

use super::{Chain, Permit, rate::Ahead};
use std::{cell::Cell, sync::Arc};

// Hidden parameters: between the connection that reads a batch and the guards of its calls are slots, which are futures
// without arguments. See `dispatch.rs`.
thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static CURRENT: Cell<Option<Box<PermitBatch>>> = const { Cell::new(None) };
    /// Reusable memory for the next `PermitBatch`.
    static SPARE: Cell<Option<Box<PermitBatch>>> = const { Cell::new(None) };
    /// Number of calls that reused the permits of another call.
    static RESUMED: Cell<u32> = const { Cell::new(0) };
}

/// Scope of a batch of consecutive calls on this thread.
pub struct BatchScope(());

impl BatchScope {
    /// Begins a batch on this thread, which ends when the scope is dropped.
    #[inline]
    pub fn begin() -> BatchScope {
        IS_ON.set(true);
        BatchScope(())
    }
}

impl Drop for BatchScope {
    #[inline]
    fn drop(&mut self) {
        IS_ON.set(false);
        if let Some(batch) = CURRENT.take() {
            batch.release_all();
        }
    }
}

/// Permits and tokens of one method that have not been released.
#[derive(Default)]
pub(super) struct PermitBatch {
    /// `None` after the release.
    chain: Option<Arc<Chain>>,
    method: u16,
    /// The batch holds all permits that a call of the method needs; otherwise a running call holds them.
    has_permits: bool,
    /// Number of calls that reused the permits after the call that took them.
    calls: u32,
    /// Tokens of the first rates of the method.
    tokens: [Ahead; RATES],
}

/// Number of rates per method for which tokens are taken in advance.
const RATES: usize = 2;

impl PermitBatch {
    /// Returns the batch of this method; releases a batch of another method.
    #[inline]
    pub(super) fn of(chain: &Arc<Chain>, method: u16) -> Option<Box<PermitBatch>> {
        let batch = CURRENT.take()?;
        if batch.is_of(chain, method) {
            return Some(batch);
        }
        batch.release_all();
        None
    }

    /// Returns the tokens in advance of the rate at this index of the method.
    #[inline]
    pub(super) fn ahead(&mut self, rate: usize) -> Option<&mut Ahead> {
        self.tokens.get_mut(rate)
    }

    /// Moves the permits to a call, if the batch holds them.
    #[inline]
    pub(super) fn lend_permits(&mut self, chain: &Chain, permit: &mut Permit<'_>) -> bool {
        if !std::mem::take(&mut self.has_permits) {
            return false;
        }
        self.calls += 1;
        let number = RESUMED.get().wrapping_add(1);
        RESUMED.set(number);
        permit.entered_all(chain.method(self.method).limiters.iter().any(|limiter| limiter.times(number)));
        true
    }

    /// Stores the batch for the next call.
    #[inline]
    pub(super) fn keep(self: Box<Self>) {
        CURRENT.set(Some(self));
    }

    fn is_of(&self, chain: &Arc<Chain>, method: u16) -> bool {
        self.method == method && self.chain.as_ref().is_some_and(|batch| Arc::ptr_eq(batch, chain))
    }

    /// Releases permits and tokens, and keeps the memory for reuse.
    pub(super) fn release_all(mut self: Box<Self>) {
        self.release();
        SPARE.set(Some(self));
    }

    fn release(&mut self) {
        let Some(chain) = self.chain.take() else { return };
        let method = chain.method(self.method);
        for limiter in &method.limiters {
            limiter.count(self.calls, self.has_permits);
        }
        for (rate, ahead) in method.rates.iter().zip(&mut self.tokens) {
            rate.return_tokens(std::mem::take(ahead));
        }
        if self.has_permits
            && let Some(queue) = &chain.queue
        {
            queue.released(None);
        }
    }
}

impl Drop for PermitBatch {
    /// A panic in a guard drops the batch that its call had taken.
    fn drop(&mut self) {
        self.release();
    }
}

/// Stores the permits of a call that has ended, which are all that its method needs; returns false if the
/// caller must release them.
#[inline]
pub(super) fn keep_permits(chain: &Arc<Chain>, method: u16) -> bool {
    if !IS_ON.get() {
        return false;
    }
    let mut batch = PermitBatch::of(chain, method).unwrap_or_else(|| {
        let mut batch = SPARE.take().unwrap_or_default();
        // The batch was released, so overwriting its fields loses nothing.
        (batch.chain, batch.method) = (Some(chain.clone()), method);
        (batch.has_permits, batch.calls, batch.tokens) = (false, 0, Default::default());
        batch
    });
    let has_them_now = !std::mem::replace(&mut batch.has_permits, true);
    batch.keep();
    has_them_now
}
