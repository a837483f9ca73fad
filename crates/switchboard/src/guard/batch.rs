//! What a worker keeps from one call to the next of a batch, the calls that one read brought: the places in limits,
//! and tokens of rates that it took ahead. Cores that fetch and return these for each call wait for each other.
//!
//! What a call had that was ready at once is for the next one of the same method. The rest is given back when the batch
//! ends, before a reply is written: nobody who has a reply sees more calls running than run.

use super::{Chain, rate::Ahead};
use crate::{Call, Result};
use std::{cell::Cell, sync::Arc};

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static KEPT: Cell<Option<Box<Kept>>> = const { Cell::new(None) };
    /// Memory for what is kept next.
    static SPARE: Cell<Option<Box<Kept>>> = const { Cell::new(None) };
    /// Calls that had the places of another.
    static RESUMED: Cell<u32> = const { Cell::new(0) };
}

/// Calls that follow each other on this thread, for as long as it lives.
pub(crate) struct Batch(());

impl Batch {
    #[inline]
    pub(crate) fn begin() -> Batch {
        IS_ON.set(true);
        Batch(())
    }
}

impl Drop for Batch {
    #[inline]
    fn drop(&mut self) {
        IS_ON.set(false);
        if let Some(kept) = KEPT.take() {
            kept.give_back();
        }
    }
}

/// What calls of one method had that has not been given back.
#[derive(Default)]
pub(super) struct Kept {
    /// None once it has been given back.
    chain: Option<Arc<Chain>>,
    method: u16,
    /// It has all places that a call of the method needs; else they are with a call that runs.
    has_places: bool,
    /// Calls that had them after the one that took them.
    calls: u32,
    /// Of the first rates of the method.
    tokens: [Ahead; RATES],
}

/// Rates of a method of which tokens are taken ahead.
const RATES: usize = 2;

impl Kept {
    /// What is kept for this method.
    #[inline]
    pub(super) fn of(chain: &Arc<Chain>, method: u16) -> Option<Box<Kept>> {
        let kept = KEPT.take()?;
        if kept.is_of(chain, method) {
            return Some(kept);
        }
        kept.give_back();
        None
    }

    /// Takes tokens for a call of every rate of its method.
    #[inline]
    pub(super) fn take_tokens(&mut self, chain: &Chain, call: &Call) -> Result<()> {
        let rates = &chain.method(self.method).rates;
        let ahead = self.tokens.iter_mut().map(Some).chain(std::iter::repeat_with(|| None));
        rates.iter().zip(ahead).try_for_each(|(rate, ahead)| rate.take(call, ahead))
    }

    /// Lends the places to a call, if they are here; says whether it is to be timed.
    #[inline]
    pub(super) fn lend_places(&mut self, chain: &Chain) -> Option<bool> {
        if !std::mem::take(&mut self.has_places) {
            return None;
        }
        self.calls += 1;
        let number = RESUMED.get().wrapping_add(1);
        RESUMED.set(number);
        Some(chain.method(self.method).limiters.iter().any(|limiter| limiter.times(number)))
    }

    /// Goes on to be kept.
    #[inline]
    pub(super) fn keep(self: Box<Self>) {
        KEPT.set(Some(self));
    }

    fn is_of(&self, chain: &Arc<Chain>, method: u16) -> bool {
        self.method == method && self.chain.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, chain))
    }

    /// Gives all back.
    pub(super) fn give_back(mut self: Box<Self>) {
        let Some(chain) = self.chain.take() else { return };
        let method = chain.method(self.method);
        for limiter in &method.limiters {
            limiter.count(self.calls, self.has_places);
        }
        for (rate, ahead) in method.rates.iter().zip(&mut self.tokens) {
            rate.give_back(std::mem::take(ahead));
        }
        if self.has_places
            && let Some(queue) = &chain.queue
        {
            queue.released(None);
        }
        SPARE.set(Some(self));
    }
}

/// Keeps the places of a call that has ended, all that its method needs; false if somebody else has to take them back.
#[inline]
pub(super) fn keep_places(chain: &Arc<Chain>, method: u16) -> bool {
    if !IS_ON.get() {
        return false;
    }
    let mut kept = Kept::of(chain, method).unwrap_or_else(|| {
        let mut kept = SPARE.take().unwrap_or_default();
        *kept = Kept { chain: Some(chain.clone()), method, ..Kept::default() };
        kept
    });
    let has_them_now = !std::mem::replace(&mut kept.has_places, true);
    kept.keep();
    has_them_now
}
