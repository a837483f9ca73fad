//! Operations of entries, and the filter of a device.

use std::sync::Arc;
use switchboard_message::Entry;
use switchboard_wire::Metadata;

/// Header of an entry with its operation, a number in decimal.
pub const OPERATION: &str = "push-op";

/// Operations whose entries a device receives, in rooms as well: the filter that goim calls `accepts`. Entries without
/// an operation pass every filter. Cheap to clone; equal filters may share encoded bytes.
///
/// ```
/// use switchboard_push::Accepts;
///
/// let accepts = Accepts::only([1000, 1001]);
/// assert!(accepts.admits(Some(1000)) && accepts.admits(None) && !accepts.admits(Some(7)));
/// ```
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Accepts(Option<Arc<[i32]>>);

impl Accepts {
    /// Accepts every operation; the default.
    pub fn all() -> Accepts {
        Accepts(None)
    }

    /// Accepts these operations.
    pub fn only(operations: impl IntoIterator<Item = i32>) -> Accepts {
        let mut operations: Vec<i32> = operations.into_iter().collect();
        operations.sort_unstable();
        operations.dedup();
        Accepts(Some(operations.into()))
    }

    /// Adds operations; a filter that accepts all stays as it is.
    #[must_use]
    pub fn with(&self, operations: impl IntoIterator<Item = i32>) -> Accepts {
        match &self.0 {
            Some(known) => Accepts::only(known.iter().copied().chain(operations)),
            None => Accepts(None),
        }
    }

    /// Removes operations; a filter that accepts all stays as it is.
    #[must_use]
    pub fn without(&self, operations: &[i32]) -> Accepts {
        match &self.0 {
            Some(known) => Accepts::only(known.iter().copied().filter(|known| !operations.contains(known))),
            None => Accepts(None),
        }
    }

    /// Returns whether an entry with this operation passes.
    pub fn admits(&self, operation: Option<i32>) -> bool {
        match (&self.0, operation) {
            (Some(known), Some(operation)) => known.binary_search(&operation).is_ok(),
            _ => true,
        }
    }

    /// Returns the number of operations; `None` if all are accepted.
    pub fn operations(&self) -> Option<usize> {
        self.0.as_ref().map(|known| known.len())
    }
}

/// Returns the operation of an entry. A header that is no number counts as none.
pub fn operation_of(entry: &Entry) -> Option<i32> {
    of_headers(entry.headers())
}

pub(crate) fn of_headers(headers: &Metadata) -> Option<i32> {
    headers.text(OPERATION)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_changed_and_compared() {
        let accepts = Accepts::only([3, 1, 3]);
        assert_eq!(accepts, Accepts::only([1, 3]));
        assert_eq!(accepts.with([2]), Accepts::only([1, 2, 3]));
        assert_eq!(accepts.without(&[1, 9]), Accepts::only([3]));
        assert_eq!((accepts.operations(), Accepts::all().operations()), (Some(2), None));
        assert!(Accepts::all().with([1]).admits(Some(2)) && !Accepts::only([]).admits(Some(2)));
    }
}
