//! Upper bounds of call deadlines, independent of the callers' deadlines.

use std::time::{Duration, Instant};
use switchboard_core::{Error, Flag, pattern};
use switchboard_wire::{MethodId, MethodTable};

/// Maximum deadlines by method; empty if none are configured.
#[derive(Debug, Default)]
pub struct Deadlines {
    most: Vec<Option<Duration>>,
    /// Flag with the maximum in milliseconds, for methods without their own; 0 is no maximum.
    flag: Option<Flag>,
}

impl Deadlines {
    /// # Errors
    /// Fails on names of methods that do not exist.
    pub(super) fn new(
        general: Option<Duration>,
        flag: Option<Flag>,
        methods: &[(String, Duration)],
        table: &MethodTable,
    ) -> Result<Deadlines, Error> {
        if general.is_none() && methods.is_empty() {
            return Ok(Deadlines { most: Vec::new(), flag });
        }
        let mut most = vec![general; table.slots()];
        for (pattern, span) in methods {
            for id in pattern::find(table, pattern, "method_deadline_max")? {
                most[usize::from(id.0)] = Some(*span);
            }
        }
        Ok(Deadlines { most, flag })
    }

    /// Returns the deadline of a call that started at `began`, limited to the maximum; `deadline` is the
    /// caller's.
    #[inline]
    #[doc(hidden)]
    pub fn cap(&self, method: MethodId, began: Instant, deadline: Option<Instant>) -> Option<Instant> {
        // Undeclared methods share the last entry.
        let most = match self.most.get(usize::from(method.0)).or(self.most.last()) {
            Some(Some(most)) => *most,
            None | Some(None) => match self.flag.as_ref().map_or(0, Flag::value) {
                0 => return deadline,
                milliseconds => Duration::from_millis(milliseconds),
            },
        };
        [deadline, began.checked_add(most)].into_iter().flatten().min()
    }
}
