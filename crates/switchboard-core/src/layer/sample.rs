//! Selection of the calls that a layer handles: those of some methods, and of these a share.

use crate::{Call, pattern::matches};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Selects calls by method and share. Clones share the counter.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Patterns of method names; empty means all.
    pub methods: Vec<String>,
    pub(crate) share: f64,
    /// Number of calls that matched the patterns.
    seen: Arc<AtomicU64>,
}

impl Default for Sample {
    /// Selects every call.
    fn default() -> Sample {
        Sample { methods: Vec::new(), share: 1.0, seen: Arc::default() }
    }
}

impl Sample {
    /// Sets the share of the calls that are selected, from 0 to 1.
    pub fn set_share(&mut self, share: f64) {
        self.share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
    }

    /// Returns the full name of the call's method, if the call is selected.
    pub fn takes(&self, call: &Call) -> Option<String> {
        if self.methods.is_empty() {
            // Most calls of a small share need no name.
            return self.is_due().then(|| call.full_name());
        }
        let path = call.full_name();
        (self.methods.iter().any(|pattern| matches(pattern, &path)) && self.is_due()).then_some(path)
    }

    /// Counts a matching call; returns true when it belongs to the share.
    fn is_due(&self) -> bool {
        let before = self.seen.fetch_add(1, Ordering::Relaxed) as f64;
        ((before + 1.0) * self.share).floor() > (before * self.share).floor()
    }
}
