//! A value that a reload replaces as a whole, while running calls continue with the old one.

use std::sync::{Arc, PoisonError, RwLock};

/// The value for calls that begin now. Reading takes a read lock while it increments a reference count.
#[derive(Debug)]
pub(super) struct Current<T>(RwLock<Arc<T>>);

impl<T> Current<T> {
    pub(super) fn new(value: T) -> Current<T> {
        Current(RwLock::new(Arc::new(value)))
    }

    pub(super) fn get(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value and returns the old one, so that the caller can drop it without the lock.
    pub(super) fn replace(&self, value: T) -> Arc<T> {
        std::mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), Arc::new(value))
    }
}
