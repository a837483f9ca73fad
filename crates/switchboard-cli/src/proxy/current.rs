//! What a reload replaces as a whole, under calls that go on with what they began with.

use std::sync::{Arc, PoisonError, RwLock};

/// The value that holds for calls which begin now. Reading takes a read lock for the length of a count.
#[derive(Debug)]
pub(super) struct Current<T>(RwLock<Arc<T>>);

impl<T> Current<T> {
    pub(super) fn new(value: T) -> Current<T> {
        Current(RwLock::new(Arc::new(value)))
    }

    pub(super) fn get(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another in its place, which is given back: its end should hold nobody up.
    pub(super) fn replace(&self, value: T) -> Arc<T> {
        std::mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), Arc::new(value))
    }
}
