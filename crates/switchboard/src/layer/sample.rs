//! Which calls a layer takes: those of some methods, and of these a share.

use crate::{Call, guard::matches};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Clones count together.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Patterns of names; all when there are none.
    pub(super) methods: Vec<String>,
    pub(super) share: f64,
    /// Calls that could have been taken.
    seen: Arc<AtomicU64>,
}

impl Default for Sample {
    /// Every call.
    fn default() -> Sample {
        Sample { methods: Vec::new(), share: 1.0, seen: Arc::default() }
    }
}

impl Sample {
    pub(super) fn set_share(&mut self, share: f64) {
        self.share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
    }

    /// The full name of the call's method, if the call is to be taken.
    pub(super) fn takes(&self, call: &Call) -> Option<String> {
        if self.methods.is_empty() {
            // Most calls of a small share need no name.
            return self.is_due().then(|| call.full_name());
        }
        let path = call.full_name();
        (self.methods.iter().any(|pattern| matches(pattern, &path)) && self.is_due()).then_some(path)
    }

    /// Whether this one is the next of the share.
    fn is_due(&self) -> bool {
        let before = self.seen.fetch_add(1, Ordering::Relaxed) as f64;
        ((before + 1.0) * self.share).floor() > (before * self.share).floor()
    }
}
