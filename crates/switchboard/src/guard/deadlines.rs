//! The longest that calls may take, whatever their callers allow.

use super::pattern;
use crate::Error;
use std::time::{Duration, Instant};
use switchboard_wire::{MethodId, MethodTable};

/// Caps of deadlines by method; empty without any.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    most: Vec<Option<Duration>>,
}

impl Deadlines {
    /// # Errors
    /// Names of methods that are not there.
    pub(super) fn new(
        general: Option<Duration>,
        methods: &[(String, Duration)],
        table: &MethodTable,
    ) -> Result<Deadlines, Error> {
        if general.is_none() && methods.is_empty() {
            return Ok(Deadlines::default());
        }
        let mut most = vec![general; table.slots()];
        for (pattern, span) in methods {
            for id in pattern::find(table, pattern, "method_deadline_max")? {
                most[usize::from(id.0)] = Some(*span);
            }
        }
        Ok(Deadlines { most })
    }

    /// The deadline of a call that began at `began`, and whose caller set this one.
    #[inline]
    pub(crate) fn cap(&self, method: MethodId, began: Instant, deadline: Option<Instant>) -> Option<Instant> {
        // Learned methods share the last.
        match self.most.get(usize::from(method.0)).or(self.most.last()) {
            None | Some(None) => deadline,
            Some(Some(most)) => {
                let latest = began.checked_add(*most);
                [deadline, latest].into_iter().flatten().min()
            }
        }
    }
}
