//! The longest that calls may take, whatever their callers allow.

use super::pattern;
use crate::{Error, Flag};
use std::time::{Duration, Instant};
use switchboard_wire::{MethodId, MethodTable};

/// Caps of deadlines by method; empty without any.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    most: Vec<Option<Duration>>,
    /// What says it, in milliseconds, for methods of which nothing else is known; 0 is no cap.
    flag: Option<Flag>,
}

impl Deadlines {
    /// # Errors
    /// Names of methods that are not there.
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

    /// The deadline of a call that began at `began`, and whose caller set this one.
    #[inline]
    pub(crate) fn cap(&self, method: MethodId, began: Instant, deadline: Option<Instant>) -> Option<Instant> {
        // Learned methods share the last.
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
